"""One pod from its binding to its end, on fake time and with fake processes."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods.container_state import Container
from rallypoint.local.node.pods.worker import PodWorker
from rallypoint.local.node.streams.logs import Logs
from rallypoint.local.node.volumes.references import Unresolved

EPOCH = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class Pretended:
    """A process that ends when the test says so, or by a signal it does not ignore."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.exit = asyncio.get_running_loop().create_future()
        self.signals: list[signal.Signals] = []
        self._stubborn = stubborn

    async def wait(self) -> int:
        try:
            return int(await asyncio.shield(self.exit))
        except asyncio.CancelledError:
            self.send(signal.SIGKILL)
            raise

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if not self.exit.done() and (number == signal.SIGKILL or not self._stubborn):
            self.exit.set_result(128 + number)


class FakePodRuntime:
    """Records what the worker of a pod does."""

    def __init__(self, folder: Path) -> None:
        self.refused = ""
        self.logs = Logs(folder)
        self.isolation: Any = SimpleNamespace(
            node_address="127.9.0.1",
            pod_address=lambda _: "127.9.1.3",
        )
        self.fault: Exception | None = None
        self.missing = ""
        self.unstartable = ""
        self.stubborn = False
        self.processes: list[Pretended] = []
        self.started: list[tuple[str, float]] = []
        self.statuses: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.forgotten = False
        self.words = ""
        self.entered: list[tuple[str, float]] = []
        self.answers: dict[str, int] = {}
        """The exit codes of commands that probes and hooks run; 0 where none is given."""

    def rejection(self, pod: Any) -> str:
        return self.refused

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())

    async def prepare(self, pod: Any) -> None:
        if self.fault:
            raise self.fault
        if self.missing:
            raise Unresolved(self.missing)

    async def start(self, pod: Any, container: Container, output: Callable[[bytes], None]) -> Pretended:
        self.started.append((container.name, asyncio.get_running_loop().time()))
        if self.unstartable:
            raise CannotStart(self.unstartable)
        self.processes.append(Pretended(stubborn=self.stubborn))
        return self.processes[-1]

    async def enter(self, pod: Any, container: Any, command: Sequence[str], streams: Any) -> Pretended:
        self.entered.append((" ".join(command), asyncio.get_running_loop().time()))
        process = Pretended()
        process.exit.set_result(self.answers.get(" ".join(command), 0))
        return process

    async def report(self, pod: Any, pod_status: dict[str, Any]) -> None:
        self.statuses.append(pod_status)

    def read_termination_message(self, pod: Any, container: Any) -> str:
        return self.words

    def record_event(self, pod: Any, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append((reason, message))

    def discard(self, pod: Any) -> None:
        self.forgotten = True

    @property
    def phases(self) -> list[str]:
        return [status["phase"] for status in self.statuses]

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.statuses[-1]["containerStatuses"][0]["state"]
        return state


@pytest.fixture
def runtime(tmp_path: Path) -> FakePodRuntime:
    return FakePodRuntime(tmp_path)


def pod(policy: str = "Never", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "x"}], **spec},
    }


@asynccontextmanager
async def running(
    runtime: FakePodRuntime, manifest: dict[str, Any]
) -> AsyncGenerator[tuple[PodWorker, asyncio.Task[None]]]:
    task = PodWorker(manifest, cast("Any", runtime))
    work = asyncio.create_task(task.run())
    await asyncio.sleep(0.1)
    yield task, work
    if not work.done():
        work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed"), (143, "Failed")])
async def test_from_start_to_end(runtime: FakePodRuntime, code: int, phase: str) -> None:
    async with running(runtime, pod()) as (_, work):
        runtime.processes[0].exit.set_result(code)
        await work

    assert runtime.phases == ["Pending", "Running", phase]
    assert runtime.state["terminated"]["exitCode"] == code
    assert runtime.forgotten


