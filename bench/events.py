"""``bench events``: how late events of small jobs are beside a large job, in another namespace, that cannot pull its image."""

import argparse
import asyncio
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from statistics import median

import orjson
from rich.console import Console

from api.meta import EVENTS, PODS
from api.v1.pytorchjob import RESOURCE
from bench import record
from bench.controlplane.observer import Observer
from bench.controlplane.scenario import Jobs, container_status, manifest
from bench.controlplane.testbed import count
from bench.figures import table
from bench.subparsers import Subparsers
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.service import service

USER = "operator"
BUSY, QUIET = "busy", "quiet"
NO_NODE, NODE = "absent", "node-0"
"""A node without a simulator, whose pods keep the status that the benchmark writes, and a simulated node."""
IN_FLIGHT = 32
"""Concurrent status writes in place of the kubelets."""
SECONDS_APART = 2.0
"""Time between jobs of the quiet namespace."""
STARTUP_TIMEOUT_SECONDS, SETTLE_TIMEOUT_SECONDS = 600.0, 180.0
STATES = (
    (
        "ErrImagePull",
        'failed to pull and unpack image "train:1": dial tcp 10.0.{high}.{low}:443: i/o timeout',
    ),
    ("ImagePullBackOff", 'Back-off pulling image "train:1"'),
)
TITLE = "a large job with image errors beside a quiet namespace"
LABELS = {
    "longest_delay_ms": "a quiet job: Succeeded in status → its event, the longest, ms",
    "median_delay_ms": "the same, the median of the quiet jobs, ms",
    "quiet_jobs": "quiet jobs",
    "busy_events": "events of the large job",
    "trouble_seconds": "until all pods report their failure, s",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "events", help="delay of events beside a large job that cannot pull its image"
    )
    parser.add_argument("--pods", type=int, default=5000, help="pods of the large job; default: 5000")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    results: list[dict[str, float]] = []
    version = ""
    try:
        for _ in range(args.runs):
            with _control_plane() as plane:
                version = plane.request("GET", "/version")["gitVersion"]
                results.append(asyncio.run(_run(plane, args.pods)))
            console.print(f"{results[-1]}")
    except (ProcessFailed, TimeoutError) as error:
        console.print(f"not measured: {error!r}", style="red", markup=False)
        return 1
    Console(file=sys.stdout, width=140).print(table(TITLE, LABELS, {"": results}))
    if not args.no_record:
        result = record.document(load_before, version, pods=args.pods, events=results)
        console.print(f"recorded in {record.save('events', result)}")
    return 0


@contextmanager
def _control_plane() -> Generator[ControlPlane]:
    """Start a control plane and a controller for one run."""
    plane = ControlPlane(
        users=[administrator(USER)], controllers=(), service_account_admission=False, nodes=1
    )
    with plane:
        plane.apply(*all_crds())
        for name in (BUSY, QUIET):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with service(plane, plane.kubeconfig(USER)):
            yield plane


async def _run(plane: ControlPlane, pods: int) -> dict[str, float]:
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    async with (
        Client(connection, in_flight=2 * IN_FLIGHT, user_agent="rallypoint-bench") as client,
        Observer(client, QUIET) as quiet,
    ):
        arrivals: dict[str, float] = {}
        watch = asyncio.create_task(_record_arrivals(client, arrivals))
        await client.create(RESOURCE, BUSY, job("large", pods, NO_NODE))
        async with asyncio.timeout(STARTUP_TIMEOUT_SECONDS):
            while await count(client, PODS, BUSY) < pods:  # noqa: ASYNC110 - it is the server that is asked
                await asyncio.sleep(0.5)
        began = time.monotonic()
        image_pulls = asyncio.create_task(_fail_image_pulls(client))
        names: list[str] = []
        while not image_pulls.done() or not names:
            names.append(f"job-{len(names)}")
            await client.create(RESOURCE, QUIET, job(names[-1], 1, NODE, exits=True))
            await asyncio.wait([image_pulls], timeout=SECONDS_APART)
        await image_pulls
        seconds = time.monotonic() - began
        async with asyncio.timeout(SETTLE_TIMEOUT_SECONDS):
            while not arrivals.keys() >= set(names):  # noqa: ASYNC110 - arrivals are timed where they arrive
                await asyncio.sleep(0.1)
        await _wait_until_no_new_events(client)
        ended = quiet.with_condition("Succeeded")
        delays = [(arrivals[name] - ended[name]) * 1000 for name in names]
        figures = {
            "longest_delay_ms": max(delays),
            "median_delay_ms": median(delays),
            "quiet_jobs": len(names),
            "busy_events": await count(client, EVENTS, BUSY),
            "trouble_seconds": seconds,
        }
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    await asyncio.sleep(0.1)  # Closed TLS connections disappear some iterations of the loop later.
    return figures


def job(name: str, pods: int, node: str, *, exits: bool = False) -> bytes:
    """Return a PyTorchJob whose pods have a node; with ``exits`` they succeed as soon as they run."""
    return orjson.dumps(manifest(Jobs(1, pods, quick=exits), name, nodes=(node, node)))


async def _fail_image_pulls(client: Client) -> None:
    """Write the statuses of the large job's pods as kubelets would: first ErrImagePull, then ImagePullBackOff."""
    names = [pod["metadata"]["name"] for pod in orjson.loads(await client.list(PODS, BUSY))["items"]]
    for reason, text in STATES:
        remaining = list(enumerate(names))

        async def patch(
            remaining: list[tuple[int, str]] = remaining, reason: str = reason, text: str = text
        ) -> None:
            while remaining:
                index, name = remaining.pop()
                message = text.format(high=index // 250, low=index % 250)
                waiting = {"waiting": {"reason": reason, "message": message}}
                body = orjson.dumps({"status": {"containerStatuses": [container_status("pytorch", waiting)]}})
                await client.patch(PODS, BUSY, name, body, subresource="status")

        await asyncio.gather(*(patch() for _ in range(IN_FLIGHT)))


async def _record_arrivals(client: Client, arrivals: dict[str, float]) -> None:
    """Record, until canceled, when the event for the end of each quiet job arrives."""
    path, params = EVENTS.path(QUIET), {"watch": "true", "resourceVersion": "0"}
    while True:
        with suppress(TimeoutError):
            async with client.stream(path, params) as lines:
                async for line in lines:
                    event = orjson.loads(line)["object"]
                    if event.get("reason") == "PyTorchJobSucceeded":
                        arrivals.setdefault(event["involvedObject"]["name"], time.monotonic())
        await asyncio.sleep(0.01)


async def _wait_until_no_new_events(client: Client) -> None:
    """Return when the number of events of the large job stays the same."""
    async with asyncio.timeout(SETTLE_TIMEOUT_SECONDS):
        before = -1
        while (now := await count(client, EVENTS, BUSY)) != before:
            before = now
            await asyncio.sleep(2)
