"""``bench relist``: the cost of comparing a full cache of pods with the server.

The server is a process of its own that answers with prepared pages: only the controller's side counts.
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web
from rich.console import Console

from api.children import Pod, pod_from_json
from api.meta import PODS
from bench import record
from bench.controlplane.callbacks import LongestCallbacks, time_callbacks
from bench.figures import table
from bench.subparsers import Subparsers
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.runtime.informer import Informer
from controller.runtime.listwatch import PAGE_SIZE
from controller.runtime.relist import Relist

LABELS = {
    "wall_s": "wall, s",
    "cpu_ms": "CPU of the controller, ms",
    "longest_callback_ms": "longest callback of its loop, CPU ms",
    "memory_peak_mib": "memory allocated, peak, MiB",
    "received_mib": "received, MiB",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("relist", help="compare a full cache with the server")
    parser.add_argument("--rows", type=int, default=100_000, help="number of pods; default: 100000")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status 0."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    parent_connection, child_connection = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(args.rows, child_connection), daemon=True
    )
    server.start()
    try:
        url, received_bytes = parent_connection.recv()
        runs = [_run(url, args.rows) for _ in range(args.runs)]
        longest = LongestCallbacks()
        time_callbacks(longest)
        for _ in range(args.runs):
            asyncio.run(_measure(url, args.rows, traces=False))
    finally:
        server.terminate()
        server.join()
    callback_ms = max(ms for name, ms in longest.table().items() if name != _measure.__qualname__)
    shared = {"longest_callback_ms": callback_ms, "received_mib": received_bytes / 2**20}
    runs = [run | shared for run in runs]
    Console(file=sys.stdout, width=120).print(table(f"relist of {args.rows} pods", LABELS, {"": runs}))
    if not args.no_record:
        result = {
            "subject": "relist",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": record.commit(),
            "environment": record.environment()
            | {"load_before": load_before, "load_after": record.load_average()},
            "rows": args.rows,
            "runs": runs,
        }
        console.print(f"recorded in {record.save('relist', result)}")
    return 0


def _run(url: str, rows: int) -> dict[str, float]:
    """Relist twice, once for the time and once for the memory: tracing memory takes time."""
    untraced, traced = (asyncio.run(_measure(url, rows, traces=traces)) for traces in (False, True))
    return untraced | {"memory_peak_mib": traced["memory_peak_mib"]}


async def _measure(url: str, rows: int, *, traces: bool) -> dict[str, float]:
    async with Client(Connection(url)) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, lambda before, after: None)
        informer.store.replace((pod_from_json(orjson.dumps(pod(number))) for number in range(rows)), rows + 2)
        if traces:
            tracemalloc.start()
        started, cpu = time.monotonic(), time.process_time()
        # In a task of its own, so that its callbacks are not the one that fills the cache.
        differing = await asyncio.create_task(Relist(informer).relist())
        figures = {
            "wall_s": time.monotonic() - started,
            "cpu_ms": (time.process_time() - cpu) * 1000,
            "memory_peak_mib": tracemalloc.get_traced_memory()[1] / 2**20 if traces else 0.0,
        }
        tracemalloc.stop()
        assert differing == 0
        return figures


def pod(number: int) -> dict[str, Any]:
    """Return a pod as a metadata list holds it, as large as a real server sends it."""
    fields: dict[str, Any] = {
        f"f:field-{index}": {".": {}, "f:value": {}, "f:type": {}} for index in range(40)
    }
    return {
        "metadata": {
            "name": f"job-{number // 64:05}-worker-{number % 64}",
            "namespace": f"team-{number // 6400}",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": str(number + 1),
            "creationTimestamp": "2026-11-22T12:00:00Z",
            "labels": {
                "training.kubeflow.org/job-name": f"job-{number // 64:05}",
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": str(number % 64),
            },
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": f"job-{number // 64:05}",
                    "uid": f"10000000-0000-4000-8000-{number // 64:012}",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": fields}}
            ],
        }
    }


def serve(rows: int, announce: multiprocessing.connection.Connection) -> None:
    """Serve the pages of ``rows`` pods on loopback until the process is terminated."""
    starts = range(0, rows, PAGE_SIZE)
    pages = [
        orjson.dumps(
            {
                "metadata": {
                    "resourceVersion": str(rows + 2),
                    "continue": str(page + 1) if page + 1 < len(starts) else "",
                },
                "items": [pod(number) for number in range(start, min(start + PAGE_SIZE, rows))],
            }
        )
        for page, start in enumerate(starts)
    ]

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            body=pages[int(request.query.get("continue") or 0)], content_type="application/json"
        )

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        announce.send((f"http://{host}:{port}", sum(map(len, pages))))
        await asyncio.Event().wait()

    asyncio.run(main())
