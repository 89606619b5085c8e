"""What is known of a job when somebody asks why it does not go on, and how objects of the API are read. Nothing here asks anybody."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

Object: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """The last lines that a container wrote, oldest first, and when it wrote the last of them."""

    at: datetime | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A job with all that belongs to it, as the API server told it at ``now``. What may not be read is empty."""

    job: Object
    now: datetime
    pods: Sequence[Object] = ()
    pods_known: bool = True
    """Whether these are all, so that others do not exist."""
    events: Sequence[Object] = ()
    """Of the job and of all its children."""
    nodes: Mapping[str, Object] = field(default_factory=dict)
    """By name: those that pods of the job are on."""
    gangs: Sequence[Object] = ()
    """PodGroups of the job."""
    workloads: Sequence[Object] = ()
    """What Kueue has made for the job."""
    words: Mapping[tuple[str, str], Words] = field(default_factory=dict)
    """By pod and container, as far as ``questions`` has asked for them."""

    @property
    def kind(self) -> str:
        return str(self.job["kind"])

    @property
    def created(self) -> datetime:
        return moment(self.job["metadata"]["creationTimestamp"]) or self.now

    def events_of(self, obj: Object, type_: str) -> list[Object]:
        """``Warning`` or ``Normal`` ones, the newest first."""
        uid = obj["metadata"]["uid"]
        found = [one for one in self.events if one["involvedObject"].get("uid") == uid]
        return sorted((one for one in found if one.get("type") == type_), key=event_time, reverse=True)


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that holds a job up, or is worth knowing of it."""

    about: tuple[str, ...]
    """Names of pods and other objects; empty is the job itself."""
    text: str
    since: datetime | None = None
    blocks: bool = True
    """Whether the job waits for it."""


def moment(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def event_time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def status_of(obj: Object) -> Object:
    return obj.get("status") or {}


def condition(obj: Object, type_: str) -> Object:
    """Whatever it says; empty when there is none."""
    return next((one for one in status_of(obj).get("conditions") or () if one["type"] == type_), {})


def holds(obj: Object, type_: str) -> bool:
    return condition(obj, type_).get("status") == "True"


def roles(job: Object) -> dict[str, Object]:
    """The replica specs, whatever the kind calls them: ``pytorchReplicaSpecs``, ``tfReplicaSpecs``…"""
    spec = job.get("spec") or {}
    return next((value for key, value in spec.items() if key.lower().endswith("replicaspecs")), None) or {}


def run_policy(job: Object, name: str) -> Any:
    """A field of the run policy, wherever this version of the kind has it."""
    spec = job.get("spec") or {}
    return (spec.get("runPolicy") or {}).get(name, spec.get(name))


def is_over(pod: Object) -> bool:
    return status_of(pod).get("phase") in {"Succeeded", "Failed"}


def state_of(status: Object, name: str) -> Object:
    """Of a container: ``waiting``, ``running`` or ``terminated``; empty when it is in another state."""
    return (status.get("state") or {}).get(name) or {}


def init_statuses(pod: Object) -> Sequence[Object]:
    return status_of(pod).get("initContainerStatuses") or ()


def statuses(pod: Object) -> Sequence[Object]:
    """Of the containers, without those that only prepare them."""
    return status_of(pod).get("containerStatuses") or ()


def together(found: Iterable[Cause]) -> Iterator[Cause]:
    """Things of which the same is to be said as one, from when it was so of the first of them."""
    same: dict[str, list[Cause]] = {}
    for one in found:
        same.setdefault(one.text, []).append(one)
    for text, group in same.items():
        about = tuple(name for one in group for name in one.about)
        since = min((one.since for one in group if one.since), default=None)
        yield Cause(about, text, since, blocks=group[0].blocks)
