"""What the controller remembers of a job between two reconciles.

Each job has one ``JobMemory``, by UID. It is created when the watch first reports something to remember, or at the first reconcile, and
is discarded once the job is gone. Nothing in it is stored in the cluster: each field says what happens if it is lost, as at a restart.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from api.children import Pod
from api.meta import Resource
from controller.domain import Failure, Key, Plan, TroubleKey
from controller.kube.bounded_dict import BoundedDict
from controller.reconcile.backoff import WriteBackoff
from controller.reconcile.debounce import StatusDebouncer
from controller.reconcile.job_history import JobHistory
from controller.reconcile.jobs import JobRow
from controller.reconcile.transitions import Transition
from controller.runtime.recorder import Subject

REMEMBERED_EVENTS = 32_768
"""Events of a job that are recognized when they recur: three for each pod of the largest job."""


@dataclass(frozen=True, slots=True)
class UncachedChild:
    """An uncached child as this process last left it; without a UID it was deleted."""

    version: str
    uid: str = ""
    resource_version: int = 0
    checked_at: float = 0.0
    """Loop time."""
    unchanged_checks: int = 0
    """How many consecutive checks found it unchanged while pods did not start."""
    grants: bool = False
    """Whether it is a Role with rules."""


@dataclass(frozen=True, slots=True)
class UnrecordedWrite:
    """A plan whose status may have been written, because the response was lost."""

    plan: Plan
    transitions: tuple[Transition, ...]


@dataclass(slots=True)
class EventMemory:
    """The recorded events of a job."""

    children: int = 0
    """Children with an event of their own. If it is lost, more children get one."""
    unsummarized: dict[tuple[Subject, str], list[tuple[Resource, str]]] = field(
        default_factory=dict[tuple[Subject, str], list[tuple[Resource, str]]]
    )
    """(job, verb) → children that still need an event. A leader that hands over records them; after a crash they have none."""
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
    is_managed: bool = False
    """Whether this operator manages the job. If it is lost, the log does not say that the job was deleted."""
    is_blocked: bool = False
    """Whether somebody must act before missing children can be created. If it is lost, the status contains it."""
    has_taken_names: bool = False
    """Whether objects of others had names of missing children. If it is lost, a plan contains the first missing children, not all."""
    is_manager_corrected: bool = False
    """Whether ``managedBy`` was set, or could not be. If it is lost, it is set once more, even if somebody else changed it."""
    is_suspension_pending: bool = False
    """Whether a suspension was observed that no status contains yet. If it is lost, pods from before a short suspension stay."""
    has_unknown_write: bool = False
    """Whether the result of a create is unknown because its response was lost. If it is lost, the caches are filled again anyway."""
    is_child_outdated: bool = False
    """Whether an answer showed that others had changed a child, which its watch will not report. If it is lost, the same holds."""
    complete_at_version: int | None = None
    """The job's resourceVersion when its missing children were last created.

    Children that have been there and are missing at the same version are created only after the job has been read from the server. A job
    that was deleted while its watch was down takes its children along, and otherwise each would be created again as fast as the garbage
    collector deletes them. If it is lost, they are created. Source of this fence: KEP-5647.
    """
    complete_children: int = 0
    """How many cached children the job had at that version. With fewer of them, some are missing again; otherwise it is time for more,
    such as the launcher of ready workers. It is lost together with ``complete_at_version``."""
    troubles_since: Mapping[TroubleKey, datetime] = field(default_factory=dict[TroubleKey, datetime])
    """Since when pods have had troubles, for failure rules that name reasons. If it is lost, their time begins again."""
    removed_pods: frozenset[str] = frozenset()
    """UIDs of pods that the operator deletes and whose end is no failure. If it is lost, those that still terminate count as deleted by
    somebody."""
    surplus_pods: frozenset[str] = frozenset()
    """Those of them that were beyond the replicas of their role. If it is lost, they count as restarts once others have their names."""
    pods_deleted_before_end: frozenset[str] = frozenset()
    """UIDs of terminating pods that had not ended when their deletion was observed. If it is lost, those that have ended since count as failed
    by themselves."""
    failures: Mapping[str, Failure] = field(default_factory=dict[str, Failure])
    """By name: the last failures of the job's pods. If it is lost, the annotations of pods provide the counts, and the Failed message of a
    limit lacks the failure of a pod that has been replaced."""
    unrecorded: UnrecordedWrite | None = None
    """If it is lost, so are the events, the counts and the log lines of that plan."""
    uncached_children: dict[tuple[str, str], UncachedChild] = field(
        default_factory=dict[tuple[str, str], UncachedChild]
    )
    """By kind and name. If it is lost, each is read again."""
    status: StatusDebouncer = field(default_factory=StatusDebouncer)
    """A status that waits to be written. If it is lost, it is computed again."""
    write_backoff: WriteBackoff = field(default_factory=WriteBackoff)
    """The pause after failed writes of children. If it is lost, they are tried at once."""
    events: EventMemory = field(default_factory=EventMemory)
    history: JobHistory | None = None
    """What metrics have counted; None before the first reconcile. If it is lost, what happens until the next reconcile is not counted."""


class JobMemories:
    """The memories of all jobs of one kind."""

    def __init__(self, on_discard: Callable[[str], None] = lambda uid: None) -> None:
        """``on_discard`` is called with the UID of a reconciled job that is gone."""
        self._on_discard = on_discard
        self._by_uid: dict[str, JobMemory] = {}
        self._uids: dict[Key, str] = {}
        """Of the reconciled jobs."""

    def __iter__(self) -> Iterator[JobMemory]:
        return iter(list(self._by_uid.values()))

    def observe(self, before: JobRow | None, after: JobRow | None) -> None:
        """Record that a job was added, changed or deleted.

        A suspension may end before the next reconcile. The pods from before the suspension must be deleted nevertheless, because Kueue admits
        the job with resources for new pods.
        """
        if after is None:
            if before is not None and self._uids.get(Key(before.namespace, before.name)) != before.uid:
                self._by_uid.pop(before.uid, None)
        elif after.is_suspended or (before and before.uid == after.uid and before.is_suspended):
            self._get(after.uid).is_suspension_pending = True

    def reconciled(self) -> list[Key]:
        """Return the reconciled jobs, also those that were deleted while nothing was reconciled."""
        return list(self._uids)

    def current(self, key: Key) -> JobMemory | None:
        """Return the memory of the job of that name that was reconciled last."""
        uid = self._uids.get(key)
        return None if uid is None else self._by_uid[uid]

    def begin(self, key: Key, uid: str) -> JobMemory:
        """Return the memory of a job that is about to be reconciled, and discard that of an earlier job of the same name."""
        if self._uids.get(key, uid) != uid:
            self.discard(key)
        self._uids[key] = uid
        return self._get(uid)

    def discard(self, key: Key) -> None:
        """Drop the memory of a job that is deleted or being deleted."""
        uid = self._uids.pop(key, "")
        if self._by_uid.pop(uid, None) is not None:
            self._on_discard(uid)

    def observe_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Record that a pod of a reconciled job terminates or is gone. The next reconcile may find that it has ended, or its replacement."""
        pod = after or before
        memory = self._by_uid.get(pod.owner_uid) if pod is not None else None
        if memory is None or pod is None:
            return
        if after is None:
            if memory.history is not None and pod.uid not in memory.surplus_pods:
                memory.history.record_lost_pod(pod)
        elif pod.deleting and not pod.is_finished:
            memory.pods_deleted_before_end |= {pod.uid}

    def _get(self, uid: str) -> JobMemory:
        memory = self._by_uid.get(uid)
        if memory is None:
            memory = self._by_uid[uid] = JobMemory(uid)
        return memory
