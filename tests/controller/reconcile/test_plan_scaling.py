"""The decision about sizes: up, down, zero."""

import pytest

from rallypoint.testing.builders import pytorch_job
from rallypoint.testing.in_memory_cluster import running, workers

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]


def test_scaling_up_creates_only_the_missing_children() -> None:
    life = running()
    before = dict(life.pods)
    workers(4)(life)

    plan = life.step()

    assert [(child.resource.kind, child.name) for child in plan.create] == [
        (kind, f"train-worker-{index}") for index in (2, 3) for kind in ("Pod", "Service")
    ]
    assert plan.delete == ()
    assert {name: life.pods[name] for name in before} == before
    assert life.conditions == "Created T, Running T"


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_scaling_down_deletes_the_highest_indices_and_is_no_failure(policy: str) -> None:
    life = running(policy, workers=4, graceful=True)
    workers(2, worker={"restartPolicy": policy}, master={"restartPolicy": policy})(life)
    life.settle()

    assert [name for name, pod in life.pods.items() if pod.deleting] == ["train-worker-2", "train-worker-3"]
    assert list(life.services) == ALL_CHILDREN
    assert life.counters["Worker"] == {"active": 2}

    life.go("worker-2")
    assert life.settle() == []
    assert len(life.made) == 5
    assert life.conditions == "Created T, Running T"


def test_zero_workers_beside_a_master_have_no_pods() -> None:
    life = running(workers=0)

    assert life.made == ["train-master-0"]
    assert life.counters == {"Master": {"active": 1}, "Worker": {}}


def test_workers_scaled_to_zero_alone_are_no_success() -> None:
    life = running(masters=None, workers=2)
    workers(0, masters=None)(life)
    life.settle()

    assert life.pods == {}
    assert life.conditions == "Created T, Running T"
    assert "PyTorchJobFailedValidation" not in life.reasons


def test_children_of_a_removed_role_are_deleted() -> None:
    life = running()
    life.respecify(pytorch_job(workers=None))
    life.settle()

    assert list(life.pods) == list(life.services) == ["train-master-0"]
    assert list(life.counters) == ["Master"]
