"""What the metrics of a job depend on beside its present state: the phases that it has reached, and its lost and restarted pods.

Nothing here reads a clock or calls a server. A restart of this process loses the history: what happens until the next reconcile is not counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from api.children import Exit, Pod, end_order

_DISRUPTIONS: Final = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
}
"""By the reason of the condition DisruptionTarget. Source: Kubernetes, pod disruption conditions."""
_POD_REASONS: Final = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "Terminated": "node_lost",
    "Shutdown": "node_lost",
    "NodeShutdown": "node_lost",
    "NodeLost": "node_lost",
}
"""By the pod's own reason. Source: Kubernetes, pkg/kubelet/eviction, preemption and nodeshutdown."""
_OOM_KILLED: Final = "OOMKilled"


@dataclass(slots=True)
class JobHistory:
    """One job. Phases and reasons are those of ``telemetry.metrics.jobs``."""

    reached: tuple[str, ...] = ()
    """Phases that are counted, or that were reached before this process reconciled the job."""
    since: datetime | None = None
    """From when on the phases count; None before the first one."""
    known_since: datetime | None = None
    """When this process first reconciled the job, if another one had before."""
    is_complete: bool = False
    """Whether all pods have run since the job was created or last resumed, so that a missing one is a lost one."""
    last_basis: int = 0
    """A hash of what the last report was computed from. A reconcile that finds the same reports nothing."""
    _restarts: dict[str, int] = field(default_factory=dict[str, int])
    """By the pod's UID: counted restarts of its containers."""
    _lost: dict[str, Pod] = field(default_factory=dict[str, Pod])
    """By name: pods that failed, or that somebody else deleted, and that are not replaced yet."""
    _replaced: frozenset[str] = frozenset()
    """UIDs of failed pods of batch Jobs that were replaced and are counted; those pods stay."""

    _last_failed: Pod | None = None
    """The failed pod of a batch Job that nothing has replaced. It is gone when the job restarts as a whole."""

    def record_lost_pod(self, pod: Pod) -> None:
        """Record that a pod is gone."""
        if pod.phase != "Succeeded":
            self._lost.setdefault(pod.name, pod)

    def count_restarts(
        self,
        pods: Sequence[Pod],
        batch_pods: Sequence[Pod],
        sizes: Mapping[str, int],
    ) -> list[tuple[str, int]]:
        """Record the pods, and return reasons of restarts since the last call, with their number.

        ``sizes`` are the replicas by role; empty if pods are not replaced.
        """
        found = list(self._restarted_in_place((*pods, *batch_pods)))
        if not sizes:
            self._lost.clear()
            self._last_failed = None
            return found
        found += ((restart_reason(pod), 1) for pod in self._replaced_pods(pods, sizes))
        found += ((restart_reason(pod), 1) for pod in self._replaced_batch_pods(batch_pods))
        return found

    def _restarted_in_place(self, pods: Sequence[Pod]) -> Iterator[tuple[str, int]]:
        before = self._restarts
        after = {pod.uid: pod.restarts for pod in pods if pod.restarts}
        if after == before:
            return
        self._restarts = after
        for pod in pods:
            restarts = pod.restarts - before.get(pod.uid, 0)
            if restarts > 0:
                yield _in_place_reason(pod), restarts

    def _replaced_pods(self, pods: Sequence[Pod], sizes: Mapping[str, int]) -> Iterator[Pod]:
        if self._lost:
            present = {pod.name: pod for pod in pods}
            for name, lost in list(self._lost.items()):
                if lost.index >= sizes.get(lost.role, 0):
                    del self._lost[name]  # the job was scaled down
                elif name in present and present[name].uid != lost.uid:
                    del self._lost[name]
                    yield lost
        for pod in pods:
            if _is_lost(pod) and pod.index < sizes.get(pod.role, 0):
                self._lost.setdefault(pod.name, pod)

    def _replaced_batch_pods(self, pods: Sequence[Pod]) -> Iterator[Pod]:
        """Yield the failed pods that are not the last one. Their Job replaces them under another name, or another Job does."""
        failed = {pod.uid: pod for pod in pods if pod.phase == "Failed" and pod.uid not in self._replaced}
        if self._last_failed:
            failed.setdefault(self._last_failed.uid, self._last_failed)
        self._last_failed = None
        if all(pod.phase == "Failed" for pod in pods) and failed:
            self._last_failed = max(failed.values(), key=lambda pod: pod.resource_version)
            del failed[self._last_failed.uid]
        if failed:
            self._replaced = self._replaced.union(failed)
        yield from failed.values()


def restart_reason(pod: Pod) -> str:
    """Return why a pod was replaced."""
    if reason := _DISRUPTIONS.get(pod.disruption) or _POD_REASONS.get(pod.reason):
        return reason
    failed = [done for done in pod.exits if done.code]
    if pod.phase == "Failed" and failed:
        return _exit_reason(failed)
    return "evicted" if pod.disruption else "other"


def failure_reason(pods: Iterable[Pod]) -> str:
    """Return why the pod that failed or was deleted last did so, else why containers restarted last; ``other`` if there is no such pod."""
    present = list(pods)
    if lost := [pod for pod in present if _is_lost(pod)]:
        return restart_reason(max(lost, key=lambda pod: pod.resource_version))
    failed = [
        (max(map(end_order, exits)), _exit_reason(exits)) for pod in present if (exits := _previous(pod))
    ]
    return max(failed)[1] if failed else "other"


def _is_lost(pod: Pod) -> bool:
    """Return whether a pod has failed, or somebody deletes it before its end."""
    return pod.phase == "Failed" or (pod.deleting and not pod.is_finished)


def _in_place_reason(pod: Pod) -> str:
    """Return why a container was restarted; after a success it is ``other``."""
    previous = _previous(pod)
    return _exit_reason(previous) if previous else "other"


def _previous(pod: Pod) -> Sequence[Exit]:
    """Return how containers failed that have been restarted since."""
    return (
        (pod.previous_failure,)
        if pod.previous_failure
        else [done for done in pod.exits if done.init and done.code]
    )


def _exit_reason(failed: Iterable[Exit]) -> str:
    return "oom" if any(done.reason == _OOM_KILLED for done in failed) else "error"
