"""Rows of pods, Services and PodGroups, read from what the API server sends."""

from typing import Any

import msgspec
import pytest

from api import labels
from api.children import NO_INDEX, Exit, Pod, pod_from_json, pod_group_from_json, service_from_json
from api.labels import FAILED_BEFORE
from api.pod_problems import Trouble
from api.restart_report import RestartReport
from tests.support.builders import NOON, pod

LABELS = {
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "3",
    "training.kubeflow.org/job-name": "train",
}
OWNER = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "name": "train",
    "uid": "j",
    "controller": True,
}


def body(status: dict[str, Any] | None = None, **metadata: Any) -> bytes:
    meta = {
        "name": "train-worker-3",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "42",
        "labels": LABELS,
        "ownerReferences": [OWNER],
        **metadata,
    }
    whole: dict[str, Any] = {"kind": "Pod", "metadata": meta, "spec": {"containers": []}}
    if status is not None:
        whole["status"] = status
    return msgspec.json.encode(whole)


def container(name: str = "pytorch", restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, "state": state}


def read(**status: Any) -> Pod:
    return pod_from_json(body({"phase": "Running", **status}))


def test_a_pod_is_read_into_a_row() -> None:
    assert pod_from_json(body({"phase": "Running"})) == Pod(
        namespace="ml",
        name="train-worker-3",
        uid="u",
        resource_version=42,
        owner_kind="PyTorchJob",
        owner_name="train",
        owner_uid="j",
        role="worker",
        index=3,
        is_named_by_slot=True,
        phase="Running",
    )


def test_a_service_is_read_into_a_row() -> None:
    row = service_from_json(body(deletionTimestamp="2026-01-01T12:00:00Z"))

    assert (row.name, row.role, row.index, row.owner_uid, row.deleting) == (
        "train-worker-3",
        "worker",
        3,
        "j",
        True,
    )


def test_a_pod_without_status_has_no_phase() -> None:
    assert pod_from_json(body()).phase == ""


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="none"),
        pytest.param([{**OWNER, "controller": False}], id="an owner that is not the controller"),
        pytest.param(
            [{"kind": "PyTorchJob", "name": "train", "uid": "j"}], id="an owner without the controller field"
        ),
    ],
)
def test_only_a_controller_reference_is_an_owner(owners: list[dict[str, Any]] | None) -> None:
    row = pod_from_json(body(ownerReferences=owners))

    assert (row.owner_kind, row.owner_name, row.owner_uid) == ("", "", "")


def test_of_several_owners_the_controller_is_the_owner() -> None:
    other = {"kind": "Other", "name": "x", "uid": "o", "controller": False}

    assert pod_from_json(body(ownerReferences=[other, OWNER])).owner_uid == "j"


@pytest.mark.parametrize(
    ("text", "index"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("12", 12, id="two digits"),
        pytest.param("", NO_INDEX, id="empty"),
        pytest.param("-1", NO_INDEX, id="negative"),
        pytest.param("x", NO_INDEX, id="a word"),
        pytest.param("1.0", NO_INDEX, id="a fraction"),
        pytest.param("٣", NO_INDEX, id="a digit of another script"),
        pytest.param("9" * 400, NO_INDEX, id="more digits than any index has"),
    ],
)
def test_index(text: str, index: int) -> None:
    labels = {**LABELS, "training.kubeflow.org/replica-index": text}

    assert pod_from_json(body(labels=labels)).index == index


@pytest.mark.parametrize(
    ("changes", "is_named"),
    [
        pytest.param({}, True, id="its owner, role and index"),
        pytest.param({"name": "train-worker-4"}, False, id="another index"),
        pytest.param({"name": "other-worker-3"}, False, id="another job"),
        pytest.param({"labels": {}}, False, id="no labels"),
        pytest.param({"labels": {**LABELS, labels.REPLICA_TYPE: "master"}}, False, id="another role"),
        pytest.param({"ownerReferences": []}, False, id="no owner"),
    ],
)
def test_whether_the_name_follows_from_the_slot(changes: dict[str, Any], is_named: bool) -> None:
    assert pod_from_json(body(**changes)).is_named_by_slot is is_named


def test_a_pod_without_labels_has_neither_role_nor_index() -> None:
    row = pod_from_json(body(labels=None))

    assert (row.role, row.index) == ("", NO_INDEX)


def test_restarts_of_all_containers_are_summed() -> None:
    row = read(
        containerStatuses=[container(restarts=2), container("sidecar", restarts=1)],
        initContainerStatuses=[container("init", restarts=4)],
    )

    assert row.restarts == 7


