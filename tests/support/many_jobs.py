"""Hundreds of running jobs of several kinds on a control plane, and what happens to their children meanwhile."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from tests.support.running_jobs import PODS_OF_A_JOB, Kind

SETTLED_SECONDS = 600.0
CHILDREN = (
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/apis/batch/v1/namespaces/default/jobs",
)


class ManyJobs:
    """The same number of jobs of each kind."""

    def __init__(self, plane: ControlPlane, kinds: Sequence[Kind]) -> None:
        self._plane = plane
        self._kinds = kinds

    def start(self, count: int, suffix: str, **spec: Any) -> None:
        """Create jobs, ``count`` in all; return when each of them runs with all of its pods."""
        made = [
            (kind, kind.job(f"{kind.kind.lower()}-{kind.version}-{suffix}-{number}", **spec))
            for number in range(count // len(self._kinds) + 1)
            for kind in self._kinds
        ][:count]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self._plane.request("POST", item[0].collection, item[1]), made))
        names = {body["metadata"]["name"] for _, body in made}
        self._plane.wait(f"{count} jobs to run", lambda: self._running() >= names, seconds=SETTLED_SECONDS)

    def children(self) -> dict[str, tuple[str, str]]:
        """Return UID and resourceVersion of each child of a job, by its path."""
        found: dict[str, tuple[str, str]] = {}
        for path in CHILDREN:
            for item in self._plane.request("GET", path)["items"]:
                metadata = item["metadata"]
                if any(ref.get("controller") for ref in metadata.get("ownerReferences") or ()):
                    found[f"{path}/{metadata['name']}"] = metadata["uid"], metadata["resourceVersion"]
        return found

    def changes(
        self, before: Mapping[str, tuple[str, str]], after: Mapping[str, tuple[str, str]], name: str
    ) -> list[str]:
        """Return the children with that text in their names that were replaced, or that exist on one side only.

        Pods and launchers must not even be written; Services and ConfigMaps of MPIJobs get a label.
        """
        return sorted(
            path
            for path in before.keys() | after.keys()
            if name in path and _relevant(path, before.get(path)) != _relevant(path, after.get(path))
        )

    def _running(self) -> set[str]:
        pods = Counter[str]()
        for pod in self._plane.request("GET", CHILDREN[0])["items"]:
            labels = pod["metadata"].get("labels") or {}
            if pod.get("status", {}).get("phase") == "Running":
                pods[labels.get("training.kubeflow.org/job-name", "")] += 1
        running: set[str] = set()
        for kind in {kind.collection: kind for kind in self._kinds}.values():
            for job in self._plane.request("GET", kind.collection)["items"]:
                conditions = (job.get("status") or {}).get("conditions") or ()
                is_running = any(own["type"] == "Running" and own["status"] == "True" for own in conditions)
                if is_running and pods[job["metadata"]["name"]] == PODS_OF_A_JOB:
                    running.add(job["metadata"]["name"])
        return running


def _relevant(path: str, version: tuple[str, str] | None) -> tuple[str, ...] | None:
    may_be_written = "/services/" in path or "/configmaps/" in path
    return version[:1] if version and may_be_written else version
