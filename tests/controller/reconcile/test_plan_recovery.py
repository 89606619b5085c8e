"""Plans of jobs with a failure policy: the restart of the whole job, step by step."""

from typing import Any

import pytest

from api.children import Exit
from api.labels import RESTART_ATTEMPT
from api.meta import PODS
from controller.domain import Count
from controller.kind import Options
from controller.policy.recovery import ATTEMPT_VARIABLE
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster

ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
ANY: dict[str, Any] = {"action": "RestartJob"}


def cluster_with(
    *rules: dict[str, Any], policy: str = "OnFailure", graceful: bool = False, **fields: Any
) -> InMemoryCluster:
    given = {"failurePolicy": {"rules": rules, **fields}}
    return running_cluster(policy, graceful=graceful, run_policy=given)


def attempts(cluster: InMemoryCluster) -> list[tuple[int, str | None, str | None]]:
    return [(found.number, found.pod, found.action) for found in cluster.status.attempts or ()]


def test_the_status_knows_of_a_restart_before_any_pod_goes() -> None:
    cluster = cluster_with(ANY, graceful=True)
    cluster.set_phase("Failed", "worker-1", code=1)

    recorded = cluster.step()

    assert (recorded.create, recorded.delete, recorded.requeue_after_seconds) == ((), (), 0)
    assert cluster.status.restarts == 1
    assert cluster.conditions == "Created T, Restarting T"
    assert attempts(cluster) == [(0, "train-worker-1", "RestartJob")]
    assert [deletion.name for deletion in cluster.step().delete] == ALL_PODS


def test_new_pods_come_together_when_the_last_old_one_is_gone() -> None:
    cluster = cluster_with(ANY, graceful=True)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.go("master-0", "worker-1")

    assert cluster.settle() == []
    cluster.go("worker-0")
    (created,) = cluster.settle()

    assert [child.name for child in created.create if child.resource == PODS] == ALL_PODS


