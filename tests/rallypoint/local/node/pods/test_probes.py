"""What probes say of a container, look by look: thresholds, what they gate, and what they condemn."""

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


def test_without_probes_a_process_that_runs_is_ready() -> None:
    assert probes.at_start({}).is_ready


@pytest.mark.parametrize(
    ("looks", "ready"),
    [
        pytest.param("", False, id="not before it has been looked at"),
        pytest.param("1", True, id="at once"),
        pytest.param("1000", False, id="no longer, after three failures"),
        pytest.param("100", True, id="still, after two"),
        pytest.param("100100", True, id="still, when a success comes between"),
        pytest.param("10001", True, id="again"),
    ],
)
def test_readiness(looks: str, ready: bool) -> None:
    found = health({Kind.READINESS: {"exec": {}}}, [(Kind.READINESS, look == "1") for look in looks])

    assert (found.is_ready, found.has_started, found.kill_cause) == (ready, True, None)


def test_readiness_can_ask_for_several_successes() -> None:
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


def test_nobody_is_told_of_a_run_whose_hook_is_under_way() -> None:
    found = probes.at_start({"lifecycle": {"postStart": {"sleep": {"seconds": 1}}}})

    assert (found.has_post_start_finished, found.has_started, found.is_ready) == (False, False, False)


def test_defaults_are_the_api_servers() -> None:
    (probe,) = probes.of({"livenessProbe": {"exec": {"command": ["true"]}}})

    assert (probe.delay_seconds, probe.period_seconds, probe.timeout_seconds) == (0, 10, 1)
    assert (probe.successes, probe.failures) == (1, 3)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param({}, "", id="nothing to refuse"),
        pytest.param(
            {"readinessProbe": {"grpc": {"port": 1}}},
            "spec.containers[1].readinessProbe.grpc: local mode probes by exec, httpGet and tcpSocket",
            id="grpc",
        ),
        pytest.param(
            {"startupProbe": {"periodSeconds": 3}},
            "spec.containers[1].startupProbe: must specify a handler type",
            id="nothing to ask",
        ),
        pytest.param(
            {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]},
            "spec.containers[1].restartPolicyRules[1].action: local mode knows Restart, not RestartAllContainers",
            id="a rule for the whole pod",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_field(container: dict[str, Any], words: str) -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", **container}]}}

    assert probes.rejection(pod) == words