def test_exits_are_those_of_terminated_containers() -> None:
    row = read(
        containerStatuses=[
            container(terminated={"exitCode": 3, "reason": "Error", "message": "m"}),
            container("running"),
        ],
        initContainerStatuses=[
            container("init", terminated={"exitCode": 0, "reason": "Completed"}),
            {**container("again", running={}), "lastState": {"terminated": {"exitCode": 1}}},
        ],
    )

    assert row.exits == (
        Exit("pytorch", 3, "Error", "m"),
        Exit("init", 0, "Completed", init=True),
        Exit("again", 1, init=True),
    )


def test_missing_container_fields_are_zero() -> None:
    row = read(containerStatuses=[{"name": "pytorch", "state": {"terminated": {}}}])

    assert (row.restarts, row.exits) == (0, (Exit("pytorch", 0),))


@pytest.mark.parametrize(
    ("exits", "found"),
    [
        pytest.param((Exit("pytorch", 3),), 3, id="the container of that name"),
        pytest.param((Exit("sidecar", 3),), None, id="not another container"),
        pytest.param((Exit("pytorch", 3, init=True),), None, id="not an init container"),
    ],
)
def test_exit_of(exits: tuple[Exit, ...], found: int | None) -> None:
    done = pod(exits=exits).exit_of("pytorch")

    assert (done.code if done else None) == found


@pytest.mark.parametrize(
    ("phase", "deleting", "active", "finished"),
    [
        ("Pending", False, False, False),
        ("Running", False, True, False),
        ("Running", True, False, False),
        ("Succeeded", False, False, True),
        ("Failed", False, False, True),
        ("Unknown", False, False, False),
    ],
)
def test_active_and_finished(phase: str, deleting: bool, active: bool, finished: bool) -> None:
    row = pod(phase=phase, deleting=deleting)

    assert (row.is_active, row.is_finished) == (active, finished)


UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no nodes",
    "lastTransitionTime": "2026-01-01T12:00:00Z",
}


@pytest.mark.parametrize(
    ("status", "troubles"),
    [
        pytest.param({}, (), id="an empty status"),
        pytest.param(
            {"containerStatuses": [container(waiting={"reason": "ImagePullBackOff", "message": "no image"})]},
            (
                Trouble(
                    "ImagePullBackOff",
                    "Error pod train-worker-3 container pytorch waiting message: no image",
                    "pytorch waiting message: no image",
                ),
            ),
            id="a container waits with a message",
        ),
        pytest.param(
            {"containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
            (),
            id="a container that waits without a message is not a problem",
        ),
        pytest.param(
            {"containerStatuses": [container(terminated={"exitCode": 1, "reason": "Error", "message": "m"})]},
            (
                Trouble(
                    "Error",
                    "Error pod train-worker-3 container pytorch exitCode: 1 terminated message: m",
                    "pytorch exitCode: # terminated message: m",
                ),
            ),
            id="a container has failed",
        ),
        pytest.param(
            {"containerStatuses": [container(terminated={"exitCode": 0})]},
            (),
            id="a container that succeeded is not a problem",
        ),
        pytest.param(
            {
                "containerStatuses": [container(running={})],
                "initContainerStatuses": [container("init", terminated={"exitCode": 1})],
            },
            (),
            id="init containers do not count beside others",
        ),
        pytest.param(
            {"initContainerStatuses": [container("init", waiting={"reason": "R", "message": "m"})]},
            (
                Trouble(
                    "R",
                    "Error pod train-worker-3 container init waiting message: m",
                    "init waiting message: m",
                ),
            ),
            id="init containers count where there are no others",
        ),
        pytest.param(
            {"conditions": [UNSCHEDULED]},
            (
                Trouble(
                    "Unschedulable", "Error pod train-worker-3 condition message: no nodes", "PodScheduled"
                ),
            ),
            id="without containers the newest condition counts",
        ),
        pytest.param(
            {
                "conditions": [
                    UNSCHEDULED,
                    {"type": "Other", "status": "True", "lastTransitionTime": "2026-01-01T12:00:01Z"},
                ]
            },
            (),
            id="a newer condition that is true is not a problem",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 1})]},
            (),
            id="a finished pod has no problem",
        ),
    ],
)
def test_troubles(status: dict[str, Any], troubles: tuple[Trouble, ...]) -> None:
    assert pod_from_json(body({"phase": "Pending", **status})).troubles == troubles


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"metadata": 3}'])
def test_invalid_json_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        pod_from_json(raw)


def test_rows_share_equal_strings() -> None:
    owners = [{**OWNER, "uid": "a-long-one"}]
    first, second = (pod_from_json(body(name=name, ownerReferences=owners)) for name in ("one", "two"))

    for field in ("namespace", "owner_kind", "owner_name", "owner_uid", "role"):
        assert getattr(first, field) is getattr(second, field)


