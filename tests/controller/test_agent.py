"""The agent of restarts in place, with real processes on loopback."""

import ast
import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from api.job import JobStatus
from api.meta import PODS
from api.restart_report import EXIT_CODE, report_in
from controller.agent import RESTART_EXIT_CODE, Agent
from controller.domain import Present
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from controller.policy import recovery
from controller.policy.in_place import Agents
from rallypoint.testing.agents import AGENT, ContainerProcess
from tests.support.agents import agent_settings
from tests.support.builders import UID, pytorch_job

pytestmark = pytest.mark.looptime(False)

MEET = """
touch {folder}/$RALLYPOINT_RESTART_ATTEMPT-$RANK
while [ $(ls {folder}/$RALLYPOINT_RESTART_ATTEMPT-* | wc -l) -lt {ranks} ]; do sleep 0.02; done
"""
"""Each rank waits for all others of its attempt."""
HANG = "while :; do sleep 0.02; done\n"
RESTART = {"action": "RestartJob"}


def only(attempt: int, ranks: str, command: str) -> str:
    """Return a script that runs the command in this attempt, in these ranks."""
    return f"case $RALLYPOINT_RESTART_ATTEMPT/$RANK in {attempt}/[{ranks}]) {command};; esac\n"


@dataclass
class Run:
    """A job of some ranks, each in a process of its own."""

    folder: Path
    pods: dict[int, ContainerProcess]
    codes: dict[int, asyncio.Task[int]] = field(default_factory=dict)

    async def ended(self) -> dict[int, int]:
        """Return the exit codes of all pods by rank."""
        async with asyncio.timeout(30):
            return {rank: await task for rank, task in self.codes.items()}

    @property
    def begun(self) -> list[str]:
        """Return which rank has begun which attempt."""
        return sorted(path.name for path in self.folder.glob("*-*"))

    @property
    def restarted(self) -> dict[int, list[tuple[int, int]]]:
        """Return the restarts of containers by rank: attempt and exit code."""
        return {
            rank: [(report.attempt, report.exit_code) for report in pod.reports]
            for rank, pod in self.pods.items()
            if pod.reports
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def all_of(*attempts: int, ranks: int = 3) -> list[str]:
    return [f"{attempt}-{rank}" for attempt in attempts for rank in range(ranks)]


@asynccontextmanager
async def running(
    folder: Path,
    script: str,
    *rules: dict[str, Any],
    absent: tuple[int, ...] = (),
    env: dict[str, str] | None = None,
    **policy: Any,
) -> AsyncIterator[Run]:
    """Run a job of three ranks, which meet and then run the script."""
    marks = folder / "marks"
    marks.mkdir()
    container = {
        "name": "pytorch",
        "image": "img",
        "command": ["sh", "-c", MEET.format(folder=marks, ranks=3 - len(absent)) + script],
    }
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    given = {"rules": rules or (RESTART,), "restartStrategy": "InPlaceRestart", **policy}
    job = pytorch_job(
        master={"template": template}, worker={"template": template}, run_policy={"failurePolicy": given}
    )
    roles, options, port = PYTORCH.roles(job), Options(container_restart_rules=True), free_port()
    agents = Agents.of(PYTORCH, job, roles, options)  # pyright: ignore[reportArgumentType] - as in ``kinds.ALL``
    assert agents
    bodies = [
        agents.added(recovery.marked(child, JobStatus()), role, JobStatus()).body()
        for role, _, child in PYTORCH.wanted(job, roles, options, Present())
        if child.resource == PODS
    ]
    pods = {
        rank: ContainerProcess(body, folder, port=port, env=env)
        for rank, body in enumerate(bodies)
        if rank not in absent
    }
    run = Run(marks, pods)
    async with AsyncExitStack() as stack:
        for rank, pod in pods.items():
            run.codes[rank] = asyncio.create_task(pod.run())
            stack.push_async_callback(asyncio.wait, [run.codes[rank]])
            stack.callback(run.codes[rank].cancel)
        yield run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.02)


