"""What one read of a pod's log or annotation shows."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from api.progress import ExecProgress, LogProgress, Progress
from controller.kube.client import Client
from controller.kube.remote_command import CommandError
from controller.policy.hangs import Reading, RunningPod
from controller.reconcile.progress.sources import (
    MOST_BYTES,
    MOST_LINES,
    Annotation,
    Command,
    LastLine,
    Pattern,
    Unread,
    source_for,
)
from tests.support.builders import NOON
from tests.support.containers import Containers

POD = RunningPod("worker", "train-worker-0", "uid-0", "node", "pytorch", NOON)


class Answers:
    """A client that answers with these bodies, one after the other, and keeps the requests."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = [*bodies]
        self.queries: list[Mapping[str, str]] = []
        self.paths: list[str] = []

    async def request(self, method: str, path: str, *, params: Mapping[str, str], **_: Any) -> bytes:
        self.paths.append(path)
        self.queries.append(params)
        return self._bodies.pop(0)

    async def get(self, resource: object, namespace: str, name: str, **_: Any) -> bytes:
        return self._bodies.pop(0)


def line(second: int, text: str, fraction: str = ".000000000") -> bytes:
    return f"2026-01-01T12:00:{second:02}{fraction}Z {text}\n".encode()


async def test_the_time_of_the_last_line_is_read_and_no_more() -> None:
    client = Answers(line(5, "step 1"), line(5, "step 1"), line(6, "step 2"), b"")
    source = LastLine(cast(Client, client), LogProgress())

    found = [await source.read("ml", POD) for _ in range(4)]

    assert [reading.token[17:19] for reading in found] == ["05", "05", "06", ""]
    assert found[2].at == (found[0].at or 0) + 1
    assert client.paths[0] == "/api/v1/namespaces/ml/pods/train-worker-0/log"
    assert client.queries[0] == {
        "container": "pytorch",
        "timestamps": "true",
        "tailLines": "1",
        "limitBytes": "64",
    }


async def test_the_named_container_is_read() -> None:
    client = Answers(b"")
    await LastLine(cast(Client, client), LogProgress(container="logger")).read("ml", POD)

    assert client.queries[0]["container"] == "logger"


async def test_text_of_the_kubelet_is_no_line() -> None:
    source = LastLine(
        cast(Client, Answers(b"unable to retrieve container logs for containerd://1")), LogProgress()
    )

    with pytest.raises(Unread, match="no timestamps"):
        await source.read("ml", POD)


def pattern(client: "Answers | Log", text: str = r"step \d+") -> Pattern:
    return Pattern(cast(Client, client), LogProgress(pattern=text), text)


async def test_only_new_lines_that_match_are_progress() -> None:
    client = Answers(
        line(5, "step 1") + line(5, "waiting", ".5"),
        line(5, "step 1") + line(5, "waiting", ".5") + line(7, "waiting"),
        line(7, "waiting") + line(8, "loss 1 step 2") + line(9, "waiting"),
        line(9, "waiting"),
    )
    source = pattern(client)

    found = [await source.read("ml", POD) for _ in range(4)]

    assert [reading.token for reading in found] == [
        "2026-01-01T12:00:05.000000000Z",
        "",
        "2026-01-01T12:00:08.000000000Z",
        "",
    ]
    assert [query["sinceTime"] for query in client.queries] == [
        "",
        "2026-01-01T12:00:05.5Z",
        "2026-01-01T12:00:07.000000000Z",
        "2026-01-01T12:00:09.000000000Z",
    ]


async def test_bytes_that_are_no_text_are_searched() -> None:
    source = pattern(Answers(b"2026-01-01T12:00:05Z \xff\xfe step 7\n"))

    assert (await source.read("ml", POD)).token


async def test_more_than_one_read_may_be_long_is_unknown() -> None:
    source = pattern(Answers(line(5, "x" * MOST_BYTES), line(6, "step 1") + line(6, "x" * MOST_BYTES)))

    with pytest.raises(Unread):
        await source.read("ml", POD)
    assert (await source.read("ml", POD)).token


async def test_a_pattern_takes_linear_time() -> None:
    text = "a" * 30_000
    source = pattern(Answers(line(5, text)), r"(a+)+$b")

    assert await source.read("ml", POD) == Reading("")


def pod(value: str | None, uid: str = "uid-0", **entry: Any) -> bytes:
    annotations = {} if value is None else {"example.com/step": value}
    managed = [{"manager": "kubelet", "time": "2026-01-01T13:00:00Z", "fieldsV1": {}}, entry]
    return orjson.dumps({"metadata": {"uid": uid, "annotations": annotations, "managedFields": managed}})


async def test_each_value_of_the_annotation_is_progress() -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, "f:example.com/step": {}}}}
    entry: dict[str, Any] = {"time": "2026-01-01T12:00:00Z", "fieldsV1": fields}
    source = Annotation(cast(Client, Answers(pod(None), pod(""), pod("7", **entry))), "example.com/step")

    found = [await source.read("ml", POD) for _ in range(3)]

    assert found == [Reading(""), Reading("="), Reading("=7", NOON.timestamp())]


