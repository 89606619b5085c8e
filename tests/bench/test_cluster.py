"""The jobs and figures of ``bench cluster``."""

import pytest

from bench import cluster
from bench.figures import Spread


@pytest.mark.parametrize(
    ("kind", "pods", "counts"),
    [
        pytest.param(cluster.KINDS[0], 8, {"Master": 1, "Worker": 7}, id="a master and workers"),
        pytest.param(cluster.KINDS[1], 8, {"Worker": 8}, id="workers alone"),
    ],
)
def test_a_job_has_the_requested_number_of_pods(
    kind: cluster.Kind, pods: int, counts: dict[str, int]
) -> None:
    (replicas,) = kind.job("job-0", pods)["spec"].values()

    assert {role: spec["replicas"] for role, spec in replicas.items()} == counts


@pytest.mark.parametrize(
    ("first", "seconds"),
    [
        pytest.param("job-0-master-0", 3.0, id="the master decides"),
        pytest.param("job-0-worker-0", 1.0, id="the first pod decides"),
    ],
)
def test_the_pod_that_makes_a_job_running(first: str, seconds: float) -> None:
    running = {"job-0-master-0": 3.0, "job-0-worker-0": 2.0, "job-0-worker-1": 1.0}

    assert cluster.deciding_time(running, first) == seconds


def test_table() -> None:
    run = dict.fromkeys(cluster.LABELS, 1.0)

    shown = cluster.table("title", cluster.LABELS, {"two": [run, {**run, "pods_ms": 3.0}], "eight": [run]})

    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == ["two", "eight"]
    assert cells[1] == [str(Spread(1, 2, 3)), "1"]
    assert len(cells) == 1 + len(cluster.LABELS)
