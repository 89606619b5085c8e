"""What a comparison keeps of its runs."""

from bench.controlplane.comparison import LOADER, SCENARIOS, Measured, default_scenarios, progress_line


def test_the_default_scenarios_are_scenarios_of_jobs() -> None:
    assert [scenario.name for scenario in default_scenarios()] == list(SCENARIOS)


def test_results_by_case_and_operator_with_the_loader_apart() -> None:
    measured = Measured()
    for number in (1, 2):
        measured.add("1x8", "a", {"calls": number})
        measured.add("1x8", LOADER, {"calls": 16})
    measured.add("2x2-quick", "a", {"calls": 3})

    assert measured.results() == [
        {"case": "1x8", "operators": {"a": [{"calls": 1}, {"calls": 2}]}, "loader": [{"calls": 16}] * 2},
        {"case": "2x2-quick", "operators": {"a": [{"calls": 3}]}, "loader": []},
    ]


def test_the_progress_of_a_round_is_that_of_its_last_runs() -> None:
    jobs = {
        "a": [{"create_to_running_ms": 1.0}, {"create_to_running_ms": 20.0}],
        LOADER: [{"create_to_pods_running_ms": 10.0}],
    }
    quick = {
        "a": [{"create_to_succeeded_ms": 7.0, "create_to_running_ms": 5.0}],
        "b": [{"create_to_succeeded_ms": 9.0}],
    }

    assert progress_line(2, "1x8", jobs) == "  1x8, 2: a 20 ms, loader 10 ms"
    assert progress_line(1, "2x2-quick", quick) == "  2x2-quick, 1: a 7 ms, b 9 ms"
