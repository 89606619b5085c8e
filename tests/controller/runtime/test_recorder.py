"""Events on their way to the server: sent once, counted up when they repeat, and in nobody's way."""

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
from rallypoint.testing.builders import subject
from rallypoint.testing.faults import Delay, Fault, Faults, Refuse, Reset, Rule

JOB = subject()


class Stage:
    def __init__(self, client: Client, recorder: Recorder, faults: Faults) -> None:
        self.recorder = recorder
        self.faults = faults
        self._client = client

    def tell(self, message: str = "something", uid: str = "uid-1") -> None:
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
        return {one["message"]: one["count"] for one in await self.events()}

    def made(self) -> list[dict[str, Any]]:
        """The bodies of all that was asked to be created, in order."""
        return [orjson.loads(one.body) for one in self.faults.calls if one.verb == "create"]

    async def remove_all(self) -> None:
        for one in await self.events():
            await self._client.delete(EVENTS, "default", one["metadata"]["name"])


@asynccontextmanager
async def recording(
    *rules: Rule, permit: Callable[[], float] = always, **options: Any
) -> AsyncIterator[Stage]:
    server = ApiServer(interceptor=(faults := Faults(rules)))
    await server.start()
    async with Client(Connection(server.url, token=lambda: server.token), permit=permit) as client:
        recorder = Recorder(client, **options)
        task = asyncio.create_task(recorder.run())
        try:
            yield Stage(client, recorder, faults)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()


async def test_what_an_event_says() -> None:
    async with recording() as stage:
        stage.recorder.record(JOB, "Warning", "FailedCreatePod", "Error creating: no")
        (event,) = await stage.events()

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


async def test_a_repeat_is_counted_up() -> None:
    async with recording() as stage:
        for message in ("a", "b", "a", "a"):
            stage.tell(message)

        assert await stage.counts() == {"a": 3, "b": 1}
        assert stage.faults.count("create", "events") == 2


async def test_jobs_of_one_name_are_told_apart() -> None:
    async with recording() as stage:
        stage.tell(uid="1")
        stage.tell(uid="2")

        assert [one["count"] for one in await stage.events()] == [1, 1]


async def test_a_repeat_of_an_expired_event_is_made_anew() -> None:
    async with recording() as stage:
        stage.tell()
        await stage.remove_all()
        stage.tell()

        assert await stage.counts() == {"something": 2}


@pytest.mark.parametrize(
    ("length", "told"),
    [
        pytest.param(LONGEST_MESSAGE, LONGEST_MESSAGE, id="as long as may be"),
        pytest.param(LONGEST_MESSAGE + 1, LONGEST_MESSAGE, id="longer"),
    ],
)
async def test_long_messages_are_cut(length: int, told: int) -> None:
    async with recording() as stage:
        stage.tell("x" * length)
        (message,) = await stage.counts()

    assert len(message) == told
    assert message.endswith("…") == (length > told)


async def test_nothing_is_told_when_events_are_off() -> None:
    async with recording(enabled=False) as stage:
        stage.tell()

        assert await stage.events() == []
        assert stage.faults.count("create") == 0


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
async def test_a_failing_try_is_repeated(fault: Fault, verb: str) -> None:
    """Neither is the event lost, nor counted twice."""
    async with recording(Rule(fault, verb=verb, plural="events", times=2)) as stage:
        stage.tell()
        await asyncio.sleep(0)
        stage.tell()

        assert await stage.counts() == {"something": 2}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(403, "Forbidden", id="the namespace is on its way out"),
        pytest.param(404, "NotFound", id="the namespace is gone"),
        pytest.param(422, "Invalid", id="the server does not like it"),
    ],
)
async def test_a_refused_event_is_let_go(code: int, reason: str) -> None:
    async with recording(Rule(Refuse(code, reason), verb="create", plural="events", times=1)) as stage:
        with capture_logs() as logs:
            stage.tell("refused")
            stage.tell("next")

            assert await stage.counts() == {"next": 1}
    assert [(one["event"], one["code"]) for one in logs] == [("event refused", code)]


async def test_an_event_is_given_up_in_the_end() -> None:
    loop = asyncio.get_running_loop()
    async with recording(Rule(Refuse(500), verb="create", plural="events")) as stage:
        started = loop.time()
        with capture_logs() as logs:
            stage.tell()
            await stage.recorder.flushed()

    assert stage.faults.count("create", "events") == TRIES
    assert loop.time() - started == (TRIES - 1) * PAUSE_SECONDS
    assert [one["event"] for one in logs] == ["event given up"]
    assert stage.recorder.dropped == 1


