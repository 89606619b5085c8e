"""``bench metrics``: the metrics of many jobs: their series, memory and scrape time, and what they add to a reconcile."""

import argparse
import asyncio
import gc
import struct
import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from rich.console import Console
from typing_extensions import override

from api.children import Pod, Service, pod_from_json, service_from_json
from api.meta import PODS, SERVICES
from api.times import format_time
from api.v1.pytorchjob import PyTorchJob
from bench import record
from bench.controlplane.callbacks import LongestCallbacks, time_callbacks
from bench.figures import table
from bench.subparsers import Subparsers
from controller.command import spare_garbage_collector
from controller.domain import Key, Present
from controller.kind import Options
from controller.kinds import DEFAULT
from controller.kinds.pytorch import PYTORCH
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.reconcile import plan as planning
from controller.reconcile.apply import Cache
from controller.reconcile.events import EventRecorder
from controller.reconcile.job_history import JobHistory
from controller.reconcile.job_metrics import JobMetrics
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.load import LoadedJob
from controller.reconcile.memory import JobMemories
from controller.reconcile.observe import Sources, observe, owner_uid
from controller.reconcile.reconciler import Reconciler
from controller.runtime import clock
from controller.runtime.recorder import Recorder
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult
from controller.server.http import serving
from controller.telemetry.metrics import Metrics
from controller.telemetry.metrics.jobs import IDLE_TIME, PHASES, STATES, JobSample, JobTotals
from rallypoint.testing.controlplane.process import free_port

