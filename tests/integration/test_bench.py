"""The measurement itself, once and small: that it runs, counts what there is to count, and says why when it cannot."""

import asyncio
from collections.abc import Iterator

import pytest

from bench.__main__ import main
from bench.controlplane import floor
from bench.controlplane.life import live
from bench.controlplane.report import LABELS
from bench.controlplane.rig import USER, clear, control_plane, rig
from bench.controlplane.scenario import Scenario
from controller.testing.controlplane import ControlPlane
from controller.testing.service import service

SMALL = Scenario(jobs=2, replicas=2)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as plane:
        yield plane


def test_a_run_and_its_floor(plane: ControlPlane) -> None:
    """Exactly the pods and Services of the jobs are made, and nothing is refused to a user with the shipped role."""

    async def run(pid: int) -> None:
        async with rig(plane) as stage:
            await clear(stage)
            life = await live(stage, SMALL, "jrun", pid)
            objects = [
                (resource, floor.renamed(body, "jrun", "frun"))
                for resource, body in await floor.bodies(stage)
            ]
            await clear(stage)
            below = await floor.load(stage, SMALL, objects)

        assert life.calls.refused == {}
        assert life.calls.by_kind["create pods"] == life.calls.by_kind["create services"] == SMALL.pods
        assert life.figures.keys() == LABELS.keys() - {"calls"}
        assert all(value > 0 for value in [*life.figures.values(), *below.values()])
        assert [resource.kind for resource, _ in objects].count("Pod") == SMALL.pods

    with service(plane, plane.kubeconfig(USER), ["--events=off"]) as running:
        asyncio.run(run(running.process.pid))


def test_a_controller_that_does_not_come_up_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controlplane", "--scenario", "1x1", "--no-record", "--", "--no-such-flag"]) == 1

    assert "--no-such-flag" in capsys.readouterr().err
