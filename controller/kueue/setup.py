"""Connects the integration with the watches and work queues of the operator."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

from api import workloads
from api.children import Pod
from api.workloads import Workload
from controller.domain import Key
from controller.kind import JobKind, ReplicaKind
from controller.kube.client import Client
from controller.kueue import pod_sets
from controller.kueue.controller import Admissions, KueueController
from controller.kueue.pod_sets import is_queueable
from controller.reconcile import triggers
from controller.reconcile.jobs import JobRow
from controller.runtime.informer import Informer
from controller.runtime.queue import Priority, Queue
from controller.runtime.recorder import Recorder
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult


class Queueing:
    """The Workloads of all served kinds whose jobs can be queued."""

    def __init__(
        self, client: Client, namespace: str, job_queues: triggers.Queues, served: Iterable[JobKind[Any]]
    ) -> None:
        """``job_queues`` are the queues of the jobs themselves."""
        kinds = [kind.resource.kind for kind in served if is_queueable(kind)]
        self._job_queues = job_queues
        self.queues = {kind: Queue[Key](group=lambda key: key.namespace) for kind in kinds}
        self.cache = Informer[Workload](
            client,
            workloads.WORKLOADS,
            partial(workloads.workload_from_json, frozenset(kinds)),
            self._on_workload,
            namespace=namespace,
            index=workloads.owner_of,
        )

    def is_held_of(self, kind: JobKind[Any]) -> Callable[[JobRow], bool]:
        """Return what decides whether a job of the kind is held."""
        if not is_queueable(kind):
            return lambda row: False
        return Admissions(kind, self.cache).is_held

    def followed(
        self, kind: JobKind[Any], reconcile: Callable[[Key], Awaitable[ReconcileResult]]
    ) -> Callable[[Key], Awaitable[ReconcileResult]]:
        """Return what reconciles a job and then requests a reconcile of its Workload.

        No watch reports the status that it has written, nor a version of the job that it has read from the server.
        """
        name = kind.resource.kind
        if name not in self.queues:
            return reconcile

        async def reconcile_both(key: Key) -> ReconcileResult:
            try:
                return await reconcile(key)
            finally:
                self.queues[name].add(key)

        return reconcile_both

    def reconciler(
        self,
        kind: ReplicaKind[Any],
        client: Client,
        jobs: Store[JobRow],
        pods: Store[Pod],
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> Callable[[Key], Awaitable[ReconcileResult]]:
        """Return what reconciles the Workload of one job."""
        job_queue = self._job_queues[kind.resource.kind]
        controller = KueueController(kind, client, jobs, self.cache, pods, job_queue, recorder, now=now)
        return controller.reconcile

    def take_over(self, kind: str, jobs: Store[JobRow]) -> None:
        """Request a reconcile of each job of the kind that names a queue or has a Workload."""
        keys = [Key(row.namespace, row.name) for row in jobs if pod_sets.queue_of(row)]
        own = (workload for workload in self.cache.store if workload.owner_kind == kind)
        keys += [Key(workload.namespace, workload.owner_name) for workload in own]
        for key in keys:
            self.queues[kind].add(key, priority=Priority.BACKLOG)

    def on_job(self, kind: str, before: JobRow | None, after: JobRow | None) -> None:
        """Handle a new, changed or deleted job."""
        if kind in self.queues:
            triggers.on_job(self.queues[kind], before, after)

    def on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Handle the end of a pod, which a release of quota may wait for."""
        if before is None or before.is_finished or (after is not None and not after.is_finished):
            return
        index = workloads.index_of(before.owner_kind, before.namespace, before.owner_name)
        if before.owner_kind in self.queues and self.cache.store.indexed(index):
            self.queues[before.owner_kind].add(Key(before.namespace, before.owner_name))

    def _on_workload(self, before: Workload | None, after: Workload | None) -> None:
        for row in (before, after):
            if row is not None and row.owner_kind in self.queues:
                key = Key(row.namespace, row.owner_name)
                self.queues[row.owner_kind].add(key)
                if _admits(before) != _admits(after):
                    self._job_queues[row.owner_kind].add(key)


def _admits(workload: Workload | None) -> tuple[str, str] | None:
    """Return which job holds quota, and for which pods."""
    return (workload.owner_uid, workload.pod_sets) if workload and workload.is_admitted else None
