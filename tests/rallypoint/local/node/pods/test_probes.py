"""The health of a container after each probe: thresholds, readiness and kill causes."""

from collections.abc import Mapping
from typing import Any

import pytest

from rallypoint.local.node.pods import probes
from rallypoint.local.node.pods.probes import Health, KillCause, Kind, Probe, Streak


def health(container: Mapping[Any, Any], looks: list[tuple[Kind, bool]]) -> Health:
    """Of a container after its probes have looked."""
    found = probes.at_start(container)
    streaks = dict.fromkeys(Kind, Streak())
    for kind, succeeded in looks:
        streaks[kind] = streaks[kind].extended(succeeded=succeeded)
        found = probes.after(found, Probe.of(kind, container[kind]), streaks[kind])
    return found


def test_without_probes_a_running_process_is_ready() -> None:
    assert probes.at_start({}).is_ready


@pytest.mark.parametrize(
    ("results", "ready"),
    [
        pytest.param("", False, id="not before the first probe"),
        pytest.param("1", True, id="after a success"),
        pytest.param("1000", False, id="not after three failures"),
        pytest.param("100", True, id="still after two failures"),
        pytest.param("100100", True, id="still after failures with a success between"),
        pytest.param("10001", True, id="again after a success"),
    ],
)
def test_readiness(results: str, ready: bool) -> None:
    found = health({Kind.READINESS: {"exec": {}}}, [(Kind.READINESS, result == "1") for result in results])

    assert (found.is_ready, found.has_started, found.kill_cause) == (ready, True, None)


def test_readiness_can_need_several_successes() -> None:
    container = {Kind.READINESS: {"exec": {}, "successThreshold": 2, "failureThreshold": 1}}

    assert not health(container, [(Kind.READINESS, True)]).is_ready
    assert health(container, [(Kind.READINESS, True)] * 2).is_ready
    assert not health(container, [(Kind.READINESS, True)] * 2 + [(Kind.READINESS, False)]).is_ready


@pytest.mark.parametrize(("failures", "kill_cause"), [(2, None), (3, KillCause.LIVENESS)])
def test_liveness(failures: int, kill_cause: KillCause | None) -> None:
    looks = [(Kind.LIVENESS, True)] * 5 + [(Kind.LIVENESS, False)] * failures

    assert health({Kind.LIVENESS: {"exec": {}}}, looks) == Health(kill_cause=kill_cause)


def test_startup() -> None:
    container = {Kind.STARTUP: {"exec": {}, "failureThreshold": 2}}

    assert not health(container, []).has_started
    assert not health(container, [(Kind.STARTUP, False)]).has_started
    assert health(container, [(Kind.STARTUP, False), (Kind.STARTUP, True)]).is_ready
    assert health(container, [(Kind.STARTUP, False)] * 2).kill_cause is KillCause.STARTUP


def test_a_container_is_not_started_during_its_post_start_hook() -> None:
    found = probes.at_start({"lifecycle": {"postStart": {"sleep": {"seconds": 1}}}})

    assert (found.has_post_start_finished, found.has_started, found.is_ready) == (False, False, False)


def test_defaults_are_those_of_the_api_server() -> None:
    (probe,) = probes.of({"livenessProbe": {"exec": {"command": ["true"]}}})

    assert (probe.delay_seconds, probe.period_seconds, probe.timeout_seconds) == (0, 10, 1)
    assert (probe.successes, probe.failures) == (1, 3)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param({}, "", id="a valid pod"),
        pytest.param(
            {"readinessProbe": {"grpc": {"port": 1}}},
            "spec.containers[1].readinessProbe.grpc: local mode probes by exec, httpGet and tcpSocket",
            id="grpc",
        ),
        pytest.param(
            {"startupProbe": {"periodSeconds": 3}},
            "spec.containers[1].startupProbe: must specify a handler type",
            id="no handler",
        ),
        pytest.param(
            {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]},
            "spec.containers[1].restartPolicyRules[1].action: local mode knows Restart, not RestartAllContainers",
            id="a rule for the whole pod",
        ),
    ],
)
def test_an_unsupported_field_is_rejected_by_name(container: dict[str, Any], words: str) -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", **container}]}}

    assert probes.rejection(pod) == words
