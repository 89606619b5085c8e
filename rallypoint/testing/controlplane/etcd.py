"""Objects written straight into etcd by its JSON gateway: quick, and neither defaulted nor validated.

kube-apiserver reads JSON of every resource, whatever it writes itself, and takes the resourceVersion from etcd.
"""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Iterable, Iterator

import aiohttp
import orjson

REGISTRY = "/registry"
"""The prefix of all keys."""
MAX_PUTS, MAX_BYTES = 128, 1_000_000
"""The operations of a transaction, which is etcd's limit, and the bytes of their keys and values, below its limit of 1.5 MiB."""
IN_FLIGHT = 4
TIMEOUT_SECONDS = 60.0

Entry = tuple[bytes, bytes]
"""A key and its value."""


async def put(server: str, context: ssl.SSLContext, entries: Iterable[Entry]) -> None:
    """Write all entries, ``IN_FLIGHT`` transactions at a time.

    Raises:
        aiohttp.ClientError: etcd refused a transaction, or the connection broke.
        TimeoutError: etcd did not answer in time.
    """
    remaining = batches(entries)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server, connector=connector, timeout=timeout) as session:

        async def work() -> None:
            for batch in remaining:
                async with session.post(
                    "/v3/kv/txn", data=transaction(batch), raise_for_status=True
                ) as answer:
                    await answer.read()

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Divide the entries into transactions that etcd accepts."""
    batch, size = list[Entry](), 0
    for key, value in entries:
        added = len(key) + len(value)
        if batch and (len(batch) == MAX_PUTS or size + added > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += added
    if batch:
        yield batch


def transaction(batch: Iterable[Entry]) -> bytes:
    """Return the request of one transaction."""
    puts = [
        {"requestPut": {"key": b64encode(key).decode(), "value": b64encode(value).decode()}}
        for key, value in batch
    ]
    return orjson.dumps({"success": puts})
