"""The reaction to a failed pod: the matrix of restart policies and exit codes."""

import pytest

from api.children import Exit
from controller.policy.restart import Reaction, reaction
from tests.support.builders import pod

KEEP, REPLACE, FAIL = Reaction.KEEP, Reaction.REPLACE, Reaction.FAIL


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        pytest.param("Never", 1, KEEP, id="Never keeps the pod for the verdict"),
        pytest.param("Never", 137, KEEP, id="Never ignores the exit code"),
        pytest.param("OnFailure", 1, REPLACE, id="OnFailure replaces the pod"),
        pytest.param("OnFailure", 0, REPLACE, id="OnFailure ignores the exit code"),
        pytest.param("Always", 1, REPLACE, id="Always replaces the pod"),
        pytest.param("ExitCode", 0, FAIL, id="a sidecar failed: 0 is the program's own word"),
        pytest.param("ExitCode", 1, FAIL, id="1 is permanent"),
        pytest.param("ExitCode", 127, FAIL, id="127 is the last permanent code"),
        pytest.param("ExitCode", 128, REPLACE, id="128 is the first retryable code"),
        pytest.param("ExitCode", 137, REPLACE, id="killed"),
        pytest.param("ExitCode", 255, REPLACE, id="255 is retryable"),
        pytest.param("ExitCode", None, REPLACE, id="evicted, without an exit code"),
        pytest.param("Sometimes", 1, KEEP, id="an unknown policy does nothing"),
    ],
)
def test_reaction_to_a_failed_pod(policy: str, code: int | None, expected: Reaction) -> None:
    assert reaction(policy, pod(phase="Failed", code=code), "pytorch") is expected


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Unknown", ""])
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_a_pod_that_has_not_failed_is_left_alone(policy: str, phase: str) -> None:
    assert reaction(policy, pod(phase=phase, code=1), "pytorch") is KEEP


@pytest.mark.parametrize(
    "exits",
    [
        pytest.param((Exit("sidecar", 1),), id="of a sidecar"),
        pytest.param((Exit("pytorch", 1, init=True),), id="of an init container"),
    ],
)
def test_only_the_exit_code_of_the_main_container_counts(exits: tuple[Exit, ...]) -> None:
    assert reaction("ExitCode", pod(phase="Failed", exits=exits), "pytorch") is REPLACE
