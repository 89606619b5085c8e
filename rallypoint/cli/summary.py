"""The end of ``rallypoint run``: each job's result, which replica failed first and how, as text or as a JSON document.

Names and texts of failures are those of ``rallypoint why``.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from api.messages import without_control
from rallypoint.cli.log_lines import last_lines
from rallypoint.diagnosis.objects import all_container_statuses
from rallypoint.diagnosis.terminations import Failure, failures, previous_failure
from rallypoint.local.progress import Job, Progress, Replica
from rallypoint.local.screen import format_seconds

MAX_SINGLE_ROWS = 8
"""A job with more replicas gets one row for neighbors in the same state."""
MAX_NAMES = 3
"""The largest number of names in a row or of first failures in the text; the others are counted."""
LOG_LINES = 10
"""The number of lines shown of the log of the container that failed first."""

PodFolder = Callable[[Job, Replica, str], Path]
"""Returns the folder with the logs of the pod with this UID."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """A container that failed before all others of its job, or before all others that were not started again."""

    replica: Replica
    failure: Failure
    was_started_again: bool
    """Whether it was restarted or replaced, so that it did not itself fail the job."""
    log: Path | None
    """The log of the failed run; None if no container failed or nothing was written."""

    @property
    def text(self) -> str:
        """Return the failure without control characters of terminals."""
        return without_control(self.failure.text)

    @property
    def lines(self) -> list[str]:
        """Return the last lines of the log."""
        return [] if self.log is None else last_lines(self.log, LOG_LINES)


def first_failures(job: Job, folder_of: PodFolder) -> list[FirstFailure]:
    """Return the failures with the earliest time, all of them if several share the second.

    If all of them were started again, those that follow failed the job: the earliest that were not.
    """
    replicas = {name: replica for replica in job.rows for name in replica.uids}
    lasting = [failure for failure in failures(replica.pod for replica in job.rows) if failure.is_own]
    failed_pods = [replica.first_failed_pod for replica in job.rows if replica.first_failed_pod]
    restarted = [failure for pod in failed_pods if (failure := previous_failure(pod))]
    keys = {_key(failure) for failure in lasting}
    passed = [
        failure
        for failure in (*failures(failed_pods), *restarted)
        if failure.is_own and _key(failure) not in keys
    ]
    first = _earliest([*lasting, *passed])
    if not any(_key(failure) in keys for failure in first):
        first += _earliest(lasting)
    found = []
    for failure in first:
        uid = failure.pod["metadata"]["uid"]
        log = _failed_log(folder_of(job, replicas[uid], uid), failure)
        found.append(FirstFailure(replicas[uid], failure, _key(failure) not in keys, log))
    return found


def _key(failure: Failure) -> tuple[str, str, datetime | None]:
    return failure.pod["metadata"]["uid"], failure.container, failure.at


def _earliest(found: Sequence[Failure]) -> list[Failure]:
    """Return the failures with the earliest time; those without a time only if no failure has one."""
    at = min((failure.at for failure in found if failure.at), default=None)
    return [failure for failure in found if failure.at == at]


def text(
    progress: Progress,
    outcome: str,
    paths: Mapping[str, str],
    folder_of: PodFolder,
    shown: Callable[[Path], str],
) -> str:
    """Return the summary of a run as text. ``shown`` spells a path."""
    written = io.StringIO()
    for job in progress.jobs.values():
        seconds = job.duration_seconds
        took = "" if seconds is None else f" after {format_seconds(seconds)}"
        written.write(f"\n{job.kind} {job.namespace}/{job.name}: {job.state}{took}\n")
        if message := job.condition.get("message"):
            written.write(f"  {message}\n")
        found = _explained_failures(job, outcome, folder_of)
        refusal = message or "" if job.state == "Refused" else ""
        written.writelines(f"{line}\n" for line in _failure_lines(found, shown, refusal))
        written.writelines(f"  {line}\n" for line in _rows(job))
    if outcome not in ("Succeeded", "Failed"):
        written.write(f"\n{outcome}\n")
    for name, path in paths.items():
        written.write(f"{name}: {path}\n")
    return written.getvalue()


def document(progress: Progress, outcome: str, folder_of: PodFolder) -> list[dict[str, Any]]:
    """Return the jobs for the JSON document."""
    return [
        {
            "kind": job.kind,
            "namespace": job.namespace,
            "name": job.name,
            "condition": job.state,
            "reason": job.condition.get("reason", ""),
            "message": job.condition.get("message", ""),
            "durationSeconds": job.duration_seconds,
            "firstFailures": [
                {
                    "name": first.replica.name,
                    "container": first.failure.container,
                    "text": first.text,
                    "at": first.failure.at,
                    "wasStartedAgain": first.was_started_again,
                    "log": None if first.log is None else str(first.log),
                    "lastLines": first.lines,
                }
                for first in _explained_failures(job, outcome, folder_of)
            ],
            "replicas": [
                {
                    "name": replica.name,
                    "phase": _last_phase(replica),
                    "detail": replica.detail,
                    "restarts": replica.restarts,
                    "exitCode": replica.exit_code,
                    "logs": [str(folder_of(job, replica, uid)) for uid in replica.uids],
                }
                for replica in job.rows
            ],
        }
        for job in progress.jobs.values()
    ]


def _explained_failures(job: Job, outcome: str, folder_of: PodFolder) -> list[FirstFailure]:
    """Return the first failures of a job that failed, or that had not finished when the run was stopped.

    Of a refused job, whose message names the failure, return only those with a log.
    """
    if job.state == "Refused":
        return [first for first in first_failures(job, folder_of) if first.lines]
    is_stopped = outcome in ("Timeout", "Interrupted") and not job.finished
    return first_failures(job, folder_of) if job.state == "Failed" or is_stopped else []


def _failed_log(folder: Path, failure: Failure) -> Path | None:
    """Return the log of the run that failed: runs are numbered by restarts, and a container that runs again is one run ahead."""
    restarts = (
        status.get("restartCount", 0) - ("running" in (status.get("state") or {}))
        for status in all_container_statuses(failure.pod)
        if status["name"] == failure.container
    )
    file = folder / failure.container / f"{next(restarts, 0)}.log"
    return file if failure.container and file.exists() else None


def _failure_lines(
    found: Sequence[FirstFailure], shown: Callable[[Path], str], refusal: str
) -> Iterator[str]:
    """Yield those that failed first, and then those that failed the job if the first ones were started again.

    What ``refusal``, the message of a refused job, already says is left out.
    """
    count = next((index for index, first in enumerate(found) if not first.was_started_again), len(found))
    groups = [(found, "was the first to fail")]
    if 0 < count < len(found) and _is_same(found[:count], found[count:]):
        groups = [(found[count:], "failed again in the same way")]
    elif 0 < count < len(found) and found[0].failure.at != found[-1].failure.at:
        groups = [(found[:count], "failed first"), (found[count:], "failed the job")]
    for group, how in groups:
        if len(group) > 1:
            how = f"{how.replace('was the first to fail', 'failed first')}, in the same second"
        for first in group[:MAX_NAMES]:
            if refusal.startswith(f"{first.replica.short}: "):
                continue
            again = "; it was started again" if first.was_started_again else ""
            yield f"  {first.replica.short} {how}: {first.text}{again}"
        if len(group) > MAX_NAMES:
            yield f"  and {len(group) - MAX_NAMES} more"
        with_lines = next((first for first in group if first.lines), None)
        if with_lines is not None and all(line in refusal for line in with_lines.lines):
            continue
        if with_lines is not None and with_lines.log is not None:
            yield f"  last lines of {shown(with_lines.log)}:"
            yield from (f"    {line}" for line in with_lines.lines)


def _is_same(first: Sequence[FirstFailure], last: Sequence[FirstFailure]) -> bool:
    """Return whether the same containers failed with the same texts and last lines of their logs."""
    return [(entry.replica.name, entry.text, entry.lines) for entry in first] == [
        (entry.replica.name, entry.text, entry.lines) for entry in last
    ]


def _rows(job: Job) -> Iterator[str]:
    """Yield one row per replica, or per group of neighbors in the same state if there are many."""
    rows = [(replica.short, _state(replica)) for replica in job.rows]
    if len(rows) > MAX_SINGLE_ROWS:
        groups = groupby(rows, key=lambda row: row[1])
        rows = [(_names([name for name, _ in group]), state) for state, group in groups]
    width = max((len(name) for name, _ in rows), default=0)
    return (f"{name:<{width}}  {state}" for name, state in rows)


def _names(names: Sequence[str]) -> str:
    """Return ``worker-0``, ``worker-0, worker-1`` or ``worker-0 … worker-7 (8)``."""
    return ", ".join(names) if len(names) < MAX_NAMES else f"{names[0]} … {names[-1]} ({len(names)})"


def _state(replica: Replica) -> str:
    detail = f"  {without_control(replica.detail)}" if replica.detail else ""
    return f"{_last_phase(replica):<9}  restarts {replica.restarts}{detail}"


def _last_phase(replica: Replica) -> str:
    """Return the phase at the end of a run, or Stopped if the run stopped the pod."""
    return replica.phase if replica.over else "Stopped"