@pytest.mark.parametrize(
    ("fields", "phase", "spec"),
    [
        pytest.param({}, "", {}, id="new and empty"),
        pytest.param({"spec": {"minMember": 3}, "status": {}}, "", {"minMember": 3}, id="not yet handled"),
        pytest.param(
            {"spec": {}, "status": {"phase": "Inqueue", "running": 1}}, "Inqueue", {}, id="admitted"
        ),
    ],
)
def test_a_pod_group(fields: dict[str, Any], phase: str, spec: dict[str, Any]) -> None:
    metadata = {"name": "train", "namespace": "ml", "uid": "u", "ownerReferences": [OWNER]}
    row = pod_group_from_json(msgspec.json.encode({"kind": "PodGroup", "metadata": metadata, **fields}))

    assert (row.name, row.owner_name, row.owner_uid, row.phase) == ("train", "train", "j", phase)
    assert msgspec.json.decode(row.spec) == spec


def test_a_running_pod_has_its_node() -> None:
    began = "2026-01-01T12:00:00Z"
    row = pod_from_json(
        msgspec.json.encode(
            {
                "metadata": {"name": "a", "resourceVersion": "1"},
                "spec": {"nodeName": "node-1"},
                "status": {
                    "phase": "Running",
                    "podIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [container(running={"startedAt": began}), container(waiting={})],
                },
            }
        )
    )

    assert (row.node, row.address, row.ready) == ("node-1", "10.0.0.1", True)
    assert row.running_since is not None
    assert row.running_since.isoformat() == "2026-01-01T12:00:00+00:00"


def test_binding_a_pod_does_not_change_its_row_before_it_runs() -> None:
    """Each change of a row requests a reconcile, for any kind of job."""
    waiting = read(phase="Pending", podIP="10.0.0.1", conditions=[{"type": "Ready", "status": "False"}])

    assert waiting == read(phase="Pending")


def test_the_previous_failure_is_the_newest_failed_run_of_a_restarted_container() -> None:
    def before(code: int, minute: int) -> dict[str, Any]:
        ended = {
            "exitCode": code,
            "reason": "Error",
            "message": "no luck",
            "finishedAt": f"2026-01-01T00:0{minute}:00Z",
        }
        return {"lastState": {"terminated": ended}, "restartCount": 1}

    row = read(
        phase="Running",
        containerStatuses=[
            {"name": "first", "state": {"running": {}}, **before(3, 1)},
            {"name": "second", "state": {"running": {}}, **before(4, 2)},
            {"name": "third", "state": {"running": {}}, **before(0, 3)},
        ],
        initContainerStatuses=[{"name": "init", "state": {"running": {}}, **before(5, 4)}],
    )

    assert row.previous_failure is not None
    assert (row.previous_failure.container, row.previous_failure.code, row.previous_failure.message) == (
        "second",
        4,
        "no luck",
    )


@pytest.mark.parametrize(
    ("scheduled", "message"),
    [
        pytest.param(1, "2/3 tasks in gang unschedulable", id="not since then"),
        pytest.param(3, "", id="scheduled since"),
    ],
)
def test_a_pod_group_has_the_newest_message_about_why_it_does_not_start(scheduled: int, message: str) -> None:
    """Volcano keeps the condition Unschedulable of a group that it has scheduled since."""

    def condition(type_: str, status: str, minute: int, message: str) -> dict[str, Any]:
        fields = {"type": type_, "status": status, "message": message}
        return {**fields, "lastTransitionTime": f"2026-01-01T00:0{minute}:00Z"}

    conditions = [
        condition("Unschedulable", "True", 2, "2/3 tasks in gang unschedulable"),
        condition("Unschedulable", "True", 1, "older"),
        condition("Scheduled", "True", scheduled, "other"),
    ]
    body = {"metadata": {"name": "train"}, "status": {"phase": "Inqueue", "conditions": conditions}}

    assert pod_group_from_json(msgspec.json.encode(body)).message == message


@pytest.mark.parametrize(("status", "message"), [("False", "0/4 nodes are available"), ("True", "")])
def test_a_pod_group_of_kubernetes_has_its_message_until_it_is_scheduled(status: str, message: str) -> None:
    condition = {
        "type": "PodGroupInitiallyScheduled",
        "status": status,
        "message": "0/4 nodes are available",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"metadata": {"name": "train"}, "status": {"conditions": [condition]}}

    assert pod_group_from_json(msgspec.json.encode(body)).message == message


def test_the_failure_of_a_pod() -> None:
    row = read(phase="Failed", reason="Evicted", message="disk pressure")

    assert (row.reason, row.message, row.ready) == ("Evicted", "disk pressure", False)


