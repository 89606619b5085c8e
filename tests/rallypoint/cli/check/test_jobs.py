"""What is kept of each job, and what the jobs mean for a switch, a rollback and an uninstall."""

from dataclasses import replace
from typing import Any

import pytest

from api.batch import BatchJob
from rallypoint.cli.check.findings import Level
from rallypoint.cli.check.go_operators import GO_OPERATORS
from rallypoint.cli.check.jobs import (
    JobSummary,
    compiled_schemas,
    problem,
    return_findings,
    summaries,
    summary,
    uninstall_findings,
    unserved_findings,
    validation_findings,
)
from rallypoint.cli.check.operators import Operator, find_operators

TRAINING, MPI = GO_OPERATORS["training-operator"], GO_OPERATORS["mpi-operator"]
JOB = JobSummary("JAXJob", "n", "j", "u", False, False, False, "", ())


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return compiled_schemas()


def jax(version: str = "v1", **role: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "jax", "image": "none"}]}}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "JAXJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"jaxReplicaSpecs": {"Worker": {"template": template, **role}}},
        "status": {"replicaStatuses": {"Worker": {"active": 1}}},
    }


def test_a_valid_job_has_no_problem(schemas: dict[str, Any]) -> None:
    assert problem(jax(), schemas) == ""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(jax(replicas="two"), "replicas", id="a wrong type"),
        pytest.param(jax(template={"spec": {"containers": []}}), "spec", id="a rule"),
        pytest.param(jax("v1beta9"), "not a version of JAXJob", id="an unknown version"),
    ],
)
def test_an_invalid_job_has_its_first_problem(
    schemas: dict[str, Any], body: dict[str, Any], says: str
) -> None:
    assert says in problem(body, schemas)


def test_the_problem_of_one_job_is_not_that_of_another(schemas: dict[str, Any]) -> None:
    """The rules share one context, which each job fills anew."""
    bodies = [jax(), jax(template={"spec": {"containers": []}})] * 50

    assert [bool(problem(body, schemas)) for body in bodies] == [False, True] * 50


def test_a_finished_job_is_not_inspected(schemas: dict[str, Any]) -> None:
    over = {**jax(replicas="two"), "status": {"conditions": [{"type": "Failed", "status": "True"}]}}

    assert summary(over, schemas=schemas).problem == ""
    assert summary(jax(replicas="two"), schemas=schemas).problem != ""


@pytest.mark.parametrize(
    "spec", ["text", {"jaxReplicaSpecs": "text"}, {"jaxReplicaSpecs": {"Worker": "text"}}]
)
def test_a_job_of_any_shape_stops_nothing(schemas: dict[str, Any], spec: Any) -> None:
    odd, fine = {**jax(), "spec": spec}, jax()

    first, second = summaries((), None, {}, schemas, [odd, fine])
    assert (bool(first.problem), second.problem) == (True, "")
    (first,) = summaries(["training-operator"], None, {}, {}, [odd])
    assert Level.UNKNOWN in [finding.level for finding in return_findings(TRAINING, [first])]


def test_what_a_summary_keeps() -> None:
    body = jax()
    body["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "q"}, "finalizers": ["f"]}
    found = summary(body)

    assert (found.full_name, found.queue, found.finalizers, found.has_pods) == (
        "JAXJob n/j",
        "q",
        ("f",),
        True,
    )
    assert found.template["spec"]["containers"][0]["name"] == "jax"


def test_an_mpijob_is_judged_by_its_own_launcher() -> None:
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "n", "uid": "u"},
        "spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}},
    }
    launcher = BatchJob("n", "pi-launcher", "b", 1, owner_uid="u")

    assert summary(body, [TRAINING], None, {"other": [launcher]}).harms == {}
    assert "second launcher" in summary(body, [TRAINING], None, {"u": [launcher]}).harms["training-operator"]


def test_fields_count_only_for_the_operator_that_runs_the_job() -> None:
    body = jax()
    body["spec"]["future"] = 1

    assert summary(body, [TRAINING, MPI]).dropped == {"training-operator": ["spec.future"]}


@pytest.mark.parametrize(
    ("version", "annotation", "field", "flavor"),
    [
        ("v1", None, None, "v1"),
        ("v2beta1", None, None, "v2beta1"),
        ("v1", None, "v2beta1", "v2beta1"),
        ("v1", "v1alpha2", "v1", "v1alpha2"),
    ],
)
def test_the_flavor_of_an_mpijob(
    version: str, annotation: str | None, field: str | None, flavor: str
) -> None:
    annotations = {"kubeflow.org/mpi-flavor": annotation} if annotation else {}
    body = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "annotations": annotations},
        "spec": {"flavor": field} if field else {},
    }

    assert summary(body).flavor == flavor


def levels(findings: Any) -> list[tuple[str, Level]]:
    return [(finding.check, finding.level) for finding in findings]


def test_the_way_back() -> None:
    harmed = replace(JOB, harms={"training-operator": "twice"})
    dropping = replace(JOB, dropped={"training-operator": ["spec.a"]})
    other = replace(JOB, kind="MPIJob", other_managers={"training-operator": "mpi-operator"})

    assert levels(return_findings(TRAINING, [JOB])) == [("harm", Level.OK), ("fields", Level.OK)]
    assert levels(return_findings(TRAINING, [harmed, dropping, other])) == [
        ("harm", Level.BLOCKER),
        ("fields", Level.BLOCKER),
        ("managers", Level.WARNING),
    ]
    assert levels(return_findings(MPI, [harmed, dropping])) == [("harm", Level.OK), ("fields", Level.OK)]


def test_invalid_jobs_are_listed_and_counted() -> None:
    invalid = [replace(JOB, name=f"j{number}", problem="spec: no") for number in range(5)]
    found = list(validation_findings(invalid))

    assert found[-1].text.startswith("further jobs that are not valid (2): ")
    assert len(found) == 4
    assert levels(validation_findings([JOB])) == [("validation", Level.OK)]


def test_what_an_uninstall_leaves() -> None:
    running, held = replace(JOB, has_pods=True), replace(JOB, finalizers=("f",), is_finished=True)

    assert [finding.check for finding in uninstall_findings([running, JOB, held])] == [
        "jobs",
        "jobs",
        "finalizers",
        "jobs",
    ]
    assert list(uninstall_findings([])) == []


def operator(*arguments: str, replicas: int = 1) -> Operator:
    container = {"image": "rallypoint:1", "args": list(arguments)}
    body: dict[str, Any] = {
        "metadata": {"name": "training-operator", "namespace": "n"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }
    (found,) = find_operators([body])
    return found


@pytest.mark.parametrize(
    ("operators", "is_served"),
    [
        pytest.param([operator()], True, id="all namespaces"),
        pytest.param([operator("--namespace=n")], True, id="the namespace of the job"),
        pytest.param([operator("--namespace=m")], False, id="another namespace"),
        pytest.param([operator("--enable-scheme=TFJob")], False, id="another kind"),
        pytest.param([operator("--namespace=m"), operator("--namespace=n")], True, id="one of two"),
        pytest.param([operator("--namespace=m"), operator("--shadow")], False, id="a shadow alone"),
        pytest.param([operator("--shadow")], True, id="no operator that writes"),
        pytest.param([operator("--namespace=m", replicas=0)], True, id="a stopped operator"),
    ],
)
def test_a_job_that_no_operator_serves(operators: list[Operator], *, is_served: bool) -> None:
    found = list(unserved_findings(operators, [JOB]))

    assert levels(found) == ([] if is_served else [("jobs", Level.WARNING)])
    assert all("JAXJob n/j" in finding.text for finding in found)
