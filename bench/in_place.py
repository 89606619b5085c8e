"""``bench in-place``: how long a job takes to run again after a restart in place, and what that costs the API server.

The agents are real processes on loopback; the API server is a real one, and this process stands in for the kubelets.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from api.labels import JOB_NAME
from api.times import parse_time
from bench import record
from bench.figures import table
from bench.subparsers import Subparsers
from controller.crds import all_crds
from rallypoint.testing.agents import ContainerProcess
from rallypoint.testing.audit import calls, policy
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.controlplane.process import free_port
from rallypoint.testing.service import service
from rallypoint.testing.up import has

USER = "operator"
JOB = "train"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
SECONDS = 300.0
"""The longest wait."""
POLL_SECONDS = 0.01
LABELS = {
    "all_run_again_ms": "a command is killed → all commands run again, ms",
    "job_runs_again_ms": "a command is killed → the job's condition Running, ms",
    "pause_s": "the pause of that restart, s",
    "status_writes": "writes of the job's status",
    "other_writes": "other writes of the operator, events among them",
}
COMMAND = "echo $$ > {folder}/$RALLYPOINT_RESTART_ATTEMPT-$RANK; exec sleep 100000"


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("in-place", help="restart the commands of a job in their pods")
    parser.add_argument("--pods", type=int, default=256, help="pods of the job; default: 256")
    parser.add_argument("--failures", type=int, default=3, help="failures, one after the other; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    try:
        with control_plane() as plane, service(plane, plane.kubeconfig(USER), []), folder() as marks:
            version = plane.request("GET", "/version")["gitVersion"]
            results = asyncio.run(measure(plane, marks, args.pods, args.failures))
    except (ProcessFailed, TimeoutError) as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    Console(file=sys.stdout, width=140).print(
        table(f"{args.pods} pods restart in place", LABELS, {"in place": results})
    )
    if not args.no_record:
        result = record.document(load_before, version, in_place={"pods": args.pods, "failures": results})
        console.print(f"recorded in {record.save('in-place', result)}")
    return 0


@contextlib.contextmanager
def control_plane() -> Generator[ControlPlane]:
    plane = ControlPlane(
        users=[administrator(USER)],
        controllers=(),
        service_account_admission=False,
        audit_policy=policy((USER,)),
    )
    with plane:
        plane.apply(*all_crds())
        yield plane


@contextlib.contextmanager
def folder() -> Generator[Path]:
    """Yield a folder for what the commands write; volumes of the pods are beside it."""
    with tempfile.TemporaryDirectory() as path:
        marks = Path(path, "marks")
        marks.mkdir()
        yield marks


async def measure(plane: ControlPlane, marks: Path, pods: int, failures: int) -> list[dict[str, float]]:
    """Run a job of so many pods and let one command fail after the other; return the figures of each failure."""
    plane.request("POST", JOBS, manifest(pods, COMMAND.format(folder=marks)))
    await until("the pods to exist", lambda: len(_pods(plane)) == pods)
    loop, port, patches = asyncio.get_running_loop(), free_port(), list[asyncio.Future[Any]]()

    def restarted(name: str, code: int, message: str) -> None:
        path, status = f"{PODS}/{name}/status", _again(code, message)
        patches.append(loop.run_in_executor(None, plane.request, "PATCH", path, status))

    async with contextlib.AsyncExitStack() as stack:
        for pod in _pods(plane):
            plane.request("PATCH", f"{PODS}/{pod['metadata']['name']}/status", _running())
            process = ContainerProcess(pod, marks.parent, port=port, on_restart=restarted)
            task = asyncio.create_task(process.run())
            stack.push_async_callback(asyncio.wait, [task])
            stack.callback(task.cancel)
        await until("all commands to run", lambda: len(list(marks.glob("0-*"))) == pods)
        await until("the job to run", lambda: has("Running")(plane.request("GET", f"{JOBS}/{JOB}")))
        results = [await fail(plane, marks, pods, attempt) for attempt in range(failures)]
        await asyncio.gather(*patches)
        return results


async def fail(plane: ControlPlane, marks: Path, pods: int, attempt: int) -> dict[str, float]:
    """Kill the command of a rank in this attempt, and wait until the next one runs."""
    rank = 1 + attempt * 97 % (pods - 1)
    begun, started = datetime.now(UTC), time.monotonic()
    os.kill(int((marks / f"{attempt}-{rank}").read_text()), signal.SIGKILL)
    await until("all commands to run again", lambda: len(list(marks.glob(f"{attempt + 1}-*"))) == pods)
    all_run_ms = (time.monotonic() - started) * 1000

    def runs_again() -> bool:
        job = plane.request("GET", f"{JOBS}/{JOB}")
        return job["status"].get("restarts") == attempt + 1 and has("Running")(job)

    await until("the job to run again", runs_again)
    job_runs_ms = (time.monotonic() - started) * 1000
    await asyncio.sleep(2)  # for events, which follow the status
    assert plane.audit_log is not None
    writes = Counter(
        "status" if call.subresource == "status" else call.resource
        for call in calls(plane.audit_log)
        if call.user == USER and call.is_write and call.received >= begun and call.resource != "leases"
    )
    ended = plane.request("GET", f"{JOBS}/{JOB}")["status"]["attempts"][-1]
    pause = parse_time(ended["restartTime"]) - parse_time(ended["endTime"])
    return {
        "all_run_again_ms": all_run_ms,
        "job_runs_again_ms": job_runs_ms,
        "pause_s": pause.total_seconds(),
        "status_writes": writes["status"],
        "other_writes": writes.total() - writes["status"],
    }


def manifest(pods: int, command: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", command]}
    template = {"spec": {"containers": [container], "nodeName": "node-0"}}
    policy = {"restartStrategy": "InPlaceRestart", "rules": [{"action": "RestartJob"}]}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": JOB},
        "spec": {
            "runPolicy": {"failurePolicy": policy},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": pods - 1, "template": template},
            },
        },
    }


async def until(what: str, is_true: Callable[[], bool]) -> None:
    """Wait, without blocking the agents' event loop for long.

    Raises:
        TimeoutError: it takes too long.
    """
    deadline = time.monotonic() + SECONDS
    while not await asyncio.to_thread(is_true):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took more than {SECONDS:.0f} s")
        await asyncio.sleep(POLL_SECONDS)


def _pods(plane: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.request("GET", f"{PODS}?labelSelector={JOB_NAME}%3D{JOB}")["items"]
    return found


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _running(**fields: Any) -> dict[str, Any]:
    """Return the status of a pod whose container runs."""
    container = {
        "name": "pytorch",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": _now()}},
        **fields,
    }
    return {"status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]}}


def _again(code: int, message: str) -> dict[str, Any]:
    """Return the status of a pod whose container has been restarted."""
    ended = {"exitCode": code, "reason": "Error", "message": message, "finishedAt": _now()}
    return _running(restartCount=1, lastState={"terminated": ended})