async def test_all_commands_begin_again_and_one_container_restarts(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "1", "exit 7") + only(0, "02", HANG)) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.begun == all_of(0, 1)
    assert run.restarted == {1: [(0, 7)]}


async def test_the_command_of_the_coordinator_can_fail_as_any_other(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "0", "exit 7") + only(0, "12", HANG)) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.begun == all_of(0, 1)
    assert run.restarted == {0: [(0, 7)]}


async def test_failures_at_one_time_are_one_restart(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "012", "exit 7")) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.begun == all_of(0, 1)
    assert sum(len(restarts) for restarts in run.restarted.values()) == 1


async def test_a_command_killed_by_a_signal_restarts_all(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "2", "kill -9 $$") + only(0, "01", HANG)) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.restarted == {2: [(0, 137)]}


async def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = only(0, "1", "exit 7") + only(0, "02", f"trap '' TERM; {HANG}")
    async with running(tmp_path, script) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.begun == all_of(0, 1)


async def test_processes_that_a_command_left_are_killed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = only(0, "1", f"sleep 300 & echo $! > {left}; exit 7") + only(0, "02", HANG)
    async with running(tmp_path, script) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    pid = int(left.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_an_exit_code_that_no_rule_restarts_ends_the_container(tmp_path: Path) -> None:
    fails = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}
    async with running(tmp_path, only(0, "1", "exit 2") + HANG, fails, RESTART) as run:
        assert await run.codes[1] == 2

        assert not run.codes[0].done()
    assert not run.restarted


async def test_the_restart_after_the_last_one_ends_the_container(tmp_path: Path) -> None:
    async with running(
        tmp_path, only(0, "1", "exit 7") + only(1, "2", "exit 8") + HANG, maxRestarts=1
    ) as run:
        await until(lambda: run.begun == all_of(0, 1))
        assert await run.codes[2] == 8

    assert run.restarted == {1: [(0, 7)]}


async def test_restarts_that_do_not_count_have_no_limit(tmp_path: Path) -> None:
    script = only(0, "1", "exit 7") + only(0, "02", HANG)
    uncounted = {"action": "RestartJobAndIgnoreMaxRestarts"}
    async with running(tmp_path, script, uncounted, maxRestarts=0) as run:
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert [report.counted for report in run.pods[1].reports] == [0]


async def test_with_a_pod_missing_the_container_ends(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "1", "exit 7") + HANG, absent=(2,)) as run:
        assert await run.codes[1] == 7


async def test_without_the_coordinator_the_container_ends(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "1", "exit 7") + HANG, absent=(0,)) as run:
        assert await run.codes[1] == 7


async def test_after_a_success_the_next_failure_ends_the_container(tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    script = (
        only(0, "2", "exit 0")
        + only(0, "1", f"while [ ! -e {finished} ]; do sleep 0.02; done; exit 7")
        + HANG
    )
    async with running(tmp_path, script) as run:
        assert await run.codes[2] == 0
        finished.touch()
        assert await run.codes[1] == 7


async def test_sigterm_reaches_the_command(tmp_path: Path) -> None:
    async with running(tmp_path, f"trap 'exit 5' TERM; touch {tmp_path}/ready-$RANK; {HANG}") as run:
        await until(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
        run.pods[1].send(signal.SIGTERM)

        assert await run.codes[1] == 5
        assert not run.codes[0].done()


async def test_the_report_has_the_termination_message_of_the_command(tmp_path: Path) -> None:
    log = tmp_path / "train-worker-0" / "termination-log"
    script = only(0, "1", f"echo out of luck > {log}; exit 7") + only(0, "02", HANG)
    async with running(tmp_path, script) as run:
        await run.ended()

    assert [report.message for report in run.pods[1].reports] == ["out of luck\n"]


async def test_a_program_that_a_shell_cannot_find_is_a_failure_as_any_other(tmp_path: Path) -> None:
    async with running(tmp_path, only(0, "1", "exec no-such-program") + only(0, "02", HANG)) as run:
        await until(lambda: bool(run.restarted))

    assert run.restarted == {1: [(0, 127)]}


async def test_the_exit_code_of_the_agent_is_no_restart_if_it_is_the_commands_own(tmp_path: Path) -> None:
    fails = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [221]}}
    async with running(tmp_path, only(0, "1", f"exit {EXIT_CODE}") + HANG, fails) as run:
        assert await run.codes[1] == 221