SERIES = {
    "series": "series",
    "exposition_mib": "exposition, MiB",
    "memory_mib": "memory with what is kept of each job and pod, MiB",
    "memory_after_idle_mib": "memory an hour after the last job, MiB",
    "scrape_wall_ms": "scrape, wall, ms",
    "scrape_cpu_ms": "scrape, CPU of the controller, ms",
    "longest_callback_ms": "longest callback of its loop, CPU ms",
}
RECONCILE = {
    "reconcile_us": "reconcile that finds nothing to do, CPU µs",
    "without_metrics_us": "the same without metrics of jobs, CPU µs",
    "memory_bytes_per_job": "memory that metrics add to a job, bytes",
}
GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PODS_PER_JOB = 2
"""Pods of each job."""
POD_BYTES = 3 * struct.calcsize("P") + sys.getsizeof(NOW)
"""What the row of a pod contains for metrics: three references, and the time when it got its node."""
JOBS = 300
"""Jobs whose reconciles are measured together."""
SCRAPE = "import sys, time, urllib.request as u; t = time.time(); b = u.urlopen(sys.argv[1]).read(); print(time.time() - t, len(b))"
"""A program that prints the seconds and bytes of a request."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("metrics", help="series, memory and scrape time of many jobs")
    parser.add_argument("--jobs", type=int, default=10_000, help="number of jobs; default: 10000")
    parser.add_argument("--namespaces", type=int, default=500, help="number of namespaces; default: 500")
    parser.add_argument("--runs", type=int, default=5, help="number of runs; default: 5")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status 0."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    frameworks = tuple(kind.framework for kind in DEFAULT)
    cases = {"one kind in each namespace": frameworks[:1], "all kinds in each namespace": frameworks}
    series = {
        name: [measure_series(args.jobs, args.namespaces, among) for _ in range(args.runs)]
        for name, among in cases.items()
    }
    reconciles = {
        f"{pods} pods": [asyncio.run(measure_reconciles(pods)) for _ in range(args.runs)] for pods in (2, 64)
    }
    longest = LongestCallbacks()
    time_callbacks(longest)
    for name, among in cases.items():
        registry = CollectorRegistry()
        fill(Metrics(registry).jobs, args.jobs, args.namespaces, among)
        spare_garbage_collector()  # as the controller does
        longest.clear()
        asyncio.run(_scrape(registry))
        callback_ms = next(iter(longest.table().values()))
        series[name] = [run | {"longest_callback_ms": callback_ms} for run in series[name]]
    title = f"{args.jobs} jobs in {args.namespaces} namespaces"
    shown = Console(file=sys.stdout, width=120)
    shown.print(table(title, SERIES, series))
    shown.print(table("a PyTorchJob", RECONCILE, reconciles))
    if not args.no_record:
        document = record.document(
            load_before, jobs=args.jobs, namespaces=args.namespaces, series=series, reconciles=reconciles
        )
        console.print(f"recorded in {record.save('metrics', {'subject': 'metrics', **document})}")
    return 0


def measure_series(jobs: int, namespaces: int, frameworks: tuple[str, ...]) -> dict[str, float]:
    """Measure the metrics of jobs of these kinds, each of two pods with GPUs, evenly distributed over namespaces and states."""
    registry = CollectorRegistry()
    fill(Metrics(registry).jobs, jobs, namespaces, frameworks)
    samples = (sample for family in registry.collect() for sample in family.samples)
    series = sum("framework" in sample.labels for sample in samples)
    return {"series": series, **_memory(jobs, namespaces, frameworks), **asyncio.run(_scrape(registry))}


def fill(totals: JobTotals, jobs: int, namespaces: int, frameworks: tuple[str, ...]) -> list[JobHistory]:
    """Report jobs, and return what the reconciler remembers of them."""
    groups = [(f"team-{number:04}", framework) for framework in frameworks for number in range(namespaces)]
    for namespace, framework in groups:
        totals.start(framework)
        totals.count(namespace, framework, "created")
    histories: list[JobHistory] = []
    for number, ((namespace, framework), state) in enumerate(islice(zip(cycle(groups), cycle(STATES)), jobs)):
        # Each job has times and tuples of its own, as those that the reconciler reports have.
        pending = NOW.timestamp() if state == "pending" else None
        holding = NOW.timestamp() if state in {"succeeded", "failed"} else None
        requests = ((GPU, (0, 0, 8 * PODS_PER_JOB, 0)),)
        replicas = (0, PODS_PER_JOB, 0, 0)
        sample = JobSample(namespace, framework, state, replicas, requests, pending, holding)
        totals.put(_uid(number), sample)
        reached = (*PHASES[:4],)
        basis, created = hash((number, *reached)), NOW + timedelta(seconds=number)
        histories.append(JobHistory(reached, created, is_complete=True, last_basis=basis))
    return histories


def _memory(jobs: int, namespaces: int, frameworks: tuple[str, ...]) -> dict[str, float]:
    now = NOW
    totals = Metrics(CollectorRegistry(), now=lambda: now).jobs
    tracemalloc.start()
    histories = fill(totals, jobs, namespaces, frameworks)
    filled = _traced_mib() + jobs * PODS_PER_JOB * POD_BYTES / 2**20
    histories.clear()
    for number in range(jobs):
        totals.discard(_uid(number))
    now += IDLE_TIME
    totals.put("last", JobSample("another", frameworks[0], "running"))
    idle = _traced_mib()
    tracemalloc.stop()
    return {"memory_mib": filled, "memory_after_idle_mib": idle}


async def _scrape(registry: CollectorRegistry) -> dict[str, float]:
    """Scrape as Prometheus does, from another process."""
    address, cpu = f"127.0.0.1:{free_port()}", time.process_time()
    async with serving(address, "0", registry, str, str):
        command = (sys.executable, "-c", SCRAPE, f"http://{address}/metrics")
        client = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        seconds, size = (await client.communicate())[0].split()
    return {
        "exposition_mib": int(size) / 2**20,
        "scrape_wall_ms": float(seconds) * 1000,
        "scrape_cpu_ms": (time.process_time() - cpu) * 1000,
    }


async def measure_reconciles(pods: int, rounds: int = 10) -> dict[str, float]:
    """Measure reconciles of running jobs of that many pods, with and without metrics in turn. They make no request."""
    async with Client(Connection("http://127.0.0.1:9")) as client:
        with_metrics, without = (_TestReconciler(client, pods, reports=reports) for reports in (True, False))
        memory = await with_metrics.memory_bytes() - await without.memory_bytes()
        times = [(await with_metrics.cpu_us(), await without.cpu_us()) for _ in range(rounds)]
        return {
            "memory_bytes_per_job": memory,
            "reconcile_us": min(first for first, _ in times),
            "without_metrics_us": min(second for _, second in times),
        }


class _NoMetrics(JobMetrics):
    """Reports nothing."""

    @override
    def begin(self, loaded: LoadedJob) -> None: ...

    @override
    def record(self, loaded: LoadedJob, row: JobRow | None) -> None: ...


class _TestReconciler(Reconciler):
    """A reconciler with running jobs in its stores, which reports to metrics or does not."""

    def __init__(self, client: Client, pods: int, *, reports: bool) -> None:
        self._keys = [Key("team", f"train-{number}") for number in range(JOBS)]
        stores = Sources(Store[Pod](owner_uid), Store[Service](owner_uid))
        rows = Store[JobRow]()
        for key in self._keys:
            rows.put(_running_job(key, pods, stores))
        assert stores.services is not None
        caches = {
            PODS: Cache(stores.pods, pod_from_json),
            SERVICES: Cache(stores.services, service_from_json),
        }
        events = EventRecorder(Recorder(client, enabled=False))
        totals, memories = JobTotals(CollectorRegistry()), JobMemories()
        super().__init__(
            PYTORCH,
            client,
            rows,
            caches,
            events,
            Options(),
            lambda kind, namespace, count: None,
            memories,
            totals,
        )
        if not reports:
            self._metrics = _NoMetrics(totals, stores, clock.now)

    async def memory_bytes(self) -> float:
        """Return the memory that the first reconcile of a job adds."""
        tracemalloc.start()
        for key in self._keys:
            await self._check(key)
        traced = _traced_mib()
        tracemalloc.stop()
        return traced * 2**20 / len(self._keys)

    async def cpu_us(self) -> float:
        """Return the CPU time of a reconcile, in microseconds."""
        cpu = time.process_time()
        for key in self._keys:
            await self.reconcile(key)
        return (time.process_time() - cpu) / len(self._keys) * 1e6

    async def _check(self, key: Key) -> None:
        result = await self.reconcile(key)
        assert result == ReconcileResult(), result


def _running_job(key: Key, pods: int, stores: Sources) -> JobRow:
    """Return the row of a running PyTorchJob, whose children are added to the stores."""
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "i", "resources": {"limits": {GPU: 8}}}]}
    }
    roles = {"Master": {"template": template}, "Worker": {"replicas": pods - 1, "template": template}}
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": f"uid-of-{key.name}",
        "resourceVersion": "1",
        "creationTimestamp": format_time(NOW),
    }
    body: dict[str, Any] = {"metadata": metadata, "spec": {"pytorchReplicaSpecs": roles}}
    job = PyTorchJob.model_validate(body)
    for _, _, child in PYTORCH.wanted(job, PYTORCH.roles(job), Options(), Present()):
        made = child.body()
        made["metadata"] |= {
            "namespace": key.namespace,
            "uid": f"{child.resource.kind}-{child.name}",
            "resourceVersion": "1",
        }
        if child.resource == PODS:
            stores.pods.put(pod_from_json(orjson.dumps({**made, "status": {"phase": "Running"}})))
        elif stores.services is not None:
            stores.services.put(service_from_json(orjson.dumps(made)))
    for _ in range(3):
        snapshot = observe(stores, PYTORCH, key, job.metadata.uid)
        status = planning.decide(PYTORCH, job, snapshot, clock.now(), Options()).status
        job = job.model_copy(update={"status": status})
    return job_from_json(orjson.dumps({**body, "status": job.status.to_wire() if job.status else {}}))


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def _traced_mib() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 2**20
