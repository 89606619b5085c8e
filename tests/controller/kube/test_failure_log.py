"""Which failures of a key are logged."""

import asyncio

from controller.kube.failure_log import FailureLog
from controller.runtime.backoff import PerKey


async def test_a_refused_call_is_logged_once_for_each_step_of_its_back_off() -> None:
    failures, backoff = FailureLog[str](), PerKey[str]()
    time, lines = asyncio.get_running_loop().time, list[tuple[float, int]]()
    while time() < 10:
        pause = backoff.record_failure("team/train")
        repeats = failures.record("team/train", "pods is forbidden", pause)
        if repeats is not None:
            lines.append((time(), repeats))
        await asyncio.sleep(pause)

    assert lines == [(0, 0), (1.275, 7), (2.555, 0), (5.115, 0)]


async def test_reconciles_in_a_pause_add_no_lines() -> None:
    """Changes of pods start reconciles, whatever the back-off of the failing call is."""
    failures = FailureLog[str]()
    assert failures.record("team/train", "exceeded quota", 60) == 0
    for _ in range(5):
        await asyncio.sleep(10)
        assert failures.record("team/train", "exceeded quota", 60) is None
    await asyncio.sleep(10)

    assert failures.record("team/train", "exceeded quota", 120) == 5


async def test_another_text_and_another_key_are_logged_at_once() -> None:
    failures = FailureLog[str]()
    recorded = [
        failures.record("a", "exceeded quota: used 7", 60),
        failures.record("a", "denied by a policy", 60),
        failures.record("b", "exceeded quota: used 7", 60),
        failures.record("a", "exceeded quota: used 8", 60),
        failures.record("a", "denied by a policy", 60),
    ]

    assert recorded == [0, 0, 0, None, None]


async def test_a_failure_after_a_success_is_logged_at_once() -> None:
    failures = FailureLog[str]()
    for key in ("a", "b"):
        failures.record(key, "exceeded quota", 160)
    failures.discard("a")

    assert failures.record("a", "exceeded quota", 160) == 0
    assert failures.record("b", "exceeded quota", 160) is None


async def test_a_failure_without_a_retry_is_logged_once_a_second() -> None:
    failures = FailureLog[str]()
    assert failures.record("a", "no such role", None) == 0
    assert failures.record("a", "no such role", None) is None
    await asyncio.sleep(1)

    assert failures.record("a", "no such role", None) == 1
