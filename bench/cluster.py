"""``bench cluster``: how long a job takes to run on nodes with kubelets, what of that is the operator's, and what its pods use."""

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
"""What all pods run: it says when the name of the first one could be found, by this machine's clock."""
BURST_JOBS, BURST_PODS, SAMPLE_SECONDS = 100, 8, 30.0
LABELS = {
    "pods_ms": "create → last pod is there, ms",
    "services_ms": "create → last Service is there, ms",
    "running_ms": "create → all pods Running, ms",
    "status_ms": "first pod Running → Running in status, ms",
    "resolved_ms": "create → the first one's name is found in all pods, ms",
}
USAGE = {
    "rest_mib": "working set at rest, MiB",
    "rest_millicores": "CPU at rest, millicores",
    "burst_mib": "working set in a burst, peak, MiB",
    "burst_millicores": "CPU in a burst, millicores",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How ``pods`` of a kind are asked for; ``first`` is the pod by whose name the others find each other."""

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
"""One whose workers wait in an init container for the master's name, and one whose pods all start at once."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("cluster", help="jobs on nodes with kubelets; Linux, root")
    parser.add_argument("--runs", type=int, default=5, help="of each size; default 5")
    parser.add_argument("--power-cuts", type=int, default=3, help="of a node that a job runs on; default 3")
    parser.add_argument("--no-record", action="store_true", help="only show the figures")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 when it could not be measured."""
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
        measured = {"cluster": jobs, "operator": usage, "power_cut": cuts}
        console.print(f"recorded in {record.save('cluster', _result(measured, version, load_before))}")
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
            await _run_job(workloads, observer, KINDS[0], SIZES[0], "warm")  # until all watches are there
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
    """One job, from its creation until all its pods have found the first one; nothing is left of it.

    Raises:
        TimeoutError: its pods do not run.
    """
    since, resolved_seconds = await _run_job(workloads, observer, kind, pods, name)
    return {**figures(observer, f"{name}-{kind.first}", name, since), "resolved_ms": resolved_seconds * 1000}


async def _run_job(
    workloads: Workloads, observer: Observer, kind: Kind, pods: int, name: str
) -> tuple[float, float]:
    """When the job was created, on the monotonic clock, and how long it took until all its pods had found the first one."""
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
    """When the pod has found the first one's name, in seconds since 1970."""
    workloads.wait(f"a word of {pod}", lambda: workloads.logs(pod) != "")
    return float(workloads.logs(pod))


def figures(observer: Observer, first: str, name: str, since: float) -> dict[str, float]:
    """All but what the pods themselves tell."""
    return {
        "pods_ms": _last(observer.pods, since),
        "services_ms": _last(observer.services, since),
        "running_ms": _last(observer.pods_running, since),
        "status_ms": (observer.with_condition("Running")[name] - deciding_time(observer.pods_running, first))
        * 1000,
    }


def deciding_time(running: Mapping[str, float], first: str) -> float:
    """When the pod ran that makes the job Running: the master, or whichever came first where nobody leads."""
    return running[first] if first.endswith("master-0") else min(running.values())


def operator_usage(cluster: Cluster) -> dict[str, list[dict[str, float]]]:
    """What the operator's pods use at rest, and while many jobs come at once whose pods fit on no node; 0 is the one that works."""
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
    """The largest working set that was seen, and the CPU on average."""

    mib: float
    millicores: float


def _measure_usage(
    cluster: Cluster, begin: Callable[[], object], done: Callable[[], bool]
) -> dict[str, Usage]:
    """By each pod of the operator, from before ``begin`` until ``done``, and for long enough that kubelets have counted anew."""
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
    """Working set in bytes and CPU time in nanoseconds of the operator's pods, as their kubelets count them now."""
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
    """Smallest, median and largest of the runs."""
    shown = Table("", *labels.values(), title=title)
    for case, runs in results.items():
        shown.add_row(case, *(str(spread([run[figure] for run in runs])) for figure in labels))
    return shown


def _result(measured: dict[str, Any], version: str, load_before: float) -> dict[str, Any]:
    return {
        "definitions": "bench/README.md",
        "commit": record.commit(),
        "environment": record.environment() | {"versions": {"kube-apiserver": version}},
        "load_average": {"before": load_before, "after": record.load_average()},
        **measured,
    }


def _last(timestamps: Timestamps, since: float) -> float:
    return (max(timestamps.values()) - since) * 1000
