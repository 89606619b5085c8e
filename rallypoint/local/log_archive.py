"""The logs that a local cluster keeps of its pods, also of pods that no longer exist.

The node writes ``NAMESPACE_NAME_UID/CONTAINER/RUN.log`` and, beside the containers, ``pod.json`` with what tells whose pod it was, and
``deleted.json`` with the last status of a pod that has been deleted. The kubeconfig of a local cluster names the folder, so commands of the
same user can read it.
"""

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from api.labels import JOB_NAME
from rallypoint.local.manifest import Manifest, containers

POD_FILE = "pod.json"
"""The name has a dot, which no container's name has."""
DELETED_FILE = "deleted.json"
EXTENSION = "rallypoint"
"""The name of the extension in a context of a kubeconfig."""
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that names the container for ``logs`` and ``exec``."""
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "labels", "ownerReferences")
_METADATA_OF_DELETED = (*_METADATA, "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class ArchivedPod:
    """A pod that had logs, whether it still exists or not, or a pod of a job that was deleted before it had any."""

    manifest: Mapping[str, Any]
    """Its metadata and the names of its containers, in the shape of a pod."""
    folder: Path

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"])

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"]["namespace"])

    @property
    def created(self) -> str:
        """The creation time as text; all have one format."""
        return str(self.manifest["metadata"].get("creationTimestamp") or "")

    @property
    def last_output(self) -> datetime | None:
        """When a container of the pod last wrote something; None if none did."""
        times = [log.stat().st_mtime for log in self.folder.glob("*/*.log")]
        return datetime.fromtimestamp(max(times), UTC) if times else None

    def ended_runs(self, container: str) -> list[tuple[datetime, datetime]]:
        """Return when each run of a container started, or printed first, and when it ended, in whole seconds; without a run that lasts."""
        found = []
        for log in self.runs(container):
            try:
                with log.with_suffix(".times").open("rb") as file:
                    status = os.fstat(file.fileno())
                    file.seek(status.st_size // 2)  # The offsets are in the first half, as long as the times.
                    (start,) = struct.unpack("d", file.read(8))
            except (OSError, struct.error):
                continue
            found.append((_whole_seconds(start), _whole_seconds(status.st_mtime)))
        return found

    @property
    def has_logs(self) -> bool:
        """Whether a container of the pod has started."""
        return any(True for _ in self.folder.glob("*/*.log"))

    def last_state(self) -> tuple[Manifest, datetime] | None:
        """Return the pod with its last status, and when its deletion was seen; None if it exists, or if that was not seen."""
        file = self.folder / DELETED_FILE
        try:
            found: Manifest = orjson.loads(file.read_bytes())
            return found, datetime.fromtimestamp(file.stat().st_mtime, UTC)
        except (OSError, orjson.JSONDecodeError):
            return None

    def runs(self, container: str) -> list[Path]:
        """Return the log files of a container, the first run first; none for a name that is not one of its containers'."""
        if container not in container_names(self):
            return []
        files = (file for file in (self.folder / container).glob("*.log") if file.stem.isdecimal())
        return sorted(files, key=lambda file: int(file.stem))


@dataclass(frozen=True, slots=True)
class LogArchive:
    """The folder of a local cluster's logs."""

    folder: Path
    _read: dict[str, ArchivedPod] = field(default_factory=dict, compare=False, repr=False)
    """What has been read, by the folder's name: the node never changes a ``pod.json``."""

    def pods(self, namespace: str) -> list[ArchivedPod]:
        """Return the pods of a namespace, of all namespaces if it is empty, the oldest first.

        Pods without a readable ``pod.json`` are left out.
        """
        prefix = f"{namespace}_" if namespace else ""
        try:
            folders = [folder.name for folder in self.folder.iterdir() if folder.name.startswith(prefix)]
        except FileNotFoundError:
            folders = []
        found = []
        for name in folders:
            pod = self._read.get(name)
            try:
                if pod is None:
                    folder = self.folder / name
                    pod = self._read[name] = ArchivedPod(
                        orjson.loads((folder / POD_FILE).read_bytes()), folder
                    )
            except (OSError, orjson.JSONDecodeError):
                continue
            found.append(pod)
        for name in set(self._read).difference(folders):
            if name.startswith(prefix):
                self._read.pop(name, None)
        return sorted(found, key=lambda pod: (pod.created, pod.name))

    def pods_of_job(
        self, namespace: str, kind: str, name: str, job: Manifest | None = None
    ) -> list[ArchivedPod]:
        """Return the pods that a job owned, as ``pods_of_job`` does."""
        return pods_of_job(self.pods(namespace), kind, name, job)


