"""The recorder sends events once, counts repeats and delays nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import EVENTS
from controller.kube.client import Client, always
from controller.kube.connect import Connection
from controller.runtime import recorder as module
from controller.runtime.recorder import (
    BUSY_WAITING,
    COMBINED,
    IN_TURN_PER_SECOND,
    LONGEST_MESSAGE,
    PAUSE_SECONDS,
    REPORTED_SINGLY,
    REPORTS_AT_ONCE,
    REPORTS_PER_SECOND,
    SIMILAR_SECONDS,
    TRIES,
    EventPriority,
    Recorder,
)
from rallypoint.local.apiserver import ApiServer
from tests.support.builders import subject
from tests.support.faults import Delay, Fault, Faults, Refuse, Reset, Rule

JOB = subject()


class RecorderHarness:
    def __init__(self, client: Client, recorder: Recorder, faults: Faults) -> None:
        self.recorder = recorder
        self.faults = faults
        self._client = client

    def record(self, message: str = "something", uid: str = "uid-1") -> None:
        self.recorder.record(subject(uid=uid), "Normal", "Reason", message)

    def report(
        self, message: str, *, similar: str = "no image", reason: str = "ErrImagePull", uid: str = "uid-1"
    ) -> None:
        self.recorder.record(
            subject(uid=uid), "Warning", reason, message, priority=EventPriority.REPORT, similar=similar
        )

    async def events(self) -> list[dict[str, Any]]:
        await self.recorder.flushed()
        items: list[dict[str, Any]] = orjson.loads(await self._client.list(EVENTS, "default"))["items"]
        return items

    async def counts(self) -> dict[str, int]:
        return {event["message"]: event["count"] for event in await self.events()}

    def made(self) -> list[dict[str, Any]]:
        """The bodies of all create calls, in order."""
        return [orjson.loads(call.body) for call in self.faults.calls if call.verb == "create"]

    async def remove_all(self) -> None:
        for event in await self.events():
            await self._client.delete(EVENTS, "default", event["metadata"]["name"])


@asynccontextmanager
async def recording(
    *rules: Rule, permit: Callable[[], float] = always, **options: Any
) -> AsyncIterator[RecorderHarness]:
    server = ApiServer(interceptor=(faults := Faults(rules)))
    await server.start()
    async with Client(Connection(server.url, token=lambda: server.token), permit=permit) as client:
        recorder = Recorder(client, **options)
        task = asyncio.create_task(recorder.run())
        try:
            yield RecorderHarness(client, recorder, faults)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()


async def test_an_event_has_its_fields() -> None:
    async with recording() as harness:
        harness.recorder.record(JOB, "Warning", "FailedCreatePod", "Error creating: no")
        (event,) = await harness.events()

    assert event["involvedObject"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "namespace": "default",
        "name": "train",
        "uid": "uid-1",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Warning",
        "FailedCreatePod",
        "Error creating: no",
        1,
    )
    assert event["source"] == {"component": "pytorchjob-controller"}
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["metadata"]["name"].startswith("train.")


async def test_a_repeated_event_increments_its_count() -> None:
    async with recording() as harness:
        for message in ("a", "b", "a", "a"):
            harness.record(message)

        assert await harness.counts() == {"a": 3, "b": 1}
        assert harness.faults.count("create", "events") == 2


async def test_events_of_jobs_with_the_same_name_are_separate() -> None:
    async with recording() as harness:
        harness.record(uid="1")
        harness.record(uid="2")

        assert [event["count"] for event in await harness.events()] == [1, 1]


async def test_a_repeat_of_an_expired_event_is_created_again() -> None:
    async with recording() as harness:
        harness.record()
        await harness.remove_all()
        harness.record()

        assert await harness.counts() == {"something": 2}


@pytest.mark.parametrize(
    ("length", "expected_length"),
    [
        pytest.param(LONGEST_MESSAGE, LONGEST_MESSAGE, id="of maximum length"),
        pytest.param(LONGEST_MESSAGE + 1, LONGEST_MESSAGE, id="above the maximum length"),
    ],
)
async def test_long_messages_are_truncated(length: int, expected_length: int) -> None:
    async with recording() as harness:
        harness.record("x" * length)
        (message,) = await harness.counts()

    assert len(message) == expected_length
    assert message.endswith("…") == (length > expected_length)


async def test_disabled_events_are_not_sent() -> None:
    async with recording(enabled=False) as harness:
        harness.record()

        assert await harness.events() == []
        assert harness.faults.count("create") == 0


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(429, "TooManyRequests"), id="429"),
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Reset(), id="the connection breaks"),
        pytest.param(Reset(committed=True), id="the answer is lost"),
        pytest.param(Delay(60), id="no answer in time"),
        pytest.param(Delay(60, committed=True), id="an answer that comes too late"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_failed_write_is_retried(fault: Fault, verb: str) -> None:
    """Neither is the event lost, nor counted twice."""
    async with recording(Rule(fault, verb=verb, plural="events", times=2)) as harness:
        harness.record()
        await asyncio.sleep(0)
        harness.record()

        assert await harness.counts() == {"something": 2}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(403, "Forbidden", id="the namespace is terminating"),
        pytest.param(404, "NotFound", id="the namespace is gone"),
        pytest.param(422, "Invalid", id="the server rejects the event"),
    ],
)
async def test_a_rejected_event_is_dropped(code: int, reason: str) -> None:
    async with recording(Rule(Refuse(code, reason), verb="create", plural="events", times=1)) as harness:
        with capture_logs() as logs:
            harness.record("refused")
            harness.record("next")

            assert await harness.counts() == {"next": 1}
    assert [(line["event"], line["code"]) for line in logs] == [("event rejected", code)]


async def test_a_namespace_that_rejects_all_events_is_one_line_a_minute() -> None:
    async with recording(
        Rule(Refuse(403, "Forbidden", "no rights"), verb="create", plural="events")
    ) as harness:
        with capture_logs() as logs:
            for number in range(20):
                harness.record(f"text {number}")
            await harness.recorder.flushed()
            await asyncio.sleep(60)
            harness.record("the next")
            await harness.recorder.flushed()

    assert [(line["event"], line["log_level"], line.get("repeats", 0)) for line in logs] == [
        ("event rejected", "warning", 0),
        ("event rejected", "warning", 19),
    ]


async def test_an_event_is_dropped_after_its_last_try() -> None:
    loop = asyncio.get_running_loop()
    async with recording(Rule(Refuse(500), verb="create", plural="events")) as harness:
        started = loop.time()
        with capture_logs() as logs:
            harness.record()
            await harness.recorder.flushed()

    assert harness.faults.count("create", "events") == TRIES
    assert loop.time() - started == (TRIES - 1) * PAUSE_SECONDS
    assert [line["event"] for line in logs] == ["event dropped"]
    assert harness.recorder.dropped == 1


async def test_a_hanging_event_does_not_delay_the_others() -> None:
    async with recording(Rule(Delay(20), verb="create", plural="events", times=3)) as harness:
        for number in range(40):
            harness.record(f"event {number}")
        await asyncio.sleep(10)

        assert harness.faults.count("create", "events") == 40
        assert len(await harness.counts()) == 40


async def test_a_full_queue_drops_and_counts_the_oldest_events_of_the_longest_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING", 10)
    async with recording() as harness:
        harness.recorder.record(subject(namespace="quiet"), "Normal", "Reason", "quiet")
        for number in range(12):
            harness.recorder.record(subject(namespace="flood"), "Normal", "Reason", str(number))
        await harness.recorder.flushed()

        assert harness.recorder.dropped == 3
        assert {body["message"] for body in harness.made()} == {"quiet", *map(str, range(3, 12))}


async def test_events_of_children_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    async with recording() as harness:
        harness.recorder.record(JOB, "Normal", "SuccessfulCreatePod", "child", priority=EventPriority.CHILD)
        for message in ("failed", "ended"):
            harness.recorder.record(JOB, "Normal", "Reason", message)
        await harness.recorder.flushed()

        assert [body["message"] for body in harness.made()] == ["failed", "ended"]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten event is created again; a remembered event increments its count."""
    monkeypatch.setattr(module, "REMEMBERED", 2)
    async with recording() as harness:
        for message in ("first", "second", "third", "first", "third"):
            harness.record(message)
            await harness.recorder.flushed()

        counts = sorted((event["message"], event["count"]) for event in await harness.events())
        assert counts == [("first", 1), ("first", 1), ("second", 1), ("third", 2)]


