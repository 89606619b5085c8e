"""Hangs: whether the pods of a running job make progress, which pod is named when none does, and what follows.

Each time is one of this process's event loop, except ``Reading.at``. The silence of a pod lasts from the end of the read that first showed its
newest progress to the begin of the last read that succeeded. It is never longer than the real one, whatever the clocks of nodes say, however
rarely the pod is read, and however many reads fail.

Source: Kubernetes, apps/v1 Deployment, progressDeadlineSeconds, for the word. Training-operator has no such field.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from api import conditions
from api.children import Pod
from api.failure_policy import FailureAction, FailureRule
from api.job import ConditionType, Job, JobStatus, RunPolicy
from api.messages import without_control
from api.progress import Progress
from controller.domain import Event, Hang, Plan, Problem, Role, Severity, Snapshot, shortened
from controller.kind.checks import unknown_role_problems, unsupported_value
from controller.kind.reasons import ConditionReason, EventReason
from controller.kind.status_builder import StatusBuilder
from controller.policy import recovery

SHORTEST_DEADLINE: Final = 10
LONGEST_PATTERN: Final = 1024
STACK_SIGNALS: Final = ("SIGUSR1", "SIGUSR2")
MOST_STACKS: Final = 3
"""How many different stacks an attempt keeps."""
LONGEST_STACK: Final = 1000
AT_ONCE_SECONDS: Final = 2.0
AT_ONCE_SHARE: Final = 0.25
"""Pods fell silent at once if less than this share of the deadline, or ``AT_ONCE_SECONDS``, lies between them."""

_ACTIONS: Final = frozenset(FailureAction) - {FailureAction.RESTART_POD}
"""The actions that can end a hang. A replaced pod would not: the others wait for the one that is gone."""
_ANNOTATION = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)
_STOPPED = re.compile(r"process \d+, (stopped|tracing stop)")


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod whose progress counts."""

    role: str
    """The label of its role."""
    name: str
    uid: str
    node: str
    container: str
    """Its main container."""
    since: datetime
    """When its youngest container started: in place of a container that restarted, another program runs."""


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A job whose progress is observed. The clock begins again whenever one of these fields changes."""

    namespace: str
    name: str
    deadline_seconds: int
    progress: Progress
    attempt: int
    pods: tuple[RunningPod, ...]
    not_before: datetime | None = None
    """When the attempt begins at the earliest: agents that restart in place wait until then."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read of a pod found. ``token`` identifies its newest progress; empty if it shows none."""

    token: str
    at: float | None = None
    """When that progress was made by the clock of its node or of the API server, in seconds since 1970."""


@dataclass(slots=True)
class PodProgress:
    """What is known about the progress of one pod."""

    progressed_at: float
    read_at: float
    token: str = ""
    at: float | None = None

    @property
    def silent_seconds(self) -> float:
        """How long the pod has certainly made no progress."""
        return self.read_at - self.progressed_at

    def record(self, reading: Reading, began: float, ended: float) -> bool:
        """Record a successful read, and return whether it showed progress."""
        self.read_at = began
        if not reading.token or reading.token == self.token:
            return False
        self.token, self.at, self.progressed_at = reading.token, reading.at, ended
        return True


