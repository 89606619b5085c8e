"""The optional limit on requests per second."""

from controller.kube.token_bucket import TokenBucket


def times_of(bucket: TokenBucket, count: int, at: float = 0.0) -> list[float]:
    """Return when ``count`` simultaneous callers get their tokens; each waits as long as the bucket says."""
    times: list[float] = []
    while len(times) < count:
        wait = bucket.take(at)
        if wait:
            at += wait
        else:
            times.append(round(at, 3))
    return times


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    assert times_of(TokenBucket(2, burst=3), 6) == [0, 0, 0, 0.5, 1, 1.5]


def test_idle_time_fills_the_bucket_up_to_its_size() -> None:
    bucket = TokenBucket(2, burst=3)
    times_of(bucket, 3)

    assert times_of(bucket, 3, at=1) == [1, 1, 1.5]
    assert times_of(bucket, 4, at=1000) == [1000, 1000, 1000, 1000.5]


def test_a_failed_take_consumes_nothing() -> None:
    bucket = TokenBucket(1, burst=1)
    bucket.take(0)

    assert [bucket.take(0.25) for _ in range(3)] == [0.75] * 3
    assert bucket.take(1) == 0


def test_without_a_burst_there_is_a_single_token() -> None:
    assert times_of(TokenBucket(1, burst=0), 3) == [0, 1, 2]


def test_the_average_is_the_rate() -> None:
    assert times_of(TokenBucket(20, burst=30), 230)[-1] == 10
