"""The decision about suspended and resumed jobs."""

import pytest

from api.meta import HORIZONTAL_POD_AUTOSCALERS, PODS
from controller.domain import Deletion
from rallypoint.testing.builders import NOON, pytorch_job
from rallypoint.testing.in_memory_cluster import Life, life_of, run_policy, running

METRICS = [{"type": "Resource", "resource": {"name": "cpu"}}]


def test_a_suspended_job_is_never_started() -> None:
    life = life_of(run_policy={"suspend": True})

    assert (life.made, life.services, life.status.start_time) == ([], {}, None)
    assert life.reasons == ["PyTorchJobSuspended"]


def test_suspending_deletes_every_child_and_keeps_the_start_time() -> None:
    life = running()
    life.wait(5)
    run_policy(suspend=True)(life)
    life.settle()

    assert (life.pods, life.services) == ({}, {})
    assert life.status.start_time == NOON
    assert life.counters == {"Master": {}, "Worker": {}}


def test_the_active_count_falls_as_pods_of_a_suspended_job_terminate() -> None:
    life = running(graceful=True)
    run_policy(suspend=True)(life)
    life.settle()
    assert life.counters == {"Master": {"active": 1}, "Worker": {"active": 2}}

    life.go("worker-0")
    life.settle()
    assert life.counters == {"Master": {"active": 1}, "Worker": {"active": 1}}

    life.go("worker-1", "master-0")
    life.settle()
    assert life.counters == {"Master": {}, "Worker": {}}


def test_a_suspension_is_stored_before_a_pod_is_deleted() -> None:
    """A job that is resumed before that is one that has lost no pods."""
    life = running("Never")
    run_policy(suspend=True)(life)

    assert life.decide().delete == ()
    life.step()
    assert len(life.decide().delete) == 6


def test_succeeded_pods_stay_counted_through_a_suspension() -> None:
    life = running()
    life.become("Succeeded", "worker-0")
    life.settle()
    run_policy(suspend=True)(life)
    life.settle()

    assert life.counters["Worker"] == {"succeeded": 1}


@pytest.mark.parametrize("policy_", ["Never", "OnFailure"])
def test_a_resumed_job_waits_for_its_old_pods_to_terminate(policy_: str) -> None:
    life = running(policy_, graceful=True)
    role = {"restartPolicy": policy_}
    life.respecify(pytorch_job(run_policy={"suspend": True}, master=role, worker=role))
    life.settle()
    life.respecify(pytorch_job(master=role, worker=role))
    life.settle()
    assert life.conditions == "Created T, Running F, Suspended T"

    life.go()
    life.settle()

    assert life.conditions == "Created T, Running F, Suspended F"
    assert len(life.made) == 6


def test_a_resumption_is_stored_before_a_pod_is_created() -> None:
    """A pass that still reads of the suspension takes all pods for those of before."""
    life = running()
    run_policy(suspend=True)(life)
    life.settle()
    run_policy()(life)

    assert life.decide().create == ()
    life.step()
    assert [child.name for child in life.decide().create if child.resource == PODS] == [
        "train-master-0",
        "train-worker-0",
        "train-worker-1",
    ]


def test_suspension_and_resumption_are_recorded_once_each() -> None:
    life = running(graceful=True)
    run_policy(suspend=True)(life)
    life.settle()
    life.go()
    life.settle()
    run_policy()(life)
    life.settle()

    assert life.reasons == ["PyTorchJobSuspended", "PyTorchJobResumed"]


def test_a_suspended_job_has_no_autoscaler() -> None:
    elastic = {"metrics": METRICS}
    life = running(elasticPolicy=elastic)
    assert list(life.extras) == ["train"]

    life.respecify(pytorch_job(run_policy={"suspend": True}, elasticPolicy=elastic))
    life.step()
    plan = life.step()
    assert Deletion(HORIZONTAL_POD_AUTOSCALERS, "train") in plan.delete
    assert life.extras == {}

    life.respecify(pytorch_job(elasticPolicy=elastic))
    life.settle()
    assert list(life.extras) == ["train"]


def test_the_autoscaler_is_created_before_the_first_pod() -> None:
    plan = Life(pytorch_job(elasticPolicy={"metrics": METRICS})).decide()

    assert plan.create[0].resource == HORIZONTAL_POD_AUTOSCALERS
