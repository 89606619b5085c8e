"""Observes a job: its children in the caches.

A child belongs to the job if the job is its controller, by UID, and if its namespace and name are those that the job gives its
children. An owner reference to another namespace is invalid.

Differs: labels are not sufficient; the original adopts Services by their labels alone. See docs/decisions/0001-ownership.md.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import msgspec

from api.batch import BATCH_JOBS, BatchJob
from api.children import Owned, Pod, PodGroup, Service
from api.meta import PODS, SERVICES, Resource
from api.nodes import NodeDomain
from controller.domain import Key, Snapshot
from controller.kind import JobKind, Options
from controller.policy.gang import groups_of
from controller.runtime.store import Store

C = TypeVar("C", bound=Owned)


def owner_uid(row: Owned) -> str:
    """Return the owner's UID, the index of children."""
    return row.owner_uid


@dataclass(frozen=True, slots=True)
class Sources:
    """The stores of children; None for resources that are not watched."""

    pods: Store[Pod]
    services: Store[Service] | None = None
    groups: Store[PodGroup] | None = None
    batch_jobs: Store[BatchJob] | None = None
    nodes: Store[NodeDomain] | None = None
    answered: Container[str] = ()

    def of(self, uid: str, namespace: str) -> Iterator[Owned]:
        """Yield the batch Jobs and pods of a job, whatever their names."""
        stores = (self.batch_jobs, self.pods)
        rows = chain.from_iterable(store.indexed(uid) for store in stores if store is not None)
        return (row for row in rows if row.namespace == namespace)


def sources_of(
    stores: Mapping[Resource, Store[Any]],
    options: Options,
    nodes: Store[NodeDomain] | None = None,
    answered: Container[str] = (),
) -> Sources:
    """Return the stores of the watched children. ``answered`` contains the UIDs of the probed pods that have answered."""
    groups = groups_of(options.gang_scheduler)
    return Sources(
        pods=stores[PODS],
        services=stores.get(SERVICES),
        groups=stores.get(groups) if groups else None,
        batch_jobs=stores.get(BATCH_JOBS),
        nodes=nodes,
        answered=answered,
    )


def observe(sources: Sources, kind: JobKind[Any], job: Key, uid: str) -> Snapshot:
    """Return the children of one job at this moment."""
    group = sources.groups.get(job.namespace, job.name) if sources.groups is not None else None
    own = _batch_jobs(sources, job, uid)
    pods = rows_in_slots(kind, job, sources.pods.indexed(uid))
    return Snapshot(
        pods=pods,
        services=rows_in_slots(
            kind, job, sources.services.indexed(uid) if sources.services is not None else ()
        ),
        group=group if group and group.owner_uid == uid else None,
        batch_jobs=own,
        answered=frozenset(pod.uid for pod in pods if pod.uid in sources.answered),
        node_domains=_node_domains(sources.nodes, pods) if sources.nodes is not None else {},
        batch_pods=_pods_of(sources, own),
    )


def pods_of(
    sources: Sources, kind: JobKind[Any], job: Key, uid: str
) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Return the pods of one job, and those of its batch Jobs, at this moment."""
    own = rows_in_slots(kind, job, sources.pods.indexed(uid))
    return own, _pods_of(sources, _batch_jobs(sources, job, uid))


def _batch_jobs(sources: Sources, job: Key, uid: str) -> tuple[BatchJob, ...]:
    rows = sources.batch_jobs.indexed(uid) if sources.batch_jobs is not None else ()
    return tuple(row for row in rows if row.namespace == job.namespace)


def _pods_of(sources: Sources, batch_jobs: Iterable[BatchJob]) -> tuple[Pod, ...]:
    return tuple(
        pod
        for batch_job in batch_jobs
        for pod in sources.pods.indexed(batch_job.uid)
        if pod.namespace == batch_job.namespace
    )


def _node_domains(nodes: Store[NodeDomain], pods: Iterable[Pod]) -> dict[str, str]:
    rows = (nodes.get("", name) for name in {pod.node for pod in pods})
    return {row.name: row.domain for row in rows if row is not None}


def rows_in_slots(kind: JobKind[Any], job: Key, rows: Iterable[C]) -> tuple[C, ...]:
    """Return the rows that fill a slot of the job, with the role and index of that slot."""
    found: list[C] = []
    for row in rows:
        slot = kind.slot(job.name, row) if row.namespace == job.namespace else None
        if slot == (row.role, row.index):
            found.append(row)
        elif slot is not None:
            found.append(msgspec.structs.replace(row, role=slot[0], index=slot[1]))
    return tuple(found)
