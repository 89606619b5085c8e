"""The pod statuses that a case reports."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.support.parity.kubelet import pod_status, state

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIME = "2026-01-02T03:04:05Z"
SPEC = {
    "containers": [{"name": "main", "image": "train:1"}, {"name": "side", "image": "side:1"}],
    "initContainers": [{"name": "wait", "image": "alpine"}],
}


def reported(said: str | dict[str, Any]) -> dict[str, Any]:
    return pod_status(SPEC, state(said), NOW)


def exit_codes(said: str | dict[str, Any]) -> list[int]:
    statuses = reported(said)["containerStatuses"]
    return [status["state"]["terminated"]["exitCode"] for status in statuses]


def test_a_pod_that_runs_is_ready() -> None:
    status = reported("Running")

    assert status["phase"] == "Running"
    assert status["conditions"] == [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}]
    assert status["containerStatuses"][0] == {
        "name": "main",
        "image": "train:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": TIME}},
    }


def test_init_containers_are_completed() -> None:
    (init,) = reported("Running")["initContainerStatuses"]

    assert init["state"]["terminated"]["exitCode"] == 0
    assert "initContainerStatuses" not in reported("Pending")


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        pytest.param("Succeeded", [0, 0], id="success"),
        pytest.param("Failed", [1, 1], id="failure"),
        pytest.param({"phase": "Failed", "exitCode": 137}, [137, 137], id="a code"),
        pytest.param({"phase": "Failed", "exitCode": {"main": 3}}, [3, 0], id="a code for one container"),
    ],
)
def test_exit_codes(said: str | dict[str, Any], codes: list[int]) -> None:
    assert exit_codes(said) == codes


def test_init_containers_have_no_restarts() -> None:
    status = reported({"phase": "Running", "restartCount": 2, "ready": False})

    assert [container["restartCount"] for container in status["containerStatuses"]] == [2, 2]
    assert [container["ready"] for container in status["containerStatuses"]] == [False, False]
    assert status["initContainerStatuses"][0]["restartCount"] == 0


def test_an_image_that_cannot_be_pulled() -> None:
    status = reported({"phase": "Pending", "reason": "ImagePullBackOff", "message": "no"})

    assert status["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "ImagePullBackOff", "message": "no"}
    }


def test_an_evicted_pod_has_no_containers() -> None:
    status = reported({"phase": "Failed", "podReason": "Evicted", "noContainers": True})

    assert (status["reason"], status["containerStatuses"]) == ("Evicted", None)
    assert status["conditions"][0]["reason"] == "PodFailed"


def test_a_misspelled_state_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="exitcode"):
        state({"phase": "Failed", "exitcode": 1})
