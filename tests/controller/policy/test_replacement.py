"""When a failed pod is replaced."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from api.children import Exit, Pod
from api.labels import FAILED_BEFORE
from api.meta import PODS
from controller.domain import Child, Failure
from controller.policy.replacement import described, marked, next_due_in, observed, wait_seconds
from tests.support.builders import NOON

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def failed(
    number: int,
    *,
    name: str = "a",
    ran: timedelta | None = timedelta(0),
    before: int = 0,
    deleting: bool = False,
) -> Pod:
    """The pod of that number of the replica ``a``, which failed at noon; ``ran`` is None if its containers say nothing."""
    exits = () if ran is None else (Exit("main", 137, started_at=NOON - ran, finished_at=NOON),)
    uid = f"{name}-uid-{number}"
    return Pod("ns", name, uid, number, phase="Failed", exits=exits, failed_before=before, deleting=deleting)


def after(count: int, name: str = "a") -> Mapping[str, Failure]:
    """What is known after so many failures in a row, the last of them at noon."""
    failures: Mapping[str, Failure] = {}
    for number in range(1, count + 1):
        failures = observed(failures, [failed(number, name=name)], NOON)
    return failures


@pytest.mark.parametrize(
    ("count", "seconds"), [(1, 0), (2, 10), (3, 20), (4, 40), (6, 160), (7, 300), (8, 300), (1000, 300)]
)
def test_the_pause_doubles_from_the_second_failure_on(count: int, seconds: float) -> None:
    failures, pod = after(count), failed(count)

    assert wait_seconds(failures, pod, NOON) == seconds
    assert wait_seconds(failures, pod, NOON + seconds * SECOND) == 0


def test_a_failure_that_is_observed_twice_counts_once() -> None:
    assert observed(after(2), [failed(2)], NOON + MINUTE) == after(2)


def test_failures_are_counted_per_replica() -> None:
    failures = observed(after(3), [failed(1, name="b")], NOON)

    assert {name: failure.count for name, failure in failures.items()} == {"a": 3, "b": 1}


@pytest.mark.parametrize(("minutes", "count"), [(9, 3), (10, 1)])
def test_ten_minutes_of_running_reset_the_failure_count(minutes: int, count: int) -> None:
    failures = observed(after(2), [failed(3, ran=minutes * MINUTE)], NOON)

    assert failures["a"].count == count


@pytest.mark.parametrize(("seconds", "count"), [(609, 3), (610, 1)])
def test_a_pod_without_container_statuses_counts_as_running_since_its_pause(seconds: int, count: int) -> None:
    failures = observed(after(2), [failed(3, ran=None)], NOON + seconds * SECOND)

    assert failures["a"].count == count


def test_a_deleted_pod_does_not_count_as_a_failure() -> None:
    assert observed(after(1), [failed(2, deleting=True)], NOON) == after(1)


def test_a_new_process_continues_the_count_of_the_annotation() -> None:
    """The pause began when the pod failed, not when that process started."""
    pod, now = failed(5, before=3), NOON + 15 * SECOND
    failures = observed({}, [pod], now, is_first=True)

    assert failures["a"].count == 4
    assert wait_seconds(failures, pod, now) == 25


def test_a_node_whose_clock_is_ahead_makes_no_pause_longer() -> None:
    pod, now = failed(5, before=1), NOON - 60 * MINUTE
    failures = observed({}, [pod], now, is_first=True)

    assert wait_seconds(failures, pod, now) == 10


def test_a_node_whose_clock_is_behind_makes_no_pause_shorter() -> None:
    pod, now = failed(2), NOON + 9 * MINUTE
    failures = observed(after(1), [pod], now)

    assert wait_seconds(failures, pod, now) == 10


def test_the_replacement_with_the_shortest_pause_is_due_next() -> None:
    failures = {**after(4), **after(3, "b"), **after(1, "c")}
    pods = [failed(4), failed(3, name="b"), failed(1, name="c")]

    assert next_due_in(failures, pods, NOON + 5 * SECOND) == 15


def test_nothing_is_due_without_a_pending_replacement() -> None:
    assert next_due_in(after(1), [failed(1)], NOON) is None


def test_the_description_names_the_next_pod_and_when_it_is_replaced() -> None:
    failures = {**after(4), **after(3, "b")}
    pods = [failed(4), failed(3, name="b")]
    text = "b has failed 3 times in a row; its replacement is due at 2026-01-01T12:00:20Z; 1 more later."

    assert described(failures, pods, NOON) == text
    assert described(failures, pods, NOON + 5 * SECOND) == text, "it changes with its facts, not with time"


def test_a_pod_that_does_not_wait_is_not_described() -> None:
    assert described(after(2), [failed(2)], NOON + 10 * SECOND) == ""


@pytest.mark.parametrize(("count", "annotations"), [(1, {"b": "c"}), (2, {"b": "c", FAILED_BEFORE: "2"})])
def test_a_replacement_says_how_many_failed_before_it_from_the_second_on(
    count: int, annotations: dict[str, str]
) -> None:
    child = Child(PODS, "a", lambda: {"metadata": {"name": "a", "annotations": {"b": "c"}}})

    assert marked(after(count), child).body()["metadata"]["annotations"] == annotations
