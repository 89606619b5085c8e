"""``bench tracing``: what traces cost a reconcile, and what the code for them costs without the flag.

A process of its own answers all calls and receives the spans: only the controller's side counts.
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean

from aiohttp import web
from rich.console import Console

from bench import record, tracing_worker
from bench.figures import table
from bench.subparsers import Subparsers

LABELS = {
    "before_us": "without the code for traces, CPU µs",
    "off_us": "without --tracing, CPU µs",
    "on_us": "with --tracing, CPU µs",
    "off_ratio": "without --tracing, × without the code",
    "on_ratio": "with --tracing, × without",
}
MEASURED = ("api", "controller")
ROUNDS = 60
"""Of a run."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("tracing", help="what traces cost, on and off")
    parser.add_argument(
        "--before", metavar="COMMIT", required=True, help="a commit without the code for traces"
    )
    parser.add_argument("--runs", type=int, default=5, help="number of runs; default: 5")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status 0."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    parent_connection, child_connection = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(child_connection,), daemon=True)
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            before = Path(folder)
            _extract(args.before, before)
            url = parent_connection.recv()
            runs = [_run(url, before) for _ in range(args.runs)]
    finally:
        server.terminate()
        server.join()
    title = f"a reconcile with {tracing_worker.PODS_PER_RECONCILE + 1} calls"
    Console(file=sys.stdout, width=120).print(table(title, LABELS, {"": runs}))
    if not args.no_record:
        result = record.document(load_before, before=args.before, runs=runs)
        console.print(f"recorded in {record.save('tracing', {'subject': 'tracing', **result})}")
    return 0


def _run(url: str, before: Path) -> dict[str, float]:
    """Measure rounds of the three in turn. The smallest is the one that other work on the machine disturbed least."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(url, code, mode))
            for code, mode in ((before, "off"), (record.ROOT, "off"), (record.ROOT, "on"))
        ]
        rounds = [[_measure(worker) for worker in workers] for _ in range(ROUNDS + 1)][1:]
    before_us, off_us = (min(measured[place] for measured in rounds) for place in range(2))
    on_us = mean(measured[2] for measured in rounds)  # some rounds include an export, others none
    return {
        "before_us": before_us,
        "off_us": off_us,
        "on_us": on_us,
        "off_ratio": off_us / before_us,
        "on_ratio": on_us / mean(measured[1] for measured in rounds),
    }


@contextmanager
def _worker(url: str, code: Path, mode: str) -> Generator["subprocess.Popen[str]"]:
    environment = os.environ | {"PYTHONPATH": str(code), "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    command = [sys.executable, "-P", tracing_worker.__file__, url, mode]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as worker:
        yield worker


def _measure(worker: "subprocess.Popen[str]") -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def _extract(commit: str, folder: Path) -> None:
    archive = subprocess.check_output(["git", "-C", str(record.ROOT), "archive", commit, *MEASURED])
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def serve(announce: multiprocessing.connection.Connection) -> None:
    """Answer every request on loopback until the process is terminated."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"{}", content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        announce.send(f"http://{host}:{port}")
        await asyncio.Event().wait()

    asyncio.run(main())