async def test_init_containers_run_before_the_others(runtime: FakePodRuntime) -> None:
    async with running(runtime, pod(initContainers=[{"name": "first", "image": "x"}])) as (_, work):
        assert runtime.started == [("first", 0.0)]
        runtime.processes[0].exit.set_result(0)
        await asyncio.sleep(0.1)
        assert [name for name, _ in runtime.started] == ["first", "main"]
        runtime.processes[1].exit.set_result(0)
        await work

    assert runtime.phases[-1] == "Succeeded"


async def test_restarts_wait_for_their_back_off(runtime: FakePodRuntime) -> None:
    async with running(runtime, pod("OnFailure")):
        for _ in range(3):
            runtime.processes[-1].exit.set_result(1)
            await asyncio.sleep(20)
        await asyncio.sleep(5)

    assert [round(at) for _, at in runtime.started] == [0, 0, 30, 60]
    assert runtime.statuses[-1]["containerStatuses"][0]["restartCount"] == 3
    assert [reason for reason, _ in runtime.events] == ["BackOff", "BackOff"]


async def test_a_program_that_does_not_exist_ends_the_container(runtime: FakePodRuntime) -> None:
    runtime.unstartable = 'exec: "nosuch": executable file not found in $PATH'
    async with running(runtime, pod()) as (_, work):
        await work
    ended = runtime.state["terminated"]

    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "StartError", runtime.unstartable)
    assert runtime.phases[-1] == "Failed"


async def test_a_missing_program_has_a_back_off_like_a_crash(runtime: FakePodRuntime) -> None:
    runtime.unstartable = "no"
    async with running(runtime, pod("OnFailure")):
        await asyncio.sleep(29)

    assert [round(at) for _, at in runtime.started] == [0, 0, 10]
    assert runtime.state["waiting"]["reason"] == "CrashLoopBackOff"


async def test_a_missing_config_map_is_waited_for(runtime: FakePodRuntime) -> None:
    runtime.missing = 'configmap "c" not found'
    async with running(runtime, pod()) as (_, work):
        assert runtime.state["waiting"] == {"reason": "ContainerCreating", "message": runtime.missing}
        runtime.missing = ""
        await asyncio.sleep(5)
        runtime.processes[0].exit.set_result(0)
        await work

    assert runtime.phases[-1] == "Succeeded"
    assert runtime.events == [("FailedMount", 'configmap "c" not found')]


async def test_a_pod_that_can_never_run_fails_and_says_why(runtime: FakePodRuntime) -> None:
    runtime.refused = "volume v"
    async with running(runtime, pod()) as (_, work):
        await work

    assert runtime.phases == ["Failed"]
    assert (runtime.statuses[-1]["reason"], runtime.statuses[-1]["message"]) == ("Refused", "volume v")
    assert runtime.state == {"waiting": {"reason": "Refused", "message": "volume v"}}
    assert runtime.events == [("Refused", "volume v")]
    assert runtime.started == []


async def test_a_node_error_is_reported_in_the_pod_status(runtime: FakePodRuntime) -> None:
    runtime.fault = ValueError("broken")
    async with running(runtime, pod()):
        waiting = runtime.state["waiting"]

    assert waiting["reason"] == "NodeError"
    assert "ValueError('broken')" in waiting["message"]


async def test_deletion_sends_sigterm_first(runtime: FakePodRuntime) -> None:
    async with running(runtime, pod("Always")) as (task, work):
        task.delete(runtime.now() + timedelta(seconds=30))
        await work

    assert runtime.processes[0].signals == [signal.SIGTERM]
    assert runtime.phases[-1] == "Failed"
    assert runtime.state["terminated"]["exitCode"] == 143


async def test_a_pod_that_waits_to_start_is_deleted_at_once(runtime: FakePodRuntime) -> None:
    worker = PodWorker(pod(), cast("Any", runtime))
    began = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(worker.wait_to_start(30))
    await asyncio.sleep(1)
    worker.delete(runtime.now())
    await waiting

    assert asyncio.get_running_loop().time() - began == pytest.approx(1)
    await worker.wait_to_start(0)


