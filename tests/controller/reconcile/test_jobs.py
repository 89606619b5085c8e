"""Jobs as rows: decoded once, parsed when a reconcile needs them."""

from typing import Any

import msgspec
import orjson
import pytest

from api.job import Job
from api.v1.pytorchjob import PyTorchJob
from controller.reconcile.jobs import JobParser, JobRow, job_from_json, parse, stored_status
from tests.support.builders import pytorch_job

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def row(**fields: Any) -> JobRow:
    """The row of a job; None takes a field away."""
    whole = {**pytorch_job().to_wire(), **fields}
    return job_from_json(orjson.dumps({key: value for key, value in whole.items() if value is not None}))


def parsed(**fields: Any) -> tuple[Job, list[str]]:
    job, problems = parse(row(**fields), PyTorchJob, "PyTorchJob")
    return job, [str(problem) for problem in problems]


def test_a_job_is_parsed_into_a_row() -> None:
    job_row = row(
        metadata={
            "name": "train",
            "namespace": "ml",
            "uid": "u",
            "resourceVersion": "42",
            "generation": 3,
            "deletionTimestamp": "2026-01-01T12:00:00Z",
        }
    )

    assert (job_row.namespace, job_row.name, job_row.uid) == ("ml", "train", "u")
    assert (job_row.resource_version, job_row.generation, job_row.deleting) == (42, 3, True)


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


