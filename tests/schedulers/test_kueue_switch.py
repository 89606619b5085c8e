"""Jobs move from Kueue's own integration to ours and back; none stops, and each keeps its Workload."""

from collections.abc import Generator
from functools import partial
from pathlib import Path

import orjson
import pytest

from api.labels import POD_SETS
from controller.kinds.pytorch import PYTORCH
from controller.kueue.pod_sets import workload_name
from controller.reconcile.jobs import job_from_json
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import install
from tests.support.schedulers.gangs import open_nodes
from tests.support.schedulers.integrators import OTHER_FRAMEWORKS
from tests.support.schedulers.kueue import install_kueue, kueue
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import PYTORCHJOB, Object, Queue, graceful_stages, overlay

OWN = (*OTHER_FRAMEWORKS, PYTORCHJOB.framework)
EXTERNAL = (PYTORCHJOB.external_framework,)
TAKEOVER_SECONDS = 150
"""More than the operator takes to notice that Kueue has left the kind to it."""


@pytest.fixture
def plane(tmp_path: Path) -> Generator[ControlPlane]:
    with ControlPlane(nodes=2, scheduler=True, stages=graceful_stages(tmp_path)) as plane:
        open_nodes(plane)
        install(plane, overlay(tmp_path))
        yield plane


def uids(queue: Queue, job: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in queue.pods(job)}


def is_ours(workload: Object) -> bool:
    return POD_SETS in (workload["metadata"].get("annotations") or {})


def test_jobs_move_over_and_back(plane: ControlPlane, operator: Operator, tmp_path: Path) -> None:
    flags = ("--pytorch-init-container=off",)
    installation = install_kueue(plane)
    with operator.running(plane, flags, overlay=tmp_path / "overlay"):
        with kueue(plane, installation, frameworks=OWN):
            queue = Queue(plane, "team", cpus=4)
            for name in ("first", "second"):
                queue.submit(PYTORCHJOB, name)
                queue.wait(f"the Workload of {name}", partial(queue.workloads_of, name))
            queue.wait_for(PYTORCHJOB, "first", "Running")
            row = job_from_json(orjson.dumps(queue.job(PYTORCHJOB, "first")))
            assert queue.workload("first")["metadata"]["name"] == workload_name(PYTORCH, row)
            assert not any(map(is_ours, queue.workloads()))
            before = uids(queue, "first"), {own["metadata"]["uid"] for own in queue.workloads()}

        with kueue(plane, installation, frameworks=OTHER_FRAMEWORKS, external=EXTERNAL):
            queue.wait("the takeover", lambda: is_ours(queue.workload("second")), seconds=TAKEOVER_SECONDS)
            assert (uids(queue, "first"), {own["metadata"]["uid"] for own in queue.workloads()}) == before
            assert queue.pods("second") == []
            queue.end_pods("first")
            queue.wait_for(PYTORCHJOB, "second", "Running")
            queue.submit(PYTORCHJOB, "third")
            queue.wait("the Workload of third", lambda: queue.workloads_of("third"))
            assert is_ours(queue.workload("third"))
            before = uids(queue, "second"), {own["metadata"]["uid"] for own in queue.workloads()}

        with kueue(plane, installation, frameworks=OWN):
            queue.submit(PYTORCHJOB, "fourth")
            queue.wait("the Workload of fourth", lambda: queue.workloads_of("fourth"))
            assert uids(queue, "second") == before[0]
            assert before[1] < {own["metadata"]["uid"] for own in queue.workloads()}
            for name in ("second", "third", "fourth"):
                queue.wait_for(PYTORCHJOB, name, "Running")
                queue.end_pods(name)
            queue.wait("the quota returned", lambda: queue.used() == 0)
            assert len(queue.workloads()) == 4