async def test_one_that_hangs_does_not_hold_up_the_others() -> None:
    async with recording(Rule(Delay(20), verb="create", plural="events", times=3)) as stage:
        for number in range(40):
            stage.tell(f"event {number}")
        await asyncio.sleep(10)

        assert stage.faults.count("create", "events") == 40
        assert len(await stage.counts()) == 40


async def test_when_too_many_wait_the_oldest_of_who_has_most_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING", 10)
    async with recording() as stage:
        stage.recorder.record(subject(namespace="quiet"), "Normal", "Reason", "quiet")
        for number in range(12):
            stage.recorder.record(subject(namespace="flood"), "Normal", "Reason", str(number))
        await stage.recorder.flushed()

        assert stage.recorder.dropped == 3
        assert {one["message"] for one in stage.made()} == {"quiet", *map(str, range(3, 12))}


async def test_what_tells_of_children_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    async with recording() as stage:
        stage.recorder.record(JOB, "Normal", "SuccessfulCreatePod", "child", priority=EventPriority.CHILD)
        for message in ("failed", "ended"):
            stage.recorder.record(JOB, "Normal", "Reason", message)
        await stage.recorder.flushed()

        assert [one["message"] for one in stage.made()] == ["failed", "ended"]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is forgotten is made anew, where one that is remembered is counted up."""
    monkeypatch.setattr(module, "REMEMBERED", 2)
    async with recording() as stage:
        for message in ("first", "second", "third", "first", "third"):
            stage.tell(message)
            await stage.recorder.flushed()

        told = sorted((one["message"], one["count"]) for one in await stage.events())
        assert told == [("first", 1), ("first", 1), ("second", 1), ("third", 2)]


async def test_flushing_nothing_takes_no_time() -> None:
    async with recording() as stage:
        async with asyncio.timeout(0.001):
            await stage.recorder.flushed()

        assert await stage.events() == []


async def test_who_may_not_write_any_more_tells_nothing() -> None:
    seconds = [0.0]
    async with recording(permit=lambda: seconds[0], senders=1) as stage:
        for message, permitted in (("led", 5.0), ("led no more", 0.0), ("led again", 5.0)):
            seconds[0] = permitted
            stage.tell(message)
            await stage.recorder.flushed()

        assert sorted(await stage.counts()) == ["led", "led again"]
        assert stage.recorder.dropped == 1


async def test_what_is_not_pressing_goes_out_one_at_a_time_and_holds_up_nothing() -> None:
    async with recording(Rule(Delay(0.3), verb="create", plural="events")) as stage:
        loop = asyncio.get_running_loop()
        for number in range(10):
            stage.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(0.15)
        stage.recorder.record(JOB, "Warning", "Failed", "it has failed")
        await asyncio.sleep(0.6)

        told = [one["message"] for one in stage.made()]
        assert told == ["pod 0", "it has failed", "pod 1", "pod 2"]

        before = loop.time()
        await stage.recorder.flushed()
        assert loop.time() - before < 1, "who stops waits for all at once"
        assert len(stage.made()) == 11


async def test_what_has_waited_for_long_waits_for_no_turn() -> None:
    async with recording(Rule(Delay(0.3), verb="create", plural="events"), senders=4) as stage:
        for number in range(12):
            stage.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(1.1)
        assert len(stage.made()) == 4, "one after the other"
        await asyncio.sleep(0.2)
        assert len(stage.made()) == 8, "all senders together"


async def test_the_more_wait_the_longer_each_waits_for_its_turn() -> None:
    """Those of many jobs at once are not behind time when they take as long as so many do."""
    slow = Rule(Delay(0.5), verb="create", plural="events")
    async with recording(slow, senders=4) as stage:
        for number in range(IN_TURN_PER_SECOND * 2):
            stage.recorder.record(
                JOB, "Normal", "SuccessfulCreatePod", f"pod {number}", priority=EventPriority.CHILD
            )
        await asyncio.sleep(2.9)
        assert len(stage.made()) == 6, "one after the other"
        await asyncio.sleep(0.2)
        assert len(stage.made()) == 10, "all senders together"


async def test_an_event_that_has_to_be_tried_again_gives_its_place_to_others() -> None:
    refuse = Rule(Refuse(500, "InternalError"), verb="create", containing=b"first", times=1)
    async with recording(refuse) as stage:
        for message in ("first", "second"):
            stage.recorder.record(JOB, "Normal", "SuccessfulCreatePod", message, priority=EventPriority.CHILD)
        await asyncio.sleep(PAUSE_SECONDS / 2)
        assert [one["message"] for one in stage.made()] == ["first", "second"]
        await stage.recorder.flushed()
        assert len(await stage.events()) == 2


async def test_similar_reports_beyond_the_first_share_an_event() -> None:
    async with recording() as stage:
        for number in range(5000):
            stage.report(f"pod-{number}: no image")
        counts = await stage.counts()

    assert set(counts) == {
        *(f"pod-{number}: no image" for number in range(REPORTED_SINGLY)),
        f"{COMBINED}pod-4999: no image",
    }
    assert counts[f"{COMBINED}pod-4999: no image"] == 5000 - REPORTED_SINGLY
    assert stage.faults.count("create") + stage.faults.count("patch") == REPORTED_SINGLY + 1


async def test_a_shared_event_goes_on_counting_and_has_the_newest_message() -> None:
    async with recording() as stage:
        for number in range(REPORTED_SINGLY + 1):
            stage.report(f"pod-{number}")
        await stage.recorder.flushed()
        stage.report("pod-99")
        counts = await stage.counts()

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
async def test_other_reports_are_not_combined_with_them(other: dict[str, str]) -> None:
    async with recording() as stage:
        for number in range(20):
            stage.report(f"pod-{number}")
        stage.report("pod-99", **other)

        assert "pod-99" in await stage.counts()


async def test_reports_after_a_long_silence_begin_anew() -> None:
    async with recording() as stage:
        for number in range(20):
            stage.report(f"pod-{number}")
        await asyncio.sleep(SIMILAR_SECONDS + 1)
        stage.report("pod-99")

        assert "pod-99" in await stage.counts()


async def test_the_reports_of_a_job_are_limited_and_its_state_is_not() -> None:
    async with recording() as stage:
        for number in range(200):
            stage.report(f"pod-{number}", similar=f"trouble {number}")
            await asyncio.sleep(0.1)
        stage.report("of another job", uid="uid-2")
        stage.tell("the job has failed")
        counts = await stage.counts()

    assert len([one for one in counts if one.startswith("pod-")]) == REPORTS_AT_ONCE
    assert {"of another job", "the job has failed"} <= counts.keys()
    assert stage.recorder.limited == 200 - REPORTS_AT_ONCE
    assert stage.recorder.dropped == 0


async def test_a_limited_job_reports_again_after_a_while_and_counts_what_it_left_out() -> None:
    async with recording() as stage:
        for _ in range(100):
            stage.report("pod-1")
            await stage.recorder.flushed()
        assert stage.faults.count("create") + stage.faults.count("patch") == REPORTS_AT_ONCE
        assert await stage.counts() == {"pod-1": REPORTS_AT_ONCE}
        await asyncio.sleep(1 / REPORTS_PER_SECOND + 1)
        stage.report("pod-1")

        assert await stage.counts() == {"pod-1": 101}


async def test_a_flood_in_one_namespace_delays_another_by_its_turns_only() -> None:
    async with recording() as stage:
        for number in range(1000):
            stage.recorder.record(
                subject(uid=str(number), namespace="flood"), "Normal", "Reason", str(number)
            )
        stage.recorder.record(subject(namespace="quiet"), "Normal", "Reason", "quiet")
        await stage.recorder.flushed()

        assert "quiet" in [one["message"] for one in stage.made()][:10]


async def test_the_state_of_jobs_goes_before_reports() -> None:
    async with recording(senders=1) as stage:
        for number in range(10):
            stage.report(f"pod-{number}", uid=str(number))
        stage.tell("the job has failed")
        await stage.recorder.flushed()

        assert stage.made()[0]["message"] == "the job has failed"


async def test_a_namespace_that_takes_no_events_for_now_holds_up_no_other() -> None:
    refuse = Rule(Refuse(500, "InternalError"), verb="create", plural="events", namespace="broken")
    async with recording(refuse) as stage:
        for number in range(100):
            stage.recorder.record(
                subject(uid=str(number), namespace="broken"), "Normal", "Reason", str(number)
            )
        stage.tell("quiet")
        await asyncio.sleep(PAUSE_SECONDS / 2)

        assert "quiet" in [one["message"] for one in stage.made()]


async def test_repeats_while_an_event_is_being_sent_are_counted_in_one_more_write() -> None:
    async with recording(Rule(Delay(1), verb="create", plural="events")) as stage:
        stage.tell()
        await asyncio.sleep(0.5)
        for _ in range(50):
            stage.tell()

        assert await stage.counts() == {"something": 51}
        assert (stage.faults.count("create"), stage.faults.count("patch")) == (1, 1)
