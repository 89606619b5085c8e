"""The containers of a pod that an earlier process of the node has started."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rallypoint.local.node.pods import lifecycle
from rallypoint.local.node.pods.container_state import Container, Terminated, Waiting, restore, started

BEFORE = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
RUNNING = {"running": {"startedAt": BEFORE}}


def terminated(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Error", "startedAt": BEFORE, "finishedAt": BEFORE}}


def pod(policy: str, **status: Any) -> dict[str, Any]:
    spec = {"restartPolicy": policy, "initContainers": [{"name": "first"}], "containers": [{"name": "main"}]}
    statuses = [{"name": "main", "restartCount": 2, "state": {}, **status}] if status else []
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    return {"metadata": metadata, "spec": spec, "status": {"containerStatuses": statuses}}


def names_to_start(pod: dict[str, Any], containers: tuple[Container, ...]) -> tuple[str, ...]:
    return lifecycle.next_step(pod, containers, NOW, NOW).start


def test_a_new_pod_has_no_history() -> None:
    first, main = restore(pod("Always"), NOW)

    assert (first.state, main.state) == (Waiting("PodInitializing"),) * 2


def test_running_containers_are_lost_and_start_again_after_the_init_containers() -> None:
    begun = pod("OnFailure", state=RUNNING)
    found = restore(begun, NOW)
    lost = found[1].state

    assert isinstance(lost, Terminated)
    assert (lost.exit_code, lost.reason, lost.attempt) == (137, "ContainerStatusUnknown", 2)
    assert names_to_start(begun, found) == ("first",)
    assert started(found[1], NOW).restarts == 3


def test_a_pod_that_never_restarts_is_finished() -> None:
    begun = pod("Never", state=RUNNING)
    step = lifecycle.next_step(begun, restore(begun, NOW), NOW, NOW)

    assert step.is_finished


def test_terminated_containers_stay_terminated() -> None:
    _, main = restore(pod("OnFailure", state=terminated(0)), NOW)

    assert isinstance(main.state, Terminated)
    assert main.state.exit_code == 0


@pytest.mark.parametrize(
    ("last", "code"),
    [pytest.param(terminated(3), 3, id="in back-off"), pytest.param({}, None, id="not begun")],
)
def test_waiting_containers_wait_again(last: dict[str, Any], code: int | None) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    _, main = restore(pod("OnFailure", state=waits, lastState=last), NOW)

    assert (main.state.exit_code if isinstance(main.state, Terminated) else None) == code
    assert main.restarts == 2


def test_restarts_of_init_containers_are_counted_on() -> None:
    """Init containers run again, and sidecars too; nobody sees their numbers go back."""
    begun = pod("OnFailure", state=RUNNING)
    begun["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    begun["status"]["initContainerStatuses"] = [{"name": "first", "restartCount": 4, "state": RUNNING}]
    first, _ = restore(begun, NOW)

    assert (first.state, first.restarts) == (Waiting("PodInitializing"), 4)
    assert started(first, NOW).restarts == 5
    assert names_to_start(begun, restore(begun, NOW)) == ("first",)
