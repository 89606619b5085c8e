"""Stacks of silent pods: what the script prints of real processes, and what the collector makes of answers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from api.progress import Progress
from controller.kube import errors
from controller.kube.client import Client
from controller.policy.hangs import ObservedJob, RunningPod
from controller.reconcile.progress.stacks import ALL_SECONDS, MOST_PODS, SCRIPT, StackCollector
from rallypoint.testing.agents import AGENT
from tests.support.agents import agent_settings
from tests.support.builders import NOON
from tests.support.containers import Containers

PROGRAM = """
import faulthandler, signal, sys, time
if sys.argv[1]:
    faulthandler.register(getattr(signal, sys.argv[1]))
def step():
    print("ready", flush=True)
    time.sleep(60)
step()
"""


class Program:
    """A Python program that sleeps, marked as one of a pod."""

    def __init__(self, pod: str, registered: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, registered],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "RALLYPOINT_POD": pod},
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end(self) -> bytes:
        """Kill it, and return what it has written to standard error."""
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.end()


def run_script(pod: str, number: str = "") -> list[str]:
    """Run the script as in a container of that pod whose image has no py-spy."""
    env = {"PATH": "/usr/bin:/bin", "RALLYPOINT_POD": pod}
    script = ["sh", "-c", SCRIPT, "sh", number]
    return subprocess.run(script, env=env, capture_output=True, text=True, check=False).stdout.splitlines()


def test_the_script_prints_the_processes_of_its_pod_with_their_states(programs: list[Program]) -> None:
    programs += [Program("pod-a"), Program("pod-a"), Program("pod-b")]
    first, second, _ = (program.process.pid for program in programs)
    os.kill(second, signal.SIGSTOP)
    os.waitid(os.P_PID, second, os.WSTOPPED | os.WNOWAIT)

    lines = sorted(run_script("pod-a"), key=lambda line: int(line.split()[1].rstrip(",")))

    assert [line.partition(":")[0] for line in lines] == [
        f"process {first}, sleeping",
        f"process {second}, stopped",
    ]


def test_the_signal_makes_faulthandler_write_the_stack(programs: list[Program]) -> None:
    programs.append(Program("pod-a", "SIGUSR2"))

    assert run_script("pod-a", "12")[1:] == ["signaled"]

    assert programs[0].process.stderr is not None
    written = [programs[0].process.stderr.readline() for _ in range(2)]
    assert b"most recent call first" in written[0]
    assert b"line 7 in step" in written[1]
    assert programs[0].process.poll() is None


@pytest.mark.parametrize("registered", ["", "SIGUSR1"])
def test_a_program_that_does_not_handle_the_signal_gets_none(
    programs: list[Program], registered: str
) -> None:
    programs.append(Program("pod-a", registered))

    assert len(run_script("pod-a", "12")) == 1
    assert programs[0].process.poll() is None


def test_the_script_prints_no_command_lines(programs: list[Program]) -> None:
    programs.append(Program("pod-a"))

    assert "faulthandler" not in "".join(run_script("pod-a"))


def job(count: int, **fields: Any) -> ObservedJob:
    pods = tuple(
        RunningPod("worker", f"train-{index}", f"uid-{index}", "node", "pytorch", NOON)
        for index in range(count)
    )
    return ObservedJob("ml", "train", 60, Progress.model_validate(fields), 0, pods)


async def collected(
    outputs: Mapping[str, str | Exception | None],
    logs: Mapping[str, list[bytes]] | None = None,
    **fields: Any,
) -> tuple[dict[str, str], str]:
    given = job(len(outputs), **fields)
    return await StackCollector(cast(Client, Containers(outputs, logs or {}))).collect(given, given.pods)


async def test_each_pod_has_its_stack_or_the_lack_of_an_answer() -> None:
    found, note = await collected(
        {"train-0": "process 7, sleeping: python\n", "train-1": None, "train-2": ""}
    )

    assert found == {
        "uid-0": "process 7, sleeping: python",
        "uid-1": "no answer within 10 s",
        "uid-2": "no processes",
    }
    assert note == ""


async def test_a_missing_right_is_named_and_asked_for_once() -> None:
    refusal = errors.Forbidden(403, "Forbidden", "pods/exec is forbidden")
    sockets = Containers({f"train-{index}": refusal for index in range(40)}, {})
    given = job(40)

    found = await StackCollector(cast(Client, sockets)).collect(given, given.pods)

    assert found == ({}, "no stacks: pods/exec is forbidden in namespace ml")
    assert len(sockets.commands) < 40


async def test_stacks_in_the_log_belong_to_the_pod_that_was_signaled() -> None:
    def line(second: int, text: str) -> str:
        return f"2026-01-01T12:00:0{second}Z {text}\n"

    later = [
        *("Current thread 0x7f (most recent call first):", '  File "train.py", line 3 in step'),
        "a line of the program",
    ]
    logs = [
        line(1, "step 4").encode(),
        "".join([line(1, "step 4"), *(line(2, text) for text in later)]).encode(),
    ]
    output = "process 7, sleeping: python\nsignaled\n"

    found, _ = await collected({"train-0": output}, {"train-0": logs}, stackSignal="SIGUSR1")

    assert found["uid-0"].splitlines() == ["process 7, sleeping: python", *later[:2]]


async def test_a_large_job_takes_limited_time() -> None:
    outputs: dict[str, str | None] = dict.fromkeys(f"train-{index}" for index in range(100))
    outputs["train-0"] = "process 7, sleeping: python"
    loop = asyncio.get_running_loop()
    began = loop.time()

    found, _ = await collected(outputs)

    assert loop.time() - began <= ALL_SECONDS
    assert found["uid-0"] == "process 7, sleeping: python"
    assert len(found) <= MOST_PODS


def test_the_stack_signal_does_not_end_a_command_below_an_agent(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "RALLYPOINT_POD": "pod-a",
        "RALLYPOINT_AGENT": json.dumps(agent_settings(tmp_path)),
        "RALLYPOINT_AGENT_ADDRESS": "127.0.0.1",
    }
    # As `torchrun`, or a shell in front of the program: it does not handle the signal.
    agent = subprocess.Popen(
        [sys.executable, "-I", "-S", str(AGENT), "sh", "-c", "echo ready; sleep 60; :"],
        env=env,
        stdout=subprocess.PIPE,
    )
    try:
        assert agent.stdout is not None
        agent.stdout.readline()
        script = ["sh", "-c", SCRIPT, "sh", str(signal.SIGUSR1.value)]
        given = {"PATH": "/usr/bin:/bin", "RALLYPOINT_POD": "pod-a"}
        lines = subprocess.run(script, env=given, capture_output=True, text=True, check=True).stdout

        assert "signaled" not in lines
        assert agent.poll() is None
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=10)
