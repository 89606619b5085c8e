"""Figures of many jobs on a local cluster."""

import argparse

import pytest

from bench import local
from bench.figures import Spread, table


def listed(**conditions: list[str]) -> dict[str, object]:
    return {
        "items": [
            {
                "metadata": {"name": name},
                "status": {"conditions": [{"type": condition, "status": "True"} for condition in types]},
            }
            for name, types in conditions.items()
        ]
    }


def test_succeeded_and_failed_jobs_are_counted() -> None:
    assert local.job_outcomes(listed(a=["Created", "Succeeded"], b=["Created"], c=["Failed"])) == (1, ["c"])


def test_a_job_without_a_status_has_not_ended() -> None:
    assert local.job_outcomes({"items": [{"metadata": {"name": "new"}}]}) == (0, [])


def test_table() -> None:
    runs = {
        "single-process": [{"seconds": 1.0}, {"seconds": 3.0}],
        "separate-controller": [{"cpu_ms_per_pod": 2.0}],
    }

    shown = table("title", local.LABELS, runs)

    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == list(local.LABELS.values())
    assert cells[1][0] == str(Spread(1, 2, 3))
    assert cells[1][3] == ""
    assert cells[2][3] == "2"


@pytest.mark.looptime(False)
def test_two_small_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    parameters = argparse.Namespace(jobs=2, pods=2, runs=1, isolation="loopback", no_record=True)

    assert local.execute(parameters) == 0
    assert "of which the controller, ms" in capsys.readouterr().out
