"""The types that the pure code exchanges: the observed state of a job, the verdict of a kind, and the plan.

Nothing here reads a clock or calls a server. ``reconcile.observe`` creates snapshots, ``reconcile.plan`` creates plans from them,
``reconcile.apply`` and ``reconcile.status`` execute the plans.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from typing_extensions import override

from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod, PodGroup, Service
from api.job import JobStatus
from api.meta import PODS, Resource
from api.nodes import NodeState


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a job in the work queue."""

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Role:
    """One replica type of a job with its defaults. ``name`` has the spelling of the spec, such as ``Worker``."""

    name: str
    replicas: int
    restart_policy: str
    template: Mapping[str, Any]
    container: str = ""
    """The container whose exit code counts."""

    @property
    def label(self) -> str:
        """The value of the replica-type label, which is also part of the names of pods and Services."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a pod name: which pod failed, how many failed in a row up to it, when it failed, and how."""

    uid: str
    count: int
    at: datetime
    text: str = ""


TroubleKey = tuple[str, str]
"""The UID of a pod, and the reason of a trouble of it."""

Stacks = tuple[tuple[tuple[str, ...], str], ...]
"""The pods, and what their processes do."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A job whose pods have made no progress for its deadline: the pod that is named for it, and the evidence."""

    role: str
    """The label of the pod's role."""
    pod: str
    uid: str
    node: str
    message: str
    """How long which pods were silent, and why this one is named."""
    stacks: Stacks = ()
    """Those of the named pod first."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The children of one job at one moment: only those whose controller is the job, by UID."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    group: PodGroup | None = None
    batch_jobs: tuple[BatchJob, ...] = ()
    batch_pods: tuple[Pod, ...] = ()
    """The pods of these batch Jobs. Their controllers are the batch Jobs, which create and delete them."""
    answered: frozenset[str] = frozenset()
    """UIDs of the probed pods that have answered, or whose probe gave up."""
    node_domains: Mapping[str, str] = field(default_factory=dict[str, str])
    """The topology of the pods' nodes, by node; empty if no kind reads it."""
    failures: Mapping[str, Failure] = field(default_factory=dict[str, Failure])
    """The last failures of the job's pods, by pod name."""
    queue: Mapping[str, Any] | None = None
    """The Volcano queue of a waiting group as the API server has it: empty if it does not exist, None if it is unknown."""
    nodes: Mapping[str, NodeState] = field(default_factory=dict[str, NodeState])
    """The nodes that may be lost or have problems, by name; empty unless the job asks about nodes."""
    nodes_error: str = ""
    """Why the state of nodes is unknown."""
    is_blocked: bool = False
    """Whether the last attempt to create missing children found a cause that somebody must remove; the status describes it."""
    troubles_since: Mapping[TroubleKey, datetime] = field(default_factory=dict[TroubleKey, datetime])
    """Since when pods have had troubles; empty unless a failure rule names reasons."""
    hang: Hang | None = None
    """The hang of the pods in this snapshot."""

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """The pods of the job and those of its batch Jobs."""
        return (*self.pods, *self.batch_pods)


@dataclass(frozen=True, slots=True)
class Counts:
    """The pods of one role, counted.

    ``failed`` are pods in phase Failed and running ones that somebody is deleting, which are ``leaving``; ``vanished`` were active in the
    last written status and are gone, not deleted by the operator. ``first_completed`` is about index 0: the pod has succeeded, and so has
    the container whose exit code counts.
    """

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    vanished: int = 0
    first_completed: bool = False
    leaving: int = 0


@dataclass(frozen=True, slots=True)
class Present:
    """The slots of a job that are filled: the indices of its pods and of its Services, by the label of their role."""

    pods: Mapping[str, Container[int]] = field(default_factory=dict[str, Container[int]])
    services: Mapping[str, Container[int]] = field(default_factory=dict[str, Container[int]])


