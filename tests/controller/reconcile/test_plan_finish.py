"""Plans for finished jobs: which children stay, and for how long."""

from typing import Any

import pytest

from controller.domain import Count
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import Step, phase, run_policy, running_cluster, workers

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]
FAIL_A_WORKER = phase("Failed", "worker-0", code=1)


@pytest.mark.parametrize(
    ("clean", "left"),
    [
        pytest.param(None, ALL_CHILDREN, id="unset keeps all"),
        pytest.param("None", ALL_CHILDREN, id="None keeps all"),
        pytest.param("Running", ["train-master-0"], id="Running keeps finished pods"),
        pytest.param("All", [], id="All keeps nothing"),
        pytest.param("all", [], id="an unknown policy keeps nothing"),
    ],
)
def test_the_clean_policy_decides_which_children_of_a_finished_job_stay(
    clean: str | None, left: list[str]
) -> None:
    cluster = running_cluster(run_policy={"cleanPodPolicy": clean} if clean else {})
    cluster.set_phase("Succeeded", "master-0")

    cluster.step()
    assert list(cluster.pods) == ALL_CHILDREN

    cluster.settle()
    assert (list(cluster.pods), list(cluster.services)) == (left, left)


def test_a_policy_that_is_set_after_the_end_deletes_the_pods_that_still_run() -> None:
    """So ``rallypoint why`` frees what they hold."""
    cluster = running_cluster()
    cluster.set_phase("Succeeded", "master-0")
    cluster.settle()
    cluster.update_spec(pytorch_job(run_policy={"cleanPodPolicy": "Running"}))
    cluster.settle()

    assert list(cluster.pods) == ["train-master-0"]


def test_a_finished_job_creates_no_child_again() -> None:
    cluster = running_cluster()
    cluster.set_phase("Succeeded", "master-0")
    cluster.settle()
    cluster.go("worker-0")

    assert cluster.settle() == []


@pytest.mark.parametrize(
    ("ttl", "waited", "deleted", "left"),
    [
        pytest.param(0, 0, True, None, id="at once"),
        pytest.param(60, 0, False, 60, id="not yet"),
        pytest.param(60, 59, False, 1, id="almost"),
        pytest.param(60, 60, True, None, id="at its TTL"),
        pytest.param(None, 10**6, False, None, id="never"),
    ],
)
def test_a_finished_job_is_deleted_after_its_ttl(
    ttl: int | None, waited: float, deleted: bool, left: float | None
) -> None:
    cluster = running_cluster(run_policy={} if ttl is None else {"ttlSecondsAfterFinished": ttl})
    cluster.set_phase("Succeeded", "master-0")
    assert not cluster.step().delete_job
    cluster.wait(waited)

    plan = cluster.decide()

    assert (plan.delete_job, plan.requeue_after_seconds) == (deleted, left)
    assert plan.counts == ((Count.DELETED,) if deleted else ())


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        pytest.param({"policy": "ExitCode"}, FAIL_A_WORKER, id="a permanent exit code"),
        pytest.param({"policy": "Never"}, FAIL_A_WORKER, id="a failed replica"),
        pytest.param({}, phase("Running", restarts=9), id="a limit"),
    ],
)
def test_a_failed_job_expires_too(fields: dict[str, Any], end: Step) -> None:
    cluster = running_cluster(**fields, run_policy={"ttlSecondsAfterFinished": 5, "backoffLimit": 9})
    end(cluster)
    cluster.settle()
    cluster.wait(5)

    assert cluster.decide().delete_job


def test_a_suspended_finished_job_does_not_expire() -> None:
    cluster = running_cluster()
    cluster.set_phase("Succeeded", "master-0")
    cluster.settle()
    run_policy(suspend=True, ttlSecondsAfterFinished=0)(cluster)

    assert cluster.settle() == []


def test_a_deletion_names_the_uid() -> None:
    cluster = running_cluster(workers=3)
    deletion = cluster.pods["train-worker-2"].uid, cluster.services["train-worker-2"].uid
    workers(2)(cluster)

    assert [deletion.uid for deletion in cluster.decide().delete] == list(deletion)
