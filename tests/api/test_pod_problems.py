"""What a pod's status says is wrong with it."""

from typing import Any

import msgspec
import pytest

from api.pod_problems import (
    ContainerProblem,
    PodCondition,
    ProblemType,
    Termination,
    Waiting,
    container_problems,
    describe_exit,
    is_gang_refusal,
    read_status,
    unscheduled,
)

FAILED = {"terminated": {"exitCode": 3, "reason": "Error"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **status: Any) -> dict[str, Any]:
    return {"status": {**status, "containerStatuses": containers, "initContainerStatuses": init}}


def container(state: dict[str, Any] | None, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **fields}


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        pytest.param(None, None, id="no state yet"),
        pytest.param({"running": {}}, None, id="running"),
        pytest.param({"terminated": {"exitCode": 0}}, None, id="succeeded"),
        pytest.param(FAILED, ProblemType.FAILED, id="failed"),
        pytest.param(BACK_OFF, ProblemType.CRASH_LOOP, id="waiting in back-off"),
        pytest.param({"waiting": {"reason": "ContainerCreating"}}, None, id="being created"),
        pytest.param(
            {"waiting": {"reason": "PodInitializing", "message": "for a volume"}},
            ProblemType.STARTING,
            id="waiting with a message",
        ),
        pytest.param(
            {"waiting": {"reason": "ErrImagePull"}}, ProblemType.CANNOT_START, id="the image cannot be pulled"
        ),
    ],
)
def test_the_state_of_a_container_determines_its_problem(
    given: dict[str, Any] | None, type_: ProblemType | None
) -> None:
    found = [problem.type for problem in container_problems(read_status(pod(container(given))))]

    assert found == [type_] if type_ else found == []


def test_a_container_in_a_crash_loop_has_the_termination_of_its_last_run() -> None:
    given = container(BACK_OFF, restartCount=4, lastState=FAILED)

    assert container_problems(read_status(pod(given))) == [
        ContainerProblem(
            ProblemType.CRASH_LOOP,
            "main",
            is_init=False,
            restarts=4,
            waiting=Waiting("CrashLoopBackOff", "back-off 10s"),
            termination=Termination(3, "Error"),
        )
    ]


def test_init_containers_come_first() -> None:
    given = pod(container(FAILED), init=(container(FAILED, "prepare"),))

    problems = container_problems(read_status(given))

    assert [(problem.container, problem.is_init) for problem in problems] == [
        ("prepare", True),
        ("main", False),
    ]


def test_a_pod_is_unscheduled_while_its_condition_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPUs"}

    assert unscheduled(read_status(pod(conditions=[condition]))) == PodCondition(**condition)
    assert unscheduled(read_status(pod(conditions=[{**condition, "status": "True"}]))) is None


def test_null_counts_as_missing() -> None:
    given = {
        "status": {"phase": None, "reason": None, "containerStatuses": [None, container(None, message=None)]}
    }

    assert container_problems(read_status(given)) == []
    assert read_status({"status": None}).phase == ""


def test_a_field_of_the_wrong_type_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"phase"):
        read_status({"status": {"phase": 1}})


@pytest.mark.parametrize(
    ("code", "reason", "message", "text"),
    [
        (1, "Error", "", "exit code 1"),
        (137, "OOMKilled", "", "exit code 137, killed by SIGKILL (OOMKilled)"),
        (137, "ContainerStatusUnknown", "", "exit code 137 (ContainerStatusUnknown)"),
        (255, "", "", "exit code 255"),
        (3, "Error", "one\ntwo\nthree\nfour\n", "exit code 3: two / three / four"),
        (
            222,
            "Error",
            '{"rallypoint": {"attempt": 0, "exitCode": 7, "message": "no data"}}',
            "exit code 7: no data",
        ),
        (3, "Error", "\x1b[31mno luck\x1b[0m\x07\n\x1b]0;title\x07\n", "exit code 3: no luck"),
    ],
)
def test_the_description_of_an_end(code: int, reason: str, message: str, text: str) -> None:
    assert describe_exit(code, reason, message) == text


@pytest.mark.parametrize(
    ("message", "is_refusal"),
    [
        ("rejected by an optimistic rejection in PostFilter", True),
        ("pod group is not ready, 3 minAvailable", True),
        ("pod group is unschedulable, minCount (5) cannot be satisfied: 4 scheduled, 0 remaining", True),
        ("0/2 nodes are available: podGroup default/large failed recently. preemption: …", True),
        ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", False),
        (
            "2 Insufficient cpu. preemption: …, PodGroup default/large gets rejected due to Pod p is unschedulable even after PostFilter",
            False,
        ),
    ],
)
def test_a_scheduler_refuses_a_pod_for_its_gang_or_for_itself(message: str, is_refusal: bool) -> None:
    assert is_gang_refusal(message) is is_refusal
