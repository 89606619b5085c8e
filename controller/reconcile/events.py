"""Records events about jobs: one for each child, or a summary of many.

In the mode ``full``, the first children of a job get an event each, with the originals' reasons and messages, and the rest a summary;
while many events wait to be sent, only pods get one each, and the summary has all else. In the mode ``compact``, all children are summarized, with one event per reason and reconcile. An event about the job's state is never
summarized.

Differs: the original records an event for each child, and its library then drops the excess, including the job's end. See
docs/decisions/0011-events.md.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from api.messages import without_numbers
from api.meta import PODS, Resource
from controller.domain import Event, Severity
from controller.reconcile.memory import EventMemory
from controller.reconcile.parent import Parent
from controller.runtime.recorder import EventPriority, Recorder, Subject

MOST_CHILD_EVENTS = 23
"""Children of a job that get an event each; with the summary and the event of the job's end that makes 25."""


class EventRecorder:
    """Records the events of jobs. The memory of a job contains its recorded events."""

    def __init__(self, recorder: Recorder, *, compact: bool = False) -> None:
        self._recorder = recorder
        self._compact = compact
        self._most_child_events = 0 if compact else MOST_CHILD_EVENTS

    def record(self, parent: Parent, events: Iterable[Event]) -> Sequence[Event]:
        """Record the events of one reconcile, those with ``once`` only the first time, and return the recorded ones."""
        job, memory = parent.subject, parent.memory.events
        fresh = [event for event in events if not (event.once and _is_known(memory, event.once))]
        if not self._compact:
            for event in fresh:
                self._report(job, event.severity, event.reason, event.message, event.similar)
            return fresh
        by_reason: defaultdict[tuple[Severity, str, str], list[str]] = defaultdict(list)
        for event in fresh:
            # In this mode events are combined whatever their ``similar``: a reason has one event per reconcile.
            by_reason[event.severity, event.reason, event.reason if event.similar else ""].append(
                event.message
            )
        for (severity, reason, similar), messages in by_reason.items():
            self._report(job, severity, reason, _shorten(messages), similar)
        return fresh

    def record_created(self, parent: Parent, resource: Resource, name: str) -> None:
        """Record that a child was created."""
        self._record_child(parent, "Create", resource, name)

    def record_deleted(self, parent: Parent, resource: Resource, name: str) -> None:
        """Record that a child was deleted."""
        self._record_child(parent, "Delete", resource, name)

    def record_failure(self, parent: Parent, verb: str, resource: Resource, message: str) -> None:
        """Record that a child could not be created (``Create``), changed (``Update``) or deleted (``Delete``)."""
        event_messages = parent.event_messages
        own = event_messages.failed(verb, resource.kind, message) if event_messages.failed else None
        if own is None:
            doing = {"Create": "creating", "Update": "updating", "Delete": "deleting"}[verb]
            own = Event(Severity.WARNING, f"Failed{verb}{resource.kind}", f"Error {doing}: {message}")
        self._report(parent.subject, own.severity, own.reason, own.message, without_numbers(own.message))

    def record_summaries(self, memory: EventMemory) -> None:
        """Record the children that had no event of their own: all of them exist, or another process will create the rest."""
        for (job, verb), children in memory.unsummarized.items():
            self._record_children(job, verb, children)
        memory.unsummarized.clear()

    def _report(self, job: Subject, severity: str, reason: str, message: str, similar: str) -> None:
        priority = EventPriority.REPORT if similar else EventPriority.STATE
        self._recorder.record(job, severity, reason, message, priority=priority, similar=similar)

    def _record_child(self, parent: Parent, verb: str, resource: Resource, name: str) -> None:
        job, memory, event_messages = parent.subject, parent.memory.events, parent.event_messages
        own = event_messages.done(verb, resource.kind, name) if event_messages.done else None
        if event_messages.done and own is None:
            return
        can_be_summarized = resource != PODS and self._recorder.is_busy
        if memory.children >= self._most_child_events or can_be_summarized:
            memory.unsummarized.setdefault((job, verb), []).append((resource, name))
            return
        memory.children += 1
        if own is None:
            self._record_children(job, verb, [(resource, name)])
        else:
            self._recorder.record(job, own.severity, own.reason, own.message, priority=EventPriority.CHILD)

    def _record_children(self, job: Subject, verb: str, children: Sequence[tuple[Resource, str]]) -> None:
        """Record one event for all of them, with the reason of the first."""
        counts = Counter(_noun(resource) for resource, _ in children)
        kinds = " and ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in counts.items())
        names = ", ".join(dict.fromkeys(name for _, name in children))
        reason = f"Successful{verb}{children[0][0].kind}"
        message = f"{verb}d {kinds}: {names}"
        self._recorder.record(job, "Normal", reason, message, priority=EventPriority.CHILD)


def _is_known(memory: EventMemory, once: str) -> bool:
    key = hash(once)
    is_known = key in memory.once
    memory.once[key] = None
    return is_known


def _noun(resource: Resource) -> str:
    """The originals write ``pod`` and ``service`` but ``PodGroup``."""
    return resource.kind if resource.group else resource.kind.lower()


def _shorten(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"{messages[0]} (and {len(messages) - 1} more)"
