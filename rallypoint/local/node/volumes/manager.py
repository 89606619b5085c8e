"""Sets up, updates and removes the volumes of pods, and resolves the mounts of containers.

Projected volumes follow the ConfigMaps, the Secrets and the metadata of the pod. One metadata watch of ConfigMaps and
one of Secrets report changes; the manager then reads the objects that pods mount. A kubelet does the same, mostly
within a minute.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeMounts; pkg/kubelet/container/helpers.go, ExpandContainerVolumeMounts.
"""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from api.meta import Resource
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.runtime.informer import Informer
from controller.runtime.queue import Queue
from controller.runtime.workers import ReconcileResult, Workers
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.containers.environment import Variable, expand
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods import termination_message
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.volumes import projected, service_account, setup
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.projected import ProjectionSources
from rallypoint.local.node.volumes.references import Contents, Reference, Unresolved
from rallypoint.local.node.volumes.service_account import ApiServerAccess
from rallypoint.local.node.volumes.setup import Mount, Volume, Volumes, remove_tree
from rallypoint.local.storage.storage import Storage

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
RESOURCES = {"configMap": CONFIG_MAPS, "secret": SECRETS}
RETRY_SECONDS = 0.5
"""The delay before a retry for a pod whose volumes are being set up."""
SUBPATH_COPIES = ".subpaths"
"""A folder beside a pod's volumes: copies of subpaths of projected volumes, taken when a container starts."""

Fetch: TypeAlias = Callable[[Manifest, Iterable[Reference]], Awaitable[Contents]]
"""Fetches the data of objects in a pod's namespace."""