async def test_another_pod_of_the_name_shows_nothing() -> None:
    source = Annotation(cast(Client, Answers(pod("7", "uid-1"))), "example.com/step")

    with pytest.raises(Unread):
        await source.read("ml", POD)


def command(containers: Containers, *words: str, free: asyncio.Semaphore | None = None) -> Command:
    return Command(cast(Client, containers), ExecProgress(command=list(words)), free or asyncio.Semaphore(1))


async def test_a_command_reports_progress_by_its_exit_code_and_another_output() -> None:
    outputs: dict[str, str | Exception | None] = {}
    containers = Containers(outputs, {})
    source = command(containers, "cat", "/tmp/step")
    found: list[str] = []

    for output in ("step 1\n", "step 1\n", "step 2\n", "", "", None):
        outputs[POD.name] = output
        found.append((await source.read("ml", POD)).token)
    outputs[POD.name] = "step 3"
    containers.status = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "1"}]}}
    found.append((await source.read("ml", POD)).token)

    assert found == ["=b'step 1'", "=b'step 1'", "=b'step 2'", "run 0", "run 1", "", ""]
    assert containers.commands[POD.name] == ["cat", "/tmp/step"]


async def test_a_command_that_cannot_run_shows_nothing() -> None:
    containers = Containers({POD.name: "x"}, {})
    containers.status = {"status": "Failure", "message": "no such file"}

    with pytest.raises(CommandError):
        await command(containers, "a").read("ml", POD)


async def test_commands_wait_for_others_to_end() -> None:
    source = command(Containers({POD.name: "x"}, {}), "a", free=asyncio.Semaphore(0))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await source.read("ml", POD)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, LastLine, id="logs by default"),
        pytest.param({"logs": {"container": "a"}}, LastLine, id="logs"),
        pytest.param({"logs": {"pattern": "a"}}, Pattern, id="a pattern"),
        pytest.param({"annotation": "a"}, Annotation, id="an annotation"),
        pytest.param({"exec": {"command": ["a"]}}, Command, id="a command"),
    ],
)
def test_the_job_names_its_source(fields: Mapping[str, Any], expected: type) -> None:
    source = source_for(cast(Client, Answers()), Progress.model_validate(fields), asyncio.Semaphore(1))

    assert isinstance(source, expected)


class Unreachable:
    """A client whose API server never finishes the handshake: it dials a kubelet that does not answer."""

    @asynccontextmanager
    async def socket(self, path: str, protocols: object) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield


async def test_a_container_that_cannot_be_reached_is_not_silent() -> None:
    source = Command(
        cast(Client, Unreachable()), ExecProgress(command=["cat", "/tmp/step"]), asyncio.Semaphore(1)
    )

    with pytest.raises(TimeoutError):
        await source.read("ml", POD)


class Log:
    """A client of one pod that logs a number of lines between two reads, of which a few match."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, count: int, *, step_after: int = -1) -> None:
        for number in range(count):
            at = len(self.lines)
            stamp = f"2026-01-01T{12 + at // 36000}:{at // 600 % 60:02}:{at // 10 % 60:02}.{at % 10}00000000Z"
            self.lines.append(f"{stamp} {'step 1' if number == step_after else 'GET /healthz'}\n".encode())

    async def request(self, method: str, path: str, *, params: Mapping[str, str], **_: Any) -> bytes:
        since = params["sinceTime"][:19].encode()  # the server rounds to seconds
        tail = self.lines[-int(params["tailLines"]) :]
        return b"".join(line for line in tail if line[:19] >= since)[: int(params["limitBytes"])]


async def test_lines_between_two_reads_that_no_read_has_seen_are_not_taken_for_silence() -> None:
    log = Log()
    source = pattern(log)
    log.write(10)
    assert (await source.read("ml", POD)).token == ""

    log.write(MOST_LINES + 1000, step_after=500)
    with pytest.raises(Unread):
        await source.read("ml", POD)

    # What was not seen may have been progress; from then on silence counts again, also if the log stops.
    first, second = await source.read("ml", POD), await source.read("ml", POD)
    assert first.token
    assert second.token in {"", first.token}


async def test_a_long_read_without_a_gap_shows_silence() -> None:
    log = Log()
    source = pattern(log)
    log.write(MOST_LINES)
    await source.read("ml", POD)

    log.write(MOST_LINES - 1)
    assert (await source.read("ml", POD)).token == ""


async def test_a_log_that_stops_after_a_burst_that_no_read_takes_whole_is_silent() -> None:
    """The server rounds sinceTime to seconds, so each read gets the same cut answer."""
    burst = b"".join(line(5, "x" * 1000) for _ in range(MOST_LINES))[:MOST_BYTES]
    source = pattern(Answers(*[burst] * 4))

    with pytest.raises(Unread):
        await source.read("ml", POD)
    found = [await source.read("ml", POD) for _ in range(3)]
    assert found[0].token
    assert {reading.token for reading in found[1:]} <= {"", found[0].token}
