"""Adds the keys of jobs to the queue when objects change.

Own writes do not trigger a reconcile, because the store contains them already. Neither do changes that leave a row equal, such as a
pod's heartbeat, and changes of texts that planning does not read, such as the scheduler's message.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from api.children import Owned, Pod, PodGroup
from controller.domain import Key
from controller.reconcile.jobs import JobRow
from controller.runtime.queue import Priority, Queue

Queues = Mapping[str, Queue[Key]]
"""The queue of each served kind, by kind."""

C = TypeVar("C", bound=Owned)


def no_parent(_: Owned) -> None:
    return None


def on_job(queue: Queue[Key], before: JobRow | None, after: JobRow | None) -> None:
    """Handle a new, changed or deleted job. A changed spec ends a back-off, and so does a new job of that name, or a restored one."""
    row = after or before
    if row is not None:
        respecified = (
            before is None
            or after is None
            or (before.uid, before.generation) != (after.uid, after.generation)
            or before.resource_version > after.resource_version
        )
        priority = Priority.BACKLOG if before is None and row.has_conditions else Priority.NORMAL
        queue.add(Key(row.namespace, row.name), urgent=respecified, priority=priority)


def on_child(
    queues: Queues,
    before: C | None,
    after: C | None,
    parents: Callable[[C], Owned | None] = no_parent,
    *,
    any_change: bool = False,
) -> None:
    """Handle a new, changed or deleted child. If its owner changed, both jobs are added.

    A child without an earlier version existed when this process started, because the store contains own creates before the watch event.
    ``parents`` returns owners that are children themselves: their children also concern the job. With ``any_change``, every
    write of others counts, because metadata rows do not show what changed.
    """
    if not any_change and is_same(before, after):
        return
    priority = Priority.BACKLOG if before is None else Priority.HIGH
    for row in (before, after):
        owned = row if row is None or row.owner_kind in queues else parents(row)
        if owned is not None and owned.owner_kind in queues:
            queues[owned.owner_kind].add(Key(owned.namespace, owned.owner_name), priority=priority)


def is_same(before: C | None, after: C | None) -> bool:
    """Return whether two versions of a child are equal in everything that planning reads.

    The text of a trouble counts only for its first event, and so does the scheduler's message about a PodGroup. What only metrics read
    does not count.
    """
    if before is None or after is None:
        return False
    ignored: dict[str, object] = {"resource_version": before.resource_version}
    if isinstance(before, PodGroup) and isinstance(after, PodGroup) and before.message and after.message:
        ignored["message"] = before.message
    if isinstance(before, Pod) and isinstance(after, Pod):
        if before.troubles != after.troubles and not _same_troubles(before, after):
            return False
        ignored |= {
            "troubles": before.troubles,
            "scheduled_at": before.scheduled_at,
            "prepared_at": before.prepared_at,
            "pulled_at": before.pulled_at,
            "checkpoint_at": before.checkpoint_at,
            "disruption": before.disruption,
            "assigned_node": before.assigned_node,
        }
    return msgspec.structs.replace(after, **ignored) == before


def _same_troubles(before: Pod, after: Pod) -> bool:
    return [(trouble.reason, trouble.similar) for trouble in before.troubles] == [
        (trouble.reason, trouble.similar) for trouble in after.troubles
    ]