class VolumeManager:
    def __init__(
        self,
        client: Client,
        *,
        isolation: Isolation,
        storage: Storage,
        access: ApiServerAccess,
        fetch: Fetch,
        placement: Callable[[Manifest], Placement],
        record_failure: Callable[[Manifest, str], None],
    ) -> None:
        """``record_failure`` records why an update failed."""
        self._client = client
        self._isolation = isolation
        self._storage = storage
        self._access = access
        self._fetch = fetch
        self._placement = placement
        self._record_failure = record_failure
        self._volumes_by_pod: dict[str, dict[str, Volume]] = {}
        self._queue: Queue[str] = Queue(group=lambda uid: "")
        """The UIDs of the pods whose projected volumes may be outdated."""
        self._followed: dict[str, Manifest] = {}
        """The pods with projected volumes, by UID."""
        self._pods_by_reference: dict[tuple[str, Reference], set[str]] = defaultdict(set)
        """(namespace, object) → the UIDs of the pods that mount it."""
        self._removals: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Update projected volumes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind, resource in RESOURCES.items():
                handler = partial(self._object_changed, kind)
                tasks.create_task(Informer(self._client, resource, decode, handler, accept=_metadata).run())
            tasks.create_task(Workers(self._queue, self._update, count=1, name="volumes").run())

    def handle_pod(self, pod: Manifest) -> None:
        """Update the volumes of a pod whose labels or annotations have changed."""
        uid = pod["metadata"]["uid"]
        before = self._followed.get(uid)
        if before is not None and _downward_fields(before) != _downward_fields(pod):
            self._followed[uid] = {**before, "metadata": pod["metadata"]}
            self._queue.add(uid)

    def folder(self, pod: Manifest) -> Path:
        return self._isolation.folder / str(pod["metadata"]["uid"])

    async def prepare(self, pod: Manifest) -> None:
        """Set up a pod's volumes and its sandbox.

        Raises:
            Unresolved: a required object does not exist, or a volume or the sandbox cannot be created.
        """
        admitted = self._with_service_account(pod)
        self._follow(admitted)  # Before the objects are read, so that no change is missed.
        claims, sources = self._storage.volumes(pod), await self._projection_sources(admitted)
        volumes = setup.make(admitted, self.folder(pod), sources, claims)
        try:
            await self._isolation.prepare(pod, {name: volume.path for name, volume in volumes.items()})
        except CannotStart as error:
            raise Unresolved(f"Failed to create pod sandbox: {error}") from error
        self._volumes_by_pod[pod["metadata"]["uid"]] = volumes

    def mounts(self, pod: Manifest, container: Manifest, found: Mapping[str, Variable]) -> list[Mount]:
        """Return the mounts of a container with these variables.

        Raises:
            Unresolved: a subpath cannot be prepared.
        """
        own, volumes = self.folder(pod), self._volumes_by_pod[pod["metadata"]["uid"]]
        values = {name: variable.value for name, variable in found.items()}
        if self._access.is_given(pod):
            container = service_account.with_mount(container)
        mounts = container_mounts(container, volumes, values, own / SUBPATH_COPIES / container["name"])
        return [*mounts, termination_message.mount(container, own)]

    def discard(self, pod: Manifest) -> None:
        """Remove the volumes of a pod that no longer runs."""
        uid = pod["metadata"]["uid"]
        if (followed := self._followed.pop(uid, None)) is not None:
            for key in _references(followed):
                self._pods_by_reference[key].discard(uid)
                if not self._pods_by_reference[key]:
                    del self._pods_by_reference[key]
        self._volumes_by_pod.pop(uid, None)
        # Removal may be slow, so it runs in the background. The node removes what is left with its folder of volumes.
        removal = asyncio.get_running_loop().run_in_executor(None, remove_tree, self.folder(pod))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def _follow(self, pod: Manifest) -> None:
        """Update the pod's projected volumes from now on."""
        if any(projected.is_projected(volume) for volume in pod["spec"].get("volumes") or ()):
            self._followed[pod["metadata"]["uid"]] = pod
            for key in _references(pod):
                self._pods_by_reference[key].add(pod["metadata"]["uid"])

    def _object_changed(self, kind: str, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is not None:
            for uid in self._pods_by_reference.get((row.namespace, Reference(kind, row.name)), ()):
                self._queue.add(uid)

    async def _update(self, uid: str) -> ReconcileResult:
        pod = self._followed.get(uid)
        if pod is None:
            return ReconcileResult()
        if uid not in self._volumes_by_pod:
            return ReconcileResult(RETRY_SECONDS)
        sources = await self._projection_sources(pod)
        if uid in self._volumes_by_pod:  # Otherwise the pod ended meanwhile; do not recreate its folder.
            try:
                setup.refresh(pod, self.folder(pod), sources)
            except Unresolved as error:
                self._record_failure(pod, str(error))  # The volume keeps its files.
        return ReconcileResult()

    def _with_service_account(self, pod: Manifest) -> Manifest:
        return service_account.with_volume(pod) if self._access.is_given(pod) else pod

    async def _projection_sources(self, pod: Manifest) -> ProjectionSources:
        """``pod`` includes the service account volume."""
        return ProjectionSources(
            pod=pod,
            placement=self._placement(pod),
            contents=await self._fetch(pod, setup.references(pod)),
            token=partial(self._access.token, pod),
            rewrite=lambda text: self._isolation.rewrite(pod, text),
        )


def container_mounts(
    container: Mapping[str, Any], volumes: Volumes, values: Mapping[str, str], copies: Path
) -> list[Mount]:
    """Return the mounts of a container's volumes.

    ``values`` are the container's variables, which ``subPathExpr`` names; ``copies`` is a folder for copies. A subpath
    of a projected volume is copied, because it does not follow later updates.

    Raises:
        Unresolved: a subpath cannot be prepared.
    """
    shutil.rmtree(copies, ignore_errors=True)
    found: list[Mount] = []
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        volume = volumes[mount["name"]]
        subpath = _subpath(container, mount, values)
        source, within = volume.path / subpath, volume.path
        if subpath and not volume.in_memory:
            _make_subpath(container, mount, volume.path, source)
        if subpath and volume.is_projected:
            source = within = _copied(source, copies / str(number))
        read_only = bool(mount.get("readOnly")) or volume.read_only
        found.append(Mount(mount["name"], mount["mountPath"], source, read_only, within))
    return found


def _subpath(container: Mapping[str, Any], mount: Mapping[str, Any], values: Mapping[str, str]) -> str:
    path = str(mount.get("subPath") or "")
    if written := mount.get("subPathExpr"):
        try:
            path = expand(written, values, strict=True)
        except KeyError as error:
            reason = f'missing value for "{error.args[0]}"'
            raise Unresolved(f"failed to expand subPath for {_about(container, mount)}: {reason}") from error
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise Unresolved(f"subPath {path} of {_about(container, mount)} leaves its volume")
    return path


def _make_subpath(container: Mapping[str, Any], mount: Mapping[str, Any], volume: Path, source: Path) -> None:
    """Create the folder if it is missing; refuse a path outside of the volume."""
    try:
        if source.resolve().is_relative_to(volume.resolve()):
            if not source.exists():
                source.mkdir(parents=True)
            return
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links.
        pass
    raise Unresolved(f"failed to prepare subPath for {_about(container, mount)}")


def _copied(source: Path, copy: Path) -> Path:
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy2(source, copy)
    return copy


def _about(container: Mapping[str, Any], mount: Mapping[str, Any]) -> str:
    return f'volumeMount "{mount["name"]}" of container "{container["name"]}"'


def _references(pod: Manifest) -> set[tuple[str, Reference]]:
    return {(pod["metadata"]["namespace"], reference) for reference in setup.references(pod)}


def _downward_fields(pod: Manifest) -> tuple[object, object]:
    """Return the mutable fields of a pod that the downward API exposes."""
    return pod["metadata"].get("labels"), pod["metadata"].get("annotations")


def _metadata(whole_list: bool) -> str:
    return METADATA_ONLY_LIST if whole_list else METADATA_ONLY
