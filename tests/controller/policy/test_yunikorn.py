"""Pods as members of a YuniKorn application with task groups."""

import json
from typing import Any

from api.labels import (
    SCHEDULING_PARAMETERS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
    YUNIKORN_APP,
    YUNIKORN_QUEUE,
)
from api.meta import PODS
from api.v1.pytorchjob import PyTorchJob
from controller.domain import Child, Snapshot
from controller.kinds.pytorch import PYTORCH
from controller.policy import gang
from tests.support.builders import UID, pytorch_job, template

GPU = template(resources={"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": 1}})


def joined(job: PyTorchJob, role: str = "Worker", later: tuple[str, ...] = (), **metadata: Any) -> Any:
    roles = PYTORCH.roles(job)
    pod = Child(PODS, "train", lambda: {"metadata": {"name": "train", **metadata}, "spec": {}})
    return gang.Membership(gang.YUNIKORN, job, roles, Snapshot(), later).of(roles[role], pod).body()


def task_groups(body: Any) -> Any:
    return json.loads(body["metadata"]["annotations"][TASK_GROUPS])


def test_a_pod_names_its_application_and_all_task_groups() -> None:
    body = joined(pytorch_job(worker={"template": GPU}), labels={"a": "b"})

    assert body["spec"] == {"schedulerName": "yunikorn"}
    assert body["metadata"]["labels"] == {"a": "b", YUNIKORN_APP: UID}
    assert body["metadata"]["annotations"].keys() == {TASK_GROUPS, TASK_GROUP_NAME}
    assert body["metadata"]["annotations"][TASK_GROUP_NAME] == "worker"
    assert task_groups(body) == [
        {"name": "master", "minMember": 1, "minResource": {}},
        {"name": "worker", "minMember": 2, "minResource": {"cpu": "500m", "nvidia.com/gpu": "1"}},
    ]


def test_placeholders_go_where_the_pods_may_go() -> None:
    placement = {"nodeSelector": {"pool": "a"}, "tolerations": [{"operator": "Exists"}]}
    body = joined(pytorch_job(worker={"template": {"spec": {**GPU["spec"], **placement}}}))

    assert placement.items() <= task_groups(body)[1].items()


def test_the_first_members_are_reserved() -> None:
    """And a role that starts later is not."""
    least = pytorch_job(run_policy={"schedulingPolicy": {"minAvailable": 2}})

    assert [group["minMember"] for group in task_groups(joined(least))] == [1, 1]
    late = joined(pytorch_job(), "Master", later=("Master",))
    assert [group["name"] for group in task_groups(late)] == ["worker"]
    assert TASK_GROUP_NAME not in late["metadata"]["annotations"]


def test_the_queue_and_the_timeout_of_the_policy() -> None:
    policy = {"queue": "root.research", "scheduleTimeoutSeconds": 60}
    job = pytorch_job(run_policy={"schedulingPolicy": policy})
    metadata = joined(job)["metadata"]

    assert metadata["labels"][YUNIKORN_QUEUE] == "root.research"
    assert metadata["annotations"][SCHEDULING_PARAMETERS] == "placeholderTimeoutInSeconds=60"
    job.metadata.annotations = {SCHEDULING_PARAMETERS: "gangSchedulingStyle=Hard"}
    assert joined(job)["metadata"]["annotations"][SCHEDULING_PARAMETERS] == "gangSchedulingStyle=Hard"


def test_each_attempt_of_a_job_is_an_application() -> None:
    assert joined(pytorch_job(status={"restarts": 2}))["metadata"]["labels"][YUNIKORN_APP] == f"{UID}-2"


def test_a_template_with_task_groups_is_left_alone() -> None:
    own = {TASK_GROUPS: "[]"}

    assert joined(pytorch_job(), annotations=own)["metadata"] == {"name": "train", "annotations": own}


def test_a_job_has_no_group() -> None:
    job = pytorch_job()

    assert gang.groups_of(gang.YUNIKORN) is None
    assert not [*gang.group(gang.YUNIKORN, PYTORCH.resource, job, PYTORCH.roles(job), Snapshot())]
    assert gang.remains(gang.YUNIKORN, Snapshot()) == ()
