"""What holds for every job, whatever its pods, its nodes and its users do."""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from api import conditions
from api.job import ConditionType, JobCondition, ReplicaStatus
from api.names import child_name
from controller.domain import Plan
from controller.testing.builders import pytorch_job
from controller.testing.life import Life

POLICIES = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])
PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])
LIMITS = st.one_of(st.none(), st.integers(0, 4))
CODES = st.sampled_from([None, 0, 1, 127, 128, 137])


class AnyLife(RuleBasedStateMachine):
    """One job under everything that may happen to it; the laws are asked after each pass."""

    life: Life
    spec: dict[str, Any]

    @initialize(
        masters=st.sampled_from([None, 1]),
        workers=st.integers(0, 3),
        master_policy=POLICIES,
        worker_policy=POLICIES,
        backoff_limit=LIMITS,
        clean=st.sampled_from([None, "None", "Running", "All"]),
        elastic=st.booleans(),
        graceful=st.booleans(),
    )
    def begin(
        self,
        masters: int | None,
        workers: int,
        master_policy: str,
        worker_policy: str,
        backoff_limit: int | None,
        clean: str | None,
        elastic: bool,
        graceful: bool,
    ) -> None:
        policy = {"backoffLimit": backoff_limit, "cleanPodPolicy": clean, "activeDeadlineSeconds": 100}
        self.spec = {
            "masters": masters,
            "workers": workers,
            "master": {"restartPolicy": master_policy},
            "worker": {"restartPolicy": worker_policy},
            "run_policy": policy,
            **({"elasticPolicy": {}} if elastic else {}),
        }
        self.life = Life(pytorch_job(**self.spec), graceful=graceful)

    @rule(at=st.integers(0, 9), phase=PHASES, code=CODES, restarts=st.integers(0, 2))
    def a_pod_changes(self, at: int, phase: str, code: int | None, restarts: int) -> None:
        self.with_pod(at, lambda name: self.change(name, phase, code, restarts))

    @rule(at=st.integers(0, 9))
    def somebody_removes_a_pod(self, at: int) -> None:
        self.with_pod(at, self.life.remove)

    @rule(at=st.integers(0, 9))
    def a_pod_is_gone(self, at: int) -> None:
        self.with_pod(at, self.life.go)

    @rule(at=st.integers(0, 9))
    def a_service_is_gone(self, at: int) -> None:
        names = list(self.life.services)
        if names:
            del self.life.services[names[at % len(names)]]

    @rule(count=st.integers(0, 4))
    def the_user_scales(self, count: int) -> None:
        self.respecify(workers=count)

    @rule(suspend=st.booleans())
    def the_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.respecify(run_policy={**self.spec["run_policy"], "suspend": suspend})

    @rule(masters=st.sampled_from([None, 1, 2]))
    def the_user_changes_the_master(self, masters: int | None) -> None:
        self.respecify(masters=masters)

    @rule(seconds=st.integers(0, 40))
    def time_goes_by(self, seconds: int) -> None:
        self.life.wait(seconds)

    @rule()
    @precondition(lambda self: not self.life.is_deleted)
    def a_pass(self) -> None:
        before = self.life.status.conditions or []
        was_finished = conditions.is_finished(self.life.status)

        plan = self.life.step()

        after = self.life.status.conditions or []
        if was_finished:
            assert after == before
            assert plan.create == ()
            assert plan.counts == ()
        self.check_conditions(after)
        self.check_children(plan)
        self.check_counters()

    @rule()
    @precondition(lambda self: not self.life.is_deleted)
    def passes_come_to_an_end(self) -> None:
        self.life.settle()

        assert self.life.is_idle(self.life.decide())

    def check_conditions(self, after: list[JobCondition]) -> None:
        true = {one.type for one in after if one.status == "True"}
        assert after[0].type == ConditionType.CREATED
        assert not {"Running", "Restarting"} <= {one.type for one in after}
        assert not {"Succeeded", "Failed"} <= true
        assert not ("Running" in true and true & {"Succeeded", "Failed"})
        finished = conditions.is_finished(self.life.status)
        assert (self.life.status.completion_time is not None) is finished

    def check_children(self, plan: Plan) -> None:
        roles = self.life.kind.roles(self.life.job)
        possible = {
            child_name("train", role.label, at) for role in roles.values() for at in range(role.replicas)
        }
        assert {child.name for child in plan.create} <= possible
        if conditions.is_finished(plan.status) or self.life.job.spec.policy.suspend:
            assert plan.create == ()

    def check_counters(self) -> None:
        """The counters are those of the pods that the pass has seen: nobody has changed them since."""
        status, policy = self.life.status, self.life.job.spec.policy
        if conditions.is_finished(status) or policy.suspend or self.problems():
            return
        if conditions.is_true(status, ConditionType.SUSPENDED):
            return
        for name, role in self.life.kind.roles(self.life.job).items():
            active = [one for one in self.life.pods.values() if one.role == role.label and one.is_active]
            fitting = [one for one in active if one.index < role.replicas]
            told = (status.replica_statuses or {}).get(name) or ReplicaStatus()
            assert (told.active or 0) == len(fitting)

    def problems(self) -> bool:
        options = self.life._options
        return any(not one.at_start for one in self.life.kind.problems(self.life.job, options))

    def with_pod(self, at: int, work: Callable[[str], object]) -> None:
        names = [name.removeprefix("train-") for name in self.life.pods]
        if names:
            work(names[at % len(names)])

    def change(self, name: str, phase: str, code: int | None, restarts: int) -> None:
        pod = self.life.pods[f"train-{name}"]
        if not pod.is_finished:
            code = code if phase == "Failed" else None
            self.life.become(phase, name, code=code, restarts=pod.restarts + restarts)

    def respecify(self, **fields: Any) -> None:
        self.spec = {**self.spec, **fields}
        self.life.respecify(pytorch_job(**self.spec))


AnyLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyLife = AnyLife.TestCase
