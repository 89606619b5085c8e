"""Which workers are advertised as hosts, and when."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import pytest

from api.children import Pod
from controller.kind import Options
from controller.kinds.mpi import hosts, v1spec, v2beta1
from controller.kinds.mpi.hosts import advertised_workers, seconds_until_more, worker_order
from tests.support.builders import NOON, pod
from tests.support.mpi import HVD


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
        pytest.param(up(None, None, None), [], None, id="no worker runs"),
        pytest.param(up(1, None, None), [], 4, id="one has started, and others can follow"),
        pytest.param(up(5, None, None), [0], None, id="no other worker has followed"),
        pytest.param(up(9, 3, None), [0], 2, id="a second worker, later"),
        pytest.param(up(9, 6, None), [0, 1], None, id="both for long enough"),
        pytest.param(up(8, 4, None), [], 1, id="a second worker, soon enough"),
        pytest.param(up(60, 59, 0), [0, 1, 2], None, id="all workers at once"),
        pytest.param(up(-3, None, None), [], 5, id="a node whose clock is ahead"),
        pytest.param(up(60, 60, ready=False), [], None, id="no worker is ready"),
    ],
)
def test_workers_are_advertised_together(pods: list[Pod], indices: list[int], seconds: float | None) -> None:
    assert [pod.index for pod in advertised_workers(pods, 3, NOON)] == indices
    assert seconds_until_more(pods, 3, NOON) == seconds


def test_workers_are_advertised_by_index() -> None:
    pods = [pod(index=index, ready=True) for index in (10, 2, 0)]

    assert [pod.index for pod in advertised_workers(pods, 3, NOON)] == [0, 2, 10]


def test_a_terminating_worker_is_not_advertised() -> None:
    pods = [pod(index=0, ready=True), pod(index=1, ready=True, deleting=True)]

    assert [pod.index for pod in advertised_workers(pods, 2, NOON)] == [0]


def test_a_slow_start_removes_no_advertised_worker() -> None:
    """An advertised worker stays while others start: the list only grows."""
    moments = [0, 1, 7, 8, 9, 20, 21]
    before: list[int] = []
    for second in range(40):
        now: datetime = NOON + timedelta(seconds=second)
        pods = [
            pod(index=index, ready=True, running_since=NOON + timedelta(seconds=since))
            for index, since in enumerate(moments)
            if since <= second
        ]
        listed = [pod.index for pod in advertised_workers(pods, 8, now)]
        assert listed[: len(before)] == before
        before = listed
    assert before == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        pytest.param("abcd", [0, 1, 2, 3], id="a domain for each worker"),
        pytest.param("xyxy", [0, 2, 1, 3], id="neighbors are adjacent"),
        pytest.param("yxyx", [0, 2, 1, 3], id="the domain of worker 0 first"),
        pytest.param("xy-x", [0, 1, 2, 3], id="not before all workers have a node"),
        pytest.param("xx..", [0, 1, 2, 3], id="nodes without the label are one domain"),
        pytest.param("x.x.", [0, 2, 1, 3], id="among labeled nodes"),
    ],
)
def test_workers_are_ordered_by_topology_domain(nodes: str, order: list[int]) -> None:
    """``-`` is a worker without a node, ``.`` a node without the label."""
    pods = [pod(index=index, node="" if name == "-" else f"node-{index}") for index, name in enumerate(nodes)]
    domains = {f"node-{index}": name for index, name in enumerate(nodes) if name not in "-."}

    assert worker_order(pods, 4, domains) == order


def test_without_topology_labels_hosts_are_ordered_by_index() -> None:
    assert worker_order([pod(index=1, node="a"), pod(index=0, node="b")], 2, {}) == [0, 1]


PATH = "spec.mpiReplicaSpecs[Worker].replicas"
WORKERS = 4000


def lists_of(order: Sequence[int], *, bytes_to_spare: int = 0) -> dict[str, str]:
    """Lists that leave so many bytes of a ConfigMap empty when all workers are in them."""
    hostfile, rest = (
        "".join(f"w-{index}\n" for index in order),
        sum(len(f"w-{index}\n") for index in range(WORKERS)),
    )
    return {"hostfile": hostfile, "script": "x" * (hosts.MAX_CONFIG_MAP_BYTES - rest - bytes_to_spare)}


def test_lists_that_exceed_a_config_map_are_rejected_with_their_sizes() -> None:
    (problem,) = hosts.size_problems(WORKERS, partial(lists_of, bytes_to_spare=-1), PATH)

    assert str(problem) == (
        "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 4000: the host lists take 1048577 bytes, but a ConfigMap "
        "holds at most 1048576: use at most about 3999 workers, or a shorter job name"
    )


def test_lists_that_just_fit_a_config_map_are_valid() -> None:
    assert list(hosts.size_problems(WORKERS, lists_of, PATH)) == []


@pytest.mark.parametrize("workers", [30_000, 99_999, 100_000, 100_001, 123_456])
def test_the_computed_size_equals_the_size_of_the_lists(workers: int) -> None:
    def v1_lists(order: Sequence[int]) -> dict[str, str]:
        return v1spec.data(HVD, v1spec.roles(HVD)["Launcher"], order, order)

    def v2beta1_lists(order: Sequence[int]) -> dict[str, str]:
        return v2beta1.host_lists(HVD, Options(), order, order)

    for build in (v1_lists, v2beta1_lists):
        size = sum(map(len, build(range(workers)).values()))
        (problem,) = hosts.size_problems(workers, build, PATH)
        assert f"take {size} bytes" in str(problem)


def test_the_size_is_computed_without_building_the_lists() -> None:
    lengths: set[int] = set()

    def record_length(order: Sequence[int]) -> dict[str, str]:
        lengths.add(len(order))
        return lists_of(order)

    assert list(hosts.size_problems(WORKERS, record_length, PATH)) == []
    assert lengths == {0, 1}
