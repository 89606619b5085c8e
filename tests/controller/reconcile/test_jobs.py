"""Jobs as rows: read once from the wire, understood when a pass needs them."""

from typing import Any

import msgspec
import orjson
import pytest

from api.job import Job
from api.v1.pytorchjob import PyTorchJob
from controller.reconcile.jobs import JobRow, job_from_json, parse
from rallypoint.testing.builders import pytorch_job

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def row(**fields: Any) -> JobRow:
    """The row of a job; None takes a field away."""
    whole = {**pytorch_job().to_wire(), **fields}
    return job_from_json(orjson.dumps({key: value for key, value in whole.items() if value is not None}))


def parsed(**fields: Any) -> tuple[Job, list[str]]:
    job, problems = parse(row(**fields), PyTorchJob, "PyTorchJob")
    return job, [str(one) for one in problems]


def test_a_job_is_read_into_a_row() -> None:
    one = row(
        metadata={
            "name": "train",
            "namespace": "ml",
            "uid": "u",
            "resourceVersion": "42",
            "generation": 3,
            "deletionTimestamp": "2026-01-01T12:00:00Z",
        }
    )

    assert (one.namespace, one.name, one.uid) == ("ml", "train", "u")
    assert (one.resource_version, one.generation, one.deleting) == (42, 3, True)


@pytest.mark.parametrize(
    ("spec", "is_suspended"),
    [
        pytest.param({"runPolicy": {"suspend": True}}, True, id="suspended"),
        pytest.param({"runPolicy": {"suspend": False}}, False, id="running"),
        pytest.param({"runPolicy": {}}, False, id="a policy without it"),
        pytest.param({}, False, id="no policy"),
        pytest.param({"runPolicy": {"suspend": "true"}}, False, id="a string"),
        pytest.param({"runPolicy": "suspend"}, False, id="a policy that is no object"),
        pytest.param({"note": '{"suspend":true}', "template": {"suspend": True}}, False, id="elsewhere"),
    ],
)
def test_a_row_says_whether_the_job_is_suspended(spec: dict[str, Any], is_suspended: bool) -> None:
    assert row(spec=spec).is_suspended is is_suspended


@pytest.mark.parametrize(
    ("status", "has_conditions"),
    [
        pytest.param({"conditions": [{"type": "Created"}]}, True, id="conditions"),
        pytest.param({"conditions": ["Created"]}, True, id="malformed conditions"),
        pytest.param({"conditions": []}, False, id="an empty list"),
        pytest.param({"conditions": "Created"}, False, id="no list"),
        pytest.param({"replicaStatuses": {"a": {"conditions": 1}}}, False, id="elsewhere"),
        pytest.param(None, False, id="no status"),
    ],
)
def test_a_row_says_whether_the_status_has_conditions(
    status: dict[str, Any] | None, has_conditions: bool
) -> None:
    assert row(status=status).has_conditions is has_conditions


UNREADABLE: dict[str, Any] = {
    "startTime": 5,
    "completionTime": "soon",
    "conditions": [
        {"type": "Created", "status": "True", "lastTransitionTime": "then"},
        {"type": "Running"},
        "Failed",
    ],
    "replicaStatuses": {"Worker": {"active": 2, "failed": "many"}},
}


def test_a_status_that_cannot_be_read_names_its_fields() -> None:
    _, problems = parsed(status=UNREADABLE)

    assert sorted(one.split(": ")[0] for one in problems) == [
        "status.completionTime",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[1].status",
        "status.conditions[2]",
        "status.replicaStatuses.Worker.failed",
        "status.startTime",
    ]


def test_of_a_status_that_cannot_be_read_the_rest_is_known() -> None:
    job, _ = parsed(status=UNREADABLE)

    assert job.status
    assert job.status.to_wire() == {
        "conditions": [{"type": "Created", "status": "True"}],
        "replicaStatuses": {"Worker": {"active": 2}},
    }


def test_a_status_that_is_none_at_all_is_one_problem() -> None:
    job, problems = parsed(status="Running")

    assert job.status is None
    assert [one.split(": ")[0] for one in problems] == ["status"]


def test_a_spec_and_a_status_may_both_be_wrong() -> None:
    _, problems = parsed(spec={"pytorchReplicaSpecs": 1}, status={"startTime": 5})

    assert [one.split(": ")[0] for one in problems] == ["status.startTime", "spec.pytorchReplicaSpecs"]


def test_what_no_decision_needs_is_left_behind() -> None:
    metadata = {
        "name": "train",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {LAST_APPLIED: "{}", "mine": "x"},
    }

    assert orjson.loads(row(metadata=metadata).metadata)["annotations"] == {"mine": "x"}
    assert b"managedFields" not in row(metadata=metadata).metadata


