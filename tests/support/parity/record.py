"""The record of a case since its previous record. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.meta import Resource
from controller.shadow.defaults import Object
from rallypoint.testing.audit import Call
from tests.support.parity.case import Record
from tests.support.parity.normal import Words, current, normalized, sent, text
from tests.support.parity.resources import KINDS

Names = dict[str, list[str]]
"""Kind → names."""

_CONFLICT = 409
"""The status of a creation whose object exists. Which cache was late is up to chance."""


def record(
    *,
    before: Names,
    calls: Sequence[Call],
    children: Mapping[Resource, Mapping[str, Object]],
    job: Object | None,
    events: Iterable[Object],
    name: str,
    jobs: Resource,
    words: Words,
) -> Record:
    """The state now.

    Args:
        before: what was ``live`` at the previous record.
        calls: the operator's, since then.
        children: what there is of the job, by name.
        job: None when it is gone.
        events: those about the job.
        name: of the job.
        jobs: the resource of its kind.
    """
    live = _live(children, words)
    creates, rejected, deletes = _creates(calls, words), _rejected(calls), _deletes(calls)
    transient = {
        kind: [gone for gone in names if gone not in live.get(kind, ()) and gone in creates.get(kind, {})]
        for kind, names in deletes.items()
    }
    if any(call.resource == jobs.plural and call.verb == "delete" and call.succeeded for call in calls):
        deletes[jobs.kind] = [name]
    return {
        "creates": _given(
            {kind: _numbered(bodies, transient.get(kind, ())) for kind, bodies in sorted(creates.items())}
        ),
        "rejected": rejected,
        "deletes": _given(
            {kind: _lasting(kind, names, transient, before) for kind, names in sorted(deletes.items())}
        ),
        "live": live,
        "current": _current(children, words),
        "status": None if job is None else normalized(job.get("status") or {}, words),
        "events": _events(events, words),
    }


def _creates(calls: Iterable[Call], words: Words) -> dict[str, dict[str, list[Object]]]:
    """Return the different accepted bodies by kind and name."""
    creates: defaultdict[str, defaultdict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for call in _of_children(calls):
        if call.creates and call.succeeded:
            bodies = creates[KINDS[call.resource]][text(call.name, words)]
            body = sent(KINDS[call.resource], call.body, words)
            if body not in bodies:
                bodies.append(body)
    return {kind: dict(names) for kind, names in creates.items()}


def _numbered(bodies: Mapping[str, Sequence[Object]], left_out: Iterable[str]) -> dict[str, Object]:
    """Return one entry for each body; a second one of the same name is ``<name>#2``."""
    return {
        name if number == 1 else f"{name}#{number}": body
        for name, different in sorted(bodies.items())
        if name not in left_out
        for number, body in enumerate(different, 1)
    }


def _rejected(calls: Iterable[Call]) -> dict[str, dict[str, list[int]]]:
    """Return the status codes of refused creations by kind and name."""
    rejected: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for call in _of_children(calls):
        if call.creates and call.code >= 400 and call.code != _CONFLICT:
            codes = rejected[KINDS[call.resource]][call.name]
            if call.code not in codes:
                codes.append(call.code)
    return {kind: dict(names) for kind, names in rejected.items()}


def _deletes(calls: Iterable[Call]) -> Names:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for call in _of_children(calls):
        if call.succeeded and call.verb in {"delete", "deletecollection"}:
            names[KINDS[call.resource]].add(call.name if call.verb == "delete" else "<collection>")
    return {kind: sorted(deleted) for kind, deleted in names.items()}


def _lasting(kind: str, names: Iterable[str], transient: Names, before: Names) -> list[str]:
    """Return the deletions without those of objects created and deleted between two records."""
    return [name for name in names if name not in transient.get(kind, ()) or name in before.get(kind, ())]


def _of_children(calls: Iterable[Call]) -> Iterable[Call]:
    return (call for call in calls if call.resource in KINDS and not call.subresource)


def _live(children: Mapping[Resource, Mapping[str, Object]], words: Words) -> Names:
    live: defaultdict[str, list[str]] = defaultdict(list)
    for resource, objects in children.items():
        for name, obj in objects.items():
            ending = " (terminating)" if obj["metadata"].get("deletionTimestamp") else ""
            live[resource.kind].append(text(name, words) + ending)
    return {kind: sorted(names) for kind, names in sorted(live.items())}


def _current(children: Mapping[Resource, Mapping[str, Object]], words: Words) -> dict[str, dict[str, Object]]:
    parts: defaultdict[str, dict[str, Object]] = defaultdict(dict)
    for resource, objects in children.items():
        for name, obj in objects.items():
            if (part := current(resource.kind, obj, words)) is not None:
                parts[resource.kind][name] = part
    return dict(parts)


def _events(events: Iterable[Object], words: Words) -> list[dict[str, str]]:
    """Return each different event once. A creation whose object exists comes from a late cache and does not count."""
    events_by_text = Counter(
        (event.get("type", ""), event.get("reason", ""), text(event.get("message", ""), words))
        for event in events
        if "already exists" not in event.get("message", "") or event.get("reason") == "ErrResourceExists"
    )
    return [dict(zip(("type", "reason", "message"), event, strict=True)) for event in sorted(events_by_text)]


def _given(kinds: dict[str, Any]) -> dict[str, Any]:
    """Return the kinds with entries."""
    return {kind: said for kind, said in kinds.items() if said}
