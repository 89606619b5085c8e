"""From a change of an object to the key of the job that wants a pass.

Own writes never come this far: the store knew them already. Neither do changes that leave a row the same, such as a pod's heartbeat,
and those of texts that no decision reads, such as why a scheduler finds no node now.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from api.children import Owned, Pod
from controller.domain import Key
from controller.reconcile.jobs import JobRow
from controller.runtime.queue import Priority, Queue

Queues = Mapping[str, Queue[Key]]
"""The queue of each kind that is served, by kind."""

C = TypeVar("C", bound=Owned)


def nobody(_: Owned) -> None:
    return None


def on_job(queue: Queue[Key], before: JobRow | None, after: JobRow | None) -> None:
    """A job came, changed or went. A change of its spec ends a back-off, and so does another job of that name, or a restored one."""
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
    parents: Callable[[C], Owned | None] = nobody,
    *,
    any_change: bool = False,
) -> None:
    """A pod or any other child came, changed or went; if it changed hands, both jobs are told.

    One that comes from nowhere was there when this process started; of those it makes itself the store knows before the watch does.
    ``parents`` knows owners that are children themselves: what becomes of theirs is news to the job as well. With ``any_change`` every
    write of somebody else is news: rows of metadata do not show what it has changed.
    """
    if not any_change and is_same(before, after):
        return
    priority = Priority.BACKLOG if before is None else Priority.HIGH
    for row in (before, after):
        owned = row if row is None or row.owner_kind in queues else parents(row)
        if owned is not None and owned.owner_kind in queues:
            queues[owned.owner_kind].add(Key(owned.namespace, owned.owner_name), priority=priority)


def is_same(before: C | None, after: C | None) -> bool:
    """Whether two versions of a child differ in nothing that a decision reads.

    The text of a trouble is only for the event of its first time.
    """
    if before is None or after is None:
        return False
    if isinstance(before, Pod) and isinstance(after, Pod) and before.troubles != after.troubles:
        if not _same_troubles(before, after):
            return False
        after = msgspec.structs.replace(after, troubles=before.troubles)
    return msgspec.structs.replace(after, resource_version=before.resource_version) == before


def _same_troubles(before: Pod, after: Pod) -> bool:
    return [(trouble.reason, trouble.similar) for trouble in before.troubles] == [
        (trouble.reason, trouble.similar) for trouble in after.troubles
    ]
