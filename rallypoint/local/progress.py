"""The state of submitted jobs and their pods, from the changes that informers report.

Plain data; no I/O, except that a look at the file system shows whether a script that Python did not find is missing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from api.labels import JOB_NAME
from api.pod_problems import (
    NO_STATE,
    ContainerProblem,
    ContainerState,
    ContainerStatus,
    PodStatus,
    ProblemType,
    Termination,
    container_problems,
    failed_before_restart,
    read_status,
    reason_and_message,
    unscheduled,
)
from api.times import parse_time
from rallypoint.local.manifest import Manifest, Row, containers

ENDED = ("Succeeded", "Failed")
PERMANENT_REASONS = ("Refused", "NodeError")
"""Waiting reasons of a container that the node will never start."""
START_ERROR = "StartError"
"""The termination reason of a container whose program could not be executed."""
SHELL_EXIT_CODES = {126: "cannot be executed", 127: "was not found"}
"""What the exit codes of a shell say about a program."""
PYTHON_EXIT_CODE = 2
"""The exit code of Python if it cannot open its script, and of many programs for other errors of their command line."""
MAX_FAILED_STARTS = 2
"""One failed start may have a cause that passes; the second one follows at once."""
CANNOT_CREATE = "CreateContainerError"
"""The waiting reason of a container whose working directory does not exist."""
_PYTHON = re.compile(r"(.*/)?python\d*(\.\d+)?\Z")


class Change(NamedTuple):
    """A change as text."""

    text: str
    in_table: bool = False
    """Whether the table of replicas also shows it."""


@dataclass
class Replica:
    """A pod name of a job: its current pod and its restarts."""

    name: str
    short: str
    """The name without the job's: ``worker-0``."""
    pod: Manifest = field(repr=False)
    """The pod; once its deletion is requested, its last state before that. How it ends afterwards does not count."""
    uids: list[str] = field(default_factory=list)
    """The UIDs of all pods with the name, in order."""
    gone: bool = False
    earlier_restarts: int = 0
    first_failed_pod: Manifest | None = field(default=None, repr=False)
    """The first state of a pod of this name that had failed or in which a container had; the pod may have been replaced since."""
    _failed_starts: set[tuple[str, str, int]] = field(default_factory=set, repr=False)
    """The container, the UID of the pod and the number of each run whose program was missing."""
    _status: PodStatus = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.update(self.pod)

    def update(self, pod: Manifest) -> None:
        """Replace the pod with a newer version or with its replacement, and read the status once."""
        self.pod, self._status = pod, read_status(pod)
        problems = container_problems(self._status)
        has_failed = (
            self._status.phase == "Failed"
            or any(problem.termination for problem in problems)
            or bool(failed_before_restart(self._status))
        )
        if has_failed and self.first_failed_pod is None:
            self.first_failed_pod = pod
        # The first restart follows at once, so that often only the run after it is seen.
        restarts = {container.name: container.restart_count for container in _containers(self._status)}
        ends = [(problem.container, problem.restarts, problem.termination) for problem in problems]
        ends += [(name, restarts[name] - 1, end) for name, end in failed_before_restart(self._status)]
        for name, run, end in ends:
            if self._failed_start(name, end):
                self._failed_starts.add((name, pod["metadata"]["uid"], run))

    @property
    def phase(self) -> str:
        """Return the pod's phase, or Deleted if it was deleted before it ended, for example by ``cleanPodPolicy``."""
        phase = self._status.phase or "Pending"
        return "Deleted" if self.gone and phase not in ENDED else phase

    @property
    def node(self) -> str:
        return str(self.pod["spec"].get("nodeName") or "")

    @property
    def restarts(self) -> int:
        """Return the number of container restarts and pod replacements."""
        return self.earlier_restarts + self.restarts_in_place + len(self.uids) - 1

    @property
    def restarts_in_place(self) -> int:
        """Return the number of container restarts in this pod."""
        return sum(container.restart_count for container in _containers(self._status))

    @property
    def detail(self) -> str:
        """Return why the replica waits or failed; empty if it runs or succeeded."""
        status = self._status
        problems = container_problems(status)
        failures = [text for problem in problems if (text := _failure(problem))]
        if self.phase == "Failed":
            return ", ".join(filter(None, [*failures, status.reason, status.message]))
        condition = unscheduled(status)
        scheduling = f"{condition.reason}: {condition.message}" if condition else ""
        return next(filter(None, (scheduling, *map(_waiting, problems), *failures)), "")

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the first failed container, or 0 if all main containers have succeeded."""
        ends = [state.terminated for state in _states(self._status)]
        mains = [
            (container.state or NO_STATE).terminated for container in self._status.container_statuses or ()
        ]
        failed = next((end.exit_code for end in ends if end and end.exit_code), None)
        return 0 if failed is None and mains and all(mains) else failed

    @property
    def start_error(self) -> str:
        """Return why the node can never run the pod; empty if it can."""
        waiting = [state.waiting for state in _states(self._status) if state.waiting]
        return next((state.message for state in waiting if state.reason in PERMANENT_REASONS), "")

    @property
    def is_running(self) -> bool:
        """Whether a main container runs."""
        return any(
            (container.state or NO_STATE).running for container in self._status.container_statuses or ()
        )

    @property
    def missing_program(self) -> str:
        """Return why a container does not start although its restart policy starts it again and again; empty if nothing is missing."""
        for problem in container_problems(self._status):
            failures = sum(container == problem.container for container, _, _ in self._failed_starts)
            text = self._failed_start(problem.container, problem.termination)
            if failures >= MAX_FAILED_STARTS and text:
                return f"container {problem.container} {text}"
        return ""

    @property
    def missing_folder(self) -> str:
        """Return which container waits for its working directory; empty if none does."""
        for problem in container_problems(self._status):
            if (waiting := problem.waiting) and waiting.reason == CANNOT_CREATE:
                return f"container {problem.container} cannot start: {waiting.message}; create the folder, or change workingDir"
        return ""

    def _failed_start(self, name: str, end: Termination | None) -> str:
        """Return how the start of a container failed because of a missing program, with the next step; empty if it did not."""
        if end is None:
            return ""
        if end.reason == START_ERROR:
            return f"cannot start: {end.message}{self._hint(name, end.message)}"
        ended = f"ended again with exit code {end.exit_code}"
        if why := SHELL_EXIT_CODES.get(end.exit_code):
            return f"{ended}: a program {why}; correct the command, or install the program"
        if end.exit_code == PYTHON_EXIT_CODE and (script := _missing_script(self._container(name))):
            return f"{ended}: its script {script} does not exist; relative paths start at the folder in which this command runs"
        return ""

    def _container(self, name: str) -> Manifest:
        return next((entry for entry in containers(self.pod) if entry["name"] == name), {})

    def _hint(self, name: str, message: str) -> str:
        """Return the next step for a program that is not found."""
        if "not found" not in message and "no such file" not in message:
            return ""
        container = self._container(name)
        program = next(iter(_command(container)), "")
        if "/" not in program:
            return "; install it in the environment of this command, or use its path"
        is_relative = not program.startswith("/") and not container.get("workingDir")
        return "; relative paths start at the folder in which this command runs" if is_relative else ""

    @property
    def over(self) -> bool:
        return self.gone or self.phase in ENDED


@dataclass
class Job:
    """One submitted job."""

    kind: str
    namespace: str
    name: str
    uid: str
    manifest: Manifest = field(repr=False)
    waits: bool = False
    """Whether the job goes on while a program or a folder is missing that somebody may create."""
    gone: bool = False
    replicas: dict[str, Replica] = field(default_factory=dict)

    @property
    def conditions(self) -> list[dict[str, Any]]:
        return list((self.manifest.get("status") or {}).get("conditions") or ())

    @property
    def condition(self) -> dict[str, Any]:
        """Return the condition that is the job's state: Succeeded or Failed, else the last true condition.

        A job with a pod that can never run here has the state Refused, which no controller writes.
        """
        true = [condition for condition in self.conditions if condition.get("status") == "True"]
        final = [condition for condition in true if condition["type"] in ENDED]
        refused = [
            {"type": "Refused", "message": f"{replica.short}: {error}"}
            for replica in self.rows
            if (error := replica.start_error or ("" if self.waits else self._missing(replica)))
        ]
        return (final or refused or true or [{}])[-1]

    def _missing(self, replica: Replica) -> str:
        """Return the missing program or folder of a replica. Replicas that run may create the folder."""
        folder = replica.missing_folder
        if folder and any(other.is_running for other in self.replicas.values()):
            folder = ""
        return replica.missing_program or folder

    @property
    def state(self) -> str:
        return str(self.condition.get("type") or ("Deleted" if self.gone else "New"))

    @property
    def finished(self) -> bool:
        return self.gone or self.state in ("Succeeded", "Failed", "Refused")

    @property
    def succeeded(self) -> bool:
        return self.state == "Succeeded"

    @property
    def duration_seconds(self) -> float | None:
        """Return the time from the start to the end of the job; None while either is missing."""
        status = self.manifest.get("status") or {}
        start = status.get("startTime") or self.manifest["metadata"].get("creationTimestamp")
        end = status.get("completionTime") or (
            self.condition.get("lastTransitionTime") if self.finished else None
        )
        return None if not start or not end else (parse_time(end) - parse_time(start)).total_seconds()

    @property
    def rows(self) -> list[Replica]:
        """Return the replicas in natural order: masters before workers, 2 before 10."""
        return sorted(
            self.replicas.values(),
            key=lambda replica: (replica.short.rpartition("-")[0], _index(replica.short)),
        )


class Progress:
    """The progress of all jobs of one run."""

    def __init__(self, *, several: bool, waits: bool = False) -> None:
        """``waits``: jobs go on while a program or a folder is missing."""
        self.jobs: dict[str, Job] = {}
        self._several = several
        self._refusals: set[tuple[str, str]] = set()
        """The UID of each job that was shown as Refused, and why. A container that is started again is not refused meanwhile."""
        self._waits = waits

    def add(self, kind: str, manifest: Manifest) -> None:
        """Add a submitted job."""
        meta = manifest["metadata"]
        self.jobs[meta["uid"]] = Job(
            kind, meta["namespace"], meta["name"], meta["uid"], manifest, self._waits
        )

    @property
    def finished(self) -> bool:
        return all(job.finished for job in self.jobs.values())

    @property
    def succeeded(self) -> bool:
        return all(job.succeeded for job in self.jobs.values())

    @property
    def all_pods_ended(self) -> bool:
        """Return whether all pods of all jobs have ended."""
        return all(replica.over for job in self.jobs.values() for replica in job.replicas.values())

    def update_job(self, before: Row | None, after: Row | None) -> list[Change]:
        """Apply a change of a job and return what to show."""
        row = after or before
        job = self.jobs.get(row.uid) if row is not None else None
        if job is None:
            return []
        old = job.state
        if after is None:
            job.gone = True
        else:
            job.manifest = after.manifest
        if job.state == old:
            return []
        message = job.condition.get("message") or ""
        return [Change(f"{job.kind} {job.name}: {job.state}" + (f" ({message})" if message else ""))]

    def update_pod(self, before: Row | None, after: Row | None) -> list[Change]:
        """Apply a change of a pod and return what to show about its replica."""
        row = after or before
        job = self.job_of(row.manifest) if row is not None else None
        if job is None or row is None:
            return []
        replica = job.replicas.get(row.name)
        if after is None:
            if replica is None or replica.uids[-1] != row.uid:
                return []
            old = _displayed_state(replica)
            replica.gone = True
        elif replica is None:
            replica = job.replicas[row.name] = Replica(
                row.name, short_name(job, row.manifest), row.manifest, [row.uid]
            )
            old = ("", 0)
        else:
            old = _displayed_state(replica)
            self._replace(replica, row)
        new = _displayed_state(replica)
        if new == old:
            return self._refusal(job)
        text = f"{self.prefix(job, replica.short)}: {new[0]}{_times(replica.restarts)}"
        change = Change(text, in_table=not (replica.phase == "Failed" or replica.start_error))
        return [change, *self._refusal(job)]

    def _refusal(self, job: Job) -> list[Change]:
        """Return, once, that the job can never run here, if the run goes on because of other jobs."""
        message = str(job.condition.get("message"))
        if not self._several or job.state != "Refused" or (job.uid, message) in self._refusals:
            return []
        self._refusals.add((job.uid, message))
        return [Change(f"{job.kind} {job.name}: Refused ({message})")]

    def _replace(self, replica: Replica, row: Row) -> None:
        if row.uid != replica.uids[-1]:
            replica.earlier_restarts += replica.restarts_in_place
            replica.uids.append(row.uid)
        elif replica.phase not in ENDED and replica.pod["metadata"].get("deletionTimestamp"):
            return
        replica.gone = False
        replica.update(row.manifest)

    def job_of(self, pod: Manifest) -> Job | None:
        """Return the submitted job that controls a pod, directly or through a batch Job."""
        meta = pod["metadata"]
        owner: Manifest = next(
            (owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), {}
        )
        if owner.get("kind") != "Job":
            return self.jobs.get(owner.get("uid", ""))
        name = (meta.get("labels") or {}).get(JOB_NAME)
        ours = (job for job in self.jobs.values() if (job.namespace, job.name) == (meta["namespace"], name))
        return next(ours, None)

    def prefix(self, job: Job, short: str) -> str:
        """Return the name of a replica: ``worker-0``, with the job's name if there are several jobs."""
        return f"{job.name}/{short}" if self._several else short