@dataclass(slots=True)
class JobProgress:
    """What is known about the progress of one job since ``began``."""

    job: ObservedJob
    began: float
    pods: dict[str, PodProgress] = field(init=False)
    """By UID."""

    def __post_init__(self) -> None:
        self.pods = {pod.uid: PodProgress(self.began, self.began) for pod in self.job.pods}

    @property
    def newest(self) -> RunningPod:
        """The pod whose progress was seen last."""
        return max(self.job.pods, key=lambda pod: self.pods[pod.uid].progressed_at)

    @property
    def silent_seconds(self) -> float:
        """How long the whole job has certainly made no progress; with ``everyPod``, how long one of its pods has not."""
        known = self.pods.values()
        if self.job.progress.every_pod:
            return max(pod.silent_seconds for pod in known)
        return min(pod.read_at for pod in known) - max(pod.progressed_at for pod in known)

    @property
    def is_hung(self) -> bool:
        return self.silent_seconds >= self.job.deadline_seconds

    def silent(self) -> tuple[RunningPod, ...]:
        """Return the pods that are silent in a hang, the one silent the longest first.

        A pod that was silent for the whole deadline before the others comes last: it writes nothing even if all is well.
        """
        deadline = self.job.deadline_seconds
        pods = self.job.pods
        if self.job.progress.every_pod:
            pods = tuple(pod for pod in pods if self.pods[pod.uid].silent_seconds >= deadline)
        newest = max((self._order(pod) for pod in pods), default=0.0)
        return tuple(sorted(pods, key=lambda pod: (newest - self._order(pod) > deadline, self._order(pod))))

    def hang(self, stacks: Mapping[str, str], note: str = "") -> Hang:
        """Return the hang with the pod that is named for it. ``stacks`` are by the pods' UIDs, ``note`` says why some are missing."""
        silent = self.silent()
        named, why = self._named(silent, stacks)
        what = _what(self.job.progress)
        who = silent[0].name if len(silent) == 1 else f"{len(silent)} pods"
        text = f"no {what} from {who} for {int(self.silent_seconds)} s; {why}"
        return Hang(
            named.role,
            named.name,
            named.uid,
            named.node,
            f"{text}; {note}" if note else text,
            grouped(stacks, [named, *(pod for pod in silent if pod != named)]),
        )

    def _named(self, silent: Sequence[RunningPod], stacks: Mapping[str, str]) -> tuple[RunningPod, str]:
        first = silent[0]
        if len(silent) == 1:
            return first, f"{first.name} is the only one"
        gap = self._order(silent[1]) - self._order(first)
        if gap >= max(AT_ONCE_SECONDS, self.job.deadline_seconds * AT_ONCE_SHARE):
            return first, f"{first.name} fell silent {int(gap)} s before the others"
        if odd := odd_one([pod.uid for pod in silent], stacks):
            pod = next(pod for pod in silent if pod.uid == odd)
            return pod, f"the stack of {pod.name} differs from all others"
        return first, f"{first.name} has been silent the longest"

    def _order(self, pod: RunningPod) -> float:
        """Return when a pod made progress last: by its node's clock if each pod has such a time."""
        known = [self.pods[running.uid] for running in self.job.pods]
        own = self.pods[pod.uid]
        return (
            own.progressed_at if own.at is None or any(progress.at is None for progress in known) else own.at
        )


