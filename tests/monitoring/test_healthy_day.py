"""promtool's rule tests: the alerts are silent over a healthy day, and each fires on a day with its fault.

A healthy day has what happens in each: an update of the operator, restarts of its pods, conflicts and some refused requests, quiet
watches, busy minutes, jobs that a quota blocks, jobs that wait for less than an hour, and jobs whose pods hold GPUs for less than a
quarter of an hour after their end.
"""

import json
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.monitoring.prometheus import Object, alert_groups, alert_names, program
from tools.dashboards.jobs import JOBS

MINUTES = 24 * 60
UPDATE = range(600, 602)
"""The old replicas are gone, the new ones lead after a minute."""
OTHER = "10.0.1.1:8080"
"""The other program."""
BROKEN_FROM = 400
"""The minute in which a fault begins; it stays."""
Value = Callable[[int], float | None]
"""A sample by its minute; None is a missing one."""


def growing(per_minute: float) -> Value:
    """Return the samples of a counter."""
    return lambda minute: per_minute * minute


def during(old: bool, value: Value) -> Value:
    """Return the samples of a replica before or after the update."""
    return lambda minute: value(minute) if (minute < UPDATE.start) == old else None


def leading(minute: int, *, leads: bool, is_old: bool) -> float:
    return float(leads and (is_old or minute != UPDATE.start))


def healthy_series() -> Iterator[tuple[str, Value]]:
    """Yield the series of an installation that is named by a suffix, and those of another one and of another program."""
    for at in range(4):
        is_old, leads = at < 2, at % 2 == 0
        labels = f'namespace="kubeflow",job="training-operator-eu",instance="10.0.0.{at}:8080"'
        series: list[tuple[str, str, Value]] = [
            ("rallypoint_build_info", "", lambda _: 1.0),
            (
                "leader_election_master_status",
                'name="training-operator"',
                partial(leading, leads=leads, is_old=is_old),
            ),
            ("rallypoint_resource_served", 'resource="pytorchjobs"', lambda _: 1.0),
            # The API server sends a bookmark about once a minute; a network fails for two minutes.
            (
                "rallypoint_watch_silence_seconds",
                'resource="pytorchjobs"',
                lambda minute: 200.0 if minute in {300, 301} else float(minute * 37 % 61),
            ),
            ("rallypoint_watch_repairs_total", 'resource="pytorchjobs"', lambda _: 0.0),
            ("rallypoint_clock_offset_seconds", "", lambda minute: math.sin(minute)),
            # Collecting garbage and starting many jobs take a moment.
            (
                "rallypoint_event_loop_lag_longest_seconds",
                "",
                lambda minute: 2.5 if minute % 240 < 2 else 0.05,
            ),
            ("rallypoint_events_dropped_total", "", lambda _: 0.0),
        ]
        # A kind with two jobs, which wait because of a quota and are retried every two minutes.
        waiting = 'controller="jaxjob-controller"'
        series += [
            ("controller_runtime_reconcile_total", f'{waiting},result="error"', growing(0.5)),
            ("controller_runtime_reconcile_errors_total", waiting, growing(0.5)),
        ]
        for controller in ("pytorchjob-controller", "mpijob-controller"):
            kind = f'controller="{controller}"'
            series += [
                ("controller_runtime_reconcile_total", f'{kind},result="success"', growing(600.0)),
                # A conflict now and then, and for ten minutes a webhook that does not answer.
                (
                    "controller_runtime_reconcile_errors_total",
                    kind,
                    lambda m: 3.0 * m + 300.0 * min(max(m - 900, 0), 10),
                ),
                ("controller_runtime_reconcile_panics_total", kind, lambda _: 0.0),
                ("controller_runtime_reconcile_timeouts_total", kind, lambda _: 0.0),
                *(
                    (
                        "workqueue_queue_duration_seconds_bucket",
                        f'{kind},le="{bound}"',
                        growing(600.0 * share),
                    )
                    for bound, share in (("0.1", 0.9), ("1", 0.97), ("10", 1.0), ("100", 1.0), ("+Inf", 1.0))
                ),
            ]
        for code, rate in (("200", 900.0), ("201", 200.0), ("409", 20.0), ("429", 12.0), ("503", 1.0)):
            series.append(("rest_client_requests_total", f'code="{code}",method="GET"', growing(rate)))
        for name, more, value in series:
            yield f"{name}{{{labels}{',' if more else ''}{more}}}", during(is_old, value)
    yield (
        'rallypoint_build_info{namespace="team",job="training-operator",instance="10.0.2.1:8080"}',
        lambda _: 1.0,
    )
    yield from other_program()
    yield from jobs()


