"""Volcano's queues: why one does not take a PodGroup.

Source: volcano 1.14, apis/scheduling/v1beta1, QueueStatus; pkg/scheduler/plugins/proportion, JobEnqueueableFn.
"""

from collections.abc import Mapping
from typing import Any, Final

from api.meta import Resource
from api.requests import amounts

VOLCANO_QUEUES: Final = Resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)
DEFAULT_QUEUE: Final = "default"
"""The queue of a PodGroup that names none."""
_OPEN: Final = "Open"


def queue_of(group_spec: Mapping[str, Any]) -> str:
    """Return the name of the queue of a PodGroup."""
    return str(group_spec.get("queue") or DEFAULT_QUEUE)


def queue_problem(name: str, queue: Mapping[str, Any], needed: Mapping[str, Any]) -> str:
    """Return why the queue does not take a PodGroup: it is missing, not open, too small or full. Empty if none of these holds.

    Args:
        queue: the Queue as the API server has it; empty if there is none.
        needed: the group's ``minResources``.
    """
    if not queue:
        return f"queue {name} does not exist"
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    if (state := status.get("state")) != _OPEN:
        return f"queue {name} is {state or 'not open: it has no state'}"
    try:
        limits, taken = amounts(spec.get("capability")), amounts(status.get("allocated"))
        wanted = amounts(needed)
    except ValueError:
        return ""
    short: list[str] = []
    for resource, amount in wanted.items():
        limit, used = limits.get(resource), taken.get(resource)
        if limit is None or not amount.amount:
            continue
        if amount.amount > limit.amount:
            return f"queue {name} can never take it: it needs {needed[resource]} {resource}, and the queue has {spec['capability'][resource]}"
        if used is not None and used.amount + amount.amount > limit.amount:
            short.append(
                f"{resource}: needs {needed[resource]}, {status['allocated'][resource]} of {spec['capability'][resource]} are in use"
            )
    return f"queue {name} is full ({'; '.join(short)})" if short else ""
