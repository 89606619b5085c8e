"""Which workers are told of as hosts, and when."""

from datetime import datetime, timedelta

import pytest

from api.children import Pod
from controller.kinds.mpi import hosts
from controller.kinds.mpi.hosts import more_in, ordered, told
from controller.testing.builders import NOON, pod


def up(*seconds_ago: float | None, ready: bool = True) -> list[Pod]:
    """Workers that run for so long, by index; None is one that does not run."""
    return [
        pod(index=index, phase="Pending")
        if ago is None
        else pod(index=index, ready=ready, running_since=NOON - timedelta(seconds=ago))
        for index, ago in enumerate(seconds_ago)
    ]


@pytest.mark.parametrize(
    ("pods", "indices", "seconds"),
    [
        pytest.param(up(None, None, None), [], None, id="nobody runs"),
        pytest.param(up(1, None, None), [], 4, id="one has come up, and others may follow"),
        pytest.param(up(5, None, None), [0], None, id="nobody has followed"),
        pytest.param(up(9, 3, None), [0], 2, id="a second one, later"),
        pytest.param(up(9, 6, None), [0, 1], None, id="both for long enough"),
        pytest.param(up(8, 4, None), [], 1, id="a second one that was soon enough"),
        pytest.param(up(60, 59, 0), [0, 1, 2], None, id="all are told at once"),
        pytest.param(up(-3, None, None), [], 5, id="a node whose clock is ahead"),
        pytest.param(up(60, 60, ready=False), [], None, id="none is ready"),
    ],
)
def test_workers_are_told_of_together(pods: list[Pod], indices: list[int], seconds: float | None) -> None:
    assert [one.index for one in told(pods, 3, NOON)] == indices
    assert more_in(pods, 3, NOON) == seconds


def test_they_are_told_by_number() -> None:
    pods = [pod(index=index, ready=True) for index in (10, 2, 0)]

    assert [one.index for one in told(pods, 3, NOON)] == [0, 2, 10]


def test_one_that_goes_is_no_host() -> None:
    pods = [pod(index=0, ready=True), pod(index=1, ready=True, deleting=True)]

    assert [one.index for one in told(pods, 2, NOON)] == [0]


def test_a_slow_start_takes_nothing_back() -> None:
    """Whoever was told of once stays while others come up: the list only grows."""
    moments = [0, 1, 7, 8, 9, 20, 21]
    before: list[int] = []
    for second in range(40):
        now: datetime = NOON + timedelta(seconds=second)
        pods = [
            pod(index=index, ready=True, running_since=NOON + timedelta(seconds=since))
            for index, since in enumerate(moments)
            if since <= second
        ]
        listed = [one.index for one in told(pods, 8, now)]
        assert listed[: len(before)] == before
        before = listed
    assert before == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        pytest.param("abcd", [0, 1, 2, 3], id="each alone"),
        pytest.param("xyxy", [0, 2, 1, 3], id="neighbours stand together"),
        pytest.param("yxyx", [0, 2, 1, 3], id="that of worker 0 first"),
        pytest.param("xy-x", [0, 1, 2, 3], id="not before all have a node"),
        pytest.param("xx..", [0, 1, 2, 3], id="nodes that say nothing are one place"),
        pytest.param("x.x.", [0, 2, 1, 3], id="among others"),
    ],
)
def test_neighbours(nodes: str, order: list[int]) -> None:
    """``-`` is a worker without a node, ``.`` a node without the label."""
    pods = [pod(index=index, node="" if name == "-" else f"node-{index}") for index, name in enumerate(nodes)]
    places = {f"node-{index}": name for index, name in enumerate(nodes) if name not in "-."}

    assert ordered(pods, 4, places) == order


def test_without_places_hosts_are_in_order() -> None:
    assert ordered([pod(index=1, node="a"), pod(index=0, node="b")], 2, {}) == [0, 1]


PATH = "spec.mpiReplicaSpecs[Worker].replicas"
NAME = "n" * 200


def test_lists_that_no_config_map_holds_are_refused_with_the_numbers() -> None:
    large = {"hostfile": "x" * hosts.MOST_BYTES, "discover_hosts.sh": "x"}

    (problem,) = hosts.size_problems(NAME, 4000, lambda: large, PATH)

    assert str(problem) == (
        "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 4000: the lists of hosts of 4000 workers take 1048577 bytes, and a "
        "ConfigMap holds 1048576: ask for no more than about 3999, or give the job a shorter name"
    )


def test_lists_that_a_config_map_just_holds_are_fine() -> None:
    full = {"hostfile": "x" * hosts.MOST_BYTES}

    assert list(hosts.size_problems(NAME, 4000, lambda: full, PATH)) == []


def test_lists_that_cannot_be_too_large_are_not_built() -> None:
    def build() -> dict[str, str]:
        raise AssertionError("built")

    assert list(hosts.size_problems(NAME, 2000, build, PATH)) == []
