"""The decision with gang scheduling: what waits for the PodGroup, what goes on meanwhile, and when the group goes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api.labels import GROUP_NAME, POD_GROUP
from api.meta import VOLCANO_POD_GROUPS
from controller.domain import Deletion
from controller.kind import Options
from rallypoint.testing.builders import NOON, pytorch_job, template
from rallypoint.testing.in_memory_cluster import Life

VOLCANO = "volcano"
OTHER = "scheduler-plugins-scheduler"
ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
TERMINATED = "Job has been terminated. Deleting PodGroup"


def gang(scheduler: str = VOLCANO, **fields: Any) -> Life:
    """A job at rest for the first time."""
    life = Life(pytorch_job(**fields), options=Options(gang_scheduler=scheduler))
    life.settle()
    return life


def running(scheduler: str = VOLCANO, **fields: Any) -> Life:
    life = gang(scheduler, **fields)
    life.admit("Running")
    life.settle()
    life.become("Running")
    life.settle()
    return life


def said(life: Life) -> dict[str, Any]:
    """What the group says."""
    assert life.group is not None
    spec: dict[str, Any] = msgspec.json.decode(life.group.spec)
    return spec


def test_pods_wait_for_their_pod_group() -> None:
    life = gang()

    assert life.made == []
    assert life.services == {}
    assert life.conditions == "Created T"
    assert life.status.to_wire().keys() == {"conditions", "lastReconcileTime"}
    assert life.events == []

    life.wait(60)
    assert life.settle() == []
    life.admit()
    life.settle()
    assert life.made == ALL_PODS
    assert life.status.start_time == NOON + timedelta(seconds=60)
    assert life.status.last_reconcile_time == NOON


def test_pods_do_not_wait_for_coscheduling() -> None:
    life = Life(pytorch_job(), options=Options(gang_scheduler=OTHER))
    plan = life.step()

    assert [child.resource.kind for child in plan.create][:3] == ["PodGroup", "Pod", "Service"]
    assert [child.name for child in plan.create if child.first] == ["train"]
    assert life.status.last_reconcile_time is None
    assert life.settle() == []


@pytest.mark.parametrize(
    ("scheduler", "mark"), [(VOLCANO, ("annotations", GROUP_NAME)), (OTHER, ("labels", POD_GROUP))]
)
def test_every_pod_is_a_member_of_the_pod_group(scheduler: str, mark: tuple[str, str]) -> None:
    life = gang(scheduler)
    life.admit()
    life.pods.clear()
    pods = [child.body() for child in life.decide().create if child.resource.kind == "Pod"]

    assert len(pods) == 3
    for body in pods:
        assert body["spec"]["schedulerName"] == scheduler
        assert body["metadata"][mark[0]][mark[1]] == "train"


@pytest.mark.parametrize("scheduler", [VOLCANO, OTHER])
def test_the_pod_group_follows_the_size_of_the_job(scheduler: str) -> None:
    life = running(scheduler)
    life.respecify(pytorch_job(workers=4))
    done = life.settle()

    assert said(life)["minMember"] == 5
    assert sum(child.resource.kind == "PodGroup" for plan in done for child in plan.create) == 1


def test_running_pods_are_managed_while_the_pod_group_is_pending_again() -> None:
    """Counters, restarts and the end of the job are seen; only new pods wait."""
    life = running(worker={"restartPolicy": "OnFailure"})
    life.admit("Pending")
    life.become("Failed", "worker-0", code=1)
    life.wait(5)
    life.settle()
    assert "PyTorchJobRestarting" in life.reasons
    assert sorted(life.pods) == ["train-master-0", "train-worker-1"]
    assert life.status.last_reconcile_time == NOON + timedelta(seconds=5)

    life.become("Succeeded", "master-0")
    life.settle()
    assert life.conditions == "Created T, Running F, Succeeded T"
    assert life.group is None


def test_a_deleted_pod_group_is_created_again() -> None:
    life = running()
    life.group = None
    life.settle()

    assert life.group is not None
    assert life.conditions == "Created T, Running T"


def test_a_waiting_gang_can_exceed_its_deadline() -> None:
    """Its time begins when it may start, so only one that has started."""
    life = gang(run_policy={"activeDeadlineSeconds": 9})
    life.wait(600)
    life.settle()
    assert life.conditions == "Created T"

    life.admit()
    life.settle()
    life.wait(9)
    life.settle()
    assert life.conditions == "Created T, Failed T"
    assert life.group is None


@pytest.mark.parametrize("scheduler", [VOLCANO, OTHER])
@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_the_pod_group_is_deleted_when_the_job_ends(scheduler: str, clean: str) -> None:
    life = running(scheduler, run_policy={"cleanPodPolicy": clean})
    group = life.group
    assert group is not None
    life.become("Succeeded", code=0)
    done = life.settle()

    assert life.group is None
    deletions = [
        deletion for plan in done for deletion in plan.delete if deletion.resource.kind == "PodGroup"
    ]
    assert [(deletion.name, deletion.uid) for deletion in deletions] == [("train", group.uid)]
    assert [event.message for event in life.events if event.reason == "JobTerminated"] == [TERMINATED]


def test_the_pod_group_is_deleted_when_the_job_is_suspended() -> None:
    life = running()
    first = life.group
    life.respecify(pytorch_job(run_policy={"suspend": True}))
    life.settle()
    assert (life.group, life.pods) == (None, {})
    assert life.reasons.count("JobTerminated") == 1

    life.wait(60)
    life.respecify(pytorch_job())
    life.settle()
    assert life.group is not None
    assert life.group != first
    assert life.pods == {}
    assert life.status.last_reconcile_time == NOON + timedelta(seconds=60)

    life.admit()
    life.settle()
    assert sorted(life.pods) == ALL_PODS


def test_a_job_that_is_created_suspended_has_no_pod_group() -> None:
    life = gang(run_policy={"suspend": True})

    assert life.group is None
    assert "JobTerminated" not in life.reasons


def test_a_repeated_deletion_is_recorded_once() -> None:
    life = running()
    group = life.group
    assert group is not None
    life.respecify(pytorch_job(run_policy={"suspend": True}))
    life.step()
    first, second = life.decide(), life.decide()

    assert Deletion(VOLCANO_POD_GROUPS, group.name, group.uid) in first.delete
    keys = {
        event.once for plan in (first, second) for event in plan.events if event.reason == "JobTerminated"
    }
    assert len(keys) == 1
    assert "" not in keys


def test_a_scheduler_name_in_the_template_is_reported_once() -> None:
    fields = {"template": {"spec": {**template()["spec"], "schedulerName": "mine"}}}
    life = gang(OTHER, master=fields, worker=fields)

    recorded = [event for event in life.events if event.reason == "SetPodTemplateSchedulerName"]
    assert [(event.severity, event.message) for event in recorded] == [
        (
            "Warning",
            "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
        )
    ]


def test_without_gang_scheduling_a_scheduler_name_in_the_template_is_not_reported() -> None:
    fields = {"template": {"spec": {**template()["spec"], "schedulerName": "mine"}}}

    assert gang("", worker=fields).events == []
