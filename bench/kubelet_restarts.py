"""``bench kubelet-restarts``: how long a job of pods on real kubelets takes to run again after a failure, in place and by recreation."""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from api.failure_policy import RestartStrategy
from bench import record
from bench.figures import table
from bench.subparsers import Subparsers
from rallypoint.testing.cluster import installation
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.controlplane import ProcessFailed, Unavailable

KIND, JOB = "PyTorchJob", "train"
TIMEOUT_SECONDS = 300.0
LABELS = {"all_run_again_s": "a command fails → all commands run again, s", "pods_kept": "pods that stayed"}
SCRIPT = """
echo "begin $(date +%s.%N)"
if [ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && [ $RANK = 2 ]; then
    sleep 15
    date +%s.%N >/dev/termination-log
    exit 7
fi
sleep 100000
"""
"""The nodes share this machine's clock. Rank 2 fails once all ranks run."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "kubelet-restarts", help="restart a job on real kubelets; needs Linux and root"
    )
    parser.add_argument("--pods", type=int, default=8, help="pods of the job; default: 8")
    parser.add_argument("--runs", type=int, default=3, help="jobs with each strategy; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    found: dict[str, list[dict[str, float]]] = {str(strategy): [] for strategy in RestartStrategy}
    try:
        with Cluster() as cluster:
            installation.install(cluster)
            version = cluster.plane.request("GET", "/version")["gitVersion"]
            for _ in range(args.runs):
                for strategy, results in found.items():
                    results.append(restart(cluster, strategy, args.pods))
                    console.print(f"{strategy}: {results[-1]}")
    except (ProcessFailed, Unavailable) as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    title = f"{args.pods} pods on two kubelets"
    Console(file=sys.stdout, width=140).print(table(title, LABELS, found))
    if not args.no_record:
        result = record.document(load_before, version, pods=args.pods, kubelet_restarts=found)
        console.print(f"recorded in {record.save('kubelet-restarts', result)}")
    return 0


def restart(cluster: Cluster, strategy: str, pods: int) -> dict[str, float]:
    """Run a job in which one command fails once, and return its figures when all run again.

    Raises:
        ProcessFailed: they do not run again in time.
    """
    with Workloads(cluster) as workloads:
        workloads.apply(manifest(strategy, pods))
        workloads.wait_for(KIND, JOB, "Running", seconds=TIMEOUT_SECONDS)
        before = _uids(workloads)

        def runs_again() -> bool:
            attempts: list[dict[str, Any]] = workloads.get(KIND, JOB).get("status", {}).get("attempts", [])
            begins = list(_begins(workloads).values()) if attempts else []
            return len(begins) == pods and min(begins) > float(attempts[0]["message"])

        workloads.wait("all commands to run again", runs_again, seconds=TIMEOUT_SECONDS)
        (attempt,) = workloads.get(KIND, JOB)["status"]["attempts"]
        return {
            "all_run_again_s": max(_begins(workloads).values()) - float(attempt["message"]),
            "pods_kept": len(before & _uids(workloads)),
        }


def manifest(strategy: str, pods: int) -> dict[str, Any]:
    container = {
        "image": BASE,
        "command": ["sh", "-c", SCRIPT],
        "pod": {"terminationGracePeriodSeconds": 1},
    }
    roles = {"Master": {"replicas": 1, **container}, "Worker": {"replicas": pods - 1, **container}}
    policy = {"restartStrategy": strategy, "rules": [{"action": "RestartJob"}]}
    return job(KIND, JOB, roles, runPolicy={"failurePolicy": policy})


def _uids(workloads: Workloads) -> set[str]:
    return {pod["metadata"]["uid"] for pod in workloads.pods(JOB).values()}


def _begins(workloads: Workloads) -> Mapping[str, float]:
    """Return when the newest command of each running pod began, without the pods that have yet to run again."""
    found: dict[str, float] = {}
    for name, pod in workloads.pods(JOB).items():
        states = pod.get("status", {}).get("containerStatuses") or ()
        if any("running" in state["state"] for state in states):
            with contextlib.suppress(
                subprocess.CalledProcessError
            ):  # The container ends or starts at this moment.
                times = [line for line in workloads.logs(name).splitlines() if line.startswith("begin ")]
                if times:
                    found[name] = float(times[-1].partition(" ")[2])
    return found
