"""The PodGroup of a job: its spec, its writes and the membership of pods."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from api.labels import GROUP_NAME, POD_GROUP, TASK_SPEC
from api.meta import COSCHEDULING_POD_GROUPS, PODS, VOLCANO_POD_GROUPS
from api.v1.pytorchjob import PyTorchJob
from controller.domain import Child, Snapshot, WriteMode
from controller.kinds.pytorch import PYTORCH
from controller.policy import gang
from tests.support.builders import UID, pod, pod_group, pytorch_job, template

OTHER = "scheduler-plugins-scheduler"
TWO_CORES = {
    "template": template(resources={"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4"}})
}
ONE_GPU = {"template": template(resources={"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 1}})}


def there(spec: dict[str, Any], phase: str = "Running", **fields: Any) -> Snapshot:
    """A job that has a PodGroup which says that."""
    return Snapshot(group=pod_group(uid="group-uid", phase=phase, spec=orjson.dumps(spec), **fields))


def written(job: PyTorchJob, snapshot: Snapshot | None = None, scheduler: str = gang.VOLCANO) -> Child | None:
    roles = PYTORCH.roles(job)
    return next(gang.group(scheduler, PYTORCH.resource, job, roles, snapshot or Snapshot()), None)


def spec(job: PyTorchJob, scheduler: str = gang.VOLCANO) -> dict[str, Any]:
    """What a new PodGroup says."""
    child = written(job, scheduler=scheduler)
    assert child is not None
    said: dict[str, Any] = child.body()["spec"]
    return said


def change(job: PyTorchJob, snapshot: Snapshot, scheduler: str = gang.VOLCANO) -> dict[str, Any]:
    """How a PodGroup that is there is patched; empty if it is not."""
    child = written(job, snapshot, scheduler)
    if child is None:
        return {}
    assert (child.write_mode, child.first) == (WriteMode.PATCH, True)
    assert child.body()["metadata"] == {"uid": "group-uid"}
    patch: dict[str, Any] = child.body()["spec"]
    return patch


def policy(**fields: Any) -> dict[str, Any]:
    return {"schedulingPolicy": fields}


@pytest.mark.parametrize(
    ("flag", "scheduler"),
    [("", ""), ("None", ""), ("volcano", "volcano"), ("Volcano", "volcano"), ("VOLCANO", "volcano"),
     ("Kubernetes", "kubernetes"), ("YuniKorn", "yunikorn"), (OTHER, OTHER)],
)  # fmt: skip
def test_the_scheduler_of_the_flag(flag: str, scheduler: str) -> None:
    assert gang.scheduler_of(flag) == scheduler


def test_a_new_group() -> None:
    job = pytorch_job(worker=TWO_CORES, master=TWO_CORES)
    job.metadata.annotations = {"example.com/a": "b"}
    child = written(job)

    assert child is not None
    assert (child.resource, child.name, child.write_mode, child.first) == (
        VOLCANO_POD_GROUPS, "train", WriteMode.CREATE, True,
    )  # fmt: skip
    body = child.body()
    assert (body["apiVersion"], body["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    (owner,) = body["metadata"].pop("ownerReferences")
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("PyTorchJob", UID, True)
    assert body["metadata"] == {"name": "train", "annotations": {"example.com/a": "b"}}
    assert body["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "6", "memory": "3Gi"},
        "queue": "default",
    }


def test_a_new_group_of_coscheduling() -> None:
    job = pytorch_job(run_policy=policy(scheduleTimeoutSeconds=60, queue="q", priorityClass="high"))
    child = written(job, scheduler=OTHER)

    assert child is not None
    assert child.resource == COSCHEDULING_POD_GROUPS
    assert child.body()["metadata"].keys() == {"name", "ownerReferences"}
    assert child.body()["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 60}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"minAvailable": 2}, {"minMember": 2}, id="members"),
        pytest.param({"minAvailable": 10}, {"minMember": 10}, id="minAvailable above the number of pods"),
        pytest.param({"queue": "research"}, {"queue": "research"}, id="queue"),
        pytest.param({"priorityClass": "high"}, {"priorityClassName": "high"}, id="priority"),
        pytest.param({"scheduleTimeoutSeconds": 60}, {}, id="no timeout, which Volcano does not have"),
        pytest.param(
            {"minResources": {"cpu": 3, "memory": "2048Mi"}},
            {"minResources": {"cpu": "3", "memory": "2Gi"}},
            id="resources",
        ),
        pytest.param(
            {"minResources": {"cpu": "much"}},
            {"minResources": {"cpu": "much"}},
            id="invalid values are left to the server",
        ),
    ],
)
def test_the_scheduling_policy_overrides_the_defaults(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    usual = {"minMember": 3, "minResources": {}, "queue": "default"}
    assert spec(pytorch_job(run_policy=policy(**fields))) == {**usual, **expected}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param(0, {}, id="no members"),
        pytest.param(1, {"cpu": "2", "memory": "1Gi"}, id="the master alone"),
        pytest.param(
            2, {"cpu": "2500m", "memory": "1Gi", "nvidia.com/gpu": "1"}, id="the master and a worker"
        ),
        pytest.param(3, {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "2"}, id="all"),
        pytest.param(9, {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "2"}, id="no more than there are"),
    ],
)
def test_min_resources_are_those_of_the_first_members_in_role_order(
    members: int, expected: dict[str, str]
) -> None:
    """Limits without a request, as GPUs are written, count."""
    job = pytorch_job(master=TWO_CORES, worker=ONE_GPU, run_policy=policy(minAvailable=members))

    assert spec(job)["minResources"] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, 2, id="by default"),
        pytest.param({"minAvailable": 3}, 2, id="minAvailable counts all pods"),
        pytest.param({"minAvailable": 1}, 1, id="minAvailable below the number of pods"),
        pytest.param({"minAvailable": 10}, 9, id="minAvailable above the number of pods"),
    ],
)
def test_a_role_that_starts_later_is_not_counted_as_a_member(fields: dict[str, Any], expected: int) -> None:
    job = pytorch_job(master=TWO_CORES, worker=ONE_GPU, run_policy=policy(**fields))
    roles = PYTORCH.roles(job)

    (child,) = gang.group(gang.VOLCANO, PYTORCH.resource, job, roles, Snapshot(), later=["Master"])

    gpus = str(min(expected, 2))
    assert child.body()["spec"] == {
        "minMember": expected,
        "minResources": {"cpu": f"{500 * int(gpus)}m" if gpus == "1" else "1", "nvidia.com/gpu": gpus},
        "queue": "default",
    }


def test_an_invalid_resource_quantity_does_not_stop_the_reconcile() -> None:
    broken = {"template": template(resources={"requests": {"cpu": "many"}})}

    assert spec(pytorch_job(worker=broken))["minResources"] == {}


def test_pods_without_requests_give_volcano_empty_min_resources() -> None:
    """As by both originals: a group that says nothing of it is queued whatever its queue has left."""
    assert spec(pytorch_job())["minResources"] == {}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="as we write it"),
        pytest.param(
            {"minResources": {"cpu": "6000m", "memory": "3072Mi"}}, id="equal quantities in another form"
        ),
        pytest.param({"minTaskMember": {"worker": 2}}, id="additional fields of others"),
        pytest.param({"queue": "chosen-by-a-webhook"}, id="the queue that another client set"),
        pytest.param({"priorityClassName": ""}, id="explicit defaults"),
    ],
)
def test_an_up_to_date_pod_group_is_not_written(said: dict[str, Any]) -> None:
    job = pytorch_job(worker=TWO_CORES, master=TWO_CORES)

    assert change(job, there({**spec(job), **said})) == {}


@pytest.mark.parametrize(
    ("said", "patch"),
    [
        pytest.param({"minMember": 2}, {"minMember": 3}, id="members"),
        pytest.param({"queue": ""}, {"queue": "default"}, id="a missing queue"),
        pytest.param({"priorityClassName": "low"}, {"priorityClassName": None}, id="an outdated priority"),
        pytest.param({"minResources": None}, {"minResources": {"cpu": "6", "memory": "3Gi"}}, id="no resources"),
        pytest.param(
            {"minResources": {"cpu": "6", "example.com/x": "1"}},
            {"minResources": {"cpu": "6", "memory": "3Gi", "example.com/x": None}},
            id="other resources",
        ),
    ],
)  # fmt: skip
def test_only_changed_fields_are_patched(said: dict[str, Any], patch: dict[str, Any]) -> None:
    job = pytorch_job(worker=TWO_CORES, master=TWO_CORES)

    assert change(job, there({**spec(job), **said})) == patch


def test_a_pod_group_without_a_spec_gets_a_spec() -> None:
    job = pytorch_job(worker=TWO_CORES, master=TWO_CORES)

    assert change(job, Snapshot(group=there({}).group)) == spec(job)


def test_a_changed_timeout_is_patched() -> None:
    before = spec(pytorch_job(run_policy=policy(scheduleTimeoutSeconds=60)), OTHER)

    assert change(pytorch_job(), there(before), OTHER) == {"scheduleTimeoutSeconds": None}


def test_a_pod_group_that_is_being_deleted_is_not_written() -> None:
    going = there({"minMember": 9}, deleting=True)

    assert written(pytorch_job(), going) is None
    assert gang.remains(gang.VOLCANO, going) == ()


@pytest.mark.parametrize(
    ("scheduler", "snapshot", "waiting"),
    [
        pytest.param("volcano", Snapshot(), True, id="no group yet"),
        pytest.param("volcano", there({}, ""), True, id="not yet handled"),
        pytest.param("volcano", there({}, "Pending"), True, id="pending"),
        pytest.param("volcano", there({}, "Inqueue"), False, id="in the queue"),
        pytest.param("volcano", there({}, "Running"), False, id="running"),
        pytest.param("volcano", there({}, "Unknown"), False, id="partly running"),
        pytest.param("volcano", there({}, deleting=True), True, id="terminating"),
        pytest.param("kubernetes", Snapshot(), False, id="kube-scheduler delays pods itself"),
        pytest.param("kubernetes", there({}, deleting=True), True, id="the group of earlier pods"),
        pytest.param(
            "kubernetes",
            replace(there({}, deleting=True), pods=(pod(),)),
            False,
            id="a group that its pods keep while it is being deleted",
        ),
        pytest.param("yunikorn", Snapshot(), False, id="YuniKorn delays pods itself"),
        pytest.param(OTHER, Snapshot(), False, id="coscheduling delays pods itself"),
        pytest.param("", Snapshot(), False, id="no gang scheduling"),
    ],
)
def test_pods_wait_for_their_group(scheduler: str, snapshot: Snapshot, waiting: bool) -> None:
    assert gang.is_waiting(scheduler, snapshot) is waiting


def joined(scheduler: str, job: PyTorchJob | None = None, **body: Any) -> dict[str, Any]:
    job = job or pytorch_job()
    pod = Child(PODS, "train-worker-0", lambda: {"metadata": {"name": "train-worker-0"}, "spec": {}, **body})
    roles = PYTORCH.roles(job)
    return gang.Membership(scheduler, job, roles, Snapshot()).of(roles["Worker"], pod).body()


def test_members_of_a_volcano_group() -> None:
    body = joined("volcano", metadata={"annotations": {"a": "b", TASK_SPEC: "mine"}})

    assert body["metadata"]["annotations"] == {"a": "b", GROUP_NAME: "train", TASK_SPEC: "worker"}
    assert body["spec"] == {"schedulerName": "volcano"}


def test_members_of_a_coscheduling_group() -> None:
    body = joined(OTHER, metadata={"labels": {"a": "b"}}, spec={"nodeName": "n"})

    assert body["metadata"] == {"labels": {"a": "b", POD_GROUP: "train"}}
    assert body["spec"] == {"nodeName": "n", "schedulerName": OTHER}


@pytest.mark.parametrize(
    ("scheduler", "own", "expected"),
    [
        pytest.param(OTHER, None, "high", id="coscheduling, which knows no priority of a group"),
        pytest.param(OTHER, "low", "low", id="a class in the template precedes it"),
        pytest.param("volcano", None, None, id="Volcano, whose group has it"),
    ],
)
def test_members_of_a_coscheduling_group_have_the_priority_class_of_the_policy(
    scheduler: str, own: str | None, expected: str | None
) -> None:
    job = pytorch_job(run_policy=policy(priorityClass="high"))

    body = joined(scheduler, job, metadata={}, spec={"priorityClassName": own} if own else {})

    assert body["spec"].get("priorityClassName") == expected


@pytest.mark.parametrize(
    ("scheduler_name", "elsewhere"), [(None, False), ("", False), ("volcano", False), ("mine", True)]
)
def test_a_scheduler_name_in_the_template_is_preserved(scheduler_name: str | None, elsewhere: bool) -> None:
    """The name is preserved although that scheduler does not know the group."""
    fields = {"template": {"spec": {**template()["spec"], "schedulerName": scheduler_name}}}
    role = PYTORCH.roles(pytorch_job(worker=fields))["Worker"]

    assert gang.is_elsewhere("volcano", role) is elsewhere
    assert joined("volcano", spec={"schedulerName": scheduler_name})["spec"] == {
        "schedulerName": scheduler_name or "volcano"
    }
