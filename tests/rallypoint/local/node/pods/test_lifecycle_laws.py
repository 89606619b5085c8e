"""Invariants of the lifecycle of a pod, for any order of events of its containers, probes and hooks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rallypoint.local.node.pods import container_state as records
from rallypoint.local.node.pods import lifecycle, probes, status
from rallypoint.local.node.pods.container_state import Container, Running
from rallypoint.local.node.pods.probes import KillCause, Kind, Probe, Streak

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FACTS = status.Facts("10.244.0.1", "10.244.1.3", NOW)
PROBE = {"exec": {"command": ["ask"]}}
HOOK = {"postStart": {"exec": {"command": ["begin"]}}}
FINAL = ("Succeeded", "Failed")


def pod(policy: str) -> dict[str, Any]:
    """Two sidecars around an init container, and two main containers."""
    side = {"name": "side", "restartPolicy": "Always", "startupProbe": PROBE, "livenessProbe": PROBE}
    hooked = {"name": "hooked", "restartPolicy": "Always", "lifecycle": HOOK}
    main = {"name": "main", "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE}
    other = {"name": "other", "lifecycle": HOOK, "livenessProbe": PROBE}
    spec = {"initContainers": [side, {"name": "init"}, hooked], "containers": [main, other]}
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": policy, **spec},
    }


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.pod: dict[str, Any] = {}
        self.containers: dict[str, Container] = {}
        self.starts: dict[str, int] = {}
        self.killed: set[tuple[str, int]] = set()
        self.final = ""

    @initialize(policy=st.sampled_from(["Always", "OnFailure", "Never"]))
    def begin(self, policy: str) -> None:
        self.pod = pod(policy)
        self.containers = {c.name: c for c in records.of_pod(self.pod)}
        self.starts = dict.fromkeys(self.containers, 0)

    @property
    def running(self) -> list[Container]:
        return [c for c in self.containers.values() if c.health is not None]

    def phase(self) -> str:
        return status.phase(self.pod["spec"]["restartPolicy"], list(self.containers.values()))

    @rule(starts=st.sampled_from(["well", "not", "later"]))
    def act(self, starts: str) -> None:
        """What the node does when something has changed."""
        if self.final:
            return
        step = lifecycle.next_step(self.pod, list(self.containers.values()), NOW, self.now)
        self.containers = {c.name: c for c in step.containers}
        if step.is_finished:
            self.end()
            return
        assert self.running or step.start or step.wake_at, "nothing will ever happen"
        for kill in step.kill:
            run = kill.name, self.starts[kill.name]
            assert run not in self.killed, "killed twice"
            self.killed.add(run)
        for name in step.start:
            self.start(name, starts)

    def start(self, name: str, how: str) -> None:
        container = self.containers[name]
        assert container.health is None, "two processes of one container"
        self.require_what_comes_before(container)
        if how == "later":
            until = self.now + timedelta(seconds=5)
            self.containers[name] = records.postponed(container, "CreateContainerConfigError", "no", until)
            return
        self.containers[name] = records.started(container, self.now)
        self.starts[name] += 1
        assert self.containers[name].restarts == self.starts[name] - 1
        if how == "not":
            self.containers[name] = records.terminated(
                self.containers[name], 128, self.now, reason="StartError"
            )

    def require_what_comes_before(self, container: Container) -> None:
        """Only the first start of a container that is not yet past waits for what is before it in the manifest."""
        mains_begun = lifecycle.has_initialized(list(self.containers.values()))
        if mains_begun or self.starts[container.name]:
            return
        before = list(self.containers.values())[: list(self.containers).index(container.name)]
        assert all(lifecycle.is_passed(c) for c in before if c.is_init), "too early"

    def end(self) -> None:
        mains = [c for c in self.containers.values() if not c.is_init]
        for container in self.running:
            assert container.is_init, "a main container was still up"
            self.containers[container.name] = records.terminated(container, 137, self.now)
        self.final = self.phase()
        assert self.final in FINAL
        if self.final == "Succeeded":
            assert all(c.ended is not None and c.ended.succeeded for c in mains)

    @rule(seconds=st.sampled_from([1, 5, 10, 60, 400, 1000]))
    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), code=st.sampled_from([0, 1, 137]))
    def exit(self, data: st.DataObject, code: int) -> None:
        container = data.draw(st.sampled_from(self.running))
        self.containers[container.name] = records.terminated(container, code, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeded=st.booleans())
    def finish_probe(self, data: st.DataObject, succeeded: bool) -> None:
        """A probe has reached its threshold."""
        container = data.draw(st.sampled_from(self.running))
        kinds = [kind for kind in Kind if container.spec.get(kind)]
        if not kinds or container.health is None or not container.health.has_post_start_finished:
            return
        kind = data.draw(st.sampled_from(kinds))
        if kind is not Kind.STARTUP and not container.has_started:
            return
        probe = Probe.of(kind, container.spec[kind])
        health = probes.after(container.health, probe, Streak(succeeded, 100))
        self.containers[container.name] = records.with_health(container, health)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeded=st.booleans())
    def finish_hook(self, data: st.DataObject, succeeded: bool) -> None:
        container = data.draw(st.sampled_from(self.running))
        if container.health is None or container.health.has_post_start_finished:
            return
        change: dict[str, Any] = (
            {"has_post_start_finished": True} if succeeded else {"kill_cause": KillCause.POST_START}
        )
        self.containers[container.name] = records.with_health(container, replace(container.health, **change))

    @invariant()
    def numbers_never_go_back(self) -> None:
        for name, container in self.containers.items():
            assert container.restarts == max(self.starts[name] - 1, 0)

    @invariant()
    def a_final_phase_stays(self) -> None:
        if self.final:
            assert self.phase() == self.final

    @invariant()
    def the_status_is_consistent(self) -> None:
        if not self.containers:
            return
        written = status.pod_status(self.pod, list(self.containers.values()), FACTS, self.now)
        up = {c["type"]: c["status"] == "True" for c in written["conditions"]}
        lasting = [*written["containerStatuses"], *written["initContainerStatuses"][::2]]
        assert (
            up["Ready"]
            == up["ContainersReady"]
            == all(container_status["ready"] for container_status in lasting)
        )
        for container_status in lasting:
            assert container_status["started"] or not container_status["ready"]
            assert "running" in container_status["state"] or not container_status["started"]
            container = self.containers[container_status["name"]]
            assert isinstance(container.state, Running) or "running" not in container_status["state"]
        if written["phase"] in FINAL:
            assert not up["Ready"]


Life.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestLife = Life.TestCase
