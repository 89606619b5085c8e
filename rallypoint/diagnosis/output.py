"""What the logs of a running job say about its progress: nothing but that its pods print, and since when they do not."""

from datetime import datetime, timedelta

from api.messages import first_of
from rallypoint.diagnosis.objects import (
    Object,
    container_statuses,
    name_of,
    parse_timestamp,
    state_of,
    status_of,
)
from rallypoint.diagnosis.snapshot import JobSnapshot

_START_GRACE = timedelta(seconds=30)
"""Programs may need this long to print their first line."""
_LONG = timedelta(minutes=1)
"""A silence this long is worth a word. Most programs print at least that often, though nothing demands it."""
_MAX_NAMED = 3


def progress(snapshot: JobSnapshot) -> str:
    """Return who has printed nothing, and since when the others print nothing; else where to look for progress.

    Workers of an MPIJob only run sshd, so they do not count. Pods whose logs were not read do not count either.
    """
    pods = [
        pod for pod in snapshot.pods if not (snapshot.job["kind"] == "MPIJob" and "-worker-" in name_of(pod))
    ]
    known = {name_of(pod): last for pod in pods if (last := _last_output(snapshot, pod))}
    silent = sorted(
        name for name, (started, at) in known.items() if at is None and snapshot.now - started >= _START_GRACE
    )
    newest = max((at for _, at in known.values() if at), default=None)
    since = _age(snapshot.now - newest) if newest and snapshot.now - newest >= _LONG else ""
    if not silent:
        hint = "see its logs for progress"
        return f"{hint} (last line {since} ago)" if since else hint
    if newest is None and len(silent) == len(known):
        length = snapshot.now - min(known[name][0] for name in silent)
        started = f", {_age(length)} ago" if length >= _LONG else ""
        return f"{'its pods have' if len(silent) > 1 else f'{silent[0]} has'} printed nothing since the start{started}"
    others = f", the others nothing for {since}" if since else ""
    return f"{first_of(silent, _MAX_NAMED)} {'has' if len(silent) == 1 else 'have'} printed nothing{others}"


def _last_output(snapshot: JobSnapshot, pod: Object) -> tuple[datetime, datetime | None] | None:
    """Return when a running pod started, and when it printed last, None if it has printed nothing; None if one of its logs is unknown."""
    running = [status for status in container_statuses(pod) if state_of(status, "running")]
    logs = [snapshot.last_lines.get((name_of(pod), status["name"])) for status in running]
    times = [parse_timestamp(state_of(status, "running").get("startedAt")) for status in running]
    started = max((at for at in times if at), default=None)
    if status_of(pod).get("phase") != "Running" or started is None or any(log is None for log in logs):
        return None
    if any(status.get("restartCount") for status in running):
        return None  # What the container printed before its restart is in another log.
    return started, max((log.at for log in logs if log and log.at), default=None)


def _age(length: timedelta) -> str:
    """Return whole minutes or hours, so that the text changes rarely."""
    seconds = length.total_seconds()
    return f"{int(seconds // 60)} min" if seconds < 2 * 3600 else f"{int(seconds // 3600)} h"
