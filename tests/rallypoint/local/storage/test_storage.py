"""Claims on a site: bound to a folder, seen by pods, and gone when they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import PODS, Resource
from controller.kube.errors import NotFound
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.storage.storage import VOLUMES
from rallypoint.local.storage.using import CLAIMS
from rallypoint.testing.bench import PATIENCE_SECONDS, Bench, opened, phase

pytestmark = pytest.mark.looptime(False)

MOUNTED = {
    "volumeMounts": [{"name": "v", "mountPath": "/nowhere-else"}],
    "env": [{"name": "V", "value": "/nowhere-else"}],
}
"""At a path that is spelled, so that plain processes can be shown it, too."""


@pytest.fixture
async def bench(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[Bench]:
    async with opened(tmp_path, isolation) as bench:
        yield bench


def wanted(claim: str, **more: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim, **more}}]}


async def claim(bench: Bench, name: str = "c", **spec: Any) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    await bench.create(CLAIMS, {"metadata": {"name": name}, "spec": claim_spec})


async def until(bench: Bench, resource: Resource, name: str, phase: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found: dict[str, Any] = orjson.loads(await bench.client.get(resource, "default", name))
            if (found.get("status") or {}).get("phase") == phase:
                return found
            await asyncio.sleep(0.02)


async def gone(bench: Bench, resource: Resource, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await bench.client.get(resource, "default", name)
            except NotFound:
                return
            await asyncio.sleep(0.02)


def is_gone(folder: str) -> bool:
    return not Path(folder).exists()


async def test_a_claim_is_bound_outlives_its_pods_and_takes_its_folder_along(bench: Bench) -> None:
    await claim(bench)
    bound = await until(bench, CLAIMS, "c", "Bound")
    volume = await until(bench, VOLUMES, bound["spec"]["volumeName"], "Bound")
    folder: str = volume["spec"]["hostPath"]["path"]
    await bench.pod("writes", "sh", "-c", "echo kept > $V/file", spec=wanted("c"), **MOUNTED)
    await bench.over("writes")
    await bench.client.delete(PODS, "default", "writes")
    await bench.gone("writes")
    await bench.pod("reads", "sh", "-c", "cat $V/file", spec=wanted("c"), **MOUNTED)
    await bench.over("reads")

    assert await bench.log("reads") == "kept\n"
    assert not is_gone(f"{folder}/file")
    assert (bound["spec"]["storageClassName"], bound["status"]["capacity"]) == (
        "standard",
        {"storage": "1Gi"},
    )
    assert volume["spec"]["claimRef"]["name"] == "c"
    await bench.client.delete(CLAIMS, "default", "c")
    await gone(bench, CLAIMS, "c")
    await gone(bench, VOLUMES, volume["metadata"]["name"])
    assert is_gone(folder)


async def test_a_claim_that_is_used_stays_until_its_pod_has_ended(bench: Bench) -> None:
    await claim(bench)
    await bench.pod("a", "sh", "-c", "echo up; exec sleep 1000", spec=wanted("c"), **MOUNTED)
    await bench.wrote("a", "up")
    going = orjson.loads(await bench.client.delete(CLAIMS, "default", "c"))
    await bench.pod("late", "true", spec=wanted("c"), **MOUNTED)
    waits = await bench.until("late", lambda pod: pod["status"].get("conditions"))

    assert going["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert 'persistentvolumeclaim "c" is being deleted' in waits["status"]["conditions"][0]["message"]
    await bench.client.delete(PODS, "default", "a", grace_period_seconds=0)
    await gone(bench, CLAIMS, "c")


async def test_a_pod_waits_for_its_claim(bench: Bench) -> None:
    await bench.pod("a", "sh", "-c", "echo here > $V/x && cat $V/x", spec=wanted("c"), **MOUNTED)
    waits = await bench.until("a", lambda pod: pod["status"].get("conditions"))

    assert 'persistentvolumeclaim "c" not found' in waits["status"]["conditions"][0]["message"]
    await claim(bench)
    assert phase(await bench.over("a")) == "Succeeded"


async def test_a_claim_that_a_pod_only_reads(bench: Bench) -> None:
    await claim(bench)
    script = "touch $V/x 2>/dev/null && echo written || echo refused"
    await bench.pod("a", "sh", "-c", script, spec=wanted("c", readOnly=True), **MOUNTED)
    await bench.over("a")

    assert (
        await bench.log("a")
        == {"loopback": "written\n", "namespaces": "refused\n"}[bench.node.isolation.name]
    )


async def test_an_ephemeral_volume_goes_with_its_pod(bench: Bench) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}}
    await bench.pod("a", "sh", "-c", "echo own > $V/x && cat $V/x", spec={"volumes": [volume]}, **MOUNTED)
    await bench.over("a")
    bound = await until(bench, CLAIMS, "a-v", "Bound")

    assert await bench.log("a") == "own\n"
    await bench.client.delete(PODS, "default", "a")
    await gone(bench, CLAIMS, "a-v")
    await gone(bench, VOLUMES, bound["spec"]["volumeName"])


async def test_a_volume_that_a_person_made(bench: Bench, tmp_path: Path) -> None:
    """The smallest that will do; it stays when its claim goes, for its person to look after."""
    for name, size in (("small", "1Gi"), ("right", "5Gi"), ("large", "9Gi")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "hostPath": {"path": str(tmp_path / "mine" / name)},
        }
        await bench.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
        await until(bench, VOLUMES, name, "Available")
    await claim(bench, storageClassName="", resources={"requests": {"storage": "2Gi"}})
    bound = await until(bench, CLAIMS, "c", "Bound")
    await bench.pod("a", "sh", "-c", "echo x > $V/x", spec=wanted("c"), **MOUNTED)
    await bench.over("a")

    assert bound["spec"]["volumeName"] == "right"
    assert (tmp_path / "mine" / "right" / "x").read_text() == "x\n"
    await bench.client.delete(CLAIMS, "default", "c")
    await until(bench, VOLUMES, "right", "Released")
    assert (tmp_path / "mine" / "right" / "x").exists()


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_a_volume_of_something_that_local_mode_does_not_have(bench: Bench) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "nfs": {"server": "s", "path": "/"},
    }
    await bench.create(VOLUMES, {"metadata": {"name": "far"}, "spec": spec})
    await claim(bench, storageClassName="", volumeName="far")
    await bench.pod("a", "true", spec=wanted("c"), **MOUNTED)
    pod = await bench.until("a", lambda pod: "far" in str(pod["status"].get("containerStatuses")))
    message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]

    assert (
        message
        == 'persistentvolume "far" is none of hostPath and local, which is all that local mode provides'
    )


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_without_a_class_a_claim_waits_for_a_volume(bench: Bench) -> None:
    await claim(bench, storageClassName="")
    await bench.pod("a", "true", spec=wanted("c"), **MOUNTED)
    waits = await bench.until("a", lambda pod: "unbound" in str(pod["status"].get("conditions")))

    assert "pod has unbound immediate PersistentVolumeClaims" in waits["status"]["conditions"][0]["message"]


@pytest.mark.parametrize("isolation", ["loopback"])
async def test_with_data_a_claim_outlives_the_process(tmp_path: Path, isolation: IsolationMode) -> None:
    data = tmp_path / "data" / "objects.sqlite"
    data.parent.mkdir()
    async with opened(tmp_path, isolation, data=data) as first:
        await claim(first)
        await first.pod("a", "sh", "-c", "echo kept > $V/file", spec=wanted("c"), **MOUNTED)
        await first.over("a")
    async with opened(tmp_path, isolation, data=data) as second:
        await second.pod("b", "sh", "-c", "cat $V/file", spec=wanted("c"), **MOUNTED)
        await second.over("b")
        assert await second.log("b") == "kept\n"
        volume = (await until(second, CLAIMS, "c", "Bound"))["spec"]["volumeName"]
        for name in "ab":
            await second.client.delete(PODS, "default", name)
        await second.client.delete(CLAIMS, "default", "c")
        await gone(second, VOLUMES, volume)

    assert list((tmp_path / "data" / "claims").iterdir()) == []