async def test_an_image_without_python_runs_the_command_alone(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "touch", "ls", "wc", "sleep"):
        (programs / name).symlink_to(str(shutil.which(name)))
    async with running(tmp_path, only(0, "1", "exit 7") + HANG, env={"PATH": str(programs)}) as run:
        assert await run.codes[1] == 7
        assert run.begun == all_of(0)


async def test_strangers_change_nothing(tmp_path: Path) -> None:
    async with running(
        tmp_path,
        only(0, "1", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 7") + only(0, "02", HANG),
    ) as run:
        await until(lambda: run.begun == all_of(0))
        port = json.loads(run.pods[0]._env["RALLYPOINT_AGENT"])["port"]
        hello = {"name": "train-worker-1", "attempt": 0, "running": True}
        for line in (
            b"\x00\xff\n",
            b"[]\n",
            b'"text"\n',
            b"x" * 100_000 + b"\n",
            json.dumps({**hello, "token": "wrong"}).encode() + b"\n",
            json.dumps({**hello, "token": None}).encode() + b"\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(line)
            writer.write(b'{"failed": 1, "action": "counted"}\n')
            assert await reader.read() == b""
            writer.close()
        assert not run.restarted

        (tmp_path / "go").touch()
        assert await run.ended() == {0: 0, 1: 0, 2: 0}
    assert run.restarted == {1: [(0, 7)]}


async def test_an_agent_that_lost_its_connection_takes_part_in_the_next_restart(tmp_path: Path) -> None:
    """A connection with the name of a member replaces that member's, which connects again."""
    script = only(0, "1", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 7") + only(0, "02", HANG)
    async with running(tmp_path, script) as run:
        await until(lambda: run.begun == all_of(0))
        port = json.loads(run.pods[0]._env["RALLYPOINT_AGENT"])["port"]
        await asyncio.sleep(0.3)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        hello = {"token": UID, "name": "train-worker-1", "attempt": 0, "running": True}
        writer.write(json.dumps(hello).encode() + b"\n")
        assert await reader.read() == b"", "the member's own connection has not replaced this one"
        writer.close()
        (tmp_path / "go").touch()
        assert await run.ended() == {0: 0, 1: 0, 2: 0}

    assert run.begun == all_of(0, 1)


def test_the_agent_is_python_3_6() -> None:
    ast.parse(AGENT.read_text(), feature_version=(3, 6))


async def test_a_signal_that_meets_the_end_of_the_command_does_not_lose_its_exit_code(tmp_path: Path) -> None:
    agent = Agent(agent_settings(tmp_path), "127.0.0.1", ["sh", "-c", "exit 7"], asyncio.get_running_loop())
    agent._start()
    child = agent._child
    assert child is not None
    # It has ended, and SIGCHLD waits in the loop.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it takes milliseconds

    agent._forward(signal.SIGTERM)
    agent._reap()

    async with asyncio.timeout(1):
        assert await agent.result == 7


@pytest.mark.parametrize("text", ["显存不足" * 300, "█" * 1000, "\x1b[31m" * 250, '"\\' * 500, "a" * 1000])
async def test_a_report_fits_into_a_termination_message(tmp_path: Path, text: str) -> None:
    agent = Agent(agent_settings(tmp_path), "127.0.0.1", ["true"], asyncio.get_running_loop())
    log = tmp_path / "termination-log"
    log.write_text(text)

    agent._report({"attempt": 0, "exitCode": 7, "counted": 1, "pauseSeconds": 1})

    # Source: kubelet, pkg/kubelet/container, MaxContainerTerminationMessageLength; it reads the end of the file.
    kept = log.read_bytes()[-4096:].decode(errors="replace")
    report = report_in(RESTART_EXIT_CODE, kept)
    assert report is not None
    assert report.exit_code == 7
    assert text.endswith(report.message)
    assert report.message