@pytest.mark.parametrize(
    ("applied", "kept"),
    [
        (
            {"apiVersion": "kubeflow.org/v1", "kind": "X", "spec": {"a": 1}},
            {"apiVersion": "kubeflow.org/v1", "spec": {}},
        ),
        (
            {"apiVersion": "kubeflow.org/v1", "spec": {"flavor": "v2beta1", "a": [{}]}},
            {"apiVersion": "kubeflow.org/v1", "spec": {"flavor": "v2beta1"}},
        ),
        ({"apiVersion": 1}, None),
        ({"apiVersion": "kubeflow.org/v1", "spec": None}, None),
    ],
)
def test_of_what_was_applied_last_only_its_version_is_kept(
    applied: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    metadata = {"name": "train", "annotations": {LAST_APPLIED: orjson.dumps(applied).decode()}}

    annotations = orjson.loads(row(metadata=metadata).metadata).get("annotations", {})

    assert annotations == ({} if kept is None else {LAST_APPLIED: orjson.dumps(kept).decode()})


def test_a_job_goes_through_a_row_unharmed() -> None:
    before = pytorch_job(
        nprocPerNode="2", run_policy={"backoffLimit": 1}, status={"conditions": [], "byAnother": 1}
    )

    after, problems = parse(job_from_json(orjson.dumps(before.to_wire())), PyTorchJob, "PyTorchJob")

    assert problems == ()
    assert after.spec.to_wire() == before.spec.to_wire()
    assert after.status is not None
    assert after.status.to_wire() == {"conditions": [], "byAnother": 1}
    assert (after.kind, after.metadata.name, after.metadata.uid) == (
        "PyTorchJob",
        "train",
        before.metadata.uid,
    )


@pytest.mark.parametrize("status", [None, {}], ids=["none", "empty"])
def test_a_job_without_status_has_none(status: Any) -> None:
    assert parsed(status=status)[0].status is None


def test_a_job_without_spec_can_be_read() -> None:
    job, problems = parsed(spec=None)

    assert isinstance(job, PyTorchJob)
    assert problems == []
    assert job.spec.pytorch_replica_specs is None


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        pytest.param(
            {"nprocPerNode": 4},
            ["spec.nprocPerNode: Invalid value: Input should be a valid string"],
            id="a number for a text",
        ),
        pytest.param(
            {"pytorchReplicaSpecs": {"Worker": {"replicas": "many"}}},
            [
                "spec.pytorchReplicaSpecs.Worker.replicas: Invalid value: Input should be a valid integer, unable to parse string as an integer"
            ],
            id="a text for a number",
        ),
        pytest.param(
            {"elasticPolicy": {"rdzvConf": [{"key": 1}]}},
            ["spec.elasticPolicy.rdzvConf[0].key: Invalid value: Input should be a valid string"],
            id="deep in a list",
        ),
        pytest.param(
            "nonsense",
            [
                "spec: Invalid value: Input should be a valid dictionary or instance of PyTorchJobSpec",
            ],
            id="no object at all",
        ),
    ],
)
def test_a_spec_that_cannot_be_read_is_a_problem_with_its_field(spec: Any, problems: list[str]) -> None:
    job, found = parsed(spec=spec)

    assert found == problems
    assert isinstance(job, PyTorchJob)
    assert job.spec.to_wire() == {}


def test_all_unreadable_fields_are_named() -> None:
    _, found = parsed(spec={"nprocPerNode": 4, "runPolicy": {"suspend": "maybe"}})

    assert [one.split(":")[0] for one in found] == ["spec.runPolicy.suspend", "spec.nprocPerNode"]


def test_an_unreadable_spec_still_says_whose_it_is_and_whether_it_is_suspended() -> None:
    job, found = parsed(spec={"nprocPerNode": 4, "runPolicy": {"suspend": True, "managedBy": "kueue"}})

    assert len(found) == 1
    assert (job.spec.policy.suspend, job.spec.policy.managed_by) == (True, "kueue")


def test_of_an_unreadable_spec_plain_text_is_kept() -> None:
    """By it some kinds tell whose behaviour a job gets."""
    job, problems = parsed(spec={"flavor": "x", "nprocPerNode": "4", "elasticPolicy": "none"})

    assert [one.partition(":")[0] for one in problems] == ["spec.elasticPolicy"]
    assert job.spec.to_wire() == {"flavor": "x", "nprocPerNode": "4"}


def test_an_unreadable_run_policy_is_not_half_believed() -> None:
    job, _ = parsed(spec={"runPolicy": {"suspend": "maybe", "managedBy": "kueue"}})

    assert job.spec.policy.managed_by is None


def test_the_status_survives_an_unreadable_spec() -> None:
    job, _ = parsed(spec={"nprocPerNode": 4}, status={"startTime": "2026-01-01T12:00:00Z"})

    assert job.status is not None
    assert job.status.start_time is not None


@pytest.mark.parametrize("raw", [b"", b"3", b"{}", b'{"metadata": {"resourceVersion": 1}}'])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        job_from_json(raw)