async def test_deletion_kills_a_process_that_ignores_sigterm(runtime: FakePodRuntime) -> None:
    runtime.stubborn = True
    async with running(runtime, pod()) as (task, work):
        began = asyncio.get_running_loop().time()
        task.delete(runtime.now() + timedelta(seconds=30))
        await work
        assert asyncio.get_running_loop().time() - began == pytest.approx(30)

    assert runtime.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert runtime.state["terminated"]["exitCode"] == 137


async def test_a_second_deletion_can_only_shorten_the_grace(runtime: FakePodRuntime) -> None:
    runtime.stubborn = True
    async with running(runtime, pod()) as (task, work):
        began = asyncio.get_running_loop().time()
        task.delete(runtime.now() + timedelta(seconds=30))
        await asyncio.sleep(1)
        task.delete(runtime.now() + timedelta(seconds=1))
        await work
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)


async def test_the_deadline_ends_the_pod(runtime: FakePodRuntime) -> None:
    async with running(
        runtime, pod("OnFailure", activeDeadlineSeconds=60, terminationGracePeriodSeconds=5)
    ) as (_, work):
        await work
        assert asyncio.get_running_loop().time() == pytest.approx(60)
    last = runtime.statuses[-1]

    assert (last["phase"], last["reason"]) == ("Failed", "DeadlineExceeded")


async def test_nothing_runs_once_the_task_is_cancelled(runtime: FakePodRuntime) -> None:
    async with running(runtime, pod()) as (_, work):
        work.cancel()
        await asyncio.wait([work])

    assert signal.SIGKILL in runtime.processes[0].signals
    assert runtime.forgotten


async def test_a_sidecar_is_stopped_when_the_others_are_done(runtime: FakePodRuntime) -> None:
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    async with running(runtime, pod(initContainers=[side])) as (_, work):
        await asyncio.sleep(0.1)
        sidecar, main = runtime.processes
        main.exit.set_result(0)
        await work

    assert sidecar.signals == [signal.SIGTERM]
    assert runtime.phases[-1] == "Succeeded"


def ask(command: str, **fields: Any) -> dict[str, Any]:
    return {"exec": {"command": [command]}, "periodSeconds": 1, **fields}


def with_main(policy: str = "Never", **fields: Any) -> dict[str, Any]:
    manifest = pod(policy)
    manifest["spec"]["containers"][0] |= fields
    return manifest


def is_ready(runtime: FakePodRuntime) -> bool:
    conditions = {c["type"]: c["status"] for c in runtime.statuses[-1]["conditions"]}
    return bool(conditions["Ready"] == "True")


async def test_a_pod_is_ready_as_its_probe_says(runtime: FakePodRuntime) -> None:
    runtime.answers["ready"] = 1
    async with running(runtime, with_main(readinessProbe=ask("ready"))) as (_, work):
        await asyncio.sleep(5)
        assert (runtime.phases[-1], is_ready(runtime)) == ("Running", False)
        runtime.answers["ready"] = 0
        await asyncio.sleep(1)
        assert is_ready(runtime)
        runtime.processes[0].exit.set_result(0)
        await work

    assert runtime.phases == ["Pending", "Running", "Running", "Succeeded"]


async def test_a_container_with_failed_liveness_is_killed_and_restarted(runtime: FakePodRuntime) -> None:
    runtime.stubborn = True
    runtime.answers["alive"] = 1
    probe = ask("alive", initialDelaySeconds=10, terminationGracePeriodSeconds=5)
    async with running(runtime, with_main("OnFailure", livenessProbe=probe)):
        await asyncio.sleep(16.5)
        assert runtime.processes[0].signals == [signal.SIGTERM]
        await asyncio.sleep(1)
        (status,) = runtime.statuses[-1]["containerStatuses"]

    assert runtime.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert [round(at) for _, at in runtime.started] == [0, 17]
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 137)
    assert [reason for reason, _ in runtime.events] == ["Unhealthy", "Unhealthy", "Unhealthy", "Killing"]
    assert runtime.events[-1][1] == "Container main failed liveness probe, will be restarted"