async def test_flushing_an_empty_queue_returns_at_once() -> None:
    async with recording() as harness:
        async with asyncio.timeout(0.001):
            await harness.recorder.flushed()

        assert await harness.events() == []


async def test_without_a_permit_events_are_dropped() -> None:
    seconds = [0.0]
    async with recording(permit=lambda: seconds[0], senders=1) as harness:
        for message, permitted in (("led", 5.0), ("led no more", 0.0), ("led again", 5.0)):
            seconds[0] = permitted
            harness.record(message)
            await harness.recorder.flushed()

        assert sorted(await harness.counts()) == ["led", "led again"]
        assert harness.recorder.dropped == 1


async def test_events_of_children_are_sent_in_sequence_and_delay_nothing() -> None:
    async with recording(Rule(Delay(0.3), verb="create", plural="events")) as harness:
        loop = asyncio.get_running_loop()
        for number in range(10):
            harness.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(0.15)
        harness.recorder.record(JOB, "Warning", "Failed", "it has failed")
        await asyncio.sleep(0.6)

        messages = [body["message"] for body in harness.made()]
        assert messages == ["pod 0", "it has failed", "pod 1", "pod 2"]

        before = loop.time()
        await harness.recorder.flushed()
        assert loop.time() - before < 1, "who stops waits for all at once"
        assert len(harness.made()) == 11


