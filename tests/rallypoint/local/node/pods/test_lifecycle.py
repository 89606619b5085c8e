"""The next actions for a pod, its restart back-off and its status: the pure functions of the node."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rallypoint.local.node.pods import container_state as records
from rallypoint.local.node.pods import lifecycle, status
from rallypoint.local.node.pods.container_state import Container, Running, Terminated, Waiting
from rallypoint.local.node.pods.lifecycle import Kill
from rallypoint.local.node.pods.probes import KillCause

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FACTS = status.Facts("127.9.0.1", "127.9.1.3", NOW)


def pod(
    *, policy: str = "Never", mains: int = 1, inits: Sequence[dict[str, Any]] = (), **spec: Any
) -> dict[str, Any]:
    containers = [{"name": f"main-{i}" if i else "main", "image": "x"} for i in range(mains)]
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"restartPolicy": policy, "containers": containers, "initContainers": list(inits), **spec},
    }


def step(manifest: dict[str, Any], containers: Sequence[Container], after: float = 0.0) -> lifecycle.Step:
    return lifecycle.next_step(manifest, containers, NOW, at(after))


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def begin(container: Container, after: float = 0.0) -> Container:
    return records.started(container, at(after))


def end(container: Container, code: int, after: float = 0.0) -> Container:
    return records.terminated(container, code, at(after))


def test_all_containers_start_together() -> None:
    manifest = pod(mains=2)

    assert step(manifest, records.of_pod(manifest)).start == ("main", "main-1")


def test_init_containers_run_in_sequence() -> None:
    manifest = pod(inits=[{"name": "a"}, {"name": "b"}])
    a, b, main = records.of_pod(manifest)

    assert step(manifest, (a, b, main)).start == ("a",)
    assert step(manifest, (begin(a), b, main)).start == ()
    assert step(manifest, (end(begin(a), 0), b, main)).start == ("b",)
    assert step(manifest, (end(begin(a), 0), end(begin(b), 0), main)).start == ("main",)


def test_a_failed_init_container_ends_a_pod_that_never_restarts() -> None:
    manifest = pod(inits=[{"name": "a"}])
    a, main = records.of_pod(manifest)

    assert step(manifest, (end(begin(a), 1), main)).is_finished


def test_a_sidecar_starts_first_and_does_not_keep_the_pod_alive() -> None:
    manifest = pod(inits=[{"name": "side", "restartPolicy": "Always"}])
    side, main = records.of_pod(manifest)

    assert step(manifest, (side, main)).start == ("side",)
    assert step(manifest, (begin(side), main)).start == ("main",)
    assert step(manifest, (begin(side), end(begin(main), 0))).is_finished


def test_a_sidecar_that_ends_is_started_again() -> None:
    manifest = pod(inits=[{"name": "side", "restartPolicy": "Always"}])
    side, main = records.of_pod(manifest)

    assert step(manifest, (end(begin(side), 0), begin(main))).start == ("side",)


def sided(**side: Any) -> tuple[dict[str, Any], list[Container]]:
    """A pod of sidecar, init container, sidecar and main container."""
    sidecar = {"restartPolicy": "Always"}
    inits = [{"name": "a", **sidecar, **side}, {"name": "i"}, {"name": "b", **sidecar}]
    manifest = pod(policy="OnFailure", inits=inits)
    return manifest, list(records.of_pod(manifest))


def healthy(container: Container, **changes: Any) -> Container:
    assert container.health is not None
    return records.with_health(container, replace(container.health, **changes))


def test_what_comes_after_a_sidecar_waits_until_it_has_started() -> None:
    manifest, (a, i, b, main) = sided(startupProbe={"exec": {}})
    a = begin(a)
    assert step(manifest, (a, i, b, main)).start == ()
    a = healthy(a, started=True)
    assert step(manifest, (a, i, b, main)).start == ("i",)
    i = end(begin(i), 0)
    assert step(manifest, (a, i, b, main)).start == ("b",)
    assert step(manifest, (a, i, begin(b), main)).start == ("main",)


def test_a_sidecar_that_ends_early_is_started_again_and_waited_for() -> None:
    manifest, (a, i, b, main) = sided()

    assert step(manifest, (end(begin(a), 0), i, b, main)).start == ("a",)
    assert step(manifest, (end(begin(a), 0), begin(i), b, main)).start == ("a",)


def test_a_restarting_sidecar_blocks_no_container_of_a_started_pod() -> None:
    manifest, (a, i, b, main) = sided(startupProbe={"exec": {}})
    i, b, main = end(begin(i), 0), begin(b), end(begin(main), 1)
    a = begin(end(begin(a), 1))

    assert step(manifest, (a, i, b, main)).start == ("main",)
    assert status.phase("OnFailure", (a, i, b, begin(main))) == "Running"
    written = status.pod_status(manifest, (a, i, b, begin(main)), FACTS, NOW)
    assert conditions(written)["Initialized"][0] == "True"
    assert conditions(written)["Ready"] == ("False", "ContainersNotReady")
    messages = {condition["type"]: condition.get("message") for condition in written["conditions"]}
    assert messages["Ready"] == "containers with unready status: [a]"


def test_a_pod_is_pending_until_its_sidecars_have_started_and_runs_until_they_end() -> None:
    _, (a, i, b, main) = sided(startupProbe={"exec": {}})
    i = end(begin(i), 0)
    ok = end(begin(main), 0)

    assert status.phase("OnFailure", (begin(a), i, begin(b), main)) == "Pending"
    assert status.phase("OnFailure", (begin(a), i, begin(b), ok)) == "Running"
    assert status.phase("OnFailure", (end(begin(a), 1), i, end(begin(b), 1), ok)) == "Succeeded"


def test_a_post_start_hook_is_over_before_the_next_container_starts() -> None:
    manifest = pod(mains=3)
    manifest["spec"]["containers"][1]["lifecycle"] = {"postStart": {"sleep": {"seconds": 1}}}
    first, second, third = records.of_pod(manifest)
    assert step(manifest, (first, second, third)).start == ("main", "main-1")
    first, second = begin(first), begin(second)
    assert step(manifest, (first, second, third)).start == ()
    written = status.pod_status(manifest, (first, second, third), FACTS, NOW)
    assert written["containerStatuses"][1]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert step(manifest, (first, healthy(second, has_post_start_finished=True), third)).start == ("main-2",)


@pytest.mark.parametrize(
    ("kill_cause", "policy", "probe", "kill"),
    [
        pytest.param(
            *(KillCause.LIVENESS, "OnFailure", {}),
            Kill("main", "Container main failed liveness probe, will be restarted", 30),
            id="liveness",
        ),
        pytest.param(
            *(KillCause.STARTUP, "Never", {"terminationGracePeriodSeconds": 3}),
            Kill("main", "Container main failed startup probe", 3),
            id="startup, with a grace of its own",
        ),
        pytest.param(
            KillCause.POST_START, "Always", {}, Kill("main", "FailedPostStartHook", 30), id="the hook"
        ),
    ],
)
def test_a_container_with_a_kill_cause_is_killed_once(
    kill_cause: KillCause, policy: str, probe: dict[str, Any], kill: Kill
) -> None:
    manifest = pod(policy=policy)
    manifest["spec"]["containers"][0] |= {"livenessProbe": {**probe}, "startupProbe": {**probe}}
    (main,) = records.of_pod(manifest)
    taken = step(manifest, (healthy(begin(main), kill_cause=kill_cause),))

    assert (taken.kill, taken.start, taken.is_finished) == ((kill,), (), False)
    assert step(manifest, taken.containers).kill == ()


@pytest.mark.parametrize(("policy", "again"), [("Never", False), ("OnFailure", True), ("Always", True)])
def test_a_container_killed_by_a_probe_restarts_with_any_exit_code(policy: str, again: bool) -> None:
    manifest = pod(policy=policy)
    (main,) = records.of_pod(manifest)
    killed = end(healthy(begin(main), kill_cause=KillCause.LIVENESS), 0)

    assert step(manifest, (killed,)).is_finished is not again
    assert bool(step(manifest, (killed,)).start) is again


def test_the_back_off_after_a_probe_depends_on_the_previous_run() -> None:
    """Started again in one go while its runs last longer than the back-off."""
    manifest = pod(policy="Always")
    (main,) = records.of_pod(manifest)
    clock, pauses = 0.0, []
    for _ in range(6):
        clock += 30
        main = end(healthy(begin(main, clock - 30), kill_cause=KillCause.LIVENESS), 137, clock)
        pause = 0.0
        while not (taken := step(manifest, (main,), clock + pause)).start:
            main = taken.containers[0]
            pause = ((taken.wake_at or NOW) - at(clock)).total_seconds()
        pauses.append(pause)
        clock += pause

    assert pauses == [0, 0, 0, 40, 80, 160]


@pytest.mark.parametrize(
    ("spec", "code", "over"),
    [
        pytest.param({"restartPolicy": "OnFailure"}, 1, False, id="its own policy"),
        pytest.param({"restartPolicy": "Always"}, 0, False, id="its own, also after a success"),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [("In", [42])]}, 42, False, id="a rule"
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [("In", [42])]}, 1, True, id="no rule of it"
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [("NotIn", [42])]}, 1, False, id="all but one"
        ),
    ],
)
def test_a_containers_own_restart_policy(spec: dict[str, Any], code: int, over: bool) -> None:
    rules = [
        {"action": "Restart", "exitCodes": {"operator": operator, "values": values}}
        for operator, values in spec.get("restartPolicyRules") or ()
    ]
    manifest = pod(policy="Never")
    manifest["spec"]["containers"][0] |= {**spec, "restartPolicyRules": rules}
    (main,) = records.of_pod(manifest)

    assert step(manifest, (end(begin(main), code),)).is_finished is over
    assert (status.phase("Never", (end(begin(main), code),)) == "Running") is not over


@pytest.mark.parametrize(
    ("policy", "code", "over", "again"),
    [
        ("Never", 0, True, ()),
        ("Never", 1, True, ()),
        ("OnFailure", 0, True, ()),
        ("OnFailure", 1, False, ("main",)),
        ("Always", 0, False, ("main",)),
        ("Always", 1, False, ("main",)),
    ],
)
def test_restart_policies(policy: str, code: int, over: bool, again: tuple[str, ...]) -> None:
    manifest = pod(policy=policy)
    (main,) = records.of_pod(manifest)
    taken = step(manifest, (end(begin(main), code),))

    assert (taken.is_finished, taken.start) == (over, again)


def test_the_restart_back_off_grows() -> None:
    """At once, then after 10, 20, 40, … seconds, at most five minutes."""
    manifest = pod(policy="OnFailure")
    (main,) = records.of_pod(manifest)
    clock, pauses = 0.0, []
    for _ in range(9):
        main = end(begin(main, clock), 1, clock)
        taken = step(manifest, (main,), clock)
        pause = 0.0 if taken.start else ((taken.wake_at or NOW) - at(clock)).total_seconds()
        pauses.append(pause)
        clock += pause
        assert step(manifest, taken.containers, clock).start == ("main",)

    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_ten_minutes_without_failure_reset_the_back_off() -> None:
    manifest = pod(policy="OnFailure")
    (main,) = records.of_pod(manifest)
    main = end(begin(end(begin(main), 1)), 1, 601)

    assert step(manifest, (main,), 601).start == ("main",)
    assert begin(main, 601).backoff_seconds == 10


def test_a_container_in_back_off_has_its_reason() -> None:
    manifest = pod(policy="Always")
    (main,) = records.of_pod(manifest)
    main = end(begin(end(begin(main), 1)), 1)
    (held,) = step(manifest, (main,)).containers

    assert held.state == Waiting(
        "CrashLoopBackOff", "back-off 10s restarting failed container=main pod=p_default(u)"
    )
    assert held.last is not None
    assert held.last.exit_code == 1
    assert status.phase("Always", [held]) == "Running"


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_durations_are_formatted_as_in_go(seconds: float, text: str) -> None:
    assert lifecycle.go_duration(seconds) == text


def test_the_deadline_ends_a_pod() -> None:
    manifest = pod(activeDeadlineSeconds=60)
    (main,) = records.of_pod(manifest)

    assert step(manifest, (begin(main),), 59).wake_at == at(60)
    assert step(manifest, (begin(main),), 60).has_expired


def test_a_failed_start_is_retried() -> None:
    manifest = pod()
    (main,) = records.of_pod(manifest)
    main = records.postponed(main, "CreateContainerConfigError", "no", at(5))

    assert step(manifest, (main,)).wake_at == at(5)
    assert step(manifest, (main,), 5).start == ("main",)


def terminated(code: int) -> Terminated:
    return Terminated(code, "Completed" if code == 0 else "Error", NOW, NOW)


RUN, OK, BAD, NEW = Running(NOW), terminated(0), terminated(3), Waiting("ContainerCreating")


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        pytest.param("Never", [NEW], "Pending", id="not started"),
        pytest.param("Never", [RUN, NEW], "Pending", id="one not started"),
        pytest.param("Never", [RUN], "Running", id="running"),
        pytest.param("Never", [RUN, BAD], "Running", id="one still runs"),
        pytest.param("Never", [OK, OK], "Succeeded", id="all succeeded"),
        pytest.param("Never", [OK, BAD], "Failed", id="one failed"),
        pytest.param("OnFailure", [OK], "Succeeded", id="succeeded, on failure"),
        pytest.param("OnFailure", [OK, BAD], "Running", id="to be restarted"),
        pytest.param("Always", [OK], "Running", id="always restarted"),
    ],
)
def test_phase(policy: str, states: list[records.State], phase: str) -> None:
    containers = [Container(f"c{i}", {}, state=state) for i, state in enumerate(states)]

    assert status.phase(policy, containers) == phase


def test_the_phase_is_pending_during_init_containers() -> None:
    init = Container("i", {}, is_init=True, state=RUN)
    main = Container("m", {}, state=Waiting("PodInitializing"))

    assert status.phase("Never", [init, main]) == "Pending"
    assert status.phase("Never", [replace(init, state=BAD), main]) == "Failed"
    assert status.phase("OnFailure", [replace(init, state=BAD), main]) == "Pending"


def conditions(written: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in written["conditions"]}


def test_a_running_pod_is_ready() -> None:
    manifest = pod()
    (main,) = records.of_pod(manifest)
    written = status.pod_status(manifest, [begin(main)], FACTS, NOW)

    assert written["phase"] == "Running"
    assert (written["podIP"], written["hostIP"]) == ("127.9.1.3", "127.9.0.1")
    assert {c["type"]: c["status"] for c in written["conditions"]} == dict.fromkeys(
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"], "True"
    )
    (container,) = written["containerStatuses"]
    assert container["ready"]
    assert container["state"] == {"running": {"startedAt": "2026-01-01T12:00:00Z"}}


def test_a_waiting_pod_has_the_reason() -> None:
    manifest = pod(inits=[{"name": "i", "image": "x"}])
    written = status.pod_status(manifest, records.of_pod(manifest), FACTS, NOW)

    assert conditions(written)["Initialized"] == ("False", "ContainersNotInitialized")
    assert conditions(written)["Ready"] == ("False", "ContainersNotReady")
    assert written["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert written["initContainerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize(("code", "reason"), [(0, "PodCompleted"), (143, "PodFailed")])
def test_a_finished_pod_is_not_ready(code: int, reason: str) -> None:
    manifest = pod()
    (main,) = records.of_pod(manifest)
    written = status.pod_status(manifest, [end(begin(main), code, 5)], FACTS, at(5))

    assert conditions(written)["Ready"] == ("False", reason)
    ended = written["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == code
    assert ended["reason"] == ("Completed" if code == 0 else "Error")
    assert (ended["startedAt"], ended["finishedAt"]) == ("2026-01-01T12:00:00Z", "2026-01-01T12:00:05Z")


def test_a_restart_keeps_the_last_state() -> None:
    manifest = pod(policy="OnFailure")
    (main,) = records.of_pod(manifest)
    written = status.pod_status(manifest, [begin(end(begin(main), 7))], FACTS, NOW)
    (container,) = written["containerStatuses"]

    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == 7
    assert container["containerID"] != container["lastState"]["terminated"]["containerID"]


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    manifest = pod()
    (main,) = records.of_pod(manifest)
    first = status.pod_status(manifest, [begin(main)], FACTS, NOW)
    later = status.pod_status(manifest, [end(begin(main), 0, 9)], FACTS, at(9), previous=first)
    times = {c["type"]: c["lastTransitionTime"] for c in later["conditions"]}

    assert times["Initialized"] == "2026-01-01T12:00:00Z"
    assert times["Ready"] == "2026-01-01T12:00:09Z"


def test_readiness_is_the_result_of_the_probe() -> None:
    manifest = pod()
    manifest["spec"]["containers"][0]["readinessProbe"] = {"exec": {}}
    main = begin(records.of_pod(manifest)[0])
    written = status.pod_status(manifest, [main], FACTS, NOW)
    (container,) = written["containerStatuses"]

    assert (written["phase"], container["started"], container["ready"]) == ("Running", True, False)
    assert conditions(written)["Ready"] == conditions(written)["ContainersReady"]
    assert conditions(written)["Ready"] == ("False", "ContainersNotReady")
    written = status.pod_status(manifest, [healthy(main, ready=True)], FACTS, NOW)
    assert conditions(written)["Ready"] == ("True", "")


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        (
            [],
            'corresponding condition of pod readiness gate "g" does not exist.',
        ),
        ([("g", "False")], 'the status of pod readiness gate "g" is not "True", but False'),
        ([("g", "True")], None),
    ],
)
def test_a_readiness_gate_depends_on_its_condition(
    reported: list[tuple[str, str]], words: str | None
) -> None:
    manifest = pod(readinessGates=[{"conditionType": "g"}])
    manifest["status"] = {"conditions": [{"type": name, "status": value} for name, value in reported]}
    main = begin(records.of_pod(manifest)[0])
    by_type = {c["type"]: c for c in status.pod_status(manifest, [main], FACTS, NOW)["conditions"]}

    assert by_type["ContainersReady"]["status"] == "True"
    assert by_type["Ready"].get("message") == words
    assert (by_type["Ready"]["status"] == "True") is (words is None)
    assert "g" not in by_type
