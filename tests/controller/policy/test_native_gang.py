"""The PodGroup of Kubernetes' own gang scheduling: its spec, its changes and its members."""

from typing import Any

import orjson
import pytest

from api.meta import NATIVE_POD_GROUPS, PODS
from api.pod_problems import Trouble
from api.v1.pytorchjob import PyTorchJob
from controller.domain import Child, Snapshot, WriteMode
from controller.kind import Options
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.kinds.pytorch import PYTORCH
from controller.policy import gang
from controller.reconcile import plan
from tests.support.builders import NOON, pod, pod_group, pytorch_job, template
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import container, mpi_job

CLAIM = {"name": "channel", "resourceClaimTemplateName": "fabric"}


def written(job: PyTorchJob, snapshot: Snapshot | None = None) -> Child | None:
    roles = PYTORCH.roles(job)
    return next(gang.group(gang.KUBERNETES, PYTORCH.resource, job, roles, snapshot or Snapshot()), None)


def spec(job: PyTorchJob) -> dict[str, Any]:
    """Return the spec of a new group."""
    child = written(job)
    assert child is not None
    assert child.resource == NATIVE_POD_GROUPS
    wanted: dict[str, Any] = child.body()["spec"]
    return wanted


def policy(**fields: Any) -> dict[str, Any]:
    return {"schedulingPolicy": fields}


def of(name: str) -> dict[str, Any]:
    """Return the fields of a role whose template names that priority class."""
    return {"template": {"spec": {**template()["spec"], "priorityClassName": name}}}


def count(members: int) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": members}}}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(pytorch_job(), {**count(3), "disruptionMode": {"all": {}}}, id="all pods"),
        pytest.param(
            pytorch_job(run_policy=policy(minAvailable=2)),
            {**count(2), "disruptionMode": {"single": {}}},
            id="fewer, which may be preempted one by one",
        ),
        pytest.param(
            pytorch_job(masters=None, workers=0),
            {**count(1), "disruptionMode": {"all": {}}},
            id="no pods yet: the API server accepts no 0",
        ),
        pytest.param(
            pytorch_job(
                run_policy=policy(
                    schedulingConstraints={"topology": [{"key": "zone"}]}, resourceClaims=[CLAIM]
                )
            ),
            {
                **count(3),
                "disruptionMode": {"all": {}},
                "schedulingConstraints": {"topology": [{"key": "zone"}]},
                "resourceClaims": [CLAIM],
            },
            id="constraints and claims as the job has them",
        ),
        pytest.param(
            pytorch_job(run_policy=policy(priorityClass="high")),
            {**count(3), "disruptionMode": {"all": {}}, "priorityClassName": "high"},
            id="the priority class of the policy",
        ),
        pytest.param(
            pytorch_job(worker=of("low")),
            {**count(3), "disruptionMode": {"all": {}}, "priorityClassName": "low"},
            id="that of a template",
        ),
    ],
)
def test_the_spec_of_a_new_group(job: PyTorchJob, expected: dict[str, Any]) -> None:
    assert spec(job) == expected


def there(said: dict[str, Any], *pods: Any) -> Snapshot:
    return Snapshot(pods=pods, group=pod_group(uid="group-uid", spec=orjson.dumps(said)))