def short_name(job: Job, pod: Manifest) -> str:
    """Return the pod's name without the job's name and without a generated suffix."""
    meta = pod["metadata"]
    name: str = (meta.get("generateName") or meta["name"]).removesuffix("-")
    return name.removeprefix(f"{job.name}-")


def _displayed_state(replica: Replica) -> tuple[str, int]:
    """Return the phase with details, and the restarts. A change of either is shown."""
    detail = replica.detail
    return replica.phase + (f" ({detail})" if detail else ""), replica.restarts


def _times(restarts: int) -> str:
    return "" if not restarts else f", started again {restarts} time{'s' if restarts > 1 else ''}"


def _index(short: str) -> int:
    tail = short.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _containers(status: PodStatus) -> list[ContainerStatus]:
    """Return the statuses of all containers, init containers first."""
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]


def _states(status: PodStatus) -> list[ContainerState]:
    return [container.state or NO_STATE for container in _containers(status)]


def _command(container: Manifest) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _missing_script(container: Manifest) -> Path | None:
    """Return the script that Python is to run if this machine does not have it. Volumes may contain it elsewhere."""
    program, *arguments = _command(container) or [""]
    rest = iter(arguments)
    script = next((argument for argument in rest if not _is_option(argument, rest)), "")
    if not _PYTHON.match(program) or not script or script.startswith("-") or "$(" in script:
        return None
    path = Path.cwd() / (container.get("workingDir") or "") / script
    is_mounted = any(path.is_relative_to(mount["mountPath"]) for mount in container.get("volumeMounts") or ())
    return None if is_mounted or path.exists() else path


