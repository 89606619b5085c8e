"""Plans for suspended and resumed jobs."""

import pytest

from api.meta import HORIZONTAL_POD_AUTOSCALERS, PODS
from controller.domain import Deletion
from tests.support.builders import NOON, pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, pending_cluster, run_policy, running_cluster

METRICS = [{"type": "Resource", "resource": {"name": "cpu"}}]


def test_a_suspended_job_is_never_started() -> None:
    cluster = pending_cluster(run_policy={"suspend": True})

    assert (cluster.created_pods, cluster.services, cluster.status.start_time) == ([], {}, None)
    assert cluster.reasons == ["PyTorchJobSuspended"]


def test_suspending_deletes_every_child_and_keeps_the_start_time() -> None:
    cluster = running_cluster()
    cluster.wait(5)
    run_policy(suspend=True)(cluster)
    cluster.settle()

    assert (cluster.pods, cluster.services) == ({}, {})
    assert cluster.status.start_time == NOON
    assert cluster.counters == {"Master": {}, "Worker": {}}


def test_the_active_count_falls_as_pods_of_a_suspended_job_terminate() -> None:
    cluster = running_cluster(graceful=True)
    run_policy(suspend=True)(cluster)
    cluster.settle()
    assert cluster.counters == {"Master": {"active": 1}, "Worker": {"active": 2}}

    cluster.go("worker-0")
    cluster.settle()
    assert cluster.counters == {"Master": {"active": 1}, "Worker": {"active": 1}}

    cluster.go("worker-1", "master-0")
    cluster.settle()
    assert cluster.counters == {"Master": {}, "Worker": {}}


def test_a_suspension_is_stored_before_a_pod_is_deleted() -> None:
    """A job that is resumed before that is one that has lost no pods."""
    cluster = running_cluster("Never")
    run_policy(suspend=True)(cluster)

    assert cluster.decide().delete == ()
    cluster.step()
    assert len(cluster.decide().delete) == 6


def test_succeeded_pods_stay_counted_through_a_suspension() -> None:
    cluster = running_cluster()
    cluster.set_phase("Succeeded", "worker-0")
    cluster.settle()
    run_policy(suspend=True)(cluster)
    cluster.settle()

    assert cluster.counters["Worker"] == {"succeeded": 1}


@pytest.mark.parametrize("policy_", ["Never", "OnFailure"])
def test_a_resumed_job_waits_for_its_old_pods_to_terminate(policy_: str) -> None:
    cluster = running_cluster(policy_, graceful=True)
    role = {"restartPolicy": policy_}
    cluster.update_spec(pytorch_job(run_policy={"suspend": True}, master=role, worker=role))
    cluster.settle()
    cluster.update_spec(pytorch_job(master=role, worker=role))
    cluster.settle()
    assert cluster.conditions == "Created T, Running F, Suspended T"

    cluster.go()
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Suspended F"
    assert len(cluster.created_pods) == 6


def test_a_resumption_is_stored_before_a_pod_is_created() -> None:
    """A reconcile that still reads the suspension treats all pods as old pods."""
    cluster = running_cluster()
    run_policy(suspend=True)(cluster)
    cluster.settle()
    run_policy()(cluster)

    assert cluster.decide().create == ()
    cluster.step()
    assert [child.name for child in cluster.decide().create if child.resource == PODS] == [
        "train-master-0",
        "train-worker-0",
        "train-worker-1",
    ]


def test_suspension_and_resumption_are_recorded_once_each() -> None:
    cluster = running_cluster(graceful=True)
    run_policy(suspend=True)(cluster)
    cluster.settle()
    cluster.go()
    cluster.settle()
    run_policy()(cluster)
    cluster.settle()

    assert cluster.reasons == ["PyTorchJobSuspended", "PyTorchJobResumed"]


def test_a_suspended_job_has_no_autoscaler() -> None:
    elastic = {"metrics": METRICS}
    cluster = running_cluster(elasticPolicy=elastic)
    assert list(cluster.extras) == ["train"]

    cluster.update_spec(pytorch_job(run_policy={"suspend": True}, elasticPolicy=elastic))
    cluster.step()
    plan = cluster.step()
    assert Deletion(HORIZONTAL_POD_AUTOSCALERS, "train") in plan.delete
    assert cluster.extras == {}

    cluster.update_spec(pytorch_job(elasticPolicy=elastic))
    cluster.settle()
    assert list(cluster.extras) == ["train"]


def test_the_autoscaler_is_created_before_the_first_pod() -> None:
    plan = InMemoryCluster(pytorch_job(elasticPolicy={"metrics": METRICS})).decide()

    assert plan.create[0].resource == HORIZONTAL_POD_AUTOSCALERS
