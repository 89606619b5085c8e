"""Plans for scaling up, down and to zero."""

import pytest

from controller.kind import Options
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster, workers

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]


def test_scaling_up_creates_only_the_missing_children() -> None:
    cluster = running_cluster()
    before = dict(cluster.pods)
    workers(4)(cluster)

    plan = cluster.step()

    assert [(child.resource.kind, child.name) for child in plan.create] == [
        (kind, f"train-worker-{index}") for index in (2, 3) for kind in ("Pod", "Service")
    ]
    assert plan.delete == ()
    assert {name: cluster.pods[name] for name in before} == before
    assert cluster.conditions == "Created T, Running T"


def test_a_plan_contains_only_the_first_missing_children_up_to_the_limit() -> None:
    cluster = InMemoryCluster(pytorch_job(workers=3), options=Options(most_missing=3))

    plans = [cluster.step() for _ in range(4)]

    assert [[(child.resource.kind, child.name) for child in plan.create] for plan in plans] == [
        [("Pod", "train-master-0"), ("Service", "train-master-0"), ("Pod", "train-worker-0")],
        [("Service", "train-worker-0"), ("Pod", "train-worker-1"), ("Service", "train-worker-1")],
        [("Pod", "train-worker-2"), ("Service", "train-worker-2")],
        [],
    ]
    assert [plan.is_partial for plan in plans] == [True, True, False, False]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_scaling_down_deletes_the_highest_indices_and_is_no_failure(policy: str) -> None:
    cluster = running_cluster(policy, workers=4, graceful=True)
    workers(2, worker={"restartPolicy": policy}, master={"restartPolicy": policy})(cluster)
    cluster.settle()

    assert [name for name, pod in cluster.pods.items() if pod.deleting] == [
        "train-worker-2",
        "train-worker-3",
    ]
    assert list(cluster.services) == ALL_CHILDREN
    assert cluster.counters["Worker"] == {"active": 2}

    cluster.go("worker-2")
    assert cluster.settle() == []
    assert len(cluster.created_pods) == 5
    assert cluster.conditions == "Created T, Running T"


def test_zero_workers_beside_a_master_have_no_pods() -> None:
    cluster = running_cluster(workers=0)

    assert cluster.created_pods == ["train-master-0"]
    assert cluster.counters == {"Master": {"active": 1}, "Worker": {}}


def test_workers_scaled_to_zero_alone_are_no_success() -> None:
    cluster = running_cluster(masters=None, workers=2)
    workers(0, masters=None)(cluster)
    cluster.settle()

    assert cluster.pods == {}
    assert cluster.conditions == "Created T, Running T"
    assert "PyTorchJobFailedValidation" not in cluster.reasons


def test_children_of_a_removed_role_are_deleted() -> None:
    cluster = running_cluster()
    cluster.update_spec(pytorch_job(workers=None))
    cluster.settle()

    assert list(cluster.pods) == list(cluster.services) == ["train-master-0"]
    assert list(cluster.counters) == ["Master"]