async def test_an_event_that_has_waited_long_is_sent_without_a_pause() -> None:
    async with recording(Rule(Delay(0.3), verb="create", plural="events"), senders=4) as harness:
        for number in range(12):
            harness.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(1.1)
        assert len(harness.made()) == 4, "one after the other"
        await asyncio.sleep(0.2)
        assert len(harness.made()) == 8, "all senders together"


async def test_an_event_that_comes_while_the_recorder_is_flushed_waits_for_no_other() -> None:
    slow = Rule(Delay(5.0), verb="create", plural="events")
    async with recording(slow, senders=4) as harness:
        harness.recorder.record(JOB, "Normal", "SuccessfulCreatePod", "first", priority=EventPriority.CHILD)
        await asyncio.sleep(0.1)
        flushing = asyncio.create_task(harness.recorder.flushed())
        await asyncio.sleep(0.1)
        harness.recorder.record(JOB, "Normal", "SuccessfulCreatePod", "second", priority=EventPriority.CHILD)
        await asyncio.sleep(0.1)

        assert [body["message"] for body in harness.made()] == ["first", "second"]
        await flushing


async def test_more_waiting_events_lengthen_each_wait() -> None:
    """Those of many jobs at once are not behind time when they take as long as so many do."""
    slow = Rule(Delay(0.5), verb="create", plural="events")
    async with recording(slow, senders=4) as harness:
        for number in range(IN_TURN_PER_SECOND * 2):
            harness.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(2.9)
        assert len(harness.made()) == 6, "one after the other"
        await asyncio.sleep(0.2)
        assert len(harness.made()) == 10, "all senders together"


async def test_a_retried_event_does_not_block_others() -> None:
    refuse = Rule(Refuse(500, "InternalError"), verb="create", containing=b"first", times=1)
    async with recording(refuse) as harness:
        for message in ("first", "second"):
            harness.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", message, priority=EventPriority.CHILD
            )
        await asyncio.sleep(PAUSE_SECONDS / 2)
        assert [body["message"] for body in harness.made()] == ["first", "second"]
        await harness.recorder.flushed()
        assert len(await harness.events()) == 2


async def test_similar_reports_beyond_the_first_are_combined() -> None:
    async with recording() as harness:
        for number in range(5000):
            harness.report(f"pod-{number}: no image")
        counts = await harness.counts()

    assert set(counts) == {
        *(f"pod-{number}: no image" for number in range(REPORTED_SINGLY)),
        f"{COMBINED}pod-4999: no image",
    }
    assert counts[f"{COMBINED}pod-4999: no image"] == 5000 - REPORTED_SINGLY
    assert harness.faults.count("create") + harness.faults.count("patch") == REPORTED_SINGLY + 1


async def test_a_combined_event_keeps_counting_and_has_the_newest_message() -> None:
    async with recording() as harness:
        for number in range(REPORTED_SINGLY + 1):
            harness.report(f"pod-{number}")
        await harness.recorder.flushed()
        harness.report("pod-99")
        counts = await harness.counts()

    assert counts[f"{COMBINED}pod-99"] == 2
    assert f"{COMBINED}pod-{REPORTED_SINGLY}" not in counts


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"similar": "no space"}, id="another text"),
        pytest.param({"reason": "ImagePullBackOff"}, id="another reason"),
        pytest.param({"uid": "uid-2"}, id="another job"),
    ],
)
async def test_different_reports_are_not_combined(other: dict[str, str]) -> None:
    async with recording() as harness:
        for number in range(20):
            harness.report(f"pod-{number}")
        harness.report("pod-99", **other)

        assert "pod-99" in await harness.counts()


