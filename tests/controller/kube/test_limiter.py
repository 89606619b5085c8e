"""The optional limit on requests per second."""

import asyncio

from controller.kube.limiter import TokenBucket


async def times_of(bucket: TokenBucket, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def one() -> float:
        await bucket.take()
        return round(loop.time() - started, 3)

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    assert await times_of(TokenBucket(2, burst=3), 6) == [0, 0, 0, 0.5, 1, 1.5]


async def test_a_rest_fills_the_bucket_but_not_beyond_its_size() -> None:
    bucket = TokenBucket(2, burst=3)
    await times_of(bucket, 3)
    await asyncio.sleep(1)
    assert await times_of(bucket, 3) == [0, 0, 0.5]

    await asyncio.sleep(1000)
    assert await times_of(bucket, 4) == [0, 0, 0, 0.5]


async def test_without_a_burst_one_goes_at_a_time() -> None:
    assert await times_of(TokenBucket(1, burst=0), 3) == [0, 1, 2]


async def test_the_average_is_the_rate() -> None:
    assert (await times_of(TokenBucket(20, burst=30), 230))[-1] == 10