def test_the_stored_status_of_a_row_is_read_without_its_model() -> None:
    running = {"type": "Running", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    status = stored_status(row(status={"conditions": [running], "completionTime": "2026-01-01T13:00:00Z"}))

    found = status.find("Running", "True")
    assert found is not None
    assert found.last_transition_time == "2026-01-01T12:00:00Z"
    assert status.find("Running", "False") is None
    assert status.completion_time == "2026-01-01T13:00:00Z"


@pytest.mark.parametrize("status", [None, {"conditions": "none"}, {"conditions": [{"type": 1}]}])
def test_a_missing_or_malformed_stored_status_is_empty(status: Any) -> None:
    assert stored_status(row(status=status)).find("Running", "True") is None


def test_problems_name_the_fields_of_an_invalid_status() -> None:
    _, problems = parsed(status=UNREADABLE)

    assert sorted(problem.split(": ")[0] for problem in problems) == [
        "status.completionTime",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[1].status",
        "status.conditions[2]",
        "status.replicaStatuses.Worker.failed",
        "status.startTime",
    ]


def test_the_readable_fields_of_an_invalid_status_are_parsed() -> None:
    job, _ = parsed(status=UNREADABLE)

    assert job.status
    assert job.status.to_wire() == {
        "conditions": [{"type": "Created", "status": "True"}],
        "replicaStatuses": {"Worker": {"active": 2}},
    }


def test_a_status_that_is_not_an_object_is_a_single_problem() -> None:
    job, problems = parsed(status="Running")

    assert job.status is None
    assert [problem.split(": ")[0] for problem in problems] == ["status"]


def test_an_invalid_spec_and_status_are_both_reported() -> None:
    _, problems = parsed(spec={"pytorchReplicaSpecs": 1}, status={"startTime": 5})

    assert [problem.split(": ")[0] for problem in problems] == [
        "status.startTime",
        "spec.pytorchReplicaSpecs",
    ]


def test_a_row_drops_fields_that_no_decision_needs() -> None:
    metadata = {
        "name": "train",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {LAST_APPLIED: "{}", "mine": "x"},
    }

    assert orjson.loads(row(metadata=metadata).metadata)["annotations"] == {"mine": "x"}
    assert b"managedFields" not in row(metadata=metadata).metadata


@pytest.mark.parametrize(
    ("applied", "expected"),
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
def test_a_row_keeps_only_the_api_version_of_the_last_applied_configuration(
    applied: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    metadata = {"name": "train", "annotations": {LAST_APPLIED: orjson.dumps(applied).decode()}}

    annotations = orjson.loads(row(metadata=metadata).metadata).get("annotations", {})

    assert annotations == ({} if expected is None else {LAST_APPLIED: orjson.dumps(expected).decode()})


def test_a_job_survives_the_conversion_to_a_row() -> None:
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
def test_an_invalid_spec_is_a_problem_that_names_the_field(spec: Any, problems: list[str]) -> None:
    job, found = parsed(spec=spec)

    assert found == problems
    assert isinstance(job, PyTorchJob)
    assert job.spec.to_wire() == {}


def test_all_unreadable_fields_are_named() -> None:
    _, found = parsed(spec={"nprocPerNode": 4, "runPolicy": {"suspend": "maybe"}})

    assert [problem.split(":")[0] for problem in found] == ["spec.runPolicy.suspend", "spec.nprocPerNode"]


def test_an_invalid_spec_still_yields_managed_by_and_suspend() -> None:
    job, found = parsed(spec={"nprocPerNode": 4, "runPolicy": {"suspend": True, "managedBy": "kueue"}})

    assert len(found) == 1
    assert (job.spec.policy.suspend, job.spec.policy.managed_by) == (True, "kueue")


def test_string_fields_of_an_invalid_spec_are_preserved() -> None:
    """Some kinds choose their behavior by such a field."""
    job, problems = parsed(spec={"flavor": "x", "nprocPerNode": "4", "elasticPolicy": "none"})

    assert [problem.partition(":")[0] for problem in problems] == ["spec.elasticPolicy"]
    assert job.spec.to_wire() == {"flavor": "x", "nprocPerNode": "4"}


def test_an_invalid_run_policy_is_ignored_as_a_whole() -> None:
    job, _ = parsed(spec={"runPolicy": {"suspend": "maybe", "managedBy": "kueue"}})

    assert job.spec.policy.managed_by is None


def test_the_status_survives_an_unreadable_spec() -> None:
    job, _ = parsed(spec={"nprocPerNode": 4}, status={"startTime": "2026-01-01T12:00:00Z"})

    assert job.status is not None
    assert job.status.start_time is not None


@pytest.mark.parametrize("raw", [b"", b"3", b"{}", b'{"metadata": {"resourceVersion": 1}}'])
def test_json_that_is_not_an_object_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        job_from_json(raw)


def test_a_job_is_parsed_once_for_each_version() -> None:
    parser, job_row = JobParser(PyTorchJob, "PyTorchJob"), row()

    job, problems = parser.parse(job_row)

    assert not problems
    assert parser.parse(job_row)[0] is job


def test_an_unchanged_spec_is_not_parsed_again() -> None:
    parser = JobParser(PyTorchJob, "PyTorchJob")
    job, _ = parser.parse(row())

    later, problems = parser.parse(row(status={"startTime": "2026-01-01T12:00:00Z"}))

    assert not problems
    assert later.spec is job.spec
    assert later.status is not None
    assert later.status.start_time is not None


def test_a_changed_spec_is_parsed() -> None:
    parser = JobParser(PyTorchJob, "PyTorchJob")
    parser.parse(row())

    job, problems = parser.parse(row(spec={"runPolicy": {"suspend": True}}))

    assert not problems
    assert job.spec.policy.suspend is True


def test_problems_are_found_each_time() -> None:
    parser, broken = JobParser(PyTorchJob, "PyTorchJob"), row(spec={"runPolicy": {"suspend": "perhaps"}})

    assert [str(problem) for problem in parser.parse(broken)[1]] == parsed(
        spec={"runPolicy": {"suspend": "perhaps"}}
    )[1]
    assert parser.parse(broken)[1]


def test_a_status_that_cannot_be_read_does_not_hide_the_known_spec() -> None:
    parser = JobParser(PyTorchJob, "PyTorchJob")
    job, _ = parser.parse(row())

    broken, problems = parser.parse(row(status={"startTime": "noon"}))

    assert [problem.field for problem in problems] == ["status.startTime"]
    assert broken.spec == job.spec


def test_a_parser_keeps_no_more_specs_than_fit() -> None:
    first, second = (row(metadata={"name": name, "uid": name}) for name in ("a", "b"))
    size_bytes = len(first.metadata) + len(first.spec) + len(first.status)
    parser = JobParser(PyTorchJob, "PyTorchJob", most_bytes=size_bytes * 3 // 2)
    job, _ = parser.parse(first)

    parser.parse(second)

    assert parser.parse(first)[0].spec is not job.spec


def test_a_large_job_does_not_displace_the_others() -> None:
    small, large = row(), row(metadata={"name": "b", "uid": "b", "annotations": {"note": "x" * 10_000}})
    parser = JobParser(PyTorchJob, "PyTorchJob", most_bytes=5_000)
    job, _ = parser.parse(small)

    parser.parse(large)

    assert parser.parse(small)[0] is job
    assert parser.parse(large)[0] is not parser.parse(large)[0]


def test_a_deleted_job_is_dropped() -> None:
    parser, job_row = JobParser(PyTorchJob, "PyTorchJob"), row()
    job, _ = parser.parse(job_row)

    parser.discard(job_row.uid)

    assert parser.parse(job_row)[0].spec is not job.spec
