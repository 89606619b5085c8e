"""Totals of jobs by namespace and framework, and the removal of idle series."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from controller.telemetry.metrics.jobs import (
    CLOCK_PHASES,
    FAILURE_REASONS,
    IDLE_TIME,
    MAX_RESOURCES,
    PHASES,
    RESTART_ACTIONS,
    RESTART_REASONS,
    STATES,
    JobSample,
    JobTotals,
)
from tests.support.builders import NOON

TEAM = {"job_namespace": "team", "framework": "pytorch"}
GPU = "nvidia.com/gpu"
IDLE_SECONDS = IDLE_TIME.total_seconds()


class Clock:
    """Seconds since noon."""

    seconds = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def totals(registry: CollectorRegistry, clock: Clock) -> JobTotals:
    return JobTotals(registry, lambda: NOON + timedelta(seconds=clock.seconds))


Read = Callable[..., "float | None"]


@pytest.fixture
def read(registry: CollectorRegistry) -> Read:
    """Return the value of a series of the namespace ``team``."""

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**TEAM, **labels})

    return value


def sample(
    state: str = "running", *, namespace: str = "team", pending_since: float | None = None, **requests: int
) -> JobSample:
    """Return a job with two running pods; ``requests`` are GPUs by state."""
    gpus = tuple(requests.get(key, 0) for key in ("suspended", "pending", "running", "finished"))
    return JobSample(
        namespace, "pytorch", state, (0, 2, 0, 0), ((GPU, gpus),) if requests else (), pending_since
    )


def series(registry: CollectorRegistry) -> list[Sample]:
    """Return the series with a namespace."""
    return [
        found for family in registry.collect() for found in family.samples if "job_namespace" in found.labels
    ]


def test_jobs_are_counted_by_state(totals: JobTotals, read: Read) -> None:
    for uid, state in enumerate([*STATES, "running"]):
        totals.put(str(uid), sample(state))

    assert [read("rallypoint_jobs", state=state) for state in STATES] == [1, 1, 2, 1, 1, 1]
    assert read("rallypoint_job_replicas", state="running") == 14


def test_a_job_counts_in_its_newest_state_only(totals: JobTotals, read: Read) -> None:
    totals.put("uid", sample("pending", pending=8))
    totals.put("uid", sample("running", running=8))

    assert [read("rallypoint_jobs", state=state) for state in STATES] == [0, 0, 1, 0, 0, 0]
    requested = [
        read("rallypoint_job_requested_resources", resource=GPU, state=state)
        for state in ("suspended", "pending", "running", "finished")
    ]
    assert requested == [0, 0, 8, 0]
    assert read("rallypoint_job_replicas", state="running") == 2


def test_a_discarded_job_does_not_count(totals: JobTotals, read: Read) -> None:
    totals.put("uid", sample("running", running=8))
    totals.discard("uid")
    totals.discard("uid")

    assert read("rallypoint_jobs", state="running") == 0
    assert read("rallypoint_job_replicas", state="running") == 0
    assert read("rallypoint_job_requested_resources", resource=GPU, state="running") == 0


def test_the_oldest_pending_job_has_its_age(totals: JobTotals, read: Read, clock: Clock) -> None:
    totals.put("running", sample())
    assert read("rallypoint_job_oldest_pending_seconds") == 0

    totals.put("old", sample("pending", pending_since=NOON.timestamp() - 50))
    totals.put("young", sample("pending", pending_since=NOON.timestamp()))
    clock.seconds = 10
    assert read("rallypoint_job_oldest_pending_seconds") == 60

    totals.put("old", sample())
    assert read("rallypoint_job_oldest_pending_seconds") == 10


def test_the_phases_of_wall_clocks_add_up(totals: JobTotals, read: Read, clock: Clock) -> None:
    settled = sample()._replace(clock=(5, 0, 0, 0, 0, 30, 10, 0))
    totals.put("a", settled._replace(clock_phase="running", clock_since=round(NOON.timestamp()) - 50))
    totals.put("b", settled._replace(clock_phase="recovering", clock_since=round(NOON.timestamp())))
    totals.put("none", sample())
    clock.seconds = 10

    def read_all() -> dict[str, float | None]:
        found = {phase: read("rallypoint_job_wall_clock_seconds", phase=phase) for phase in CLOCK_PHASES}
        return {phase: seconds for phase, seconds in found.items() if seconds}

    assert read_all() == {"queued": 10, "running": 120, "lost": 20, "recovering": 10}

    totals.put("b", settled)
    totals.discard("a")
    assert read_all() == {"queued": 5, "running": 30, "lost": 10}


def test_a_job_from_the_future_has_no_negative_age(totals: JobTotals, read: Read) -> None:
    totals.put("uid", sample("pending", pending_since=NOON.timestamp() + 5))

    assert read("rallypoint_job_oldest_pending_seconds") == 0


def test_the_oldest_finished_job_that_holds_resources_has_its_age(
    totals: JobTotals, read: Read, clock: Clock
) -> None:
    def holding(seconds: float) -> JobSample:
        return sample("succeeded", finished=8)._replace(holding_since=NOON.timestamp() - seconds)

    totals.put("old", holding(50))
    totals.put("young", holding(0))
    clock.seconds = 10
    assert read("rallypoint_job_oldest_holding_seconds") == 60
    assert read("rallypoint_job_oldest_pending_seconds") == 0

    totals.put("old", sample("succeeded"))
    assert read("rallypoint_job_oldest_holding_seconds") == 10

    totals.discard("young")
    assert read("rallypoint_job_oldest_holding_seconds") == 0


def test_restarts_are_counted_by_reason(totals: JobTotals, read: Read, clock: Clock) -> None:
    totals.count_restarts("team", "pytorch", "oom", 3)
    totals.count_restarts("team", "pytorch", "error")

    found = [read("rallypoint_job_pod_restarts_total", reason=reason) for reason in RESTART_REASONS]
    assert found == [1, 3, 0, 0, 0, 0]


def test_restarts_of_whole_jobs_are_counted_by_action(totals: JobTotals, read: Read, clock: Clock) -> None:
    for action in (*RESTART_ACTIONS, "RestartJob"):
        totals.count_job_restart("team", "pytorch", action)

    assert [read("rallypoint_job_restarts_total", action=action) for action in RESTART_ACTIONS] == [2, 1]


def test_failures_are_counted_by_reason(totals: JobTotals, read: Read, clock: Clock) -> None:
    for reason in (*FAILURE_REASONS, "deadline"):
        totals.count_failure("team", "pytorch", reason)

    found = [read("rallypoint_job_failures_total", reason=reason) for reason in FAILURE_REASONS]
    assert found == [1, 1, 1, 1, 1, 1, 2, 1, 1]


def test_phases_are_observed_by_framework(totals: JobTotals, registry: CollectorRegistry) -> None:
    totals.start("pytorch")
    totals.observe_phase("pytorch", "running", 90.0)
    totals.observe_phase("pytorch", "running", 3 * 86400.0)

    def count(phase: str, **labels: str) -> float | None:
        name = f"rallypoint_job_phase_seconds_{'bucket' if labels else 'count'}"
        return registry.get_sample_value(name, {"framework": "pytorch", "phase": phase, **labels})

    assert [count(phase) for phase in PHASES] == [0, 0, 0, 2, 0]
    assert [count("running", le=le) for le in ("60.0", "120.0", "172800.0", "345600.0")] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda totals: totals.discard("uid"), id="its last job is gone"),
        pytest.param(
            lambda totals: totals.put("uid", sample(namespace="other")), id="its last job is elsewhere"
        ),
    ],
)
def test_a_namespace_without_jobs_loses_its_series_after_an_hour(
    totals: JobTotals, read: Read, clock: Clock, leave: Callable[[JobTotals], None]
) -> None:
    totals.count("team", "pytorch", "created")
    totals.put("uid", sample())
    clock.seconds = 10 * IDLE_SECONDS
    leave(totals)
    clock.seconds += IDLE_SECONDS - 1
    assert read("training_operator_jobs_created_total") == 1
    assert read("rallypoint_jobs", state="running") == 0

    clock.seconds += 1
    assert read("training_operator_jobs_created_total") is None
    assert read("rallypoint_jobs", state="running") is None
    assert read("rallypoint_job_oldest_pending_seconds") is None
    assert read("rallypoint_job_oldest_holding_seconds") is None


def test_a_new_job_keeps_the_series(totals: JobTotals, read: Read, clock: Clock) -> None:
    totals.count("team", "pytorch", "created")
    totals.put("first", sample())
    totals.discard("first")
    list(totals.collect())
    clock.seconds = IDLE_SECONDS - 1
    totals.put("second", sample())
    clock.seconds = 5 * IDLE_SECONDS

    assert read("training_operator_jobs_created_total") == 1


def test_a_counter_without_a_job_goes_after_an_hour(totals: JobTotals, read: Read, clock: Clock) -> None:
    """The job was deleted before its reconcile was over."""
    totals.count("team", "pytorch", "deleted")
    clock.seconds = IDLE_SECONDS

    assert read("training_operator_jobs_deleted_total") is None


def test_idle_series_are_removed_without_a_scrape(
    totals: JobTotals, registry: CollectorRegistry, clock: Clock
) -> None:
    """Otherwise memory would grow with each new namespace of an operator that nobody scrapes."""
    for number in range(100):
        clock.seconds = number * IDLE_SECONDS
        totals.put("uid", sample(namespace=f"team-{number}"))
        totals.discard("uid")
    clock.seconds -= 1  # what a scrape would remove now had to be removed before

    assert {found.labels["job_namespace"] for found in series(registry)} == {"team-99"}


def test_a_removed_counter_starts_again_at_zero(totals: JobTotals, read: Read, clock: Clock) -> None:
    totals.count("team", "pytorch", "created")
    clock.seconds = IDLE_SECONDS
    totals.put("uid", sample())

    assert read("training_operator_jobs_created_total") == 0


def test_the_first_job_after_an_hour_is_counted(totals: JobTotals, read: Read, clock: Clock) -> None:
    """It is counted before its state is known, and no scrape has removed the old series."""
    totals.count("team", "pytorch", "created")
    clock.seconds = IDLE_SECONDS
    totals.count("team", "pytorch", "created")
    totals.put("uid", sample())

    assert read("training_operator_jobs_created_total") == 1


def test_a_process_that_stops_leading_has_no_series(totals: JobTotals, registry: CollectorRegistry) -> None:
    totals.start("pytorch")
    totals.put("uid", sample("running", running=8))
    totals.count("team", "pytorch", "created")
    totals.stop()

    assert [found for family in registry.collect() for found in family.samples] == []


def requests(*names: str) -> JobSample:
    return JobSample("team", "pytorch", "running", requests=tuple((name, (0, 0, 1, 0)) for name in names))


def test_resource_names_have_a_limit(totals: JobTotals, read: Read, registry: CollectorRegistry) -> None:
    """A user chooses them."""
    names = [f"example.com/{number:03}" for number in range(3 * MAX_RESOURCES)]
    for uid, name in enumerate(names):
        totals.put(str(uid), requests(name))

    def used(resource: str) -> float | None:
        return read("rallypoint_job_requested_resources", resource=resource, state="running")

    found = {series.labels["resource"] for series in series(registry) if "resource" in series.labels}
    assert len(found) == MAX_RESOURCES + 1
    assert used("other") == 2 * MAX_RESOURCES
    assert used(names[0]) == 1

    for uid in range(len(names)):
        totals.discard(str(uid))
    assert used("other") == used(names[0]) == 0
    totals.put("new", requests(GPU, names[0]))
    assert (used(GPU), used(names[0]), used("other")) == (1, 1, None)
