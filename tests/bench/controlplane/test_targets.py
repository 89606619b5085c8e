"""Targets and their evaluation."""

from typing import Any

import pytest

from bench.controlplane.scenario import CASES
from bench.controlplane.targets import TARGETS, evaluate_targets, ratios


def runs(**figures: Any) -> dict[str, Any]:
    return {"runs": [figures] * 3, "baseline": []}


def starts(**mib: float) -> dict[str, Any]:
    return {
        "without": [{"rss_mib": mib["without"], "start_to_first_pod_ms": 700.0}] * 3,
        "with": [{"rss_mib": mib["with_them"], "start_to_first_pod_ms": 900.0}] * 3,
        "grown": {"rss_before_mib": 50.0, "rss_after_mib": mib["after"]},
    }


def verdicts(results: dict[str, Any]) -> dict[tuple[str, str], tuple[float, bool]]:
    return {
        (verdict.target.case, verdict.target.figure): (verdict.measured, verdict.is_met)
        for verdict in evaluate_targets(results)
    }


def test_every_target_has_a_default_case() -> None:
    assert {target.case for target in TARGETS} <= {case.name for case in CASES} | {"any", "all"}


def test_without_results_no_target_is_evaluated() -> None:
    assert evaluate_targets({}) == []


def test_mixed_kinds_are_compared_with_a_single_kind() -> None:
    results = {
        "100x8 full": runs(calls_per_job=40.0, controller_cpu_per_pod_ms=2.0),
        "100x8-mixed full": runs(calls_per_job=42.0, controller_cpu_per_pod_ms=2.5),
    }
    found = verdicts(results)

    assert found["100x8-mixed full", "calls per job, × PyTorchJob's"] == (42.0 / 40.0, True)
    assert found["100x8-mixed full", "CPU per pod, × PyTorchJob's"] == (2.5 / 2.0, False)


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    pairs = [(100.0, 50.0), (90.0, 90.0), (130.0, 100.0)]
    result = {
        "runs": [{"create_to_running_ms": ours} for ours, _ in pairs],
        "baseline": [{"create_to_pods_running_ms": below} for _, below in pairs],
    }

    assert ratios(result, "create_to_running_ms", "create_to_pods_running_ms") == [2.0, 1.0, 1.3]
    assert verdicts({"1x256 full": result})["1x256 full", "create → Running in status, × baseline"] == (
        1.3,
        True,
    )


@pytest.mark.parametrize(("calls", "is_met"), [(22, True), (23, False)])
def test_a_value_equal_to_the_maximum_meets_the_target(calls: int, is_met: bool) -> None:
    assert verdicts({"1x8 compact": runs(calls=calls)}) == {
        ("1x8 compact", "API calls, whole life"): (calls, is_met)
    }


def test_a_single_occurrence_misses_a_target_of_zero() -> None:
    result = runs(jobs_without_all_conditions=0, events_missing=0)
    result["runs"] = [*result["runs"], {"jobs_without_all_conditions": 1, "events_missing": 0}]

    found = verdicts({"200x2-quick full": result})
    assert found["200x2-quick full", "jobs without all conditions"] == (1, False)
    assert found["200x2-quick full", "events missing"] == (0, True)


def test_foreign_pods_are_compared_with_a_start_without_them() -> None:
    found = verdicts({"10000-foreign full": starts(without=50.0, with_them=53.0, after=51.5)})

    assert found["10000-foreign full", "RSS growth while they arrive, MiB"] == (1.5, True)
    assert found["10000-foreign full", "RSS of a start, above one without them, MiB"] == (3.0, False)
    assert found["any", "RSS idle, MiB"] == (50.0, True)


def test_the_longest_callback_of_all_cases_counts() -> None:
    results = {
        "1x256 full": {"runs": [], "baseline": [], "callbacks": {"cpu_ms": {"a": 20.0, "b": 3.0}}},
        "10000-own full": {
            **starts(without=50, with_them=70, after=79),
            "callbacks": {"cpu_ms": {"a": 60.0}},
        },
    }

    assert verdicts(results)["all", "CPU of the longest callback, ms"] == (60.0, False)
    assert verdicts(results)["10000-own full", "RSS of the controller that created them, MiB"] == (79.0, True)