async def test_deletion_shortens_the_time_of_a_container_that_is_being_killed(
    runtime: FakePodRuntime,
) -> None:
    runtime.stubborn = True
    runtime.answers["alive"] = 1
    probe = ask("alive", failureThreshold=1, terminationGracePeriodSeconds=500)
    async with running(runtime, with_main("Always", livenessProbe=probe)) as (task, work):
        await asyncio.sleep(10)
        task.delete(runtime.now() + timedelta(seconds=5))
        await work
        assert asyncio.get_running_loop().time() == pytest.approx(15.1)

    assert runtime.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert [reason for reason, _ in runtime.events] == ["Unhealthy", "Killing"]


async def test_hooks_run_before_the_status_changes_and_before_termination(runtime: FakePodRuntime) -> None:
    hooks = {"postStart": {"sleep": {"seconds": 7}}, "preStop": {"exec": {"command": ["leave"]}}}
    async with running(runtime, with_main(lifecycle=hooks)) as (task, work):
        await asyncio.sleep(6)
        assert (runtime.phases[-1], runtime.state) == (
            "Pending",
            {"waiting": {"reason": "ContainerCreating"}},
        )
        await asyncio.sleep(1)
        assert runtime.phases[-1] == "Running"
        task.delete(runtime.now() + timedelta(seconds=30))
        await work

    assert [command for command, _ in runtime.entered] == ["leave"]
    assert runtime.processes[0].signals == [signal.SIGTERM]


async def test_a_failed_pre_stop_hook_is_reported(runtime: FakePodRuntime) -> None:
    runtime.answers["leave"] = 1
    hooks = {"preStop": {"exec": {"command": ["leave"]}}}
    async with running(runtime, with_main(lifecycle=hooks)) as (task, work):
        task.delete(runtime.now() + timedelta(seconds=30))
        await work

    assert ("FailedPreStopHook", "PreStopHook failed") in runtime.events


async def test_the_termination_message_is_in_the_status(runtime: FakePodRuntime) -> None:
    runtime.words = "out of data"
    async with running(runtime, pod()) as (_, work):
        runtime.processes[0].exit.set_result(1)
        await work

    assert runtime.state["terminated"]["message"] == "out of data"


async def test_a_readiness_gate_of_another_client_is_observed(runtime: FakePodRuntime) -> None:
    manifest = pod(readinessGates=[{"conditionType": "g"}])
    async with running(runtime, manifest) as (task, _):
        assert not is_ready(runtime)
        task.update({**manifest, "status": {"conditions": [{"type": "g", "status": "True"}]}})
        await asyncio.sleep(0.1)
        assert is_ready(runtime)


async def test_an_unsupported_pod_is_rejected(runtime: FakePodRuntime) -> None:
    async with running(runtime, with_main(livenessProbe={"grpc": {"port": 1}})):
        waiting = runtime.state["waiting"]

    assert waiting["message"].startswith("spec.containers[0].livenessProbe.grpc: ")
    assert runtime.started == []


async def test_the_phase_changes_when_the_last_sidecar_has_ended(runtime: FakePodRuntime) -> None:
    """The end of the main container is reported before that."""
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    runtime.stubborn = True
    async with running(runtime, pod(initContainers=[side], terminationGracePeriodSeconds=20)) as (_, work):
        sidecar, main = runtime.processes
        main.exit.set_result(0)
        await asyncio.sleep(5)
        assert (runtime.phases[-1], runtime.state["terminated"]["exitCode"]) == ("Running", 0)
        await work

    assert sidecar.signals == [signal.SIGTERM, signal.SIGKILL]
    assert runtime.phases[-1] == "Succeeded"
    assert runtime.statuses[-1]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