def other_program() -> Iterator[tuple[str, Value]]:
    """Yield series of a program that has metrics of the same names, in the same scrape job.

    It is not well, but most of its requests and of its reconciles of one kind succeed: added to the operator's, they would hide faults.
    """
    labels = f'namespace="kubeflow",job="training-operator-eu",instance="{OTHER}"'
    kind = 'controller="database"'
    yield f'leader_election_master_status{{{labels},name="other"}}', lambda _: 0.0
    yield f'controller_runtime_reconcile_total{{{labels},{kind},result="error"}}', growing(60.0)
    yield f"controller_runtime_reconcile_errors_total{{{labels},{kind}}}", growing(60.0)
    yield f"controller_runtime_reconcile_panics_total{{{labels},{kind}}}", growing(1.0)
    yield (
        f'controller_runtime_reconcile_total{{{labels},controller="pytorchjob-controller",result="success"}}',
        growing(60_000.0),
    )
    yield (
        f'controller_runtime_reconcile_total{{{labels},controller="mpijob-controller",result="success"}}',
        growing(60_000.0),
    )
    yield f'rest_client_requests_total{{{labels},code="503",method="GET"}}', growing(60.0)
    yield f'rest_client_requests_total{{{labels},code="200",method="GET"}}', growing(60_000.0)
    for bound, count in (("10", 0.0), ("1000", 60.0), ("+Inf", 60.0)):
        name = f'workqueue_queue_duration_seconds_bucket{{{labels},{kind},le="{bound}"}}'
        yield name, growing(count)


def jobs() -> Iterator[tuple[str, Value]]:
    labels = 'job_namespace="team-vision",framework="pytorch"'
    # One job after the other waits for three quarters of an hour.
    yield f"rallypoint_job_oldest_pending_seconds{{{labels}}}", lambda m: 60.0 * (m % 45)
    # Jobs end so often that pods of one still run at any time, each for less than a quarter of an hour. Once they take some minutes more.
    yield (
        f"rallypoint_job_oldest_holding_seconds{{{labels}}}",
        lambda m: 60.0 * (1 + (m - 500 if 500 <= m < 519 else m % 14)),
    )
    for state, value in (
        ("running", lambda _: 8.0),
        ("finished", lambda _: 8.0),
    ):
        name = "rallypoint_job_requested_resources"
        yield f'{name}{{{labels},resource="nvidia.com/gpu",state="{state}"}}', value


