"""``bench handover``: how long no controller works after the leader is stopped or killed and another takes over."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from bench import record
from bench.controlplane.scenario import Jobs, manifest
from bench.figures import table
from bench.subparsers import Subparsers
from controller.crds import all_crds
from rallypoint.testing.audit import Call, calls, policy
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.service import Service, service
from rallypoint.testing.up import has

USERS = ("first", "second")
NODES = ("node-0", "node-0")
"""The nodes of a job's master and of its workers."""
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}
LEASE = "leader_election_master_status"
BEFORE, WORKERS, SECONDS_APART = 10, 7, 0.2
"""Jobs submitted before the signal, the workers of each, and the time between all jobs."""
LARGE_WORKERS, UNDER_WAY_SECONDS = 63, 0.05
"""Workers of one more job; the signal follows this many seconds after its submission."""
LABELS = {
    "end_to_last_write_ms": "signal → last write of the first, ms",
    "end_to_first_write_ms": "signal → first write of the second, ms",
    "without_writes_ms": "between these two, ms",
    "longest_wait_ms": "a job: create → its first pod, the longest, ms",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("handover", help="stop or kill the leader of two controllers")
    parser.add_argument("--runs", type=int, default=5, help="runs of each signal; default: 5")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in SIGNALS}
    try:
        with control_plane() as plane:
            version = plane.request("GET", "/version")["gitVersion"]
            for number in range(args.runs):
                for name, end in SIGNALS.items():
                    results[name].append(run(plane, f"{name.lower()}-{number}", end))
                    console.print(f"{name} {number}: {results[name][-1]}")
    except ProcessFailed as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    Console(file=sys.stdout, width=140).print(table("a second controller takes over", LABELS, results))
    if not args.no_record:
        result = record.document(load_before, version, handover=results)
        console.print(f"recorded in {record.save('handover', result)}")
    return 0


@contextmanager
def control_plane() -> Generator[ControlPlane]:
    plane = ControlPlane(
        users=[administrator(user) for user in USERS],
        controllers=(),
        service_account_admission=False,
        audit_policy=policy((*USERS, ADMIN)),
        nodes=2,
    )
    with plane:
        plane.apply(*all_crds())
        yield plane


def run(
    plane: ControlPlane,
    namespace: str,
    end: signal.Signals,
    *,
    condition: str = "Running",
    flags: Sequence[str] = (),
) -> dict[str, float]:
    """Send the signal to one leader, in a namespace of this run.

    Args:
        condition: the run ends when all jobs have this condition; nodes must be simulated for them to run.
        flags: of both controllers.
    """
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    jobs, names = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs", list[str]()

    def submit(workers: int = WORKERS, pause_seconds: float = SECONDS_APART) -> None:
        names.append(f"job-{len(names)}")
        plane.request("POST", jobs, manifest(Jobs(1, 1 + workers), names[-1], NODES))
        time.sleep(pause_seconds)

    with _controller(plane, USERS[0], flags) as first:
        plane.wait("the first to lead", lambda: first.metric(LEASE) == 1)
        with _controller(plane, USERS[1], flags) as second:
            for _ in range(BEFORE):
                submit()
            submit(LARGE_WORKERS, UNDER_WAY_SECONDS)
            ended_at = datetime.now(UTC)
            os.kill(first.process.pid, end)
            plane.processes.pop(first.process.name)
            while second.metric(LEASE) == 0:
                submit()
            submit()
            plane.wait("the first to end", lambda: not first.process.running)
            for name in names:
                holds = partial(_has_condition, plane, f"{jobs}/{name}", condition)
                plane.wait(f"{name} to have the condition {condition}", holds, seconds=60)
    assert plane.audit_log is not None
    writes = [call for call in calls(plane.audit_log) if call.namespace == namespace and call.is_write]
    _clear(plane, namespace)
    return figures(writes, ended_at)


def figures(writes: list[Call], ended_at: datetime) -> dict[str, float]:
    """Compute the figures from the writes in the namespace."""
    by_user = {user: [call for call in writes if call.user == user] for user in (*USERS, ADMIN)}
    last = max(call.answered for call in by_user[USERS[0]])
    begun = min(call.received for call in by_user[USERS[1]])
    pods: dict[str, datetime] = {}
    for call in (*by_user[USERS[0]], *by_user[USERS[1]]):
        if (call.verb, call.resource) == ("create", "pods"):
            owner = call.name.rsplit("-", 2)[0]
            pods[owner] = min(call.answered, pods.get(owner, call.answered))
    waits = [_ms(call.received, pods[call.name]) for call in by_user[ADMIN] if call.resource == "pytorchjobs"]
    return {
        "end_to_last_write_ms": _ms(ended_at, last),
        "end_to_first_write_ms": _ms(ended_at, begun),
        "without_writes_ms": _ms(last, begun),
        "longest_wait_ms": max(waits),
    }


@contextmanager
def _controller(plane: ControlPlane, user: str, flags: Sequence[str]) -> Generator[Service]:
    with service(plane, plane.kubeconfig(user), ["--leader-elect=true", *flags]) as running:
        yield running


def _clear(plane: ControlPlane, namespace: str) -> None:
    """Delete all objects of the run, so that the controllers of the next run do not list them."""
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    for base, plural in (
        ("/apis/kubeflow.org/v1", "pytorchjobs"),
        ("/api/v1", "pods"),
        ("/api/v1", "services"),
    ):
        path = f"{base}/namespaces/{namespace}/{plural}"
        plane.request("DELETE", path, options)
        plane.wait(f"no {plural}", partial(_is_empty, plane, path))


def _has_condition(plane: ControlPlane, path: str, condition: str) -> bool:
    return has(condition)(plane.request("GET", path))


def _is_empty(plane: ControlPlane, path: str) -> bool:
    return not list(plane.request("GET", f"{path}?limit=1")["items"])


def _ms(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds() * 1000
