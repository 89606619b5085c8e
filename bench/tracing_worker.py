"""Measures the calls of reconciles, for ``bench.tracing``, which runs it also with earlier code: it uses only what both have.

    python -P bench/tracing_worker.py URL off|on

For each line that it reads it prints the CPU time since the last one, in microseconds for each reconcile. With ``on`` that includes the
export of spans in between.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import uvloop

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from controller.domain import Key
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.runtime.workers import ReconcileResult

KEY = Key("team", "train")
PODS_PER_RECONCILE = 4
"""Pods that a reconcile creates at once; then it patches the status."""
RECONCILES = 50
"""Of a round."""
BODY = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"train-worker-0","namespace":"team"},"spec":{}}'


async def measure(url: str, rounds: Iterator[object], *, traced: bool) -> AsyncIterator[float]:
    """Yield the CPU microseconds of a reconcile for each of the rounds; the first one warms up."""
    async with AsyncExitStack() as stack:
        options: dict[str, Any] = {}
        traces: Any = None
        if traced:
            from controller.kube.errors import describe
            from controller.kube.transport import UNOBSERVED
            from controller.telemetry.tracing import Tracing

            traces = await stack.enter_async_context(Tracing(url, "0", describe))
            options = {"observer": traces.requests(UNOBSERVED), "tracer": traces}
        client = await stack.enter_async_context(Client(Connection(url), **options))

        async def reconcile(key: Key) -> ReconcileResult:
            await asyncio.gather(
                *(client.create(PODS, key.namespace, BODY) for _ in range(PODS_PER_RECONCILE))
            )
            await client.patch(RESOURCE, key.namespace, key.name, b"{}", subresource="status")
            return ReconcileResult()

        work = traces.reconciles("PyTorchJob", reconcile) if traces else reconcile
        before = time.process_time()
        for _ in rounds:
            for _ in range(RECONCILES):
                await work(KEY)
            before, last = time.process_time(), before
            yield (before - last) / RECONCILES * 1e6


async def main(url: str, *, traced: bool) -> None:
    async for microseconds in measure(url, iter(sys.stdin), traced=traced):
        print(microseconds, flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], traced=sys.argv[2] == "on"))
