"""Pauses between tries of a key and of a broken stream."""

import pytest

from controller.runtime.backoff import PerKey, Reconnect


def test_pauses_of_a_key_double_up_to_the_longest() -> None:
    backoff = PerKey[str]()

    pauses = [backoff.record_failure("a") for _ in range(20)]

    assert pauses[:4] == [0.005, 0.01, 0.02, 0.04]
    assert pauses[14:] == [81.92, 120, 120, 120, 120, 120]


def test_failures_are_counted_per_key() -> None:
    backoff = PerKey[str]()
    backoff.record_failure("a")
    backoff.record_failure("a")

    assert backoff.record_failure("b") == 0.005
    assert (backoff.failures("a"), backoff.failures("b")) == (2, 1)


def test_a_success_ends_the_series() -> None:
    backoff = PerKey[str]()
    backoff.record_failure("a")
    backoff.discard("a")
    backoff.discard("never failed")

    assert (backoff.failures("a"), backoff.record_failure("a")) == (0, 0.005)


def test_many_failures_cause_no_overflow() -> None:
    backoff = PerKey[str]()

    assert [backoff.record_failure("a") for _ in range(3000)][-1] == 120


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_broken_stream_doubles_the_pause() -> None:
    reconnect = Reconnect(Time(), chance=lambda: 0.0)

    assert [reconnect.record_failure() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_jitter_spreads_the_pauses(chance: float) -> None:
    reconnect = Reconnect(Time(), chance=lambda: chance)

    assert reconnect.record_failure() == pytest.approx(0.8 * (1 + chance))


@pytest.mark.parametrize(
    ("calm_seconds", "calm", "expected"),
    [
        pytest.param(120, False, 1.6, id="two minutes are not yet calm"),
        pytest.param(121, True, 0.8, id="after that it starts anew"),
    ],
)
def test_calm_ends_the_series(calm_seconds: float, calm: bool, expected: float) -> None:
    time = Time()
    reconnect = Reconnect(time, chance=lambda: 0.0)
    assert reconnect.is_calm
    reconnect.record_failure()
    time.now += calm_seconds

    assert (reconnect.is_calm, reconnect.record_failure()) == (calm, expected)
