"""Queues of the real Volcano that share the nodes by weight.

Two simulated nodes have 64 GPUs each. The scheduler has no action ``enqueue``, which admits gangs of one queue for all GPUs before the
other queue has its turn.
"""

from collections.abc import Generator
from dataclasses import replace
from functools import partial

import pytest

from rallypoint.testing.controlplane import ControlPlane
from tests.support import workloads
from tests.support.schedulers.gang_cluster import VOLCANO, Gang, GangCluster, gang_cluster
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.volcano import INSTALLED, create_queue, volcano

WEIGHTS = {"light": 1, "heavy": 3}
SCHEDULER = replace(VOLCANO, running=partial(volcano, config={**INSTALLED, "actions": "allocate, backfill"}))
FITTING = 4
"""Gangs of two pods with 16 GPUs each that have room at once."""


def create_queues(plane: ControlPlane) -> None:
    for name, weight in WEIGHTS.items():
        create_queue(plane, name, weight=weight)


@pytest.fixture(scope="module")
def running_cluster(operator: Operator) -> Generator[GangCluster]:
    with gang_cluster(SCHEDULER, operator, prepare=create_queues) as cluster:
        yield cluster


def test_gangs_of_two_queues_get_nodes_by_the_weights_of_their_queues(cluster: GangCluster) -> None:
    """Another gang has all nodes until all of them wait."""
    holder = cluster.submit("holder")
    holder.wait_until_running()
    gangs = {
        queue: [
            cluster.submit(f"{queue}-{at}", workloads.JAX, gpus=16, pods=2, scheduling={"queue": queue})
            for at in range(FITTING)
        ]
        for queue in WEIGHTS
    }
    for gang in (*gangs["light"], *gangs["heavy"]):
        gang.wait_until_waiting()

    holder.end()

    cluster.plane.wait(
        "as many gangs running as fit", lambda: sum(map(count_running, gangs.values())) == FITTING
    )
    assert {queue: count_running(waiting) for queue, waiting in gangs.items()} == WEIGHTS


def count_running(gangs: list[Gang]) -> int:
    return sum(gang.has_condition("Running") and len(gang.pods("Running")) == 2 for gang in gangs)
