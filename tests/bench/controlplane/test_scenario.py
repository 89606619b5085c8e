"""Scenarios and their jobs."""

from typing import Any

import pytest

from api.names import child_name
from api.services import ServiceMode
from api.v1.pytorchjob import PyTorchJob
from bench.controlplane.scenario import (
    CASES,
    EXIT_ANNOTATIONS,
    NODES,
    Case,
    Jobs,
    Large,
    Preexisting,
    Scenario,
    Start,
    manifest,
    parse,
    take_turns,
)
from controller.kind import Options, ReplicaKind
from controller.kinds import DEFAULT


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        pytest.param("1x64", Jobs(jobs=1, replicas=64), id="one job"),
        pytest.param("100x8-mixed", Jobs(jobs=100, replicas=8, mixed=True), id="jobs of all kinds"),
        pytest.param(
            "100x8-per-job", Jobs(jobs=100, replicas=8, service_mode=ServiceMode.PER_JOB), id="fewer Services"
        ),
        pytest.param("50x8-mpi", Jobs(jobs=50, replicas=8, mpi=True), id="MPIJobs"),
        pytest.param("200x2-quick", Jobs(jobs=200, replicas=2, quick=True), id="jobs that end at once"),
        pytest.param("10000-foreign", Start(10_000, Preexisting.FOREIGN), id="a start among foreign pods"),
        pytest.param("1000-finished", Start(1_000, Preexisting.FINISHED), id="a start among finished jobs"),
        pytest.param("10000-own", Start(10_000, Preexisting.OWN), id="a start among own pods"),
        pytest.param("10000-large", Large(10_000), id="one large job"),
    ],
)
def test_a_name_defines_a_scenario(name: str, scenario: Scenario) -> None:
    assert parse(name) == scenario
    assert scenario.name == name


@pytest.mark.parametrize(
    "name",
    ["", "8", "0x8", "1x0", "1x", "axb", "-1x8", "1x8-slow", "0-own", "7-others", "1x8-mixed-per-job"],
)
def test_other_names_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse(name)


def test_names_of_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("case", "baseline", "timed"),
    [
        pytest.param(Case(parse("100x8")), True, True, id="many jobs"),
        pytest.param(Case(parse("100x8"), "off"), True, False, id="with other events"),
        pytest.param(Case(parse("1x8")), True, False, id="little at once"),
        pytest.param(Case(parse("1x8"), calls_only=True), False, False, id="only calls"),
        pytest.param(Case(parse("200x2-quick")), False, True, id="jobs that end at once"),
        pytest.param(Case(parse("9-own")), False, True, id="a start"),
    ],
)
def test_what_a_case_needs(case: Case, baseline: bool, timed: bool) -> None:
    assert (case.baseline, case.should_time_callbacks) == (baseline, timed)


def test_modes_of_services_take_turns_after_a_service_for_each_replica() -> None:
    cases = [Case(parse(name), "compact") for name in ("1x8-per-job", "2x8-addressed", "2x8", "9-own")]
    other_events = Case(parse("1x8-per-job"))

    groups = take_turns([*cases, other_events])

    assert [[case.name for case in group] for group in groups] == [
        ["1x8 compact", "1x8-per-job compact"],
        ["2x8 compact", "2x8-addressed compact"],
        ["9-own compact"],
        ["1x8 full", "1x8-per-job full"],
    ]


@pytest.mark.parametrize(
    ("mode", "services"),
    [(ServiceMode.PER_REPLICA, 24), (ServiceMode.ADDRESSED, 3), (ServiceMode.PER_JOB, 3)],
)
def test_the_services_of_a_mode(mode: ServiceMode, services: int) -> None:
    assert Jobs(3, 8, service_mode=mode).services == services


@pytest.mark.parametrize(
    ("replicas", "roles"),
    [
        pytest.param(1, {"Master": 1}, id="alone"),
        pytest.param(64, {"Master": 1, "Worker": 63}, id="with workers"),
    ],
)
def test_a_job_has_a_master_and_the_rest_are_workers(replicas: int, roles: dict[str, int]) -> None:
    job = PyTorchJob.model_validate(manifest(Jobs(1, replicas), "job"))

    specs = job.spec.pytorch_replica_specs or {}
    templates = [spec.template or {} for spec in specs.values()]
    assert {role: spec.replicas for role, spec in specs.items()} == roles
    assert [template["spec"]["nodeName"] for template in templates] == list(NODES[: len(roles)])
    assert [template["metadata"]["annotations"] for template in templates] == [{}] * len(roles)


def test_pods_of_quick_jobs_end_by_themselves() -> None:
    roles = manifest(Jobs(1, 2, quick=True), "job")["spec"]["pytorchReplicaSpecs"]

    assert [role["template"]["metadata"]["annotations"] for role in roles.values()] == [
        EXIT_ANNOTATIONS,
        EXIT_ANNOTATIONS,
    ]


REPLICATED: list[Any] = [kind for kind in DEFAULT if isinstance(kind, ReplicaKind)]


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("kind", REPLICATED, ids=lambda kind: kind.resource.kind)
def test_mixed_jobs_are_of_each_kind_in_turn(kind: ReplicaKind[Any], replicas: int) -> None:
    mixed = Jobs(10, replicas, mixed=True)
    found = [manifest(mixed, name) for name in mixed.job_names("run")]

    first, second = (manifest for manifest in found if manifest["kind"] == kind.resource.kind)
    job = kind.model.model_validate(first)
    assert kind.problems(job, Options()) == []
    assert first["spec"] == second["spec"]
    pods = {
        child_name(first["metadata"]["name"], role.label, index)
        for role in kind.roles(job).values()
        for index in range(role.replicas)
    }
    deciding_pods = mixed.job_kind(first["metadata"]["name"]).deciding_pods(
        first["metadata"]["name"], replicas, ()
    )
    assert len(pods) == replicas
    assert pods >= set(deciding_pods) > set()


def test_all_job_names_have_the_same_length() -> None:
    names = Jobs(jobs=200, replicas=2).job_names("run")

    assert len(set(names)) == 200
    assert {len(name) for name in names} == {len("run-0000")}


def test_an_mpi_job_has_a_launcher_beside_its_workers() -> None:
    scenario = Jobs(2, 3, mpi=True, quick=True)
    job = manifest(scenario, "job-0000")
    roles = job["spec"]["mpiReplicaSpecs"]

    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert {role: spec["replicas"] for role, spec in roles.items()} == {"Launcher": 1, "Worker": 3}
    assert roles["Launcher"]["template"]["metadata"]["annotations"] == EXIT_ANNOTATIONS
    assert roles["Worker"]["template"]["metadata"]["annotations"] == {}
    assert (scenario.pods, scenario.services) == (8, 2)
    pods = ["job-0000-worker-0", "job-0000-launcher-x7k2p", "job-0001-launcher-abcde"]
    assert scenario.job_kind("job-0000").deciding_pods("job-0000", 3, pods) == ["job-0000-launcher-x7k2p"]