def _is_option(argument: str, rest: Iterator[str]) -> bool:
    """Return whether an argument of Python is an option before the script, and skip its value; not for code, a module or standard input."""
    if argument in ("-W", "-X"):
        next(rest, "")
        return True
    return argument.startswith("-") and argument != "-" and not re.match("-[^-]*[cm]", argument)


def _waiting(problem: ContainerProblem) -> str:
    """Return why a container waits, with its last failure in a crash loop; empty if it does not wait."""
    if problem.waiting is None:
        return ""
    reason, message = problem.waiting.reason, problem.waiting.message
    if problem.type is ProblemType.CRASH_LOOP:
        message, _, _ = message.partition(" pod=")
        return ": ".join(filter(None, [reason, message, _termination(problem)]))
    return message if problem.type is ProblemType.STARTING else reason_and_message(problem.waiting)


def _failure(problem: ContainerProblem) -> str:
    """Return how a container failed that is not restarted; empty for other problems."""
    if problem.type is not ProblemType.FAILED:
        return ""
    return (f"{problem.container}: " if problem.is_init else "") + _termination(problem)


def _termination(problem: ContainerProblem) -> str:
    """Return the exit code and the last line of the message; empty if the kubelet has not reported them."""
    end = problem.termination
    if end is None:
        return ""
    message = end.message.strip().rpartition("\n")[2]
    return f"exit code {end.exit_code}" + (f" ({message})" if message else "")
