"""What is known of a job when somebody asks why it does not go on, and what is answered. Nothing here asks anybody."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from rallypoint.diagnosis.objects import Object, event_time, parse_timestamp, replaced_pod_uids


@dataclass(frozen=True, slots=True)
class LastLines:
    """The last lines that a container wrote, oldest first, and when it wrote the last of them."""

    at: datetime | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class JobSnapshot:
    """A job with all that belongs to it, as the API server told it at ``now``. What may not be read is empty."""

    job: Object
    now: datetime
    pods: Sequence[Object] = ()
    pods_known: bool = True
    """Whether these are all, so that others do not exist."""
    events: Sequence[Object] = ()
    """Of the job, of all its children, and of pods that are gone; those of other jobs do no harm."""
    nodes: Mapping[str, Object] = field(default_factory=dict)
    """By name, as far as ``nodes_to_read`` has asked for them."""
    gangs: Sequence[Object] = ()
    """PodGroups of the job."""
    workloads: Sequence[Object] = ()
    """What Kueue has made for the job."""
    workloads_known: bool = True
    last_lines: Mapping[tuple[str, str], LastLines] = field(default_factory=dict)
    """By pod and container, as far as ``log_requests`` has asked for them."""

    @property
    def created(self) -> datetime:
        return parse_timestamp(self.job["metadata"]["creationTimestamp"]) or self.now

    def events_of(self, obj: Object) -> Sequence[Object]:
        """The newest first."""
        return self._events_by_uid.get(obj["metadata"]["uid"], ())

    def last_line(self, pod: str, container: str) -> str:
        """The last line that it wrote; empty when it is not known."""
        lines = self.last_lines.get((pod, container))
        return lines.lines[-1] if lines and lines.lines else ""

    @cached_property
    def replaced_pod_uids(self) -> set[str]:
        """UIDs of pods that have a successor."""
        return replaced_pod_uids(self.pods)

    @cached_property
    def newest_events(self) -> Sequence[Object]:
        """All of them, the newest first."""
        return sorted(self.events, key=event_time, reverse=True)

    @cached_property
    def _events_by_uid(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for event in self.newest_events:
            found.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
        return found


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that holds a job up, or is worth knowing of it."""

    about: tuple[str, ...]
    """Names of pods and other objects; empty is the job itself."""
    text: str
    since: datetime | None = None
    """Since when it is so, or when it happened last."""
    blocks: bool = True
    """Whether the job waits for it, or has failed by it."""
    quote: str = ""
    """The last thing that a container of it wrote."""


def group_by_text(found: Iterable[Cause]) -> Iterator[Cause]:
    """Things of which the same is to be said as one, from when it was so of the first of them; with a quote if all said the same."""
    same: dict[tuple[str, bool], list[Cause]] = {}
    for cause in found:
        same.setdefault((cause.text, cause.blocks), []).append(cause)
    for group in same.values():
        about = tuple(name for cause in group for name in cause.about)
        times = min((cause.since for cause in group if cause.since), default=None)
        quotes = {cause.quote for cause in group}
        yield replace(group[0], about=about, since=times, quote=quotes.pop() if len(quotes) == 1 else "")
