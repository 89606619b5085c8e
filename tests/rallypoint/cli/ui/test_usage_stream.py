"""What a page gets of the usage of pods."""

import asyncio
from collections import deque
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from rallypoint.cli.ui.usage_stream import MAX_PODS, follow_usage
from rallypoint.local.usage import Sample, UsageSampler


def usage_of(*uids: str) -> UsageSampler:
    found = UsageSampler(dict)
    for uid in uids:
        add_sample(found, uid, 0)
        add_sample(found, uid, 5)
    return found


def add_sample(usage: UsageSampler, uid: str, seconds: float) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    usage.samples.setdefault(uid, deque()).append(Sample(start + timedelta(seconds=seconds), 1.0, 2))


async def test_usage_is_sent_once() -> None:
    """All samples first, then the new ones, of the pods that the page draws."""
    names = {f"uid{index}": f"worker-{index}" for index in range(MAX_PODS + 2)}
    usage = usage_of(*names)
    async with aclosing(follow_usage(usage, names)) as events:
        first = await anext(events)
        add_sample(usage, "uid1", 10)
        second = await anext(events)
        names["replaced"] = "worker-1"
        add_sample(usage, "replaced", 15)
        third = await anext(events)

    assert {name: len(samples) for name, samples in first["pods"].items()} == {
        f"worker-{index}": 2 for index in range(MAX_PODS)
    }
    assert first["others"] == 2
    for event in (second, third):
        assert {name: len(samples) for name, samples in event["pods"].items() if samples} == {"worker-1": 1}
        assert len(event["pods"]) == MAX_PODS


async def test_pods_that_have_ended_are_told_from_those_that_run() -> None:
    running = {"uid0": (), "uid1": (), "of another job": ()}
    usage = usage_of("uid0", "uid1")
    usage.gpus = lambda: running
    async with aclosing(follow_usage(usage, {"uid0": "worker-0", "uid1": "worker-1"})) as events:
        first = await anext(events)
        del running["uid0"]
        async with asyncio.timeout(60):
            second = await anext(events)

    assert (first["running"], second["running"]) == (["worker-0", "worker-1"], ["worker-1"])
    assert not any(second["pods"].values())
