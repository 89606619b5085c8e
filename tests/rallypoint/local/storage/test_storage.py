"""Claims on a local cluster: bound to a folder, mounted by pods, and removed with their claims."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import PODS, Resource
from controller.kube.errors import NotFound
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.storage.binding import CLAIMS
from rallypoint.local.storage.storage import VOLUMES
from tests.support.local_harness import TIMEOUT_SECONDS, LocalHarness, phase, start_local_harness

pytestmark = pytest.mark.looptime(False)

MOUNTED = {
    "volumeMounts": [{"name": "v", "mountPath": "/nowhere-else"}],
    "env": [{"name": "V", "value": "/nowhere-else"}],
}
"""At a path that is spelled, so that plain processes can be shown it, too."""


@pytest.fixture
async def harness(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[LocalHarness]:
    async with start_local_harness(tmp_path, isolation) as harness:
        yield harness


def wanted(claim: str, **more: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim, **more}}]}


async def claim(harness: LocalHarness, name: str = "c", **spec: Any) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    await harness.create(CLAIMS, {"metadata": {"name": name}, "spec": claim_spec})


async def until(harness: LocalHarness, resource: Resource, name: str, phase: str) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            found: dict[str, Any] = orjson.loads(await harness.client.get(resource, "default", name))
            if (found.get("status") or {}).get("phase") == phase:
                return found
            await asyncio.sleep(0.02)


async def gone(harness: LocalHarness, resource: Resource, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                await harness.client.get(resource, "default", name)
            except NotFound:
                return
            await asyncio.sleep(0.02)


def is_gone(folder: str) -> bool:
    return not Path(folder).exists()


async def test_a_claim_is_bound_outlives_its_pods_and_takes_its_folder_along(harness: LocalHarness) -> None:
    await claim(harness)
    bound = await until(harness, CLAIMS, "c", "Bound")
    volume = await until(harness, VOLUMES, bound["spec"]["volumeName"], "Bound")
    folder: str = volume["spec"]["hostPath"]["path"]
    await harness.pod("writes", "sh", "-c", "echo kept > $V/file", spec=wanted("c"), **MOUNTED)
    await harness.wait_for_end("writes")
    await harness.client.delete(PODS, "default", "writes")
    await harness.wait_for_deletion("writes")
    await harness.pod("reads", "sh", "-c", "cat $V/file", spec=wanted("c"), **MOUNTED)
    await harness.wait_for_end("reads")

    assert await harness.log("reads") == "kept\n"
    assert not is_gone(f"{folder}/file")
    assert (bound["spec"]["storageClassName"], bound["status"]["capacity"]) == (
        "standard",
        {"storage": "1Gi"},
    )
    assert volume["spec"]["claimRef"]["name"] == "c"
    await harness.client.delete(CLAIMS, "default", "c")
    await gone(harness, CLAIMS, "c")
    await gone(harness, VOLUMES, volume["metadata"]["name"])
    assert is_gone(folder)


async def test_a_claim_that_is_used_stays_until_its_pod_has_ended(harness: LocalHarness) -> None:
    await claim(harness)
    await harness.pod("a", "sh", "-c", "echo up; exec sleep 1000", spec=wanted("c"), **MOUNTED)
    await harness.wait_for_log("a", "up")
    going = orjson.loads(await harness.client.delete(CLAIMS, "default", "c"))
    await harness.pod("late", "true", spec=wanted("c"), **MOUNTED)
    waits = await harness.wait_for("late", lambda pod: pod["status"].get("conditions"))

    assert going["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert 'persistentvolumeclaim "c" is being deleted' in waits["status"]["conditions"][0]["message"]
    await harness.client.delete(PODS, "default", "a", grace_period_seconds=0)
    await gone(harness, CLAIMS, "c")


async def test_a_pod_waits_for_its_claim(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "echo here > $V/x && cat $V/x", spec=wanted("c"), **MOUNTED)
    waits = await harness.wait_for("a", lambda pod: pod["status"].get("conditions"))

    assert 'persistentvolumeclaim "c" not found' in waits["status"]["conditions"][0]["message"]
    await claim(harness)
    assert phase(await harness.wait_for_end("a")) == "Succeeded"


async def test_a_claim_that_a_pod_only_reads(harness: LocalHarness) -> None:
    await claim(harness)
    script = "touch $V/x 2>/dev/null && echo written || echo refused"
    await harness.pod("a", "sh", "-c", script, spec=wanted("c", readOnly=True), **MOUNTED)
    await harness.wait_for_end("a")

    assert (
        await harness.log("a")
        == {"loopback": "written\n", "namespaces": "refused\n"}[harness.node.isolation.name]
    )


async def test_an_ephemeral_volume_goes_with_its_pod(harness: LocalHarness) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}}
    await harness.pod("a", "sh", "-c", "echo own > $V/x && cat $V/x", spec={"volumes": [volume]}, **MOUNTED)
    await harness.wait_for_end("a")
    bound = await until(harness, CLAIMS, "a-v", "Bound")

    assert await harness.log("a") == "own\n"
    await harness.client.delete(PODS, "default", "a")
    await gone(harness, CLAIMS, "a-v")
    await gone(harness, VOLUMES, bound["spec"]["volumeName"])


async def test_a_volume_that_a_person_made(harness: LocalHarness, tmp_path: Path) -> None:
    """The smallest that will do; it stays when its claim goes, for its person to look after."""
    for name, size in (("small", "1Gi"), ("right", "5Gi"), ("large", "9Gi")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "hostPath": {"path": str(tmp_path / "mine" / name)},
        }
        await harness.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
        await until(harness, VOLUMES, name, "Available")
    await claim(harness, storageClassName="", resources={"requests": {"storage": "2Gi"}})
    bound = await until(harness, CLAIMS, "c", "Bound")
    await harness.pod("a", "sh", "-c", "echo x > $V/x", spec=wanted("c"), **MOUNTED)
    await harness.wait_for_end("a")

    assert bound["spec"]["volumeName"] == "right"
    assert (tmp_path / "mine" / "right" / "x").read_text() == "x\n"
    await harness.client.delete(CLAIMS, "default", "c")
    await until(harness, VOLUMES, "right", "Released")
    assert (tmp_path / "mine" / "right" / "x").exists()


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_a_volume_of_something_that_local_mode_does_not_have(harness: LocalHarness) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "nfs": {"server": "s", "path": "/"},
    }
    await harness.create(VOLUMES, {"metadata": {"name": "far"}, "spec": spec})
    await claim(harness, storageClassName="", volumeName="far")
    await harness.pod("a", "true", spec=wanted("c"), **MOUNTED)
    pod = await harness.wait_for("a", lambda pod: "far" in str(pod["status"].get("containerStatuses")))
    message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]

    assert message == 'persistentvolume "far": local mode supports only the volume sources hostPath and local'


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_without_a_class_a_claim_waits_for_a_volume(harness: LocalHarness) -> None:
    await claim(harness, storageClassName="")
    await harness.pod("a", "true", spec=wanted("c"), **MOUNTED)
    waits = await harness.wait_for("a", lambda pod: "unbound" in str(pod["status"].get("conditions")))

    assert "pod has unbound immediate PersistentVolumeClaims" in waits["status"]["conditions"][0]["message"]


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_with_data_a_claim_outlives_the_process(tmp_path: Path, isolation: IsolationMode) -> None:
    data = tmp_path / "data" / "objects.sqlite"
    data.parent.mkdir()
    async with start_local_harness(tmp_path, isolation, data=data) as first:
        await claim(first)
        await first.pod("a", "sh", "-c", "echo kept > $V/file", spec=wanted("c"), **MOUNTED)
        await first.wait_for_end("a")
    async with start_local_harness(tmp_path, isolation, data=data) as second:
        await second.pod("b", "sh", "-c", "cat $V/file", spec=wanted("c"), **MOUNTED)
        await second.wait_for_end("b")
        assert await second.log("b") == "kept\n"
        volume = (await until(second, CLAIMS, "c", "Bound"))["spec"]["volumeName"]
        for name in "ab":
            await second.client.delete(PODS, "default", name)
        await second.client.delete(CLAIMS, "default", "c")
        await gone(second, VOLUMES, volume)

    assert list((tmp_path / "data" / "claims").iterdir()) == []