@pytest.mark.parametrize(
    ("annotations", "count"),
    [
        pytest.param(None, 0, id="no annotations"),
        pytest.param({"a": "b"}, 0, id="others"),
        pytest.param({FAILED_BEFORE: "3"}, 3, id="a number"),
        pytest.param({FAILED_BEFORE: "many"}, 0, id="no number"),
    ],
)
def test_the_failure_count_is_read_from_the_annotation(
    annotations: dict[str, str] | None, count: int
) -> None:
    assert pod_from_json(body(annotations=annotations)).failed_before == count


def test_a_row_has_the_extended_resources_of_its_pod() -> None:
    def spec(**limits: Any) -> dict[str, Any]:
        resources = {"limits": limits, "requests": limits}
        return {"containers": [{"name": "pytorch", "image": "i", "resources": resources}]}

    def row(spec: dict[str, Any]) -> Pod:
        return pod_from_json(msgspec.json.encode({**msgspec.json.decode(body()), "spec": spec}))

    assert row(spec(cpu="1")).extended == ()
    first, second = row(spec(cpu="1", **{"nvidia.com/gpu": "8"})), row(spec(**{"nvidia.com/gpu": "8"}))
    assert first.extended == second.extended == (("nvidia.com/gpu", 8),)
    sidecar = {"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"limits": {"a.com/x": 1}}}
    both = {**spec(**{"a.com/x": "1"}), "initContainers": [sidecar]}
    assert row(both).extended == (("a.com/x", 2),)


def test_a_row_names_unhealthy_devices() -> None:
    """Source of the fields: Kubernetes 1.36, core/v1, ResourceStatus (KEP-4680)."""
    devices = [
        {"resourceID": "GPU-1", "health": "Healthy"},
        {"resourceID": "GPU-2", "health": "Unhealthy"},
        {"resourceID": "GPU-3", "health": "Unknown"},
        {"resourceID": "GPU-4"},
    ]
    reported = [{"name": "nvidia.com/gpu", "resources": devices}, {"name": "rdma/ib"}]
    row = read(containerStatuses=[{"name": "pytorch", "allocatedResourcesStatus": reported}])

    assert row.unhealthy_devices == "nvidia.com/gpu GPU-2"
    assert read(containerStatuses=[{"name": "pytorch"}]).unhealthy_devices == ""


def test_a_row_says_when_its_pod_was_scheduled_and_why_it_must_go() -> None:
    moment = "2026-01-01T12:00:00Z"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    row = read(conditions=[scheduled, disrupted])

    assert (row.scheduled_at, row.disruption) == (NOON, "PreemptionByScheduler")
    unset = [{**condition, "status": "False"} for condition in (scheduled, disrupted)]
    assert (read(conditions=unset).scheduled_at, read(conditions=unset).disruption) == (None, "")


def reported(message: str, code: int = 222) -> Exit | None:
    """Return how the previous run of a container that ended with this message is read."""
    ended = {
        "exitCode": code,
        "reason": "Error",
        "message": message,
        "finishedAt": "2026-01-01T12:00:00Z",
    }
    status = {
        "containerStatuses": [{"name": "pytorch", "restartCount": 1, "lastState": {"terminated": ended}}]
    }
    return pod_from_json(body(status)).previous_failure


def test_the_report_of_a_restart_in_place_has_the_exit_code_of_the_command() -> None:
    message = (
        '{"rallypoint": {"attempt": 3, "exitCode": 7, "counted": 2, "pauseSeconds": 11, "message": "why"}}'
    )

    end = reported(message)

    assert end is not None
    assert (end.code, end.message, end.report) == (7, "why", RestartReport(3, 7, 2, 11, "why"))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        pytest.param('{"rallypoint": {"attempt": 3, "exitCode": 7}}', 1, id="another exit code"),
        pytest.param("", 222, id="no message"),
        pytest.param("Traceback", 222, id="no JSON"),
        pytest.param("[]", 222, id="no object"),
        pytest.param('{"rallypoint": {"attempt": 3}}', 222, id="no exit code"),
        pytest.param('{"rallypoint": {"attempt": -1, "exitCode": 7}}', 222, id="a negative attempt"),
        pytest.param('{"rallypoint": {"attempt": 9999999, "exitCode": 7}}', 222, id="too large an attempt"),
        pytest.param('{"rallypoint": {"attempt": 1, "exitCode": 256}}', 222, id="no possible exit code"),
        pytest.param('{"rallypoint": {"attempt": "1", "exitCode": 7}}', 222, id="an attempt as text"),
    ],
)
def test_any_other_message_is_no_report(message: str, code: int) -> None:
    end = reported(message, code)

    assert end is not None
    assert (end.code, end.message, end.report) == (code, message, None)
