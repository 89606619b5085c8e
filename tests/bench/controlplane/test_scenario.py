"""Scenarios as data, and the jobs that they are made of."""

import pytest

from api.v1.pytorchjob import PyTorchJob
from bench.controlplane.scenario import SCENARIOS, Scenario, manifest, parse


def test_scenarios_are_found_by_name() -> None:
    assert SCENARIOS["1x64"] == parse("1x64") == Scenario(jobs=1, replicas=64)
    assert {name: scenario.name for name, scenario in SCENARIOS.items()} == {name: name for name in SCENARIOS}


@pytest.mark.parametrize("name", ["", "8", "0x8", "1x0", "1x", "axb", "-1x8"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(name)


@pytest.mark.parametrize(
    ("replicas", "roles"),
    [
        pytest.param(1, {"Master": 1}, id="alone"),
        pytest.param(64, {"Master": 1, "Worker": 63}, id="with workers"),
    ],
)
def test_a_job_has_a_master_and_the_rest_are_workers(replicas: int, roles: dict[str, int]) -> None:
    job = PyTorchJob.model_validate(manifest(Scenario(1, replicas), "job", ("here", "there")))

    specs = job.spec.pytorch_replica_specs or {}
    assert {role: spec.replicas for role, spec in specs.items()} == roles
    assert [spec.template["spec"]["nodeName"] for spec in specs.values() if spec.template] == [
        "here",
        "there",
    ][: len(roles)]


def test_names_of_jobs_have_one_length() -> None:
    names = Scenario(jobs=200, replicas=2).job_names("run")

    assert len(set(names)) == 200
    assert {len(name) for name in names} == {len("run-0000")}