class Severity(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """An event about a job. ``once`` is a key: while it is in memory, the event is not recorded again.

    ``similar`` is empty for events about the job's own state. Events that report the same about different pods have the same value: the
    recorder combines them, and limits them per job.
    """

    severity: Severity
    reason: str
    message: str
    once: str = ""
    similar: str = ""


@dataclass(frozen=True, slots=True)
class EventMessages:
    """The texts of a kind's events about its children, where they differ from those of training-operator's replica kinds."""

    done: Callable[[str, str, str], Event | None] | None = None
    """(``Create`` or ``Delete``, the child's kind and name) → the event, None if there is none."""
    failed: Callable[[str, str, str], Event | None] | None = None
    """(``Create``, ``Update`` or ``Delete``, the child's kind, the server's message) → the event, None for the default."""
    taken: Callable[[str, str], Event] | None = None
    """(the child's kind and name) → the event for a name conflict. The status then says what to do."""
    missing_rights: Callable[[str], Event | None] | None = None
    """(the server's message) → the event, also in the status, for a missing permission that some installations do not grant; None for others."""
    source: str = ""
    """The source component of events; the controller's name by default."""


DEFAULT_MESSAGES = EventMessages()
"""The texts of training-operator."""


class WriteMode(StrEnum):
    """How a child is written."""

    CREATE = "create"
    """Create it; leave an existing one alone. Planning reads only such children."""
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
    """An object that a job requires. The body is built only when it is sent.

    Children with ``first`` are created before all others, in waves: 1 before 2. A ``lasting`` child stays while the job is suspended.
    """

    resource: Resource
    name: str
    body: Callable[[], dict[str, Any]]
    write_mode: WriteMode = WriteMode.CREATE
    first: int = 0
    lasting: bool = False
    subresource: str = ""
    version: str = ""
    """Of an uncached child: it is updated once for each of these values. Empty means the job's generation."""
    grants: bool = False
    """Of an uncached child: it is a Role with rules, which must not outlive the job."""
    flaw: Callable[[dict[str, Any]], str] | None = None
    """Of an uncached child: returns why an existing object that must not be overwritten is unusable; empty if it is usable."""


def with_pod_spec(child: Child, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Child:
    """Return the child with its pod spec changed, if it is a pod or a batch Job that is to be created; any other child as it is."""
    if child.write_mode is not WriteMode.CREATE or child.resource not in (PODS, BATCH_JOBS):
        return child
    build = child.body

    def body() -> dict[str, Any]:
        made = build()
        if child.resource == PODS:
            return {**made, "spec": change(made["spec"])}
        template = made["spec"]["template"]
        return {**made, "spec": {**made["spec"], "template": {**template, "spec": change(template["spec"])}}}

    return replace(child, body=body)


def name_check(resource: Resource, name: str) -> Child:
    """Check the name of a child that is created later. Nothing else is created while another owner has that name."""
    return Child(resource, name, dict, WriteMode.CHECK_NAME, first=1, lasting=True)


@dataclass(frozen=True, slots=True)
class Probe:
    """A pod to probe: whether a server at any of these ports answers with these first bytes."""

    uid: str
    address: str
    ports: tuple[int, ...]
    greeting: bytes


@dataclass(frozen=True, slots=True)
class Deletion:
    """A child to delete, identified by UID. Without a UID, the object of that name that belongs to the job."""

    resource: Resource
    name: str
    uid: str = ""
    is_foreground: bool = False
    """Whether the object stays until its dependents are gone."""
    is_forced: bool = False
    """Whether not to wait for a pod's node to end its containers."""


def shortened(text: str, longest: int) -> str:
    """Truncate the text to this number of characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job cannot run: the field, and the message of the original's webhook.

    A problem that applies only ``at_start`` does not stop a job that already runs, such as a worker count scaled to zero.
    """

    field: str
    text: str
    at_start: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


CONTINUES = "the job keeps its current pods; none is created, replaced or deleted"
"""What an invalid change of the spec does to a job that has started."""


def no_effect_text(problems: Iterable[Problem]) -> str:
    """Return why a changed spec of a job that has started has no effect."""
    return (
        f"the changed spec has no effect because it is invalid: {'; '.join(map(str, problems))}; {CONTINUES}"
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a kind concludes from the counts: the message of each condition that becomes true, empty for the others.

    ``reason`` is the reason of a failure, without its prefix, the kind.
    """

    running: str = ""
    succeeded: str = ""
    failed: str = ""
    restarting: str = ""
    reason: str = "Failed"


class Count(StrEnum):
    """What the job counters of the metrics count."""

    CREATED = "created"
    DELETED = "deleted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


class FailureReason(StrEnum):
    """Why a job failed, if no failure of a pod is the reason. For the metrics."""

    DEADLINE = "deadline"
    PENDING_TIMEOUT = "pending_timeout"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Plan:
    """All actions of one reconcile. An empty plan means nothing to do.

    ``status`` is the desired status, which is written only if it differs. ``events`` and ``counts`` are recorded after that write. With
    ``again``, the next reconcile follows immediately after children were created, because own writes trigger none. ``failure_reason`` says
    why the job fails, if ``counts`` contains that: a ``FailureReason``, or a reason of pods. ``restart_action`` is the action of the failure rule
    by which the job restarts as a whole.
    """

    status: JobStatus | None = None
    create: tuple[Child, ...] = ()
    delete: tuple[Deletion, ...] = ()
    probes: tuple[Probe, ...] = ()
    events: tuple[Event, ...] = ()
    counts: tuple[Count, ...] = ()
    failure_reason: str = ""
    restart_action: str = ""
    delete_job: bool = False
    requeue_after_seconds: float | None = None
    again: bool = False
    is_partial: bool = False
    """Whether more children are missing than ``create`` contains: the next reconcile plans the others."""


def limited(children: Iterable[Child], most: int | None) -> tuple[tuple[Child, ...], bool]:
    """Return the first children, all without a limit, and whether the limit left some out."""
    found = tuple(islice(children, None if most is None else most + 1))
    return found[:most], most is not None and len(found) > most


def earliest(*seconds: float | None) -> float | None:
    """Return the shortest of these times, None if all are None. For ``Plan.requeue_after_seconds``."""
    return min((value for value in seconds if value is not None), default=None)
