"""A restart in place with a real kube-apiserver and the real agents, which run as processes on loopback."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import in_place
from controller.reconcile.restart_rules import FIRST_RELEASE
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import service

PODS = 6
MOST_WRITES = 10
"""Writes that a restart may cost beside those of the status, whatever the number of pods."""


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with in_place.control_plane() as plane, service(plane, plane.kubeconfig(in_place.USER), []):
        yield plane


def test_commands_begin_again_in_their_pods(plane: ControlPlane, tmp_path: Path) -> None:
    """Where the API server has no such rules, the pods have no agent, and an event says why."""
    version = plane.request("GET", "/version")
    if (int(version["major"]), int(version["minor"])) < FIRST_RELEASE:
        is_refused(plane)
        return
    marks = tmp_path / "marks"
    marks.mkdir()

    (figures,) = asyncio.run(in_place.measure(plane, marks, PODS, 1))

    assert figures["other_writes"] <= MOST_WRITES
    status = plane.request("GET", f"{in_place.JOBS}/{in_place.JOB}")["status"]
    assert (status["restarts"], status["inPlaceRestarts"]) == (1, 1)
    (attempt,) = status["attempts"]
    assert (attempt["number"], attempt["exitCode"], attempt["inPlace"]) == (0, 137, True)
    assert len(list(marks.glob("*-*"))) == 2 * PODS


def is_refused(plane: ControlPlane) -> None:
    plane.request("POST", in_place.JOBS, in_place.manifest(PODS, "train"))
    events = "/api/v1/namespaces/default/events"
    plane.wait(
        "the event",
        lambda: any(
            event["reason"] == "InPlaceRestartUnavailable" for event in plane.request("GET", events)["items"]
        ),
    )
    plane.wait("the pods", lambda: len(plane.request("GET", in_place.PODS)["items"]) == PODS)
    for pod in plane.request("GET", in_place.PODS)["items"]:
        assert pod["spec"]["containers"][0]["command"][-1] == "train"
        assert "volumes" not in pod["spec"]
