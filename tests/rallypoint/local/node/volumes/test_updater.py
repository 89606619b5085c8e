"""What pods have mounted follows its objects while they run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import PODS
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.node.volumes.updater import CONFIG_MAPS, SECRETS
from rallypoint.testing.local_harness import LocalHarness, start_local_harness

pytestmark = pytest.mark.looptime(False)

WATCHED = """
show() { for file in "$V"/*; do [ -f "$file" ] && printf '%s=%s ' "${file##*/}" "$(cat "$file")"; done; }
before=
while :; do now=$(show); [ "$now" = "$before" ] || echo "$now"; before=$now; sleep 0.02; done
"""
MOUNTED = {
    "volumeMounts": [{"name": "v", "mountPath": "/nowhere-else"}],
    "env": [{"name": "V", "value": "/nowhere-else"}],
}


@pytest.fixture
async def harness(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[LocalHarness]:
    async with start_local_harness(tmp_path, isolation) as harness:
        yield harness


async def changed(harness: LocalHarness, data: dict[str, Any]) -> None:
    await harness.client.patch(CONFIG_MAPS, "default", "c", orjson.dumps({"data": data}))


async def test_a_config_map_is_followed(harness: LocalHarness) -> None:
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"hosts": "one"}})
    await harness.pod(
        "a", "sh", "-c", WATCHED, spec={"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, **MOUNTED
    )
    await harness.wait_for_log("a", "hosts=one")
    await changed(harness, {"hosts": "two", "more": "x"})
    await harness.wait_for_log("a", "hosts=two more=x")
    await changed(harness, {"hosts": None})
    await harness.wait_for_log("a", "more=x")


async def test_what_comes_later_and_goes(harness: LocalHarness) -> None:
    """An optional object appears in its volume; one that is deleted stays as it was."""
    optional = {"sources": [{"secret": {"name": "s", "optional": True}}, {"configMap": {"name": "c"}}]}
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    await harness.pod(
        "a", "sh", "-c", WATCHED, spec={"volumes": [{"name": "v", "projected": optional}]}, **MOUNTED
    )
    await harness.wait_for_log("a", "a=1")
    await harness.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"b": "2"}})
    await harness.wait_for_log("a", "a=1 b=2")
    await harness.client.delete(CONFIG_MAPS, "default", "c")
    told = await until_told(harness, "FailedMount")

    assert told == 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'
    assert (await harness.log("a")).splitlines()[-1] == "a=1 b=2 "


async def until_told(harness: LocalHarness, reason: str) -> str:
    from api.meta import EVENTS

    async with asyncio.timeout(60):
        while True:
            listed = orjson.loads(await harness.client.list(EVENTS, "default"))["items"]
            for event in listed:
                if event["reason"] == reason:
                    return str(event["message"])
            await asyncio.sleep(0.02)


async def test_a_pods_own_labels_are_followed(harness: LocalHarness) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    await harness.pod(
        "a",
        "sh",
        "-c",
        WATCHED,
        spec={"volumes": [{"name": "v", "downwardAPI": {"items": items}}]},
        **MOUNTED,
    )
    await harness.wait_for_log("a", 'labels=app="a"')
    await harness.client.patch(PODS, "default", "a", orjson.dumps({"metadata": {"labels": {"app": "b"}}}))
    await harness.wait_for_log("a", 'labels=app="b"')


async def test_a_part_is_not_followed_until_the_container_starts_again(harness: LocalHarness) -> None:
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"hosts": "one"}})
    mounts = [
        {"name": "v", "mountPath": "/nowhere-else"},
        {"name": "v", "mountPath": "/nowhere-either", "subPath": "hosts"},
    ]
    script = 'echo "part $(cat $PART)"; until [ "$(cat $V/hosts)" = two ]; do sleep 0.02; done; echo "still $(cat $PART)"; exit 1'
    await harness.pod(
        *("a", "sh", "-c", script),
        volumeMounts=mounts,
        env=[{"name": "V", "value": "/nowhere-else"}, {"name": "PART", "value": "/nowhere-either"}],
        spec={"volumes": [{"name": "v", "configMap": {"name": "c"}}], "restartPolicy": "OnFailure"},
    )
    await harness.wait_for_log("a", "part one")
    await changed(harness, {"hosts": "two"})
    await harness.wait_for("a", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] > 0)

    assert await harness.log("a", previous="true") == "part one\nstill one\n"
    await harness.wait_for_log("a", "part two")


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_only_what_is_mounted_is_asked_for(
    harness: LocalHarness, recorded_calls: Callable[[LocalHarness], Awaitable[list[str]]]
) -> None:
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"hosts": "one"}})
    await harness.pod(
        "a", "sh", "-c", WATCHED, spec={"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, **MOUNTED
    )
    await harness.wait_for_log("a", "hosts=one")
    calls = await recorded_calls(harness)
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "other"}, "data": {"hosts": "x"}})
    await changed(harness, {"hosts": "two"})
    await harness.wait_for_log("a", "hosts=two")

    assert [call for call in calls if call.endswith("/configmaps/c")] != []
    assert [call for call in calls if call.endswith("/configmaps/other")] == []


@pytest.fixture
def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalHarness], Awaitable[list[str]]]:
    """The paths that the node reads from now on."""

    async def listen(harness: LocalHarness) -> list[str]:
        calls: list[str] = []
        request = harness.client.request

        async def noted(method: str, path: str, **how: Any) -> bytes:
            if method == "GET":
                calls.append(path)
            return await request(method, path, **how)

        monkeypatch.setattr(harness.client, "request", noted)
        return calls

    return listen
