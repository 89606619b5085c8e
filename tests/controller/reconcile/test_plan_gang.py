"""Plans with gang scheduling: what waits for the PodGroup, and when the group is deleted."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from api.labels import GROUP_NAME, POD_GROUP
from api.meta import VOLCANO_POD_GROUPS
from api.pod_problems import Trouble
from controller.domain import Deletion
from controller.kind import Options
from tests.support.builders import NOON, pytorch_job, template
from tests.support.in_memory_cluster import InMemoryCluster

VOLCANO = "volcano"
OTHER = "scheduler-plugins-scheduler"
ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
TERMINATED = "Job has been terminated. Deleting PodGroup"


def gang(scheduler: str = VOLCANO, **fields: Any) -> InMemoryCluster:
    """A job at rest for the first time."""
    cluster = InMemoryCluster(pytorch_job(**fields), options=Options(gang_scheduler=scheduler))
    cluster.settle()
    return cluster


def running(scheduler: str = VOLCANO, **fields: Any) -> InMemoryCluster:
    cluster = gang(scheduler, **fields)
    cluster.admit("Running")
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    return cluster


def said(cluster: InMemoryCluster) -> dict[str, Any]:
    """What the group says."""
    assert cluster.group is not None
    spec: dict[str, Any] = msgspec.json.decode(cluster.group.spec)
    return spec


def test_pods_wait_for_their_pod_group() -> None:
    cluster = gang()

    assert cluster.created_pods == []
    assert cluster.services == {}
    assert cluster.conditions == "Created T"
    assert cluster.status.to_wire().keys() == {"conditions", "lastReconcileTime"}
    assert cluster.events == []

    cluster.wait(29)
    assert cluster.settle() == []
    cluster.wait(31)
    cluster.admit()
    cluster.settle()
    assert cluster.created_pods == ALL_PODS
    assert cluster.status.start_time == NOON + timedelta(seconds=60)
    assert cluster.status.last_reconcile_time == NOON


def running_condition(cluster: InMemoryCluster) -> tuple[str, str, str]:
    (found,) = [condition for condition in cluster.status.conditions or () if condition.type == "Running"]
    return found.status, found.reason or "", found.message or ""


QUEUE = {
    "spec": {"capability": {"cpu": "8"}},
    "status": {"state": "Open", "allocated": {"cpu": "6"}},
}


def unscheduled(message: str) -> tuple[Trouble]:
    return (
        Trouble("Unschedulable", f"Error pod train-worker-0 condition message: {message}", "PodScheduled"),
    )


UNSCHEDULED = unscheduled("0/1 nodes")


@pytest.mark.parametrize(
    ("queue", "cause"),
    [
        pytest.param({}, "queue research does not exist", id="missing"),
        pytest.param({"status": {"state": "Closed"}}, "queue research is Closed", id="closed"),
        pytest.param(QUEUE, "queue research is full (cpu: needs 3, 6 of 8 are in use)", id="full"),
        pytest.param(
            {"status": {"state": "Open"}},
            "the scheduler volcano does not say why; see the events of the PodGroup",
            id="open",
        ),
        pytest.param(
            None, "the scheduler volcano does not say why; see the events of the PodGroup", id="unreadable"
        ),
    ],
)
def test_the_status_names_the_queue_of_a_waiting_pod_group(queue: dict[str, Any] | None, cause: str) -> None:
    cluster = gang(run_policy={"schedulingPolicy": {"queue": "research", "minResources": {"cpu": "3"}}})
    assert cluster.decide().requeue_after_seconds == 30
    cluster.queue = queue
    cluster.wait(30)
    cluster.settle()

    text = (
        "PyTorchJob train waits for its PodGroup train, which is Pending in queue research and needs 3 pods at once: "
        + cause
    )
    assert cluster.conditions == "Running F, Created T"
    assert running_condition(cluster) == ("False", "PyTorchJobWaitingForGang", text)
    assert [(event.severity, event.reason, event.message) for event in cluster.events] == [
        ("Warning", "PyTorchJobWaitingForGang", text)
    ]
    assert cluster.decide().requeue_after_seconds == 300
    assert cluster.settle() == []


def test_an_admitted_gang_no_longer_waits_for_its_queue() -> None:
    cluster = gang()
    cluster.wait(30)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    assert running_condition(cluster)[1:] == (
        "PyTorchJobWaitingForPods",
        "PyTorchJob train waits for its pods to run.",
    )

    cluster.set_phase("Running")
    cluster.settle()
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize("scheduler", [VOLCANO, OTHER])
def test_the_status_says_why_the_pods_of_a_gang_have_no_node(scheduler: str) -> None:
    cluster = gang(scheduler)
    cluster.admit()
    cluster.settle()
    cluster.set_phase("Pending", "worker-0", troubles=UNSCHEDULED)
    cluster.wait(29)
    cluster.settle()
    assert cluster.conditions == "Created T"

    cluster.wait(1)
    cluster.settle()
    status, reason, message = running_condition(cluster)
    assert (status, reason) == ("False", "PyTorchJobWaitingForGang")
    assert message.endswith("needs 3 pods at once: Error pod train-worker-0 condition message: 0/1 nodes")


@pytest.mark.parametrize(
    "siblings",
    ["rejected by an optimistic rejection in PostFilter", "pod group is not ready, 3 minAvailable"],
)
def test_the_status_has_the_message_of_the_pod_that_fits_no_node_not_of_those_that_wait_for_it(
    siblings: str,
) -> None:
    cluster = gang(OTHER)
    cluster.settle()
    cluster.set_phase("Pending", troubles=unscheduled(siblings))
    cluster.set_phase("Pending", "worker-0", troubles=UNSCHEDULED)
    cluster.wait(30)
    cluster.settle()

    assert running_condition(cluster)[2].endswith("Error pod train-worker-0 condition message: 0/1 nodes")


def test_the_report_about_a_gang_continues_when_it_waits_in_its_queue_again() -> None:
    """The time of its wait begins anew."""
    cluster = gang()
    cluster.admit()
    cluster.settle()
    cluster.set_phase("Pending", troubles=UNSCHEDULED)
    cluster.wait(60)
    cluster.settle()
    cluster.admit("Pending")
    cluster.settle()

    assert cluster.status.last_reconcile_time == NOON + timedelta(seconds=60)
    assert running_condition(cluster)[1] == "PyTorchJobWaitingForGang"


def test_the_status_has_the_message_of_volcano_about_a_gang() -> None:
    cluster = gang()
    cluster.admit()
    cluster.settle()
    assert cluster.group is not None
    cluster.group = msgspec.structs.replace(cluster.group, message="2/3 tasks in gang unschedulable")
    cluster.set_phase("Pending", troubles=UNSCHEDULED)
    cluster.wait(30)
    cluster.settle()

    assert running_condition(cluster)[2].endswith("pods at once: 2/3 tasks in gang unschedulable")


RESTARTS: dict[str, Any] = {"failurePolicy": {"maxRestarts": 3, "rules": [{"action": "RestartJob"}]}}


def restarted(scheduler: str, phase: str) -> InMemoryCluster:
    """A job that has just restarted as a whole, whose new pods fit no node."""
    cluster = running(scheduler, run_policy=RESTARTS)
    cluster.wait(600)
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()
    cluster.admit(phase)
    cluster.settle()
    cluster.set_phase("Pending", troubles=UNSCHEDULED)
    cluster.settle()
    return cluster


def restarting_condition(cluster: InMemoryCluster) -> tuple[str, str, str]:
    (found,) = [condition for condition in cluster.status.conditions or () if condition.type == "Restarting"]
    return found.status, found.reason or "", found.message or ""


def restart_times(cluster: InMemoryCluster) -> list[tuple[datetime | None, datetime | None]]:
    return [
        (condition.last_update_time, condition.last_transition_time)
        for condition in cluster.status.conditions or ()
        if condition.type == "Restarting"
    ]


@pytest.mark.parametrize(
    ("scheduler", "phase", "state"),
    [
        pytest.param(OTHER, "Scheduling", "Scheduling", id="coscheduling"),
        pytest.param(OTHER, "Failed", "starting again", id="the last phase of coscheduling's group"),
        pytest.param(OTHER, "Finished", "starting again", id="the other last phase of coscheduling's group"),
        pytest.param(VOLCANO, "Inqueue", "Inqueue in queue default", id="Volcano"),
    ],
)
def test_the_status_of_a_restarting_job_says_what_its_gang_waits_for(
    scheduler: str, phase: str, state: str
) -> None:
    """Scheduler-plugins leaves Failed and Finished as they are."""
    cluster = restarted(scheduler, phase)
    assert restarting_condition(cluster)[1] == "PyTorchJobRestarting"
    times = restart_times(cluster)

    cluster.wait(30)
    cluster.settle()

    assert cluster.conditions == "Created T, Restarting T"
    text = f"PyTorchJob train waits for its PodGroup train, which is {state} and needs 3 pods at once: "
    status, reason, message = restarting_condition(cluster)
    assert (status, reason) == ("True", "PyTorchJobWaitingForGangAfterResume")
    assert message.startswith(text)
    assert message.endswith("condition message: 0/1 nodes")
    assert cluster.reasons[-1] == "PyTorchJobWaitingForGang"
    assert restart_times(cluster) == times
    cluster.wait(300)
    assert cluster.settle() == []


def test_a_restarting_job_whose_gang_has_a_node_waits_for_its_pods() -> None:
    cluster = restarted(VOLCANO, "Inqueue")
    cluster.wait(30)
    cluster.settle()
    cluster.admit("Running")
    cluster.set_phase("Pending", troubles=())
    cluster.settle()

    assert restarting_condition(cluster) == (
        "True",
        "PyTorchJobRestarting",
        "PyTorchJob train waits for its pods to run.",
    )
    cluster.set_phase("Running")
    cluster.settle()
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize("phase", ["Failed", "Finished"])
def test_a_gang_whose_group_keeps_its_last_phase_and_that_runs_waits_for_nothing(phase: str) -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2}, **RESTARTS}
    cluster = running(OTHER, run_policy=policy)
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()
    cluster.admit(phase)
    cluster.settle()
    cluster.set_phase("Running")
    cluster.set_phase("Pending", "worker-0", troubles=UNSCHEDULED)
    cluster.wait(60)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"


def test_an_event_about_a_waiting_gang_is_not_repeated_for_other_numbers() -> None:
    cluster = gang(run_policy={"schedulingPolicy": {"minResources": {"cpu": "3"}}})
    cluster.queue = QUEUE
    cluster.wait(30)
    cluster.settle()
    cluster.queue = {**QUEUE, "status": {"state": "Open", "allocated": {"cpu": "7"}}}
    cluster.settle()

    assert "7 of 8 are in use" in running_condition(cluster)[2]
    assert cluster.reasons == ["PyTorchJobWaitingForGang"]


def test_a_pod_of_a_gang_that_only_pulls_its_image_waits_for_no_gang() -> None:
    cluster = gang(OTHER)
    cluster.wait(60)

    assert cluster.settle() == []


def test_pods_do_not_wait_for_coscheduling() -> None:
    cluster = InMemoryCluster(pytorch_job(), options=Options(gang_scheduler=OTHER))
    plan = cluster.step()

    assert [child.resource.kind for child in plan.create][:3] == ["PodGroup", "Pod", "Service"]
    assert [child.name for child in plan.create if child.first] == ["train"]
    assert cluster.status.last_reconcile_time is None
    assert cluster.settle() == []


@pytest.mark.parametrize(
    ("scheduler", "mark"), [(VOLCANO, ("annotations", GROUP_NAME)), (OTHER, ("labels", POD_GROUP))]
)
def test_every_pod_is_a_member_of_the_pod_group(scheduler: str, mark: tuple[str, str]) -> None:
    cluster = gang(scheduler)
    cluster.admit()
    cluster.pods.clear()
    pods = [child.body() for child in cluster.decide().create if child.resource.kind == "Pod"]

    assert len(pods) == 3
    for body in pods:
        assert body["spec"]["schedulerName"] == scheduler
        assert body["metadata"][mark[0]][mark[1]] == "train"


@pytest.mark.parametrize("scheduler", [VOLCANO, OTHER])
def test_the_pod_group_follows_the_size_of_the_job(scheduler: str) -> None:
    cluster = running(scheduler)
    cluster.update_spec(pytorch_job(workers=4))
    done = cluster.settle()

    assert said(cluster)["minMember"] == 5
    assert sum(child.resource.kind == "PodGroup" for plan in done for child in plan.create) == 1


def test_running_pods_are_managed_while_the_pod_group_is_pending_again() -> None:
    """Counters, restarts and the end of the job are handled; only new pods wait."""
    cluster = running(worker={"restartPolicy": "OnFailure"})
    cluster.admit("Pending")
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.wait(5)
    cluster.settle()
    assert "PyTorchJobRestarting" in cluster.reasons
    assert sorted(cluster.pods) == ["train-master-0", "train-worker-1"]
    assert cluster.status.last_reconcile_time == NOON + timedelta(seconds=5)

    cluster.set_phase("Succeeded", "master-0")
    cluster.settle()
    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert cluster.group is None


def test_a_deleted_pod_group_is_created_again() -> None:
    cluster = running()
    cluster.group = None
    cluster.settle()

    assert cluster.group is not None
    assert cluster.conditions == "Created T, Running T"


def test_a_waiting_gang_can_exceed_its_deadline() -> None:
    """Its time begins when it may start, so only one that has started."""
    cluster = gang(run_policy={"activeDeadlineSeconds": 9})
    cluster.wait(600)
    cluster.settle()
    assert cluster.conditions == "Running F, Created T"

    cluster.admit()
    cluster.settle()
    cluster.wait(9)
    cluster.settle()
    assert cluster.conditions == "Running F, Created T, Failed T"
    assert cluster.group is None


@pytest.mark.parametrize("scheduler", [VOLCANO, OTHER])
@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_the_pod_group_is_deleted_when_the_job_ends(scheduler: str, clean: str) -> None:
    cluster = running(scheduler, run_policy={"cleanPodPolicy": clean})
    group = cluster.group
    assert group is not None
    cluster.set_phase("Succeeded", code=0)
    done = cluster.settle()

    assert cluster.group is None
    deletions = [
        deletion for plan in done for deletion in plan.delete if deletion.resource.kind == "PodGroup"
    ]
    assert [(deletion.name, deletion.uid) for deletion in deletions] == [("train", group.uid)]
    assert [event.message for event in cluster.events if event.reason == "JobTerminated"] == [TERMINATED]


def test_the_pod_group_is_deleted_when_the_job_is_suspended() -> None:
    cluster = running()
    first = cluster.group
    cluster.update_spec(pytorch_job(run_policy={"suspend": True}))
    cluster.settle()
    assert (cluster.group, cluster.pods) == (None, {})
    assert cluster.reasons.count("JobTerminated") == 1

    cluster.wait(60)
    cluster.update_spec(pytorch_job())
    cluster.settle()
    assert cluster.group is not None
    assert cluster.group != first
    assert cluster.pods == {}
    assert cluster.status.last_reconcile_time == NOON + timedelta(seconds=60)

    cluster.admit()
    cluster.settle()
    assert sorted(cluster.pods) == ALL_PODS


def test_a_job_that_is_created_suspended_has_no_pod_group() -> None:
    cluster = gang(run_policy={"suspend": True})

    assert cluster.group is None
    assert "JobTerminated" not in cluster.reasons


def test_a_repeated_deletion_is_recorded_once() -> None:
    cluster = running()
    group = cluster.group
    assert group is not None
    cluster.update_spec(pytorch_job(run_policy={"suspend": True}))
    cluster.step()
    first, second = cluster.decide(), cluster.decide()

    assert Deletion(VOLCANO_POD_GROUPS, group.name, group.uid) in first.delete
    keys = {
        event.once for plan in (first, second) for event in plan.events if event.reason == "JobTerminated"
    }
    assert len(keys) == 1
    assert "" not in keys


def test_a_scheduler_name_in_the_template_is_reported_once() -> None:
    fields = {"template": {"spec": {**template()["spec"], "schedulerName": "mine"}}}
    cluster = gang(OTHER, master=fields, worker=fields)

    recorded = [event for event in cluster.events if event.reason == "SetPodTemplateSchedulerName"]
    assert [(event.severity, event.message) for event in recorded] == [
        (
            "Warning",
            "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
        )
    ]


def test_without_gang_scheduling_a_scheduler_name_in_the_template_is_not_reported() -> None:
    fields = {"template": {"spec": {**template()["spec"], "schedulerName": "mine"}}}

    assert gang("", worker=fields).events == []