def _what(progress: Progress) -> str:
    """Return what the source of the job's progress lacks in a hang."""
    if progress.exec is not None:
        return "progress reported by the command"
    if progress.annotation is not None:
        return "new annotation"
    return "matching line in the logs" if progress.logs and progress.logs.pattern else "line in the logs"


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Return the compiled RE2 expression. It matches bytes in linear time.

    Raises:
        ValueError: it is not valid; the message says why.
    """
    re2: Any = import_module("re2")  # imported late: few jobs have a pattern
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        why = error.args[0]
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else why) from error


def problems(policy: RunPolicy, roles: Mapping[str, Role]) -> Iterator[Problem]:
    """Return the problems of ``progressDeadlineSeconds`` and ``progress``."""
    deadline, progress, path = policy.progress_deadline_seconds, policy.progress, "spec.runPolicy.progress"
    if deadline is not None and deadline < SHORTEST_DEADLINE:
        yield Problem(
            f"{path}DeadlineSeconds", f"Invalid value: {deadline}: must be at least {SHORTEST_DEADLINE}"
        )
    if progress is None:
        return
    if deadline is None:
        yield Problem(f"{path}DeadlineSeconds", "Required value: must be set with progress")
    if sum(given is not None for given in (progress.logs, progress.annotation, progress.exec)) > 1:
        yield Problem(path, "Forbidden: must have at most one of logs, annotation and exec")
    yield from unknown_role_problems(progress.roles, roles, f"{path}.roles")
    if progress.roles == []:
        yield Problem(f"{path}.roles", "Required value: an empty list matches nothing; leave it out")
    if progress.logs is not None and progress.logs.pattern is not None:
        yield from _pattern_problems(progress.logs.pattern, f"{path}.logs.pattern")
    if progress.annotation is not None and not _ANNOTATION.fullmatch(progress.annotation):
        text = f'Invalid value: "{shortened(progress.annotation, 64)}": must be the name of an annotation'
        yield Problem(f"{path}.annotation", text)
    if progress.exec is not None and not progress.exec.command:
        yield Problem(f"{path}.exec.command", "Required value: must have a command")
    if progress.stack_signal is not None and progress.stack_signal not in STACK_SIGNALS:
        yield Problem(f"{path}.stackSignal", unsupported_value(progress.stack_signal, STACK_SIGNALS))


def _pattern_problems(pattern: str, path: str) -> Iterator[Problem]:
    if len(pattern) > LONGEST_PATTERN:
        yield Problem(path, f"Too long: must have at most {LONGEST_PATTERN} characters")
        return
    try:
        compiled(pattern)
    except ValueError as error:
        yield Problem(path, f'Invalid value: "{shortened(pattern, 64)}": not an RE2 expression: {error}')


def observed(job: Job, roles: Mapping[str, Role], snapshot: Snapshot) -> ObservedJob | None:
    """Return the job as it is observed; None while its progress does not count.

    It counts while the job is Running and no pod of it is on its way: a pod that is pulled, scheduled or deleted is not silent.
    """
    policy, status = job.spec.policy, job.status or JobStatus()
    deadline = policy.progress_deadline_seconds
    if deadline is None or policy.suspend or not conditions.is_true(status, ConditionType.RUNNING):
        return None
    if any(problems(policy, roles)):
        return None
    progress = policy.progress or Progress()
    wanted = None if progress.roles is None else {role.lower() for role in progress.roles}
    by_label = {role.label: role for role in roles.values()}
    children = snapshot.all_pods
    if recovery.old(children, status) or recovery.is_ahead(children, status):
        return None
    # The pods of a batch Job may not say which role they have.
    indexed = {pod.role for pod in snapshot.pods}
    of_batch = next((label for label in by_label if label not in indexed), "")
    found: list[RunningPod] = []
    for pod in children:
        if pod.is_finished and not pod.deleting:
            continue
        if not pod.is_active or pod.running_since is None:
            return None
        label = pod.role or of_batch
        if wanted is None or label in wanted:
            found.append(_running_pod(pod, label, by_label.get(label), pod.running_since))
    if not found:
        return None
    return ObservedJob(
        job.metadata.namespace,
        job.metadata.name,
        deadline,
        progress,
        status.restarts or 0,
        tuple(found),
        status.last_attempt.restart_time if status.last_attempt else None,
    )


def with_first_observation(job: Job, plan: Plan) -> Plan:
    """Return the plan with a reconcile that follows the status in which the job has begun to run.

    Only a running job is observed. The operator's own write of the status triggers no reconcile, and if all goes well, pods do not change again.
    """
    if job.spec.policy.progress_deadline_seconds is None:
        return plan
    was_running, is_running = (
        conditions.is_true(status, ConditionType.RUNNING) for status in (job.status, plan.status)
    )
    return replace(plan, requeue_after_seconds=0) if is_running and not was_running else plan


def _running_pod(pod: Pod, label: str, role: Role | None, since: datetime) -> RunningPod:
    spec: Mapping[str, Any] = (role.template.get("spec") if role else None) or {}
    first: Mapping[str, Any] = next(iter(spec.get("containers") or ()), {})
    container = (role.container if role else "") or first.get("name", "")
    return RunningPod(label, pod.name, pod.uid, pod.node, container, since)


def match(job: Job, roles: Mapping[str, Role], hang: Hang | None) -> recovery.Match | None:
    """Return the rule of the failure policy that matches a hang; None if there is no hang, or if it fails the job.

    Rules with the action ``RestartPod`` match no hang.
    """
    policy = job.spec.policy.failure_policy
    if hang is None or policy is None:
        return None
    return recovery.match(policy, _failure(roles, hang), _ACTIONS)


def ending(job: Job, roles: Mapping[str, Role], hang: Hang | None) -> list[recovery.Match]:
    """Return the match of a hang that ends the attempt, if there is one. A rule with the action ``Ignore`` leaves a job that hangs alone."""
    matched = match(job, roles, hang)
    return [matched] if matched and matched.action is not FailureAction.IGNORE else []


def fail(job: Job, roles: Mapping[str, Role], hang: Hang, builder: StatusBuilder) -> Plan:
    """Fail a job that hangs and whose failure policy, if it has one, does not say what to do."""
    rule = FailureRule(action=FailureAction.FAIL_JOB)
    matched = recovery.Match(_failure(roles, hang), rule, number=0)
    attempt = recovery.ended(builder.status, matched, job.metadata.uid, builder.now)
    attempt = attempt.model_copy(update={"rule": None})
    builder.update({"attempts": recovery.recorded(builder.status, attempt)})
    text = f"job {job.metadata.name} has failed because it made no progress: {hang.message}."
    builder.failed(text, Severity.WARNING, ConditionReason.NO_PROGRESS)
    return builder.plan()


def _failure(roles: Mapping[str, Role], hang: Hang) -> recovery.PodFailure:
    return recovery.PodFailure(
        role=next((role.name for role in roles.values() if role.label == hang.role), hang.role),
        pod=hang.pod,
        node=hang.node,
        reasons=frozenset({recovery.NO_PROGRESS}),
        reason=recovery.NO_PROGRESS,
        message=hang.message,
        uid=hang.uid,
        stacks=hang.stacks,
    )


def unread_event(kind: str, text: str) -> Event:
    """Return the warning about a job whose progress cannot be read."""
    message = f"hang detection is not working: {text}"
    return Event(Severity.WARNING, f"{kind}{EventReason.PROGRESS_UNKNOWN}", message, once=message)


def excerpt(dump: str) -> str:
    """Return the processes and the stacks of their main threads, without control characters.

    ``dump`` has the lines of ``py-spy dump`` or of ``faulthandler`` below a line ``process PID, STATE: COMMAND``.
    """
    kept: list[str] = []
    is_main, is_command, pid = True, False, ""
    for line in without_control(dump).splitlines():
        text = line.rstrip()
        if text.startswith(("Process ", "Python v")):
            # py-spy prints the command line, which may have several lines and contain secrets, before the version.
            is_command = text.startswith("Process ")
            continue
        if is_command or not text:
            continue
        if text.startswith("process "):
            pid = text.split()[1].rstrip(",")
        if not text.startswith(" "):
            # py-spy names a thread only if there are several; the main one has the number of its process.
            is_main = not text.startswith("Thread ") or '"MainThread"' in text or text.split()[1] == pid
        if is_main:
            kept.append(text)
    return "\n".join(kept)


def _key(text: str) -> tuple[str, ...]:
    """Return what makes two stacks differ: their frames, and processes that are stopped; not numbers of processes, and no arguments."""
    stopped = [found[1] for found in _STOPPED.finditer(text)]
    return (*stopped, *(line.strip() for line in text.splitlines() if line.startswith(" ")))


def odd_one(uids: Collection[str], stacks: Mapping[str, str]) -> str:
    """Return the UID of the only pod whose stack no other pod has, if the others' are known and shared; else empty."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for uid in uids:
        if uid in stacks:
            groups.setdefault(_key(stacks[uid]), []).append(uid)
    alone = [group[0] for group in groups.values() if len(group) == 1]
    return alone[0] if len(alone) == 1 and len(groups) > 1 else ""


def grouped(stacks: Mapping[str, str], pods: Iterable[RunningPod]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the different stacks with the pods that have them, in the order of the pods."""
    groups: dict[tuple[str, ...], tuple[list[str], str]] = {}
    for pod in pods:
        if text := stacks.get(pod.uid):
            groups.setdefault(_key(text), ([], shortened(text, LONGEST_STACK)))[0].append(pod.name)
    return tuple((_names(names), text) for names, text in [*groups.values()][:MOST_STACKS])


def _names(names: Sequence[str], most: int = 16) -> tuple[str, ...]:
    return (*names[:most], f"and {len(names) - most} more") if len(names) > most else tuple(names)
