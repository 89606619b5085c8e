"""``rallypoint goodput``."""

import argparse
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import orjson
import pytest

from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli import goodput
from rallypoint.cli.cluster import Cluster
from tests.support.faults import Refuse, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness

CLOCK = {
    "phase": "Finished",
    "since": "2026-01-01T12:00:00Z",
    "pullingSeconds": 100,
    "runningSeconds": 800,
    "lostSeconds": 100,
}
Show = Callable[..., Coroutine[Any, Any, str]]


async def shown(
    harness: Harness, capsys: pytest.CaptureFixture[str], *what: str, output: str = "text"
) -> Any:
    """Run the command; return its output and its errors."""
    async with Client(harness.connection, user_agent="rallypoint-cli") as client:
        cluster = Cluster(client, "", NAMESPACE, await clusters.discover(client))
        args = argparse.Namespace(what=list(what), output=output)
        assert await goodput._goodput(args, cluster) == 0
    return capsys.readouterr()


async def measured_job(harness: Harness) -> None:
    """Create a job whose status has a wall clock."""
    await harness.submit("measured", workers=1)
    await harness.client.patch(
        RESOURCE,
        NAMESPACE,
        "measured",
        orjson.dumps({"status": {"wallClock": CLOCK}}),
        subresource="status",
    )


@pytest.fixture
async def harness() -> AsyncGenerator[Harness]:
    async with start_harness() as started:
        yield started


async def test_a_measured_job_has_its_seconds(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    await measured_job(harness)
    out = (await shown(harness, capsys, "pytorchjob/measured")).out.splitlines()

    assert out[0].split() == ["NAMESPACE", "JOB", "GOODPUT", "AGE", "PULLING", "RUNNING", "LOST"]
    assert out[1].split()[1:] == ["pytorchjob/measured", "80%", "16m40s", "1m40s", "13m20s", "1m40s"]
    assert len(out) == 2


async def test_other_jobs_are_computed_and_marked(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    await measured_job(harness)
    await harness.submit("other", workers=1)
    found = json.loads((await shown(harness, capsys, output="json")).out)

    assert {job["name"]: job["isMeasured"] for job in found} == {"measured": True, "other": False}
    other = next(job for job in found if job["name"] == "other")
    assert other["seconds"]["lost"] is None
    assert sum(seconds or 0 for seconds in other["seconds"].values()) == other["totalSeconds"]


async def test_what_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with start_harness(
        Rule(Refuse(403, "Forbidden"), verb="list", plural="events", times=None)
    ) as harness:
        await harness.submit("other", workers=1)
        found = await shown(harness, capsys)

    assert "You have no permission to read events" in found.err
    assert "~" in found.out


async def test_another_kind_of_object_is_refused(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(clusters.CommandError, match="Pod is not a kind of job"):
        await shown(harness, capsys, "pods")