async def test_reports_after_a_long_silence_start_again() -> None:
    async with recording() as harness:
        for number in range(20):
            harness.report(f"pod-{number}")
        await asyncio.sleep(SIMILAR_SECONDS + 1)
        harness.report("pod-99")

        assert "pod-99" in await harness.counts()


async def test_reports_of_a_job_are_limited_and_its_state_events_are_not() -> None:
    async with recording() as harness:
        for number in range(200):
            harness.report(f"pod-{number}", similar=f"trouble {number}")
            await asyncio.sleep(0.1)
        harness.report("of another job", uid="uid-2")
        harness.record("the job has failed")
        counts = await harness.counts()

    assert len([message for message in counts if message.startswith("pod-")]) == REPORTS_AT_ONCE
    assert {"of another job", "the job has failed"} <= counts.keys()
    assert harness.recorder.limited == 200 - REPORTS_AT_ONCE
    assert harness.recorder.dropped == 0


async def test_a_limited_job_reports_again_later_and_counts_the_omitted_reports() -> None:
    async with recording() as harness:
        for _ in range(100):
            harness.report("pod-1")
            await harness.recorder.flushed()
        assert harness.faults.count("create") + harness.faults.count("patch") == REPORTS_AT_ONCE
        assert await harness.counts() == {"pod-1": REPORTS_AT_ONCE}
        await asyncio.sleep(1 / REPORTS_PER_SECOND + 1)
        harness.report("pod-1")

        assert await harness.counts() == {"pod-1": 101}


async def test_a_flood_in_a_namespace_delays_another_namespace_only_by_alternation() -> None:
    async with recording() as harness:
        for number in range(1000):
            harness.recorder.record(
                subject(uid=str(number), namespace="flood"), "Normal", "Reason", str(number)
            )
        harness.recorder.record(subject(namespace="quiet"), "Normal", "Reason", "quiet")
        await harness.recorder.flushed()

        assert "quiet" in [body["message"] for body in harness.made()][:10]


async def test_state_events_are_sent_before_reports() -> None:
    async with recording(senders=1) as harness:
        for number in range(10):
            harness.report(f"pod-{number}", uid=str(number))
        harness.record("the job has failed")
        await harness.recorder.flushed()

        assert harness.made()[0]["message"] == "the job has failed"


async def test_a_namespace_that_rejects_events_delays_no_other() -> None:
    refuse = Rule(Refuse(500, "InternalError"), verb="create", plural="events", namespace="broken")
    async with recording(refuse) as harness:
        for number in range(100):
            harness.recorder.record(
                subject(uid=str(number), namespace="broken"), "Normal", "Reason", str(number)
            )
        harness.record("quiet")
        await asyncio.sleep(PAUSE_SECONDS / 2)

        assert "quiet" in [body["message"] for body in harness.made()]


async def test_repeats_during_a_write_are_counted_in_a_single_further_write() -> None:
    async with recording(Rule(Delay(1), verb="create", plural="events")) as harness:
        harness.record()
        await asyncio.sleep(0.5)
        for _ in range(50):
            harness.record()

        assert await harness.counts() == {"something": 51}
        assert (harness.faults.count("create"), harness.faults.count("patch")) == (1, 1)


def child_event(recorder: Recorder, number: int) -> None:
    recorder.record(JOB, "Normal", "SuccessfulCreatePod", f"pod-{number}", priority=EventPriority.CHILD)


async def test_the_recorder_is_busy_while_many_events_of_low_priority_wait() -> None:
    async with recording() as it:
        for number in range(BUSY_WAITING - 1):
            child_event(it.recorder, number)
        assert not it.recorder.is_busy
        child_event(it.recorder, BUSY_WAITING)
        assert it.recorder.is_busy

        await it.recorder.flushed()
        assert not it.recorder.is_busy


async def test_events_about_the_state_do_not_make_the_recorder_busy() -> None:
    async with recording() as it:
        for number in range(2 * BUSY_WAITING):
            it.record(f"state {number}")

        assert not it.recorder.is_busy
