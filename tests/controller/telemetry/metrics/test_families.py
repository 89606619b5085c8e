"""The table of all metrics: its rules, and the names that dashboards of the originals query."""

import re

import pytest

from controller.telemetry.metrics import families
from controller.telemetry.metrics.family import Family

ALL = [family for group in families.GROUPS for family in group.families]


def by_name(name: str) -> Family:
    return next(family for family in ALL if family.name == name)


def test_every_family_is_in_a_single_group() -> None:
    declared = {family for family in vars(families).values() if isinstance(family, Family)}
    names = [family.name for family in ALL]

    assert declared <= set(ALL)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_a_family_follows_the_rules_of_prometheus(family: Family) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*", family.name)
    assert (family.type == "counter") == family.name.endswith("_total")
    assert (family.type == "histogram") == bool(family.buckets)
    assert list(family.buckets) == sorted(set(family.buckets))
    assert family.help
    assert not {"job", "job_name", "pod", "uid"} & set(family.label_names), "as many series as there are jobs"


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        pytest.param(
            [
                f"training_operator_jobs_{event}_total"
                for event in ("created", "deleted", "successful", "failed")
            ],
            ("job_namespace", "framework"),
            id="jobs",
        ),
        pytest.param(["controller_runtime_reconcile_total"], ("controller", "result"), id="reconciles"),
        pytest.param(
            [
                "controller_runtime_reconcile_errors_total",
                "controller_runtime_terminal_reconcile_errors_total",
                "controller_runtime_reconcile_panics_total",
                "controller_runtime_reconcile_timeouts_total",
                "controller_runtime_reconcile_time_seconds",
                "controller_runtime_max_concurrent_reconciles",
                "controller_runtime_active_workers",
            ],
            ("controller",),
            id="controllers",
        ),
        pytest.param(
            [
                "workqueue_depth",
                "workqueue_adds_total",
                "workqueue_queue_duration_seconds",
                "workqueue_work_duration_seconds",
                "workqueue_unfinished_work_seconds",
                "workqueue_longest_running_processor_seconds",
                "workqueue_retries_total",
            ],
            ("name", "controller"),
            id="work queues",
        ),
        pytest.param(["rest_client_requests_total"], ("code", "method", "host"), id="responses"),
        pytest.param(["rest_client_request_retries_total"], ("code", "verb", "host"), id="retries"),
        pytest.param(
            [
                "rest_client_request_duration_seconds",
                "rest_client_request_size_bytes",
                "rest_client_response_size_bytes",
                "rest_client_rate_limiter_duration_seconds",
            ],
            ("verb", "host"),
            id="requests",
        ),
        pytest.param(
            ["leader_election_master_status", "leader_election_slowpath_total"], ("name",), id="election"
        ),
    ],
)
def test_names_and_labels_of_the_originals(names: list[str], labels: tuple[str, ...]) -> None:
    assert {name: by_name(name).label_names for name in names} == dict.fromkeys(names, labels)


def test_buckets_of_the_originals() -> None:
    """The last of each and how many: where they come from they are written as a list or as a formula."""
    ends = {
        name: (len(by_name(name).buckets), by_name(name).buckets[0], by_name(name).buckets[-1])
        for name in (
            "controller_runtime_reconcile_time_seconds",
            "workqueue_queue_duration_seconds",
            "rest_client_request_duration_seconds",
            "rest_client_request_size_bytes",
        )
    }
    assert ends == {
        "controller_runtime_reconcile_time_seconds": (40, 0.005, 60),
        "workqueue_queue_duration_seconds": (12, 1e-8, 1000),
        "rest_client_request_duration_seconds": (12, 0.005, 60),
        "rest_client_request_size_bytes": (11, 64, 16 * 2**20),
    }
