"""Invariants of every job, whatever its pods, its nodes and its users do."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from api import conditions, labels
from api.children import PodGroup
from api.job import ConditionType, JobCondition, ReplicaStatus
from api.meta import PODS
from api.names import child_name
from controller.domain import Child, Plan, WriteMode
from controller.kind import Options
from controller.policy.gang import KUBERNETES, VOLCANO, groups_of
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster

POLICIES = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])
PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])
LIMITS = st.one_of(st.none(), st.integers(0, 4))
CODES = st.sampled_from([None, 0, 1, 127, 128, 137])
SCHEDULERS = st.sampled_from(["", "volcano", "coscheduler", "kubernetes"])
GANGS = st.sampled_from(
    [
        None,
        {"minAvailable": 1, "queue": "research"},
        {"minResources": {"cpu": "2", "memory": "1Gi"}},
        {"priorityClass": "high", "scheduleTimeoutSeconds": 10},
    ]
)
GROUP_PHASES = st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown"])
WORDS_OF_OTHERS = st.sampled_from([{"minMember": 7}, {"minResources": None}, {"minTaskMember": {"a": 1}}])


class AnyJob(RuleBasedStateMachine):
    """A job under everything that may happen to it; each reconcile checks the invariants."""

    cluster: InMemoryCluster
    scheduler: str
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
        scheduler=SCHEDULERS,
        gang=GANGS,
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
        scheduler: str,
        gang: dict[str, Any] | None,
    ) -> None:
        policy = {
            "backoffLimit": backoff_limit,
            "cleanPodPolicy": clean,
            "activeDeadlineSeconds": 100,
            "schedulingPolicy": gang,
        }
        self.spec = {
            "masters": masters,
            "workers": workers,
            "master": {"restartPolicy": master_policy},
            "worker": {"restartPolicy": worker_policy},
            "run_policy": policy,
            **({"elasticPolicy": {}} if elastic else {}),
        }
        self.scheduler = scheduler
        options = Options(gang_scheduler=scheduler)
        self.cluster = InMemoryCluster(pytorch_job(**self.spec), options=options, graceful=graceful)

    @rule(at=st.integers(0, 9), phase=PHASES, code=CODES, restarts=st.integers(0, 2))
    def a_pod_changes(self, at: int, phase: str, code: int | None, restarts: int) -> None:
        self.with_pod(at, lambda name: self.change(name, phase, code, restarts))

    @rule(at=st.integers(0, 9))
    def a_pod_is_deleted(self, at: int) -> None:
        self.with_pod(at, self.cluster.remove)

    @rule(at=st.integers(0, 9))
    def a_pod_is_gone(self, at: int) -> None:
        self.with_pod(at, self.cluster.go)

    @rule(at=st.integers(0, 9))
    def a_service_is_gone(self, at: int) -> None:
        names = list(self.cluster.services)
        if names:
            del self.cluster.services[names[at % len(names)]]

    @rule(phase=GROUP_PHASES)
    @precondition(lambda self: self.cluster.group)
    def the_scheduler_admits_or_rejects(self, phase: str) -> None:
        self.cluster.admit(phase)

    @rule(said=WORDS_OF_OTHERS)
    @precondition(lambda self: self.cluster.group)
    def the_group_spec_is_changed(self, said: dict[str, Any]) -> None:
        assert self.cluster.group is not None
        self.cluster.admit(self.cluster.group.phase, **said)

    @rule()
    @precondition(lambda self: self.cluster.group)
    def the_group_is_deleted(self) -> None:
        assert self.cluster.group is not None
        self.cluster.group = msgspec.structs.replace(self.cluster.group, deleting=True)

    @rule(is_group_name_taken=st.booleans())
    @precondition(lambda self: self.cluster.group is None or self.cluster.group.deleting)
    def the_group_is_gone_and_its_name_is_possibly_taken(self, is_group_name_taken: bool) -> None:
        self.cluster.group, self.cluster.is_group_name_taken = None, is_group_name_taken

    @rule(count=st.integers(0, 4))
    def the_user_scales(self, count: int) -> None:
        self.update_spec(workers=count)

    @rule(suspend=st.booleans())
    def the_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.update_spec(run_policy={**self.spec["run_policy"], "suspend": suspend})

    @rule(masters=st.sampled_from([None, 1, 2]))
    def the_user_changes_the_master(self, masters: int | None) -> None:
        self.update_spec(masters=masters)

    @rule(seconds=st.integers(0, 40))
    def time_goes_by(self, seconds: int) -> None:
        self.cluster.wait(seconds)

    @rule()
    @precondition(lambda self: not self.cluster.is_deleted)
    def a_reconcile(self) -> None:
        before = self.cluster.status.conditions or []
        was_finished = conditions.is_finished(self.cluster.status)
        group, had_pods = self.cluster.group, bool(self.cluster.pods)

        plan = self.cluster.step()

        after = self.cluster.status.conditions or []
        if was_finished:
            assert after == before
            assert plan.create == ()
            assert plan.counts == ()
        self.check_conditions(after)
        self.check_children(plan)
        self.check_counters()
        self.check_group(group, had_pods, plan)

    @rule()
    @precondition(lambda self: not self.cluster.is_deleted)
    def reconciles_settle(self) -> None:
        self.cluster.settle()

        assert self.cluster.is_idle(self.cluster.decide())
        if conditions.is_finished(self.cluster.status) or self.cluster.job.spec.policy.suspend:
            assert self.cluster.group is None or self.cluster.group.deleting

    def check_conditions(self, after: list[JobCondition]) -> None:
        true = {condition.type for condition in after if condition.status == "True"}
        assert next(found for found in after if found.status == "True").type == ConditionType.CREATED
        assert not {"Running", "Restarting"} <= {condition.type for condition in after}
        assert not {"Succeeded", "Failed"} <= true
        assert not ("Running" in true and true & {"Succeeded", "Failed"})
        finished = conditions.is_finished(self.cluster.status)
        assert (self.cluster.status.completion_time is not None) is finished

    def check_children(self, plan: Plan) -> None:
        roles = self.cluster.kind.roles(self.cluster.job)
        possible = {
            child_name("train", role.label, at) for role in roles.values() for at in range(role.replicas)
        }
        assert {child.name for child in plan.create if child.resource.kind != "PodGroup"} <= possible
        if conditions.is_finished(plan.status) or self.cluster.job.spec.policy.suspend:
            assert plan.create == ()

    def check_group(self, before: PodGroup | None, had_pods: bool, plan: Plan) -> None:
        """Check what a reconcile did about this PodGroup and its pods."""
        pods = [child.body() for child in plan.create if child.resource == PODS]
        groups = [child for child in plan.create if child.resource.kind == "PodGroup"]
        deletions = [deletion for deletion in plan.delete if deletion.resource.kind == "PodGroup"]
        if not self.scheduler:
            assert not groups + deletions
            return
        assert [child.first for child in groups] in ([], [True])
        assert all(groups_of(self.scheduler) == child.resource for child in groups)
        assert [deletion.uid for deletion in deletions] in ([], [before and before.uid])
        if self.scheduler == VOLCANO and (not before or before.deleting or before.phase in {"", "Pending"}):
            assert not pods
        is_older = before is None and had_pods
        for body in pods if self.scheduler == KUBERNETES else ():
            # Kubernetes keeps a group that has pods, so that pods without one are older than the flag.
            assert body["spec"].get("schedulingGroup") == (None if is_older else {"podGroupName": "train"})
        for body in () if self.scheduler == KUBERNETES else pods:
            marks = {**body["metadata"]["labels"], **body["metadata"].get("annotations", {})}
            assert "train" in {marks.get(labels.GROUP_NAME), marks.get(labels.POD_GROUP)}
            assert body["spec"]["schedulerName"] == self.scheduler
        for child in groups:
            self.check_change(before, child)

    def check_change(self, before: PodGroup | None, child: Child) -> None:
        """A group is made where there is none, and changed only where it says something else, once."""
        assert (before is None) == (child.write_mode is WriteMode.CREATE)
        if before is not None:
            said, patch = msgspec.json.decode(before.spec), child.body()
            assert not before.deleting
            assert patch["metadata"]["uid"] == before.uid
            assert all(said.get(field) != value for field, value in patch["spec"].items())
        if not self.cluster.is_group_name_taken:
            again = self.cluster.decide().create
            assert not [child for child in again if child.resource.kind == "PodGroup"]

    def check_counters(self) -> None:
        """The counters equal those of the observed pods."""
        status, policy = self.cluster.status, self.cluster.job.spec.policy
        if conditions.is_finished(status) or policy.suspend or self.problems():
            return
        if conditions.is_true(status, ConditionType.SUSPENDED):
            return
        for name, role in self.cluster.kind.roles(self.cluster.job).items():
            active = [pod for pod in self.cluster.pods.values() if pod.role == role.label and pod.is_active]
            fitting = [pod for pod in active if pod.index < role.replicas]
            replica_status = (status.replica_statuses or {}).get(name) or ReplicaStatus()
            assert (replica_status.active or 0) == len(fitting)

    def problems(self) -> bool:
        options = self.cluster.options
        return any(not problem.at_start for problem in self.cluster.kind.problems(self.cluster.job, options))

    def with_pod(self, at: int, work: Callable[[str], object]) -> None:
        names = [name.removeprefix("train-") for name in self.cluster.pods]
        if names:
            work(names[at % len(names)])

    def change(self, name: str, phase: str, code: int | None, restarts: int) -> None:
        pod = self.cluster.pods[f"train-{name}"]
        if not pod.is_finished:
            code = code if phase == "Failed" else None
            self.cluster.set_phase(phase, name, code=code, restarts=pod.restarts + restarts)

    def update_spec(self, **fields: Any) -> None:
        self.spec = {**self.spec, **fields}
        self.cluster.update_spec(pytorch_job(**self.spec))


AnyJob.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyJob = AnyJob.TestCase
