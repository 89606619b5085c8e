"""The nouns that the pure code exchanges: what is seen of a job, what a kind concludes, and what is to be done.

Nothing here reads a clock or talks to a server. ``reconcile.observe`` makes snapshots, ``reconcile.plan`` makes plans from them,
``reconcile.apply`` and ``reconcile.status`` carry plans out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from typing_extensions import override

from api.batch import BatchJob
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
    container: str = ""
    """The container whose exit code counts."""

    @property
    def label(self) -> str:
        """The value of the replica-type label, also part of the names of pods and Services."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a pod of one name: which pod failed, how many failed in a row with it, and when it failed."""

    uid: str
    count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The children of one job at one moment: only those whose controller is this very job, by UID."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    group: PodGroup | None = None
    batch_jobs: tuple[BatchJob, ...] = ()
    batch_pods: tuple[Pod, ...] = ()
    """The pods of those batch Jobs; their controllers, not the job, make and delete them."""
    answered: frozenset[str] = frozenset()
    """UIDs of the pods that have been asked what a plan asks, and have answered or never will."""
    node_domains: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the nodes of the pods are, by node; empty where nobody asks."""
    failures: Mapping[str, Failure] = field(default_factory=dict[str, Failure])
    """The last failures of the job's pods, by name of the pod."""
    is_blocked: bool = False
    """Whether the last try to make what is missing met with something that the status says somebody has to do away with."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The pods of one role, counted.

    ``failed`` are pods in phase Failed and running ones that somebody is removing, which are ``leaving``; ``vanished`` were active when the
    status was last written and are gone without our doing. ``first_completed`` is said of index 0: it has succeeded, and the container that
    counts in it, too.
    """

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    vanished: int = 0
    first_completed: bool = False
    leaving: int = 0


class Severity(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell about a job. ``once`` is a key: while it is remembered, the same is not told again.

    ``similar`` is empty for what tells of the job's own state. Events that report something of a pod have the same if they say the same
    of different pods: those are combined, and limited per job.
    """

    severity: Severity
    reason: str
    message: str
    once: str = ""
    similar: str = ""


@dataclass(frozen=True, slots=True)
class EventMessages:
    """How a kind tells of what becomes of children, where training-operator's words for its replica kinds are not the kind's."""

    done: Callable[[str, str, str], Event | None] | None = None
    """(``Create`` or ``Delete``, the child's kind and name) → what is told, None if nothing is."""
    failed: Callable[[str, str, str], Event | None] | None = None
    """(``Create``, ``Update`` or ``Delete``, the child's kind, the server's words) → what is told, None as by default."""
    taken: Callable[[str, str], Event] | None = None
    """(the child's kind and name) → what is told of a name that somebody else has. With it, the status says what to do."""
    missing_rights: Callable[[str], Event | None] | None = None
    """(the server's words) → what is told, and said in the status, of a right that not every installation grants; None of any other."""
    source: str = ""
    """The component that events name; the controller's name by default."""


DEFAULT_MESSAGES = EventMessages()
"""Training-operator's words."""


class WriteMode(StrEnum):
    """How a child is written."""

    CREATE = "create"
    """Create it; leave an existing one alone. Planning reads such children, and no others."""
    APPLY = "apply"
    """Create it, or update the object that exists."""
    PATCH = "patch"
    """Patch the object, which is known to exist, with the body as a merge patch."""
    CREATE_IF_ABSENT = "create-if-absent"
    """Create it unless an object of that name exists, whoever owns it."""
    UPDATE_IF_PRESENT = "update-if-present"
    """Update the object if it exists; never create it."""
    CHECK_NAME = "check-name"
    """Only check the name of a child that is created later: what follows is not created while another owner has that name."""


@dataclass(frozen=True, slots=True)
class Child:
    """An object a job wants. The body is built only when it is sent.

    Without what goes ``first``, nothing else is made; it goes in waves, 1 before 2. What is ``lasting`` stays while the job is suspended.
    """

    resource: Resource
    name: str
    body: Callable[[], dict[str, Any]]
    write_mode: WriteMode = WriteMode.CREATE
    first: int = 0
    lasting: bool = False
    subresource: str = ""
    version: str = ""
    """Of a child that decisions do not read: it is made equal once for each of these. Empty is the job's generation."""
    grants: bool = False
    """Of a child that decisions do not read: it is a Role with rules, which must not outlive the job."""
    flaw: Callable[[dict[str, Any]], str] | None = None
    """Of a child that decisions do not read: what is wrong with one that is there and must not be overwritten, empty if it will do."""


def name_check(resource: Resource, name: str) -> Child:
    """A check of the name of a child that is made later; nothing else is made while somebody else has it."""
    return Child(resource, name, dict, WriteMode.CHECK_NAME, first=1, lasting=True)


@dataclass(frozen=True, slots=True)
class Probe:
    """A pod to be asked whether its server is up: at any of these ports, by the first bytes that it says."""

    uid: str
    address: str
    ports: tuple[int, ...]
    greeting: bytes


@dataclass(frozen=True, slots=True)
class Deletion:
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
    """What a kind concludes from the counts: the message of each condition that holds, empty where it does not.

    ``reason`` is that of a failure, without the kind that it begins with.
    """

    running: str = ""
    succeeded: str = ""
    failed: str = ""
    restarting: str = ""
    reason: str = "Failed"


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

    ``status`` is what the status shall be; it is written only where it differs. ``events`` and ``counts`` follow that write. When children
    have been made and more can be made ``again`` for it, the next pass comes at once: own writes cause none.
    """

    status: JobStatus | None = None
    create: tuple[Child, ...] = ()
    delete: tuple[Deletion, ...] = ()
    probes: tuple[Probe, ...] = ()
    events: tuple[Event, ...] = ()
    counts: tuple[Count, ...] = ()
    delete_job: bool = False
    requeue_after_seconds: float | None = None
    again: bool = False
