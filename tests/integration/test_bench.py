"""``bench controlplane`` once and small: each form of scenario runs and counts, and an error is reported."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from bench import recovery, templates
from bench.__main__ import main
from bench.controlplane.cases import MeasurementOptions, measure
from bench.controlplane.comparison import Measured
from bench.controlplane.comparison import measure as measure_comparison
from bench.controlplane.operators import operators, opponent
from bench.controlplane.report import GROWTH_LABELS, LABELS, START_LABELS, tables
from bench.controlplane.scenario import FEWER_SERVICES, Case, Jobs, parse, take_turns
from bench.controlplane.testbed import control_plane, open_testbed
from rallypoint.testing.controlplane import ControlPlane

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as plane:
        yield plane


def result(plane: ControlPlane, case: Case) -> dict[str, Any]:
    """One run, without its progress lines."""
    (found,) = results(plane, case)
    return found


def results(plane: ControlPlane, *cases: Case) -> list[dict[str, Any]]:
    """One run of each case, in turn."""

    async def run() -> list[dict[str, Any]]:
        async with open_testbed(plane) as testbed:
            return await measure(
                testbed, cases, MeasurementOptions(runs=1, flags=(), profile=False, say=lambda text: None)
            )

    return asyncio.run(run())


@pytest.mark.parametrize(("scenario", "pods"), [("2x2", 4), ("5x2-mixed", 10)])
def test_jobs_with_their_baseline(plane: ControlPlane, scenario: str, pods: int) -> None:
    """The run creates exactly the pods and Services of the jobs, and the API server refuses nothing to the shipped ServiceAccount."""
    found = result(plane, Case(parse(scenario), "compact"))

    (run,), (baseline,) = found["runs"], found["baseline"]
    assert run["refused"] == {}
    assert run["calls_by_kind"]["create pods"] == run["calls_by_kind"]["create services"] == pods
    assert run["events_missing"] == run["jobs_without_all_conditions"] == 0
    assert run.keys() >= LABELS.keys() - {"create_to_succeeded_ms"}
    assert all(value > 0 for value in baseline.values())
    assert baseline.keys() < run.keys()


def test_fewer_services_take_turns_with_the_services_of_the_baseline(plane: ControlPlane) -> None:
    """Each run creates the Services of its mode, and all share a baseline with a Service for each replica."""
    (group,) = take_turns(Case(parse(f"2x3-{mode}"), "compact") for mode in FEWER_SERVICES)
    found = results(plane, *group)

    assert [result["case"] for result in found] == [
        "2x3 compact",
        "2x3-addressed compact",
        "2x3-per-job compact",
    ]
    runs = [run for result in found for run in result["runs"]]
    assert [run["calls_by_kind"]["create services"] for run in runs] == [6, 2, 2]
    assert {run["calls_by_kind"]["create pods"] for run in runs} == {6}
    assert {run["events_missing"] for run in runs} == {0}
    assert [baseline["calls"] for result in found for baseline in result["baseline"]] == [12] * 3


def test_jobs_that_end_at_once_are_measured(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the callbacks of one more run."""
    monkeypatch.setattr(Case, "should_time_callbacks", True)

    found = result(plane, Case(parse("2x2-quick")))

    (run,) = found["runs"]
    assert (run["children_with_event"], run["ends_with_event"], run["events_missing"]) == (8, 2, 0)
    assert run["jobs_without_all_conditions"] == 0
    assert run["create_to_succeeded_ms"] > run["create_to_first_pod_ms"] > 0
    assert found["baseline"] == []
    assert found["callbacks"]["calls"] > 100
    assert found["callbacks"]["cpu_ms"]


@pytest.mark.parametrize("scenario", ["2-finished", "2-foreign", "2-own"])
def test_starts_among_other_objects(
    plane: ControlPlane, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Case, "should_time_callbacks", False)

    found = result(plane, Case(parse(scenario)))

    assert found["without"][0].keys() == found["with"][0].keys() == {*START_LABELS, "start_to_idle_ms"}
    assert found["grown"].keys() == GROWTH_LABELS.keys()
    assert all(value > 0 for value in [*found["without"][0].values(), *found["with"][0].values()])
    assert tables([found])


def test_a_commit_and_the_loader_take_turns_with_the_working_tree() -> None:
    """The commit runs with a flag of its own, and the loader creates the objects of the working tree."""
    measured = Measured()
    compared = operators(["--events=compact"], [opponent("HEAD,--services=addressed")])

    measure_comparison(compared, [Jobs(2, 3)], 1, lambda text: None, measured)

    idle, jobs = measured.results()
    assert list(jobs["operators"]) == ["working tree", "HEAD --services=addressed"]
    ours, theirs = (run for (run,) in jobs["operators"].values())
    (loader,) = jobs["loader"]
    assert [run["calls_by_kind"]["create pods"] for run in (ours, theirs)] == [6, 6]
    assert [run["calls_by_kind"]["create services"] for run in (ours, theirs)] == [6, 2]
    assert loader["calls"] == 12
    assert ours["status_writes_per_job"] >= 2
    assert ours["jobs_without_all_conditions"] == theirs["jobs_without_all_conditions"] == 0
    assert idle["case"] == "idle"
    assert all(value > 0 for (run,) in idle["operators"].values() for value in run.values())


def test_a_controller_that_does_not_start_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controlplane", "--scenario", "1x1", "--no-record", "--", "--no-such-flag"]) == 1

    assert "--no-such-flag" in capsys.readouterr().err


def test_a_recovery_is_measured(plane: ControlPlane) -> None:
    """All figures are there, and all pods have come back."""
    console = Console(quiet=True)
    (run,) = asyncio.run(recovery.measure(plane, [4], 1, console))["4 pods"]

    assert run.keys() == recovery.LABELS.keys()
    assert all(value > 0 for value in run.values())


def test_the_schemas_of_templates_are_measured() -> None:
    """Every definition accepts jobs with templates of every size, and their statuses."""
    with control_plane(install=templates.install) as plane:
        results = asyncio.run(templates.measure(plane, 2, 1, lambda text: None))

    assert len(results) == len(templates.definitions()) * len(templates.SIZES)
    assert all(run.keys() == templates.LABELS.keys() for (run,) in results.values())
    assert all(value > 0 for (run,) in results.values() for value in run.values())
