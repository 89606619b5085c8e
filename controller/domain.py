"""The nouns that the pure code exchanges: what is seen of a job, what a kind concludes, and what is to be done.

Nothing here reads a clock or talks to a server. ``reconcile.observe`` makes snapshots, ``reconcile.plan`` makes plans from them,
``reconcile.apply`` and ``reconcile.status`` carry plans out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from typing_extensions import override

from api.children import Pod, PodGroup, Service
from api.job import JobStatus
from api.meta import Resource


@dataclass(frozen=True, slots=True)
class Key:
    """What the queue holds: which job, and nothing else about it."""

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Role:
    """One replica type of a job with its defaults filled in. ``name`` is spelled as in the spec, such as ``Worker``."""

    name: str
    replicas: int
    restart_policy: str
    template: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The value of the replica-type label, also part of the names of pods and Services."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The children of one job at one moment: only those whose controller is this very job, by UID."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    group: PodGroup | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The pods of one role, counted.

    ``failed`` are pods in phase Failed and running ones that somebody is removing; ``vanished`` were active when the status was last
    written and are gone without our doing. ``first_completed`` is said of index 0: it has succeeded, and the kind's container in it too.
    """

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    vanished: int = 0
    first_completed: bool = False


class Severity(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell about a job. ``once`` is a key: while it is remembered, the same is not told again."""

    severity: Severity
    reason: str
    message: str
    once: str = ""


class Upkeep(StrEnum):
    """What happens to a child that exists: left alone, kept equal to what is wanted, or changed.

    What is kept equal is not watched, so it is looked up; what is changed is known to be there, and the body is a merge patch.
    """

    ONCE = "once"
    EQUAL = "equal"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Child:
    """An object a job wants. The body is built only when it is sent. Without what goes ``first``, nothing else is made."""

    resource: Resource
    name: str
    body: Callable[[], dict[str, Any]]
    upkeep: Upkeep = Upkeep.ONCE
    first: bool = False


@dataclass(frozen=True, slots=True)
class Doomed:
    """A child to delete: that very object, by UID. Without a UID, whatever of that name belongs to the job."""

    resource: Resource
    name: str
    uid: str = ""


def shortened(text: str, longest: int) -> str:
    """The text, its end cut off where it is longer than so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job cannot be run: the field, and what is wrong with it in the words of the original's webhook.

    A problem that holds ``at_start`` only does not stop a job that already runs (a worker count scaled to zero, for instance).
    """

    field: str
    text: str
    at_start: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a kind concludes from the counts: the message of each condition that holds, empty where it does not."""

    running: str = ""
    succeeded: str = ""
    failed: str = ""
    restarting: str = ""


class Count(StrEnum):
    """What the counters of the contract count."""

    CREATED = "created"
    DELETED = "deleted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one pass does. Nothing set means nothing to do.

    ``status`` is what the status shall be; it is written only where it differs. ``events`` and ``counts`` follow that write.
    """

    status: JobStatus | None = None
    create: tuple[Child, ...] = ()
    delete: tuple[Doomed, ...] = ()
    events: tuple[Event, ...] = ()
    counts: tuple[Count, ...] = ()
    delete_job: bool = False
    requeue_after_seconds: float | None = None
