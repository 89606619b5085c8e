"""The controller's process is killed with SIGKILL at any of its calls to a real API server; each job reaches the same end.

A proxy in front of the server stops many jobs, each before or after another call; then a single kill hits all of them. The
controller that comes next is killed as well, where it takes them up.
tests/controller/test_crash_recovery.py does the same at every call on the embedded server.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig, write_private
from rallypoint.testing.controlplane.process import Process
from rallypoint.testing.service import OPERATOR_NAMESPACE, install
from tests.support.actors import Actors
from tests.support.breakpoint_proxy import Breakpoint, BreakpointProxy
from tests.support.crash_injection import CrashPoint, Moment
from tests.support.history import record_history
from tests.support.scenarios import WHOLE, Outcome, ScenarioRunner

AT_ONCE = 16
"""Jobs that are cut by one kill."""
EVENTS_AT_ONCE = 3
"""Of these, jobs that are held at an event: the controller sends four at once, and the others need a way."""
SECOND_BREAKPOINTS = [Breakpoint(CrashPoint(number, moment)) for number in (1, 2, 3) for moment in Moment]
"""Where jobs are cut that have been cut before: among the first calls of the next controller."""
REACH_SECONDS = 120.0
"""Much more than all of them need to get there."""


@contextmanager
def controller(plane: ControlPlane, namespace: str, url: str) -> Iterator[Process]:
    """A controller of one namespace, behind a breakpoint proxy."""
    token = (plane.service_account_folder(OPERATOR_NAMESPACE, "training-operator") / "token").read_text()
    file = write_private(
        plane.directory / "kubeconfigs" / f"{namespace}.yaml",
        kubeconfig(url, plane.authority.pem, token, user="training-operator", namespace=namespace),
    )
    flags = (
        f"--kubeconfig={file}",
        f"--namespace={namespace}",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--events=compact",
        f"--controller-threads={4 * AT_ONCE}",  # what is held must not keep others back
        f"--kube-api-in-flight={16 * AT_ONCE}",
    )
    log = plane.directory / "logs" / f"killed-{namespace}.log"
    process = Process("controller", [sys.executable, "-m", "controller", *flags], log)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def rounds(calls: int, events: int) -> Iterator[list[Breakpoint]]:
    """Each call and each event once, before it and after it, so many in a round as do not hinder each other."""
    others = [Breakpoint(CrashPoint(number, moment)) for number in range(1, calls + 1) for moment in Moment]
    event_holds = [
        Breakpoint(CrashPoint(number, moment), is_event=True)
        for number in range(1, events + 1)
        for moment in Moment
    ]
    while others or event_holds:
        yield others[: AT_ONCE - EVENTS_AT_ONCE] + event_holds[:EVENTS_AT_ONCE]
        del others[: AT_ONCE - EVENTS_AT_ONCE], event_holds[:EVENTS_AT_ONCE]


@pytest.mark.full
async def test_a_process_killed_at_any_call_reaches_the_same_end(
    control_plane: ControlPlane, namespace: str, crds: list[Path]
) -> None:
    install(control_plane)
    connection = await from_kubeconfig(str(control_plane.kubeconfig()))
    async with (
        Client(connection, user_agent="test") as client,
        record_history(client, namespace) as history,
        asyncio.TaskGroup() as group,
    ):
        runner = ScenarioRunner(Actors(client, namespace), history)
        lives: dict[str, asyncio.Task[None]] = {}

        def begin(name: str) -> None:
            lives[name] = group.create_task(runner.run_scenario(WHOLE, name))

        async def is_reached(proxy: BreakpointProxy, name: str) -> None:
            """Held, or over: a life may have fewer calls than another."""
            holding = group.create_task(proxy.reached[name].wait())
            await asyncio.wait([holding, lives[name]], return_when=asyncio.FIRST_COMPLETED)
            holding.cancel()

        async with BreakpointProxy(connection) as proxy:
            with controller(control_plane, namespace, proxy.url):
                begin("cut-0")
                await lives["cut-0"]
        calls, events = proxy.calls["cut-0", False], proxy.calls["cut-0", True]
        again: dict[str, Breakpoint] = {}
        reached_again = 0
        for points in [*rounds(calls, events), []]:
            new = {f"cut-{len(lives) + at}": point for at, point in enumerate(points)}
            async with BreakpointProxy(connection, {**again, **new}) as proxy:
                with controller(control_plane, namespace, proxy.url) as process:
                    for name in new:
                        begin(name)
                    async with asyncio.timeout(REACH_SECONDS):
                        await asyncio.gather(*(is_reached(proxy, name) for name in [*again, *new]))
                    os.kill(process.pid, signal.SIGKILL)
            reached_again += sum(proxy.reached[name].is_set() for name in again)
            again = dict(zip(new, itertools.cycle(SECOND_BREAKPOINTS), strict=False))
        async with BreakpointProxy(connection) as proxy:
            with controller(control_plane, namespace, proxy.url) as process:
                await asyncio.gather(*lives.values())
                log = process.log.read_text()

    assert calls >= 12  # pods, Services, deletes and at least some statuses: this was no empty life
    assert reached_again > len(lives) / 3  # many more on a machine that is not busy
    outcomes = {name: Outcome.of(name, history) for name in lives}
    assert outcomes == dict.fromkeys(lives, WHOLE.outcome)
    assert "Traceback" not in log
    assert " cannot " not in log  # RBAC's word