def running(*succeeded: int, waiting: int | None = None) -> tuple[Any, ...]:
    """Return the master and two workers; those of these indices have succeeded or wait."""
    phases: dict[int | None, str] = {waiting: "Pending"}
    phases |= dict.fromkeys(succeeded, "Succeeded")
    return (
        pod("master", 0, phase="Running"),
        *(pod("worker", index, phase=phases.get(index, "Running")) for index in range(2)),
    )


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        pytest.param(there(count(3)), {}, id="equal"),
        pytest.param(there(count(2)), count(3), id="the job has grown"),
        pytest.param(
            there({**count(3), "priorityClassName": "other", "disruptionMode": {"single": {}}}),
            {},
            id="other fields cannot be changed",
        ),
        pytest.param(there({"schedulingPolicy": {"basic": {}}}), {}, id="nor can the kind of policy"),
        pytest.param(there(count(3), *running(0)), {}, id="others run"),
        pytest.param(there(count(3), *running(0, waiting=1)), count(2), id="the other waits"),
        pytest.param(there(count(3), *running(0)[:2]), count(2), id="the other is missing"),
        pytest.param(there(count(2), *running(0)), {}, id="it is not raised again"),
    ],
)
def test_only_the_number_of_members_changes(snapshot: Snapshot, expected: dict[str, Any]) -> None:
    child = written(pytorch_job(), snapshot)

    assert (child.body()["spec"] if child else {}) == expected
    assert child is None or child.write_mode is WriteMode.PATCH


def joined(job: PyTorchJob, role: str, snapshot: Snapshot | None = None, **fields: Any) -> dict[str, Any]:
    """Return the spec of a pod of that role, which has these fields."""
    roles = PYTORCH.roles(job)
    body = {"metadata": {"name": "train"}, "spec": fields}
    member = gang.Membership(gang.KUBERNETES, job, roles, snapshot or Snapshot()).of(
        roles[role], Child(PODS, "train", lambda: body)
    )
    wanted: dict[str, Any] = member.body()["spec"]
    assert member.body()["metadata"] == body["metadata"]
    return wanted


GROUP = {"schedulingGroup": {"podGroupName": "train"}}


def test_a_pod_names_its_group_and_keeps_its_scheduler() -> None:
    assert joined(pytorch_job(), "Worker", schedulerName="mine") == {**GROUP, "schedulerName": "mine"}
    role = PYTORCH.roles(pytorch_job(worker={"template": {"spec": {"schedulerName": "mine"}}}))["Worker"]
    assert not gang.is_elsewhere(gang.KUBERNETES, role)


def test_pods_without_a_priority_class_get_that_of_their_group() -> None:
    """kube-scheduler refuses a gang of several priorities."""
    job = pytorch_job(worker=of("low"))

    assert joined(job, "Master") == {**GROUP, "priorityClassName": "low"}
    assert joined(job, "Worker", priorityClassName="own") == {**GROUP, "priorityClassName": "own"}


def test_a_job_whose_template_names_a_group_is_left_alone() -> None:
    own: dict[str, Any] = {"schedulingGroup": {"podGroupName": "mine"}}
    job = pytorch_job(worker={"template": {"spec": {**template()["spec"], **own}}})

    assert written(job) is None
    assert joined(job, "Worker", **own) == own
    assert joined(job, "Master") == {}


RESPONDERS = {"evictionResponders": [{"name": "checkpoint.example.com/save", "priority": 1}]}
OWN_GROUP = {"schedulingGroup": {"podGroupName": "mine"}}
FIELD = "template.spec.evictionResponders"
TEXT = "Forbidden: may not be set beside schedulingGroup, and"


def with_fields(**fields: Any) -> dict[str, Any]:
    """Return a template whose pod spec has these fields."""
    return {"spec": {**template()["spec"], **fields}}


