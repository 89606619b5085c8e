"""One pod from its binding to its end, on fake time and with processes that only pretend."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


class LocalPodRuntime:
    """Surroundings that keep what a pod does."""

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

    def refusal(self, pod: Any) -> str:
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
def place(tmp_path: Path) -> LocalPodRuntime:
    return LocalPodRuntime(tmp_path)


def pod(policy: str = "Never", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "x"}], **spec},
    }


@asynccontextmanager
async def running(
    place: LocalPodRuntime, manifest: dict[str, Any]
) -> AsyncGenerator[tuple[PodWorker, asyncio.Task[None]]]:
    task = PodWorker(manifest, place)
    work = asyncio.create_task(task.run())
    await asyncio.sleep(0.1)
    yield task, work
    if not work.done():
        work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed"), (143, "Failed")])
async def test_from_start_to_end(place: LocalPodRuntime, code: int, phase: str) -> None:
    async with running(place, pod()) as (_, work):
        place.processes[0].exit.set_result(code)
        await work

    assert place.phases == ["Pending", "Running", phase]
    assert place.state["terminated"]["exitCode"] == code
    assert place.forgotten


async def test_init_containers_run_before_the_others(place: LocalPodRuntime) -> None:
    async with running(place, pod(initContainers=[{"name": "first", "image": "x"}])) as (_, work):
        assert place.started == [("first", 0.0)]
        place.processes[0].exit.set_result(0)
        await asyncio.sleep(0.1)
        assert [name for name, _ in place.started] == ["first", "main"]
        place.processes[1].exit.set_result(0)
        await work

    assert place.phases[-1] == "Succeeded"


async def test_restarts_are_held_back(place: LocalPodRuntime) -> None:
    async with running(place, pod("OnFailure")):
        for _ in range(3):
            place.processes[-1].exit.set_result(1)
            await asyncio.sleep(20)
        await asyncio.sleep(5)

    assert [round(at) for _, at in place.started] == [0, 0, 30, 60]
    assert place.statuses[-1]["containerStatuses"][0]["restartCount"] == 3
    assert [reason for reason, _ in place.events] == ["BackOff", "BackOff"]


async def test_a_program_that_does_not_exist_ends_the_container(place: LocalPodRuntime) -> None:
    place.unstartable = 'exec: "nosuch": executable file not found in $PATH'
    async with running(place, pod()) as (_, work):
        await work
    ended = place.state["terminated"]

    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "StartError", place.unstartable)
    assert place.phases[-1] == "Failed"


async def test_a_program_that_does_not_exist_is_held_back_like_a_crash(place: LocalPodRuntime) -> None:
    place.unstartable = "no"
    async with running(place, pod("OnFailure")):
        await asyncio.sleep(29)

    assert [round(at) for _, at in place.started] == [0, 0, 10]
    assert place.state["waiting"]["reason"] == "CrashLoopBackOff"


async def test_a_missing_config_map_is_waited_for(place: LocalPodRuntime) -> None:
    place.missing = 'configmap "c" not found'
    async with running(place, pod()) as (_, work):
        assert place.state["waiting"] == {"reason": "ContainerCreating", "message": place.missing}
        place.missing = ""
        await asyncio.sleep(5)
        place.processes[0].exit.set_result(0)
        await work

    assert place.phases[-1] == "Succeeded"
    assert place.events == [("FailedMount", 'configmap "c" not found')]


async def test_a_pod_that_can_never_run_fails_and_says_why(place: LocalPodRuntime) -> None:
    place.refused = "volume v"
    async with running(place, pod()) as (_, work):
        await work

    assert place.phases == ["Failed"]
    assert (place.statuses[-1]["reason"], place.statuses[-1]["message"]) == ("Refused", "volume v")
    assert place.state == {"waiting": {"reason": "Refused", "message": "volume v"}}
    assert place.events == [("Refused", "volume v")]
    assert place.started == []


async def test_a_fault_of_the_node_is_told_in_the_pod(place: LocalPodRuntime) -> None:
    place.fault = ValueError("broken")
    async with running(place, pod()):
        waiting = place.state["waiting"]

    assert waiting["reason"] == "NodeError"
    assert "ValueError('broken')" in waiting["message"]


async def test_deletion_asks_first(place: LocalPodRuntime) -> None:
    async with running(place, pod("Always")) as (task, work):
        task.delete(place.now() + timedelta(seconds=30))
        await work

    assert place.processes[0].signals == [signal.SIGTERM]
    assert place.phases[-1] == "Failed"
    assert place.state["terminated"]["exitCode"] == 143


async def test_deletion_kills_what_does_not_listen(place: LocalPodRuntime) -> None:
    place.stubborn = True
    async with running(place, pod()) as (task, work):
        began = asyncio.get_running_loop().time()
        task.delete(place.now() + timedelta(seconds=30))
        await work
        assert asyncio.get_running_loop().time() - began == pytest.approx(30)

    assert place.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert place.state["terminated"]["exitCode"] == 137


async def test_a_second_deletion_can_only_shorten_the_grace(place: LocalPodRuntime) -> None:
    place.stubborn = True
    async with running(place, pod()) as (task, work):
        began = asyncio.get_running_loop().time()
        task.delete(place.now() + timedelta(seconds=30))
        await asyncio.sleep(1)
        task.delete(place.now() + timedelta(seconds=1))
        await work
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)


async def test_the_deadline_ends_the_pod(place: LocalPodRuntime) -> None:
    async with running(
        place, pod("OnFailure", activeDeadlineSeconds=60, terminationGracePeriodSeconds=5)
    ) as (_, work):
        await work
        assert asyncio.get_running_loop().time() == pytest.approx(60)
    last = place.statuses[-1]

    assert (last["phase"], last["reason"]) == ("Failed", "DeadlineExceeded")


async def test_nothing_runs_once_the_task_is_cancelled(place: LocalPodRuntime) -> None:
    async with running(place, pod()) as (_, work):
        work.cancel()
        await asyncio.wait([work])

    assert signal.SIGKILL in place.processes[0].signals
    assert place.forgotten


async def test_a_sidecar_is_stopped_when_the_others_are_done(place: LocalPodRuntime) -> None:
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    async with running(place, pod(initContainers=[side])) as (_, work):
        await asyncio.sleep(0.1)
        sidecar, main = place.processes
        main.exit.set_result(0)
        await work

    assert sidecar.signals == [signal.SIGTERM]
    assert place.phases[-1] == "Succeeded"


def ask(command: str, **fields: Any) -> dict[str, Any]:
    return {"exec": {"command": [command]}, "periodSeconds": 1, **fields}


def with_main(policy: str = "Never", **fields: Any) -> dict[str, Any]:
    manifest = pod(policy)
    manifest["spec"]["containers"][0] |= fields
    return manifest


def is_ready(place: LocalPodRuntime) -> bool:
    conditions = {c["type"]: c["status"] for c in place.statuses[-1]["conditions"]}
    return bool(conditions["Ready"] == "True")


async def test_a_pod_is_ready_as_its_probe_says(place: LocalPodRuntime) -> None:
    place.answers["ready"] = 1
    async with running(place, with_main(readinessProbe=ask("ready"))) as (_, work):
        await asyncio.sleep(5)
        assert (place.phases[-1], is_ready(place)) == ("Running", False)
        place.answers["ready"] = 0
        await asyncio.sleep(1)
        assert is_ready(place)
        place.processes[0].exit.set_result(0)
        await work

    assert place.phases == ["Pending", "Running", "Running", "Succeeded"]


async def test_a_container_that_does_not_live_is_killed_and_started_again(place: LocalPodRuntime) -> None:
    place.stubborn = True
    place.answers["alive"] = 1
    probe = ask("alive", initialDelaySeconds=10, terminationGracePeriodSeconds=5)
    async with running(place, with_main("OnFailure", livenessProbe=probe)):
        await asyncio.sleep(16.5)
        assert place.processes[0].signals == [signal.SIGTERM]
        await asyncio.sleep(1)
        (status,) = place.statuses[-1]["containerStatuses"]

    assert place.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert [round(at) for _, at in place.started] == [0, 17]
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 137)
    assert [reason for reason, _ in place.events] == ["Unhealthy", "Unhealthy", "Unhealthy", "Killing"]
    assert place.events[-1][1] == "Container main failed liveness probe, will be restarted"


async def test_deletion_shortens_the_time_of_a_container_that_is_being_killed(place: LocalPodRuntime) -> None:
    place.stubborn = True
    place.answers["alive"] = 1
    probe = ask("alive", failureThreshold=1, terminationGracePeriodSeconds=500)
    async with running(place, with_main("Always", livenessProbe=probe)) as (task, work):
        await asyncio.sleep(10)
        task.delete(place.now() + timedelta(seconds=5))
        await work
        assert asyncio.get_running_loop().time() == pytest.approx(15.1)

    assert place.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert [reason for reason, _ in place.events] == ["Unhealthy", "Killing"]


async def test_hooks_go_before_anybody_is_told_and_before_the_end(place: LocalPodRuntime) -> None:
    hooks = {"postStart": {"sleep": {"seconds": 7}}, "preStop": {"exec": {"command": ["leave"]}}}
    async with running(place, with_main(lifecycle=hooks)) as (task, work):
        await asyncio.sleep(6)
        assert (place.phases[-1], place.state) == ("Pending", {"waiting": {"reason": "ContainerCreating"}})
        await asyncio.sleep(1)
        assert place.phases[-1] == "Running"
        task.delete(place.now() + timedelta(seconds=30))
        await work

    assert [command for command, _ in place.entered] == ["leave"]
    assert place.processes[0].signals == [signal.SIGTERM]


async def test_a_hook_before_the_end_that_fails_is_told(place: LocalPodRuntime) -> None:
    place.answers["leave"] = 1
    hooks = {"preStop": {"exec": {"command": ["leave"]}}}
    async with running(place, with_main(lifecycle=hooks)) as (task, work):
        task.delete(place.now() + timedelta(seconds=30))
        await work

    assert ("FailedPreStopHook", "PreStopHook failed") in place.events


async def test_last_words_are_kept(place: LocalPodRuntime) -> None:
    place.words = "out of data"
    async with running(place, pod()) as (_, work):
        place.processes[0].exit.set_result(1)
        await work

    assert place.state["terminated"]["message"] == "out of data"


async def test_a_gate_is_seen_when_others_open_it(place: LocalPodRuntime) -> None:
    manifest = pod(readinessGates=[{"conditionType": "g"}])
    async with running(place, manifest) as (task, _):
        assert not is_ready(place)
        task.update({**manifest, "status": {"conditions": [{"type": "g", "status": "True"}]}})
        await asyncio.sleep(0.1)
        assert is_ready(place)


async def test_what_cannot_be_kept_is_refused(place: LocalPodRuntime) -> None:
    async with running(place, with_main(livenessProbe={"grpc": {"port": 1}})):
        waiting = place.state["waiting"]

    assert waiting["message"].startswith("spec.containers[0].livenessProbe.grpc: ")
    assert place.started == []


async def test_the_phase_is_told_when_the_last_sidecar_has_ended(place: LocalPodRuntime) -> None:
    """The end of the main container is told before that."""
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    place.stubborn = True
    async with running(place, pod(initContainers=[side], terminationGracePeriodSeconds=20)) as (_, work):
        sidecar, main = place.processes
        main.exit.set_result(0)
        await asyncio.sleep(5)
        assert (place.phases[-1], place.state["terminated"]["exitCode"]) == ("Running", 0)
        await work

    assert sidecar.signals == [signal.SIGTERM, signal.SIGKILL]
    assert place.phases[-1] == "Succeeded"
    assert place.statuses[-1]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
