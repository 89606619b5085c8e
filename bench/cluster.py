"""``bench cluster``: how long jobs take to start on nodes with kubelets, the operator's share of it, and its usage."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import power_cut, record
from bench.controlplane.observer import Observer, Timestamps
from bench.figures import spread
from bench.subparsers import Subparsers
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.installation import NAMESPACE, install
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.controlplane import ProcessFailed, Unavailable

SIZES = (2, 8, 16)
TIMEOUT_SECONDS = 120.0
LOOKUP_SCRIPT = 'until getent ahostsv4 "$FIRST" > /dev/null; do sleep 0.05; done; date +%s.%N; sleep infinity'
"""The command of all pods: print the time at which the name of the first pod resolves, by this machine's clock."""
BURST_JOBS, BURST_PODS, SAMPLE_SECONDS = 100, 8, 30.0
LABELS = {
    "pods_ms": "create → last pod exists, ms",
    "services_ms": "create → last Service exists, ms",
    "running_ms": "create → all pods Running, ms",
    "status_ms": "first pod Running → Running in status, ms",
    "resolved_ms": "create → the first pod's name resolves in all pods, ms",
}
USAGE = {
    "rest_mib": "working set at rest, MiB",
    "rest_millicores": "CPU at rest, millicores",
    "burst_mib": "working set in a burst, peak, MiB",
    "burst_millicores": "CPU in a burst, millicores",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A job kind. All pods look up the name of the pod ``first``."""

    name: str
    first: str
    roles: tuple[str, ...]

    def job(self, name: str, pods: int) -> dict[str, Any]:
        container = {
            "image": BASE,
            "command": ["sh", "-c", LOOKUP_SCRIPT],
            "env": [{"name": "FIRST", "value": f"{name}-{self.first}"}],
            "pod": {"terminationGracePeriodSeconds": 1},
        }
        counts = [1] * (len(self.roles) - 1) + [pods - len(self.roles) + 1]
        return job(
            self.name,
            name,
            {role: {"replicas": count, **container} for role, count in zip(self.roles, counts, strict=True)},
        )


KINDS = (Kind("PyTorchJob", "master-0", ("Master", "Worker")), Kind("JAXJob", "worker-0", ("Worker",)))
"""Workers of the first kind wait in an init container for the master's name; all pods of the second start at once."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("cluster", help="start jobs on nodes with kubelets; needs Linux and root")
    parser.add_argument("--runs", type=int, default=5, help="runs of each size; default: 5")
    parser.add_argument(
        "--power-cuts",
        type=int,
        default=3,
        help="how often to cut the power of a node under a job; default: 3",
    )
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    try:
        with Cluster() as cluster:
            install(cluster)
            version = cluster.plane.request("GET", "/version")["gitVersion"]
            jobs = asyncio.run(_measure_all(cluster, args.runs, console))
            usage = operator_usage(cluster)
            cuts = _power_cuts(cluster, args.power_cuts, console)
    except (ProcessFailed, Unavailable, TimeoutError) as error:
        console.print(f"not measured: {str(error) or 'pods do not run'}", style="red", markup=False)
        return 1
    shown = Console(file=sys.stdout, width=140)
    shown.print(table("on two nodes", LABELS, jobs))
    shown.print(table("pods of the operator", USAGE, usage))
    if cuts:
        shown.print(table("a node without power", power_cut.LABELS, {"ExitCode": cuts}))
    if not args.no_record:
        result = record.document(load_before, version, cluster=jobs, operator=usage, power_cut=cuts)
        console.print(f"recorded in {record.save('cluster', result)}")
    return 0


async def _measure_all(cluster: Cluster, runs: int, console: Console) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {
        f"{kind.name}, {pods} pods": [] for kind in KINDS for pods in SIZES
    }
    with Workloads(cluster) as workloads:
        async with (
            Client(await from_kubeconfig(str(cluster.kubeconfig))) as client,
            Observer(client, workloads.namespace) as observer,
        ):
            await _run_job(workloads, observer, KINDS[0], SIZES[0], "warm")  # opens all watches
            for number in range(runs):
                for kind in KINDS:
                    for pods in SIZES:
                        case = f"{kind.name}, {pods} pods"
                        found[case].append(await run(workloads, observer, kind, pods, f"job-{number}"))
                        console.print(f"{case} {number}: {found[case][-1]}")
    return found


def _power_cuts(cluster: Cluster, runs: int, console: Console) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    for number in range(runs):
        found.append(power_cut.power_cut(cluster))
        console.print(f"power cut {number}: {found[-1]}")
    return found


async def run(workloads: Workloads, observer: Observer, kind: Kind, pods: int, name: str) -> dict[str, float]:
    """Run one job until all its pods resolve the first pod's name, then delete it.

    Raises:
        TimeoutError: the pods do not run.
    """
    since, resolved_seconds = await _run_job(workloads, observer, kind, pods, name)
    return {**figures(observer, f"{name}-{kind.first}", name, since), "resolved_ms": resolved_seconds * 1000}


async def _run_job(
    workloads: Workloads, observer: Observer, kind: Kind, pods: int, name: str
) -> tuple[float, float]:
    """Return when the job was created (monotonic clock), and the seconds until all its pods resolved the first pod's name."""
    observer.reset()
    path = f"/apis/kubeflow.org/v1/namespaces/{workloads.namespace}/{kind.name.lower()}s"
    body = kind.job(name, pods)
    since, clock = time.monotonic(), time.time()
    await asyncio.to_thread(workloads.cluster.plane.request, "POST", path, body)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await observer.wait_until(
            lambda: len(observer.pods_running) == pods and name in observer.with_condition("Running")
        )
        found = [await asyncio.to_thread(_resolved_at, workloads, pod) for pod in observer.pods_running]
    await asyncio.to_thread(workloads.cluster.plane.request, "DELETE", f"{path}/{name}")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await observer.wait_until(observer.is_empty)
    return since, max(found) - clock


def _resolved_at(workloads: Workloads, pod: str) -> float:
    """Return when the pod resolved the first pod's name, in seconds since 1970."""
    workloads.wait(f"a line in the log of {pod}", lambda: workloads.logs(pod) != "")
    return float(workloads.logs(pod))


def figures(observer: Observer, first: str, name: str, since: float) -> dict[str, float]:
    """Return the figures that the watches show."""
    return {
        "pods_ms": _last(observer.pods, since),
        "services_ms": _last(observer.services, since),
        "running_ms": _last(observer.pods_running, since),
        "status_ms": (observer.with_condition("Running")[name] - deciding_time(observer.pods_running, first))
        * 1000,
    }


def deciding_time(running: Mapping[str, float], first: str) -> float:
    """Return when the pod that makes the job Running ran: the master, or without one the first pod that ran."""
    return running[first] if first.endswith("master-0") else min(running.values())


def operator_usage(cluster: Cluster) -> dict[str, list[dict[str, float]]]:
    """Measure the operator's pods at rest and while many unschedulable jobs arrive; replica 0 is the leader."""
    rest = _measure_usage(cluster, lambda: None, lambda: True)
    with Workloads(cluster) as workloads:
        documents = [_unschedulable_job(f"burst-{number}") for number in range(BURST_JOBS)]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        burst = _measure_usage(
            cluster,
            lambda: workloads.kubectl("create", "-f", "-", document=whole),
            lambda: len(_pod_names(workloads)) == BURST_JOBS * BURST_PODS,
        )
    working = sorted(burst, key=lambda pod: -burst[pod].millicores)
    return {
        f"replica {number}": [
            {
                "rest_mib": rest[pod].mib,
                "rest_millicores": rest[pod].millicores,
                "burst_mib": burst[pod].mib,
                "burst_millicores": burst[pod].millicores,
            }
        ]
        for number, pod in enumerate(working)
    }


@dataclass(frozen=True, slots=True)
class Usage:
    """The largest working set and the average CPU."""

    mib: float
    millicores: float


def _measure_usage(
    cluster: Cluster, begin: Callable[[], object], done: Callable[[], bool]
) -> dict[str, Usage]:
    """Measure each pod of the operator from before ``begin`` until ``done``, at least until kubelets have new samples."""
    since, before = time.monotonic(), _kubelet_stats(cluster)
    samples = [before]
    begin()
    while time.monotonic() < since + SAMPLE_SECONDS or not done():
        time.sleep(1)
        samples.append(_kubelet_stats(cluster))
    seconds, after = time.monotonic() - since, samples[-1]
    return {
        pod: Usage(
            max(sample[pod][0] for sample in samples) / 2**20,
            (after[pod][1] - before[pod][1]) / seconds / 1e6,
        )
        for pod in before
    }


def _kubelet_stats(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return working set in bytes and CPU time in nanoseconds of the operator's pods, from their kubelets."""
    paths = [f"/api/v1/nodes/{name}/proxy/stats/summary?only_cpu_and_memory=true" for name in cluster.nodes]
    pods = [pod for path in paths for pod in cluster.plane.request("GET", path)["pods"]]
    return {
        pod["podRef"]["name"]: (pod["memory"]["workingSetBytes"], pod["cpu"]["usageCoreNanoSeconds"])
        for pod in pods
        if pod["podRef"]["namespace"] == NAMESPACE
    }


def _unschedulable_job(name: str) -> dict[str, Any]:
    container = {"image": BASE, "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    workers = {"replicas": BURST_PODS - 1, **container}
    return job("PyTorchJob", name, {"Master": container, "Worker": workers})


def _pod_names(workloads: Workloads) -> list[str]:
    return workloads.kubectl("get", "pods", "-o", "name").splitlines()


def table(title: str, labels: Mapping[str, str], results: Mapping[str, list[dict[str, float]]]) -> Table:
    """Return the smallest, the median and the largest value of each figure."""
    shown = Table("", *labels.values(), title=title)
    for case, runs in results.items():
        shown.add_row(case, *(str(spread([run[figure] for run in runs])) for figure in labels))
    return shown


def _last(timestamps: Timestamps, since: float) -> float:
    return (max(timestamps.values()) - since) * 1000
