"""What is told of a job as events: each child by itself, or summed up.

Told in full, the first children of a job get an event each, with the originals' reasons and messages, and the rest are summed up;
compact sums up from the start, one event per reason and pass. What tells of the job's state always has an event of its own.

Differs: the original tells of each child, and its library then drops what is too much, the job's end included. See
docs/decisions/0011-events.md.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from api.messages import without_numbers
from api.meta import Resource
from controller.domain import PLAIN, Event, Severity, Voice
from controller.runtime.recent import Recent
from controller.runtime.recorder import EventPriority, Recorder, Subject

ONE_BY_ONE = 23
"""Children of a job that get an event each; with the one that sums up the others and that of the job's end it makes 25."""
REMEMBERED = 32_768
"""Things told once of a job that are recognised when they come again: three for each pod of the largest job."""


class Teller:
    """Turns what happens to jobs into events."""

    def __init__(self, recorder: Recorder, *, compact: bool = False) -> None:
        self._recorder = recorder
        self._compact = compact
        self._one_by_one = 0 if compact else ONE_BY_ONE
        self._told: Counter[str] = Counter()
        """By job UID: children that had an event each."""
        self._rest: defaultdict[str, defaultdict[tuple[Subject, str], list[tuple[Resource, str]]]] = (
            defaultdict(lambda: defaultdict(list))
        )
        """By job UID: (job, verb) → children that are to be summed up."""
        self._once: defaultdict[str, Recent[int, None]] = defaultdict(lambda: Recent(REMEMBERED))
        """By job UID: hashes of what was told once."""

    def created(self, job: Subject, resource: Resource, name: str, voice: Voice = PLAIN) -> None:
        """A child was made."""
        self._child(job, "Create", resource, name, voice)

    def deleted(self, job: Subject, resource: Resource, name: str, voice: Voice = PLAIN) -> None:
        """A child was deleted."""
        self._child(job, "Delete", resource, name, voice)

    def failed(self, job: Subject, verb: str, resource: Resource, message: str, voice: Voice = PLAIN) -> None:
        """A child could not be made (``Create``), changed (``Update``) or deleted (``Delete``)."""
        own = voice.failed(verb, resource.kind, message) if voice.failed else None
        if own is None:
            doing = {"Create": "creating", "Update": "updating", "Delete": "deleting"}[verb]
            own = Event(Severity.WARNING, f"Failed{verb}{resource.kind}", f"Error {doing}: {message}")
        self._report(job, own.severity, own.reason, own.message, without_numbers(own.message))

    def sum_up(self, job: Subject) -> None:
        """Tell of the children that had no event of their own; for when all of them are there."""
        for (_, verb), children in self._rest.pop(job.uid, {}).items():
            self._tell(job, verb, children)

    def sum_up_all(self) -> None:
        """The same for every job; for when the rest of their children will be made by another process."""
        for job in [next(iter(names))[0] for names in self._rest.values()]:
            self.sum_up(job)

    def happened(self, job: Subject, events: Iterable[Event]) -> None:
        """Tell of what one pass has found out; what is told once, only the first time."""
        fresh = [event for event in events if not (event.once and self._is_known(job.uid, event.once))]
        if not self._compact:
            for event in fresh:
                self._report(job, event.severity, event.reason, event.message, event.similar)
            return
        by_reason: defaultdict[tuple[Severity, str, str], list[str]] = defaultdict(list)
        for event in fresh:
            # Those of any similarity go together: in this form a reason has one event per reconcile.
            by_reason[event.severity, event.reason, event.reason if event.similar else ""].append(
                event.message
            )
        for (severity, reason, similar), messages in by_reason.items():
            self._report(job, severity, reason, _together(messages), similar)

    def forget(self, uid: str) -> None:
        """There is no such job any more."""
        self._told.pop(uid, None)
        self._rest.pop(uid, None)
        self._once.pop(uid, None)

    def _report(self, job: Subject, severity: str, reason: str, message: str, similar: str) -> None:
        priority = EventPriority.REPORT if similar else EventPriority.STATE
        self._recorder.record(job, severity, reason, message, priority=priority, similar=similar)

    def _child(self, job: Subject, verb: str, resource: Resource, name: str, voice: Voice) -> None:
        own = voice.done(verb, resource.kind, name) if voice.done else None
        if voice.done and own is None:
            return
        if self._told[job.uid] >= self._one_by_one:
            self._rest[job.uid][job, verb].append((resource, name))
            return
        self._told[job.uid] += 1
        if own is None:
            self._tell(job, verb, [(resource, name)])
        else:
            self._recorder.record(job, own.severity, own.reason, own.message, priority=EventPriority.CHILD)

    def _tell(self, job: Subject, verb: str, children: Sequence[tuple[Resource, str]]) -> None:
        """One event for all of them, under the reason of the first."""
        counts = Counter(_word(resource) for resource, _ in children)
        kinds = " and ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in counts.items())
        names = ", ".join(dict.fromkeys(name for _, name in children))
        reason = f"Successful{verb}{children[0][0].kind}"
        message = f"{verb}d {kinds}: {names}"
        self._recorder.record(job, "Normal", reason, message, priority=EventPriority.CHILD)

    def _is_known(self, uid: str, once: str) -> bool:
        of_job, key = self._once[uid], hash(once)
        known = key in of_job
        of_job[key] = None
        return known


def _word(resource: Resource) -> str:
    """The originals speak of a pod and of a service, but of a PodGroup."""
    return resource.kind if resource.group else resource.kind.lower()


def _together(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"{messages[0]} (and {len(messages) - 1} more)"
