"""Mounted volumes follow their objects while pods run; mounts with subpaths."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import PODS
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.node.volumes.manager import CONFIG_MAPS, SECRETS, container_mounts
from rallypoint.local.node.volumes.references import Unresolved
from rallypoint.local.node.volumes.setup import Mount, Volume
from tests.support.local_harness import LocalHarness, start_local_harness

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


async def test_a_changed_config_map_is_updated(harness: LocalHarness) -> None:
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"hosts": "one"}})
    await harness.pod(
        "a", "sh", "-c", WATCHED, spec={"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, **MOUNTED
    )
    await harness.wait_for_log("a", "hosts=one")
    await changed(harness, {"hosts": "two", "more": "x"})
    await harness.wait_for_log("a", "hosts=two more=x")
    await changed(harness, {"hosts": None})
    await harness.wait_for_log("a", "more=x")


async def test_optional_objects_appear_and_deleted_objects_stay(harness: LocalHarness) -> None:
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
    message = await wait_for_event(harness, "FailedMount")

    assert message == 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'
    assert (await harness.log("a")).splitlines()[-1] == "a=1 b=2 "


async def wait_for_event(harness: LocalHarness, reason: str) -> str:
    from api.meta import EVENTS

    async with asyncio.timeout(60):
        while True:
            listed = orjson.loads(await harness.client.list(EVENTS, "default"))["items"]
            for event in listed:
                if event["reason"] == reason:
                    return str(event["message"])
            await asyncio.sleep(0.02)


async def test_changed_labels_of_the_pod_are_updated(harness: LocalHarness) -> None:
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


async def test_a_subpath_is_updated_at_the_next_container_start(harness: LocalHarness) -> None:
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
async def test_only_mounted_objects_are_read(
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


def mounted(volume: Volume, pinned: Path, **mount: Any) -> Mount:
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/x", **mount}]}
    (found,) = container_mounts(container, {"v": volume}, {"POD": "a", "UP": "..", "ROOT": "/etc"}, pinned)
    return found


def test_a_whole_volume(tmp_path: Path) -> None:
    assert mounted(Volume(tmp_path), tmp_path / "pin") == Mount("v", "/x", tmp_path, False, tmp_path)


@pytest.mark.parametrize(
    ("mount", "part"),
    [
        ({"subPath": "part"}, "part"),
        ({"subPath": "$(POD)"}, "$(POD)"),
        ({"subPathExpr": "logs/$(POD)"}, "logs/a"),
        ({"subPathExpr": "$$(POD)"}, "$(POD)"),
    ],
)
def test_a_missing_subpath_is_created(tmp_path: Path, mount: dict[str, str], part: str) -> None:
    found = mounted(Volume(tmp_path), tmp_path / "pin", **mount)

    assert found.source == tmp_path / part
    assert found.source.is_dir()


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ({"subPath": "../x"}, "leaves its volume"),
        ({"subPathExpr": "$(UP)/x"}, "leaves its volume"),
        ({"subPathExpr": "$(ROOT)/x"}, "leaves its volume"),
        ({"subPath": "link/x"}, 'failed to prepare subPath for volumeMount "v" of container "main"'),
        ({"subPath": "loop/x"}, "failed to prepare subPath"),
        ({"subPathExpr": "$(NONE)"}, 'missing value for "NONE"'),
    ],
)
def test_an_invalid_subpath_is_an_error(tmp_path: Path, mount: dict[str, str], words: str) -> None:
    (tmp_path / "outside").mkdir()
    volume = tmp_path / "v"
    volume.mkdir()
    (volume / "link").symlink_to(tmp_path / "outside")
    (volume / "loop").symlink_to("loop")
    with pytest.raises(Unresolved) as raised:
        mounted(Volume(volume), tmp_path / "pin", **mount)

    assert words in str(raised.value)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_subpath_of_a_projected_volume_is_not_updated(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    (volume / "dir").mkdir(parents=True)
    (volume / "dir" / "file").write_text("old")
    (volume / "dir" / "file").chmod(0o440)
    filled = Volume(volume, is_projected=True)
    file = mounted(filled, tmp_path / "pin", subPath="dir/file").source
    folder = mounted(filled, tmp_path / "other", subPath="dir").source
    (volume / "dir" / "file").unlink()
    (volume / "dir" / "file").write_text("new")

    assert (file.read_text(), (folder / "file").read_text()) == ("old", "old")
    assert file.stat().st_mode & 0o777 == 0o440
    assert mounted(filled, tmp_path / "pin", subPath="dir/file").source.read_text() == "new"


def test_volume_and_mount_can_be_read_only(tmp_path: Path) -> None:
    assert mounted(Volume(tmp_path, read_only=True), tmp_path / "pin").read_only
    assert mounted(Volume(tmp_path), tmp_path / "pin", readOnly=True).read_only


def test_a_subpath_of_a_memory_volume_is_created_in_the_pod(tmp_path: Path) -> None:
    found = mounted(Volume(tmp_path, in_memory=True), tmp_path / "pin", subPath="part")

    assert found.source == tmp_path / "part"
    assert not found.source.exists()
