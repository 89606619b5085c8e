"""Silent pods: others of the job log that they wait in a rendezvous, and these log nothing.

Frameworks wait for all ranks when they start. The API server does not know that; only the waiting ranks log it.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from rallypoint.diagnosis.objects import (
    Object,
    container_statuses,
    is_being_deleted,
    name_of,
    parse_timestamp,
    state_of,
    status_of,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot, LastLines, group_by_text

_SILENT_FOR = timedelta(seconds=30)
"""Programs may need this long to log their first line, or their next one."""
_LONGEST_QUOTE = 160
_WAITS = re.compile(
    "|".join(
        (
            r"Waiting in store based barrier",  # torch, distributed_c10d.py
            # torch, c10d/socket.cpp; it also warns so about each address family that the machine lacks
            r"client socket (?:has failed|has timed out|is failing) .*connect(?!.*errno: 97\b)",
            r"waiting for clients\. \d+/\d+ clients joined",  # torch, c10d/TCPStore.cpp
            r"Barrier timed out|/job:jax_worker/replica:\d+/task:\d+",  # jax, coordination_service.cc
            r"threads to join the rendezvous",  # xla, service/rendezvous.cc
            r"CreateSession still waiting for response from worker",  # tensorflow, distributed_runtime/master.cc
            r"not ready endpoints",  # paddle, distributed/utils
            r"(?i:\bwait(?:s|ing)? (?:for|until) (?:\w+ )?\d+(?:/\d+)? (?:of \d+ )?(?:more |other )?(?:workers?|ranks?|peers?)\b)",
        )
    )
)
"""Last log lines of a program that waits for other ranks."""


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the pods whose running containers have logged nothing since before the others began to wait.

    These are notes: a program may also compute in silence. There is none if a pod that does not wait still logs.
    """
    waiting = waiting_pods(snapshot)
    logging = {
        name
        for (name, _), last in snapshot.last_lines.items()
        if name not in waiting and last.at and snapshot.now - last.at < _SILENT_FOR
    }
    if not waiting or logging:
        return
    first = min((last.at for last in waiting.values() if last.at), default=snapshot.now)
    names = sorted(waiting)
    line = waiting[names[0]].lines[-1]
    line = line if len(line) <= _LONGEST_QUOTE else f"{line[:_LONGEST_QUOTE]}…"
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    waits = f"{names[0]}{others} wait{'' if others else 's'} for other ranks ({line})"
    found: list[Cause] = []
    for pod in snapshot.pods:
        if name_of(pod) not in waiting and (silent := _silence(snapshot, pod, first)):
            since, has_logged = silent
            silence = "has logged nothing more" if has_logged else "has logged nothing since it started"
            step = (
                f"see what its program does: rallypoint exec {name_of(pod)} -n {snapshot.namespace} -- ps -ef "
                "(needs permission for pods/exec)"
            )
            text = f"{silence}, while {waits}"
            found.append(
                Cause((name_of(pod),), text, since, blocks=False, next_step=step, step_when_deleted="")
            )
    yield from group_by_text(found)


def waiting_pods(snapshot: JobSnapshot) -> dict[str, LastLines]:
    """Return the pods whose last log line says that they wait for other ranks, with that line.

    Workers of an MPIJob only run sshd, so it has none.
    """
    waiting: dict[str, LastLines] = {}
    for (pod, _), last in snapshot.last_lines.items() if snapshot.job["kind"] != "MPIJob" else ():
        if last.lines and _WAITS.search(last.lines[-1]):
            waiting.setdefault(pod, last)
    return waiting


def _silence(snapshot: JobSnapshot, pod: Object, first: datetime) -> tuple[datetime, bool] | None:
    """Return since when the pod is silent and whether it has logged before; None if it is not silent or not known to be."""
    if status_of(pod).get("phase") != "Running" or is_being_deleted(pod):
        return None
    running = [status for status in container_statuses(pod) if state_of(status, "running")]
    logs = [snapshot.last_lines.get((name_of(pod), status["name"])) for status in running]
    if not running or any(log is None for log in logs):
        return None
    logged = max((log.at for log in logs if log and log.lines and log.at), default=None)
    started = max(
        (at for status in running if (at := parse_timestamp(state_of(status, "running").get("startedAt")))),
        default=None,
    )
    since = logged or started
    if since is None or snapshot.now - since < _SILENT_FOR or (logged is not None and logged >= first):
        return None
    return since, logged is not None