@pytest.mark.parametrize(
    ("worker", "scheduler", "expected"),
    [
        pytest.param(RESPONDERS, "", [], id="without a group"),
        pytest.param(RESPONDERS, gang.VOLCANO, [], id="under another scheduler"),
        pytest.param(OWN_GROUP, gang.KUBERNETES, [], id="a group alone"),
        pytest.param(
            RESPONDERS | OWN_GROUP,
            "",
            [f"{FIELD}: {TEXT} the template sets it"],
            id="in the user's group",
        ),
        pytest.param(
            RESPONDERS | OWN_GROUP,
            gang.KUBERNETES,
            [f"{FIELD}: {TEXT} the template sets it"],
            id="in the user's group, whatever the scheduler",
        ),
        pytest.param(
            RESPONDERS,
            gang.KUBERNETES,
            [f"{FIELD}: {TEXT} --gang-scheduler-name=kubernetes sets it"],
            id="in the operator's group",
        ),
    ],
)
def test_eviction_responders_of_members_of_a_group_are_refused(
    worker: dict[str, Any], scheduler: str, expected: list[str]
) -> None:
    """Kubernetes refuses such pods."""
    job = pytorch_job(worker={"template": with_fields(**worker)})

    found = plan.problems(PYTORCH, job, Options(gang_scheduler=scheduler))

    path = "spec.pytorchReplicaSpecs[Worker]"
    assert [str(problem) for problem in found] == [f"{path}.{text}" for text in expected]


def test_eviction_responders_do_not_stop_a_job_that_runs() -> None:
    """It has started before the flag was set, and its pods are in no group."""
    job = pytorch_job(worker={"template": with_fields(**RESPONDERS)}, status={"startTime": NOON.isoformat()})

    assert plan.problems(PYTORCH, job, Options(gang_scheduler=gang.KUBERNETES)) == []


def test_eviction_responders_of_an_mpijob_that_runs_do_not_stop_it() -> None:
    job = mpi_job(worker={"spec": {"containers": [container(command=["sshd"])], **RESPONDERS}})
    new, running = (InMemoryCluster(job, kind=V2BETA1, options=Options()) for _ in range(2))  # type: ignore[arg-type]  # has no use for the rest
    running.settle()
    for cluster in (new, running):
        cluster.options = Options(gang_scheduler=gang.KUBERNETES)
        cluster.settle()

    assert new.created_pods == []
    (event,) = (event for event in new.events if event.reason == "ValidationError")
    assert f"spec.mpiReplicaSpecs[Worker].{FIELD}: {TEXT}" in event.message
    assert "ValidationError" not in running.reasons


def test_a_job_whose_pods_are_in_no_group_is_left_alone() -> None:
    """They were created before the flag was set; a group would wait for all of them."""
    older = Snapshot(pods=running()[:2])

    assert written(pytorch_job(), older) is None
    assert joined(pytorch_job(), "Worker", older) == {}
    assert joined(pytorch_job(), "Worker", there(count(3), *running()[:2])) == GROUP


def test_a_job_that_waits_for_its_earlier_group_says_so() -> None:
    job = pytorch_job(status={"startTime": NOON.isoformat()})
    assert job.status is not None
    leaving = Snapshot(group=pod_group(deleting=True))

    early = gang.gang_wait(gang.KUBERNETES, job, job.status, leaving, NOON)
    late = gang.gang_wait(gang.KUBERNETES, job, job.status, leaving, NOON.replace(minute=1))

    assert early == gang.GangWait(due_seconds=30)
    assert late.message == "PyTorchJob train waits for its earlier PodGroup train, which is being deleted"


REFUSED = "pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
LACKING = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        pytest.param([REFUSED, LACKING], LACKING, id="of the pod that has no node"),
        pytest.param([REFUSED], "of the group", id="of the group, if no pod says more"),
    ],
)
def test_a_waiting_job_names_the_cause(messages: list[str], cause: str) -> None:
    job = pytorch_job(status={"startTime": NOON.isoformat()})
    assert job.status is not None
    pods = [
        pod("worker", index, phase="Pending", troubles=(Trouble("Unschedulable", text, "PodScheduled"),))
        for index, text in enumerate(messages)
    ]
    group = pod_group(spec=orjson.dumps(count(2)), message="of the group")
    snapshot = Snapshot(pods=tuple(pods), group=group)

    wait = gang.gang_wait(gang.KUBERNETES, job, job.status, snapshot, NOON.replace(minute=1))

    text = "PyTorchJob train waits for its PodGroup train, which is not scheduled and needs 2 pods at once: "
    assert wait.message == text + cause
