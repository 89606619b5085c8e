"""Objects with a missing or odd value: the embedded server accepts and refuses the same ones as a real server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml

from rallypoint.testing.http_trace import RawClient, Step

SAMPLES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("samples.yaml").read_text())
MISSING = object()
ODD_VALUES: dict[type, tuple[object, ...]] = {
    dict: ({}, []),
    list: ([], [None]),
    str: ("", "odd value"),
    int: (0, -1, 1.5, {}),
    bool: ("",),
}
"""What replaces a value, by its type, besides null and no value at all."""
CONCURRENT_REQUESTS = 8


def paths(value: Any, start: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the path and the value of each field and item below a value."""
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*start, key), item
        yield from paths(item, (*start, key))


def variants(sample: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sample with each of its values missing, null or odd, and what differs."""
    encoded = orjson.dumps(sample)  # A part that occurs twice becomes two parts, each of which changes alone.
    for path, value in paths(sample):
        for odd in (MISSING, None, *ODD_VALUES[type(value)]):
            changed = orjson.loads(encoded)
            parent: Any = changed
            for key in path[:-1]:
                parent = parent[key]
            if odd is MISSING:
                del parent[path[-1]]
            else:
                parent[path[-1]] = odd
            yield f"{'.'.join(map(str, path))} {'missing' if odd is MISSING else f'= {odd!r}'}", changed


async def answers(client: RawClient, path: str, objects: list[dict[str, Any]]) -> list[int]:
    """Return the status code for the creation of each object without storing it; 0 without an answer."""
    limit = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def code(body: dict[str, Any]) -> int:
        async with limit:
            try:
                return (await client.send(Step("POST", path, body, query={"dryRun": "All"}))).code
            except aiohttp.ServerDisconnectedError:  # a panic in kube-apiserver
                return 0

    return await asyncio.gather(*map(code, objects))


@pytest.mark.parametrize("path", SAMPLES)
async def test_odd_objects_are_accepted_or_refused_alike(
    embedded: RawClient, real: RawClient, namespace: str, path: str
) -> None:
    listed = [("the sample", SAMPLES[path]), *variants(SAMPLES[path])]
    objects = [orjson.loads(orjson.dumps(obj).replace(b"{ns}", namespace.encode())) for _, obj in listed]
    collection = path.partition("?")[0].replace("{ns}", namespace)
    theirs, ours = await asyncio.gather(
        *(answers(server, collection, objects) for server in (real, embedded))
    )
    assert theirs[0] == 201
    assert [
        (about, real_code, code)
        for (about, _), real_code, code in zip(listed, theirs, ours, strict=True)
        if code == 500 or (real_code and (code < 300) != (real_code < 300))
    ] == []