BROKEN: dict[str, tuple[str, Value]] = {
    "TrainingOperatorDown": ('job="training-operator-eu"', lambda _: None),
    "TrainingOperatorNotOneLeader": ("leader_election_master_status{", lambda _: 0.0),
    "TrainingOperatorWatchSilent": ("rallypoint_watch_silence_seconds", lambda m: 60.0 * (m - BROKEN_FROM)),
    "TrainingOperatorResourceNotServed": ("rallypoint_resource_served", lambda _: 0.0),
    "TrainingOperatorWatchEventsLost": ("rallypoint_watch_repairs_total", lambda _: 1.0),
    "TrainingOperatorDefect": ("controller_runtime_reconcile_panics_total", lambda _: 1.0),
    "TrainingOperatorReconcilesFail": ("controller_runtime_reconcile_errors_total", growing(300.0)),
    "TrainingOperatorJobsWait": ('le="10"', lambda _: 0.0),
    "TrainingOperatorRefused": ('code="429"', growing(400.0)),
    "TrainingOperatorLate": ("rallypoint_event_loop_lag_longest_seconds", lambda _: 4.0),
    "TrainingOperatorClock": ("rallypoint_clock_offset_seconds", lambda _: -7.0),
    "TrainingOperatorEventsLost": ("rallypoint_events_dropped_total", lambda _: 1.0),
    "TrainingJobsPending": ("rallypoint_job_oldest_pending_seconds", lambda m: 60.0 * (m - BROKEN_FROM)),
    "TrainingResourcesHeld": ("rallypoint_job_oldest_holding_seconds", lambda m: 60.0 * (m - BROKEN_FROM)),
}
"""By alert: text in the names of the series with its fault, and their samples from then on."""
LATEST = {"TrainingJobsPending": 67, "TrainingResourcesHeld": 22}
"""Minutes from the fault to the alert; default is 20."""


def test_the_alerts_are_silent_over_a_healthy_day(tmp_path: Path) -> None:
    assert fired(tmp_path, dict(healthy_series())) == set()


def test_each_alert_has_a_fault() -> None:
    assert list(BROKEN) == alert_names()


@pytest.mark.parametrize("alert", BROKEN)
def test_an_alert_fires_on_a_day_with_its_fault(tmp_path: Path, alert: str) -> None:
    text, broken = BROKEN[alert]
    series = {
        name: _changed(healthy, broken) if text in name and OTHER not in name else healthy
        for name, healthy in healthy_series()
    }

    until = BROKEN_FROM + LATEST.get(alert, 20)
    assert fired(tmp_path, series, until) == {alert}


def _changed(healthy: Value, broken: Value) -> Value:
    def value(minute: int) -> float | None:
        before = healthy(minute)
        return before if minute < BROKEN_FROM or before is None else broken(minute)

    return value


def fired(folder: Path, series: dict[str, Value], until: int = MINUTES) -> set[str]:
    """Return the alerts that fired until that minute of the day.

    promtool compares what queries return with expectations: a query that expects no alert fails for each alert that fired.
    """
    (folder / "rules.yaml").write_text(json.dumps({"groups": alert_groups()}))
    inputs = [{"series": name, "values": _values(value)} for name, value in series.items()]
    queries = [
        {
            "expr": f'count(count_over_time(ALERTS{{alertname="{alert}", alertstate="firing"}}[1d])) > bool 0 or vector(0)',
            "eval_time": f"{until}m",
            "exp_samples": [{"labels": "{}", "value": 0}],
        }
        for alert in alert_names()
    ]
    test: Object = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": queries}],
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(folder / "test.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    failed = {
        alert
        for alert in alert_names()
        if f'alertname=\\"{alert}\\"' in output or f'alertname="{alert}"' in output
    }
    assert (done.returncode == 0) == (not failed), output
    return failed


def _values(value: Value) -> str:
    samples = [value(minute) for minute in range(MINUTES)]
    return " ".join("_" if sample is None else f"{sample:.6g}" for sample in samples)


def test_an_increase_contains_the_first_sample(tmp_path: Path) -> None:
    """A job that fails before the first scrape is counted once, and only for an hour."""
    (query,) = next(panel for panel in JOBS.panels if panel.title == "Failed").queries
    expr = re.sub(r"\$__range", "1h", query.expr).replace("$namespace", ".*").replace("$framework", ".*")
    name = 'training_operator_jobs_failed_total{job_namespace="team-vision",framework="pytorch"}'
    expected = [(15, []), (25, [1]), (75, [1]), (95, [0])]
    test: Object = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": "_x20 1x100"}],
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": value} for value in values],
                    }
                    for minute, values in expected
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))

    done = subprocess.run(
        [program("promtool"), "test", "rules", str(tmp_path / "test.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_valid_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": alert_groups()}))

    done = subprocess.run(
        [program("promtool"), "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
