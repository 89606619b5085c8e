"""What the controller remembers of a job between two reconciles.

Each job has one ``JobMemory``, by UID. It is created when the watch first reports something to remember, or at the first reconcile, and
is discarded once the job is gone. Nothing in it is stored in the cluster: each field says what happens if it is lost, as at a restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from api.meta import Resource
from controller.domain import Failure, Key, Plan
from controller.reconcile.backoff import WriteBackoff
from controller.reconcile.debounce import StatusDebouncer
from controller.reconcile.jobs import JobRow
from controller.runtime.bounded_dict import BoundedDict
from controller.runtime.recorder import Subject

REMEMBERED_EVENTS = 32_768
"""Events of a job that are recognized when they recur: three for each pod of the largest job."""


@dataclass(frozen=True, slots=True)
class UncachedChild:
    """A child that decisions do not read, as this process last left it; without a UID it was deleted."""

    version: str
    uid: str = ""
    resource_version: int = 0
    checked_at: float = 0.0
    """Loop time."""
    unchanged_checks: int = 0
    """How many checks in a row found it as it was left, while pods did not start."""
    grants: bool = False
    """Whether it is a Role with rules."""


@dataclass(slots=True)
class EventMemory:
    """Which events a job has had."""

    children: int = 0
    """Children with an event of their own. If it is lost, more children get one."""
    unsummarized: dict[tuple[Subject, str], list[tuple[Resource, str]]] = field(
        default_factory=dict[tuple[Subject, str], list[tuple[Resource, str]]]
    )
    """(job, verb) → children that still need an event. A leader that hands over records them before; if it crashes, they have none."""
    once: BoundedDict[int, None] = field(default_factory=lambda: BoundedDict[int, None](REMEMBERED_EVENTS))
    """Hashes of events that are recorded once. If it is lost, they are recorded again."""


@dataclass(slots=True)
class JobMemory:
    """One job, by UID."""

    uid: str
    is_reconciled: bool = False
    """Whether this process has reconciled the job before. If it is lost, children that the caches lack are first read by name."""
    is_new: bool = False
    """Whether the job had no status at its first reconcile here. If it is lost, uncached children are read before they are created."""
    is_blocked: bool = False
    """Whether somebody has to act before missing children can be created. If it is lost, the status says so."""
    is_manager_corrected: bool = False
    """Whether ``managedBy`` was set, or could not be. If it is lost, it is set once more, against whoever sets it otherwise."""
    is_suspension_pending: bool = False
    """Whether a suspension was seen that no status tells of yet. If it is lost, pods of before a short suspension stay."""
    has_unknown_write: bool = False
    """Whether a create may or may not have been done, as its answer was lost. If it is lost, the caches are filled anew anyway."""
    is_child_outdated: bool = False
    """Whether an answer showed that others had changed a child, which its watch will not report. If it is lost, likewise."""
    complete_at_version: int | None = None
    """The job's resourceVersion when its missing children were last created.

    Children that are missing again at the same version are created only after the job has been read from the server: a job that was
    deleted while its watch was down takes its children along, and each would be created again as fast as the garbage collector deletes
    them. If it is lost, they are created. Source of this fence: KEP-5647.
    """
    failures: Mapping[str, Failure] = field(default_factory=dict[str, Failure])
    """By name: the last failures of the job's pods. If it is lost, pods count from their annotation on."""
    unrecorded: Plan | None = None
    """A plan whose status may or may not have been written, as the answer was lost. If it is lost, so are its events and counts."""
    uncached_children: dict[tuple[str, str], UncachedChild] = field(
        default_factory=dict[tuple[str, str], UncachedChild]
    )
    """By kind and name. If it is lost, each is read again."""
    status: StatusDebouncer = field(default_factory=StatusDebouncer)
    """A status that waits to be written. If it is lost, it is computed again."""
    write_backoff: WriteBackoff = field(default_factory=WriteBackoff)
    """The pause after failed writes of children. If it is lost, they are tried at once."""
    events: EventMemory = field(default_factory=EventMemory)


class JobMemories:
    """The memories of all jobs of one kind."""

    def __init__(self) -> None:
        self._by_uid: dict[str, JobMemory] = {}
        self._uids: dict[Key, str] = {}
        """Of the jobs that were reconciled."""

    def __iter__(self) -> Iterator[JobMemory]:
        return iter(list(self._by_uid.values()))

    def observe(self, before: JobRow | None, after: JobRow | None) -> None:
        """Take note of a job that was added, changed or deleted.

        A suspension may end before the next reconcile. The pods are of before all the same and have to go: what Kueue admits is a place
        for new ones.
        """
        if after is None:
            if before is not None and self._uids.get(Key(before.namespace, before.name)) != before.uid:
                self._by_uid.pop(before.uid, None)
        elif after.is_suspended or (before and before.uid == after.uid and before.is_suspended):
            self._get(after.uid).is_suspension_pending = True

    def current(self, key: Key) -> JobMemory | None:
        """The memory of the job of that name that was reconciled last."""
        uid = self._uids.get(key)
        return None if uid is None else self._by_uid[uid]

    def begin(self, key: Key, uid: str) -> JobMemory:
        """The memory of a job that is about to be reconciled. Another job of that name is gone, so its memory is discarded."""
        if self._uids.get(key, uid) != uid:
            self.discard(key)
        self._uids[key] = uid
        return self._get(uid)

    def discard(self, key: Key) -> None:
        """Drop the memory of a job that is gone or being deleted."""
        self._by_uid.pop(self._uids.pop(key, ""), None)

    def _get(self, uid: str) -> JobMemory:
        memory = self._by_uid.get(uid)
        if memory is None:
            memory = self._by_uid[uid] = JobMemory(uid)
        return memory