def test_pods_carry_their_attempt() -> None:
    cluster = cluster_with(ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.remove("worker-0")

    (pod,) = [child.body() for child in cluster.decide().create if child.resource == PODS]

    assert pod["metadata"]["labels"][RESTART_ATTEMPT] == "1"
    assert {"name": ATTEMPT_VARIABLE, "value": "1"} in pod["spec"]["containers"][0]["env"]
    assert pod["spec"]["restartPolicy"] == "Never"


def test_a_restart_counts_once_and_its_pods_never_again() -> None:
    cluster = cluster_with(ANY, graceful=True, maxRestarts=5)
    cluster.set_phase("Failed", code=1)
    cluster.settle()
    cluster.set_phase("Failed", code=1, deleting=True)
    cluster.settle()

    assert (cluster.status.restarts, cluster.status.restarts_count_towards_max) == (1, 1)
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.reasons.count("PyTorchJobRestarting") == 1


def test_the_job_runs_again_and_knows_what_it_lost() -> None:
    cluster = cluster_with(ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.wait(40)
    cluster.set_phase("Running")
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.status.lost_seconds == 40


def test_a_second_failure_waits() -> None:
    cluster = cluster_with(ANY)
    for _ in range(2):
        cluster.set_phase("Running")
        cluster.settle()
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()

    waits = cluster.decide()

    assert not cluster.pods
    assert waits.requeue_after_seconds is not None
    assert 10 <= waits.requeue_after_seconds <= 12
    cluster.wait(13)
    cluster.settle()
    assert sorted(cluster.pods) == ALL_PODS


def test_an_attempt_with_a_checkpoint_has_no_pause_after_it() -> None:
    cluster = cluster_with(ANY)
    for _ in range(2):
        cluster.set_phase("Running")
        cluster.settle()
        cluster.wait(30)
        cluster.set_phase("Running", "master-0", checkpoint_at=cluster.now)
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()

    assert sorted(cluster.pods) == ALL_PODS
    assert cluster.status.attempts
    assert cluster.status.attempts[-1].checkpoint_time == cluster.now


def test_a_checkpoint_of_an_earlier_attempt_does_not_count() -> None:
    cluster = cluster_with(ANY)
    earlier = cluster.now
    for _ in range(2):
        cluster.wait(30)
        cluster.set_phase("Running", checkpoint_at=earlier)
        cluster.settle()
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()

    assert not cluster.pods
    assert [attempt.checkpoint_time for attempt in cluster.status.attempts or ()] == [None, None]


def test_a_job_beyond_its_restarts_fails() -> None:
    cluster = cluster_with(ANY, maxRestarts=1)
    for _ in range(2):
        cluster.set_phase("Running")
        cluster.settle()
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()

    failed = (cluster.status.conditions or [])[-1]
    assert (failed.type, failed.reason) == ("Failed", "PyTorchJobMaxRestartsExceeded")
    assert attempts(cluster)[-1] == (1, "train-worker-1", "RestartJob")
    assert cluster.status.restarts == 1


def test_restarts_for_disruptions_do_not_count() -> None:
    disrupted = {
        "action": "RestartJobAndIgnoreMaxRestarts",
        "onPodConditions": [{"type": "DisruptionTarget"}],
    }
    cluster = cluster_with(disrupted, ANY, maxRestarts=0)
    cluster.set_phase(
        "Failed", "worker-1", conditions=("DisruptionTarget",), disruption="TerminationByKubelet"
    )
    cluster.settle()

    assert (cluster.status.restarts, cluster.status.restarts_count_towards_max) == (1, None)
    assert (cluster.status.attempts or [])[0].reason == "TerminationByKubelet"


def test_a_pod_that_somebody_deletes_restarts_the_job_at_once() -> None:
    cluster = cluster_with({**ANY, "onReasons": ["Deleted"]}, graceful=True)
    cluster.remove("worker-1")
    cluster.settle()

    assert attempts(cluster) == [(0, "train-worker-1", "RestartJob")]


def test_a_pod_that_is_gone_without_a_trace_restarts_the_job() -> None:
    cluster = cluster_with({**ANY, "onReasons": ["Deleted"]})
    cluster.go("worker-1")
    cluster.settle()

    assert attempts(cluster) == [(0, "train-worker-1", "RestartJob")]


def test_a_rule_fails_the_job() -> None:
    bug = {"action": "FailJob", "name": "bug", "onExitCodes": {"operator": "In", "values": [3]}}
    cluster = cluster_with(bug, ANY)
    cluster.set_phase("Failed", "worker-1", code=3)
    cluster.settle()

    failed = (cluster.status.conditions or [])[-1]
    assert (failed.type, failed.reason) == ("Failed", "PyTorchJobFailurePolicy")
    assert "train-worker-1 failed (container pytorch ended with exit code 3), rule bug" in (
        failed.message or ""
    )
    assert attempts(cluster) == [(0, "train-worker-1", "FailJob")]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_rule_replaces_one_pod_whatever_the_restart_policy(policy: str) -> None:
    cluster = cluster_with({"action": "RestartPod"}, policy=policy)
    before = dict(cluster.pods)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    changed = [name for name, pod in cluster.pods.items() if pod.uid != before[name].uid]
    assert changed == ["train-worker-1"]
    assert cluster.conditions == "Created T, Running T"
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.status.restarts is None


@pytest.mark.parametrize(
    ("policy", "reason"), [("Never", "PyTorchJobFailed"), ("OnFailure", "PyTorchJobRestarting")]
)
def test_without_a_match_the_restart_policy_decides(policy: str, reason: str) -> None:
    cluster = cluster_with({**ANY, "roles": ["Master"]}, policy=policy)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.reasons[-1] == reason
    assert cluster.status.restarts is None


def test_success_precedes_a_failure() -> None:
    cluster = cluster_with(ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.settle()

    assert "Succeeded T" in cluster.conditions
    assert cluster.status.restarts is None


def test_the_deadline_counts_over_all_attempts() -> None:
    given = {"failurePolicy": {"rules": [ANY]}, "activeDeadlineSeconds": 60}
    cluster = running_cluster(run_policy=given)
    cluster.wait(50)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.wait(11)
    cluster.settle()

    assert "Failed T" in cluster.conditions


def test_a_suspended_job_continues_with_its_attempt() -> None:
    rules = {"failurePolicy": {"rules": [ANY]}}
    cluster = running_cluster(run_policy=rules)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    role = {"restartPolicy": "OnFailure"}
    cluster.update_spec(pytorch_job(master=role, worker=role, run_policy={**rules, "suspend": True}))
    cluster.settle()
    assert not cluster.pods
    cluster.update_spec(pytorch_job(master=role, worker=role, run_policy=rules))
    cluster.settle()

    assert {pod.attempt for pod in cluster.pods.values()} == {1}
    assert cluster.status.restarts == 1


def test_a_policy_that_is_taken_away_leaves_the_attempt_as_it_is() -> None:
    cluster = cluster_with(ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    role = {"restartPolicy": "OnFailure"}
    cluster.update_spec(pytorch_job(master=role, worker=role))
    before = dict(cluster.pods)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.pods["train-worker-0"].uid == before["train-worker-0"].uid
    assert cluster.pods["train-worker-1"].attempt == 1


def test_an_old_status_changes_nothing() -> None:
    cluster = cluster_with(ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.write(restarts=0)

    plan = cluster.decide()

    assert (plan.create, plan.delete) == ((), ())


def test_attempts_count_on_from_those_of_the_pods_if_the_status_has_lost_them() -> None:
    cluster = cluster_with(ANY)
    for _ in range(2):
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()
        cluster.wait(400)
        cluster.settle()
        cluster.set_phase("Running")
        cluster.settle()
    gone = {"restarts": None, "attempts": None, "restarts_count_towards_max": None, "lost_seconds": None}
    cluster.job = cluster.job.model_copy(update={"status": cluster.status.model_copy(update=gone)})
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.status.restarts == 3
    assert {pod.attempt for pod in cluster.pods.values()} == {3}


def test_the_container_that_failed_first_is_in_the_history() -> None:
    cluster = cluster_with(ANY)
    exits = (Exit("pytorch", 1, finished_at=cluster.now), Exit("sidecar", 9, "OOMKilled"))
    cluster.set_phase("Failed", "worker-1", exits=exits, node="node-3")
    cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert (attempt.container, attempt.exit_code, attempt.node) == ("pytorch", 1, "node-3")


IGNORE: dict[str, Any] = {"action": "Ignore", "name": "lame", "roles": ["Worker"]}


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_an_ignored_pod_stays_failed_and_the_job_succeeds_without_it(policy: str) -> None:
    cluster = cluster_with(IGNORE, policy=policy)
    before = dict(cluster.pods)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.pods["train-worker-1"].uid == before["train-worker-1"].uid
    assert cluster.counters["Worker"] == {"active": 1, "failed": 1}
    assert cluster.reasons.count("FailureIgnored") == 1
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.settle()
    assert "Succeeded T" in cluster.conditions
    assert cluster.counts.count(Count.RESTARTED) == 0


def test_all_workers_decide_without_the_ignored_ones() -> None:
    cluster = running_cluster(masters=None, run_policy={"failurePolicy": {"rules": [IGNORE]}})
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.set_phase("Succeeded", "worker-0", code=0)
    cluster.settle()

    assert "Succeeded T" in cluster.conditions


def test_a_job_fails_when_all_pods_that_decide_are_ignored() -> None:
    cluster = cluster_with({**IGNORE, "roles": ["Master"]})
    cluster.set_phase("Failed", "master-0", code=1)
    cluster.settle()

    failed = (cluster.status.conditions or [])[-1]
    assert (failed.type, failed.reason) == ("Failed", "PyTorchJobFailurePolicy")
    assert "cannot succeed" in (failed.message or "")


def test_a_failure_beside_an_ignored_one_still_counts() -> None:
    cluster = cluster_with({**IGNORE, "onExitCodes": {"operator": "In", "values": [9]}})
    cluster.set_phase("Failed", "worker-0", code=9)
    cluster.settle()
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.reasons[-1] == "PyTorchJobRestarting"
    assert cluster.pods["train-worker-0"].phase == "Failed"
    assert cluster.pods["train-worker-1"].phase == "Pending"


def test_an_ignored_pod_that_somebody_deletes_is_created_again() -> None:
    cluster = cluster_with(IGNORE)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.remove("worker-1")
    cluster.settle()

    assert cluster.pods["train-worker-1"].phase == "Pending"
    assert cluster.status.restarts is None


def test_a_pod_without_a_rule_fails_the_job_although_a_rule_replaces_its_neighbor() -> None:
    """Before, the restart policy of the role did not apply while a rule replaced another of its pods."""
    cluster = cluster_with(
        {"action": "RestartPod", "onExitCodes": {"operator": "In", "values": [9]}}, policy="Never"
    )
    cluster.set_phase("Failed", "worker-0", code=9)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.reasons[-1] == "PyTorchJobFailed"


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_restart_waits_while_the_spec_is_invalid(policy: str) -> None:
    rules = {"failurePolicy": {"rules": [ANY]}}
    role = {"restartPolicy": policy}
    cluster = running_cluster(policy, run_policy=rules)
    broken = pytorch_job(master=role, worker={**role, "template": {"spec": {}}}, run_policy=rules)
    cluster.update_spec(broken)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.status.restarts is None
    assert cluster.conditions == "Created T, Running T"
    assert sorted(cluster.pods) == ALL_PODS

    cluster.update_spec(pytorch_job(master=role, worker=role, run_policy=rules))
    cluster.settle()
    assert cluster.status.restarts == 1
    assert {pod.attempt for pod in cluster.pods.values()} == {1}


def test_a_rule_fails_a_job_whose_spec_is_invalid() -> None:
    rules = {"failurePolicy": {"rules": [{"action": "FailJob"}]}}
    cluster = running_cluster(run_policy=rules)
    cluster.update_spec(pytorch_job(worker={"template": {"spec": {}}}, run_policy=rules))
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.reasons[-1] == "PyTorchJobFailurePolicy"


def test_an_unknown_action_of_a_running_job_decides_nothing() -> None:
    cluster = cluster_with(ANY)
    role = {"restartPolicy": "OnFailure"}
    rules = {"failurePolicy": {"rules": [{"action": "Explode"}, ANY]}}
    cluster.update_spec(pytorch_job(master=role, worker=role, run_policy=rules))
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.status.restarts is None
    assert "PyTorchJobFailedValidation" in cluster.reasons


def test_a_failed_job_keeps_its_running_pods_unless_the_operator_cleans_up() -> None:
    clusters = [
        InMemoryCluster(pytorch_job(), options=Options(clean_finished_pods=cleans))
        for cleans in (False, True)
    ]
    for cluster in clusters:
        cluster.settle()
        cluster.set_phase("Running")
        cluster.settle()
        cluster.update_spec(pytorch_job(worker={"restartPolicy": "Never"}))
        cluster.set_phase("Failed", "worker-1", code=1)
        cluster.settle()

    assert [sorted(cluster.pods) for cluster in clusters] == [ALL_PODS, ["train-worker-1"]]


def test_a_suspension_is_no_part_of_the_attempt_after_it() -> None:
    policy = {"failurePolicy": {"rules": [ANY]}}
    cluster = running_cluster("Never", run_policy=policy)
    cluster.wait(100)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    spec = cluster.job.spec
    cluster.update_spec(pytorch_job(run_policy={**policy, "suspend": True}))
    cluster.settle()
    cluster.wait(36_000)
    cluster.job = cluster.job.model_copy(update={"spec": spec})
    cluster.settle()
    resumed = cluster.status.start_time
    cluster.set_phase("Running")
    cluster.settle()
    assert (cluster.status.lost_seconds or 0) < 3600
    cluster.wait(5)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    last = (cluster.status.attempts or [])[-1]
    assert last.start_time == resumed
    assert last.end_time
    assert last.restart_time
    assert (last.restart_time - last.end_time).total_seconds() >= 10