def pods_of_job(
    pods: Iterable[ArchivedPod], kind: str, name: str, job: Manifest | None = None
) -> list[ArchivedPod]:
    """Return those of the pods of a namespace that a job owned, directly or through a batch Job.

    Without ``job`` those of the newest one of that name.
    """
    owned = [(pod, _job_uid(pod.manifest, kind, name)) for pod in pods]
    ours = [(pod, uid) for pod, uid in owned if uid is not None]
    if job is not None:
        chosen, since = job["metadata"]["uid"], job["metadata"]["creationTimestamp"]
    else:
        chosen = next((uid for _, uid in reversed(ours) if uid), "")
        since = min((pod.created for pod, uid in ours if uid == chosen), default="")
    # A pod of a batch Job names the training job only by its label; its age tells of which job with the name.
    return [pod for pod, uid in ours if uid == chosen or (not uid and pod.created >= since)]


def folder_of_kubeconfig(config: Any, context: str) -> Path | None:
    """Return the folder of logs that a parsed kubeconfig names; None if it is not that of a local cluster."""
    try:
        name = context or config["current-context"]
        found = next(entry["context"] for entry in config["contexts"] if entry["name"] == name)
        logs = next(entry["extension"]["logs"] for entry in found["extensions"] if entry["name"] == EXTENSION)
    except (KeyError, TypeError, StopIteration):
        return None
    return Path(logs)


def with_extension(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a kubeconfig whose contexts name the folder of logs."""
    extension = {"name": EXTENSION, "extension": {"logs": str(folder)}}
    contexts: Sequence[Mapping[str, Any]] = config["contexts"]
    return {
        **config,
        "contexts": [
            {**entry, "context": {**entry["context"], "extensions": [extension]}} for entry in contexts
        ],
    }


def record(pod: Manifest) -> bytes:
    """Return the content of ``pod.json``."""
    metadata = pod["metadata"]
    spec = {
        part: [{"name": container["name"]} for container in pod["spec"].get(part) or ()]
        for part in ("initContainers", "containers")
    }
    kept = {key: metadata[key] for key in _METADATA if metadata.get(key)}
    if default := (metadata.get("annotations") or {}).get(DEFAULT_CONTAINER):
        kept["annotations"] = {DEFAULT_CONTAINER: default}
    return orjson.dumps({"metadata": kept, "spec": spec})


def record_of_deleted(pod: Manifest) -> bytes:
    """Return the content of ``deleted.json``: of the spec only what tells what the status means."""
    metadata, spec = pod["metadata"], pod["spec"]
    init_containers = [
        {key: container[key] for key in ("name", "restartPolicy") if key in container}
        for container in spec.get("initContainers") or ()
    ]
    return orjson.dumps(
        {
            "metadata": {key: metadata[key] for key in _METADATA_OF_DELETED if metadata.get(key) is not None},
            "spec": {
                **({"nodeName": spec["nodeName"]} if spec.get("nodeName") else {}),
                "initContainers": init_containers,
                "containers": [{"name": container["name"]} for container in spec["containers"]],
            },
            "status": pod.get("status") or {},
        }
    )


def default_container(pod: Manifest) -> str:
    """Return the name of the container that the annotation names; empty if it names none of the pod's containers."""
    chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    names = [container["name"] for container in pod["spec"]["containers"]]
    return str(chosen) if chosen in names else ""


def _whole_seconds(timestamp: float) -> datetime:
    return datetime.fromtimestamp(int(timestamp), UTC)


def container_names(pod: ArchivedPod) -> list[str]:
    """Return the names of the containers, init containers first."""
    return [container["name"] for container in containers(pod.manifest)]


def _job_uid(pod: Manifest, kind: str, name: str) -> str | None:
    """Return the UID of the owning job; empty if only a label names it; None if the pod is not of a job with this kind and name."""
    metadata = pod["metadata"]
    owner: Manifest = next(
        (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), {}
    )
    if (owner.get("kind"), owner.get("name")) == (kind, name):
        return str(owner["uid"])
    is_ours = owner.get("kind") == "Job" and (metadata.get("labels") or {}).get(JOB_NAME) == name
    return "" if is_ours else None
