"""Plans of MPIJobs of v2beta1 and v1alpha2 with a failure policy: the restart of launcher and workers."""

from typing import Any

import pytest

from api.labels import RESTART_ATTEMPT
from api.meta import PODS
from api.mpijob import MPIJob
from api.nodes import NodeState
from api.pod_problems import Trouble
from controller.domain import Count
from controller.kind import JobKind, Options
from controller.kinds.mpi.hosts import WAIT_ANNOTATION
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.policy.gang import VOLCANO
from controller.policy.recovery import ATTEMPT_VARIABLE
from controller.reconcile.plan import problems
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import mpi_job

WORKERS = ["pi-worker-0", "pi-worker-1"]
ANY: dict[str, Any] = {"action": "RestartJob"}
FLAVORS = pytest.mark.parametrize(
    "kind", [pytest.param(V2BETA1, id="v2beta1"), pytest.param(V1ALPHA2, id="v1alpha2")]
)


def job_with(
    kind: JobKind[Any], *rules: dict[str, Any], run_policy: dict[str, Any] | None = None, **fields: Any
) -> MPIJob:
    version = "v2beta1" if kind is V2BETA1 else "v1alpha2"
    given = {"failurePolicy": {"rules": rules}, **(run_policy or {})}
    return mpi_job(**{"flavor": version, "runPolicy": given, **fields})


def cluster_with(
    kind: LauncherFlavor,
    *rules: dict[str, Any],
    graceful: bool = False,
    options: Options | None = None,
    **fields: Any,
) -> InMemoryCluster:
    """A job whose launcher and workers run."""
    job = job_with(kind, *rules, **fields)
    cluster = InMemoryCluster(job, kind=kind, options=options, graceful=graceful)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    run(cluster)
    return cluster


def run(cluster: InMemoryCluster) -> None:
    """Run what is there, as the kubelet and the Job controller do."""
    cluster.set_phase("Running", ready=True)
    cluster.settle()
    cluster.launch()
    cluster.settle()


def launcher(cluster: InMemoryCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.batch_jobs["pi-launcher"]
    return found


def attempts(cluster: InMemoryCluster) -> list[tuple[int, str | None, str | None]]:
    return [(found.number, found.pod, found.action) for found in cluster.status.attempts or ()]


def failed_condition(cluster: InMemoryCluster) -> tuple[str, str]:
    last = (cluster.status.conditions or [])[-1]
    return last.type, last.reason or ""


@FLAVORS
def test_a_failed_launcher_restarts_the_job_after_the_status_knows(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, graceful=True)
    cluster.launch("Failed", 3)

    recorded = cluster.step()

    assert (recorded.create, recorded.delete, recorded.requeue_after_seconds) == ((), (), 0)
    assert cluster.conditions == "Created T, Restarting T"
    assert cluster.status.restarts == 1
    assert attempts(cluster) == [(0, "pi-launcher-x", "RestartJob")]
    (ended,) = cluster.status.attempts or []
    assert (ended.role, ended.container, ended.exit_code) == ("Launcher", "mpi", 3)
    deleted = cluster.step().delete
    assert [(deletion.name, deletion.is_foreground) for deletion in deleted] == [
        ("pi-worker-0", False),
        ("pi-worker-1", False),
        ("pi-launcher", True),
    ]


@FLAVORS
def test_a_failed_worker_restarts_the_job(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    old = launcher(cluster)["metadata"]["uid"]
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    run(cluster)

    assert attempts(cluster) == [(0, "pi-worker-1", "RestartJob")]
    assert {pod.attempt for pod in cluster.pods.values()} == {1}
    assert launcher(cluster)["metadata"]["uid"] != old
    assert cluster.conditions == "Created T, Running T"


@FLAVORS
def test_the_next_attempt_begins_when_the_last_pod_is_gone(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, graceful=True)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.go()

    assert cluster.settle() == []
    cluster.go_batch()
    cluster.settle()

    assert sorted(cluster.pods) == WORKERS
    assert list(cluster.batch_jobs) == ["pi-launcher"]


@FLAVORS
def test_launcher_and_workers_carry_their_attempt(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.launch("Failed", 1)
    cluster.settle()
    cluster.go("worker-0")

    (worker,) = [child.body() for child in cluster.decide().create if child.resource == PODS]

    template = launcher(cluster)["spec"]["template"]
    assert launcher(cluster)["metadata"]["labels"][RESTART_ATTEMPT] == "1"
    for pod in (worker, template):
        assert pod["metadata"]["labels"][RESTART_ATTEMPT] == "1"
        assert {"name": ATTEMPT_VARIABLE, "value": "1"} in pod["spec"]["containers"][0]["env"]
        assert pod["spec"]["restartPolicy"] == "Never"


@FLAVORS
def test_a_restart_counts_once_whatever_fails_afterwards(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, graceful=True)
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.set_phase("Failed", code=1, deleting=True)
    cluster.end_batch("Failed", reason="BackoffLimitExceeded", failed=1)
    launcher(cluster)["metadata"]["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    cluster.settle()

    assert cluster.status.restarts_count_towards_max == 1
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.conditions == "Created T, Restarting T"


@FLAVORS
def test_the_job_runs_again_and_knows_what_it_lost(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.wait(40)
    run(cluster)

    assert cluster.status.lost_seconds == 40


@FLAVORS
def test_a_second_failure_waits(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.launch("Failed", 3)
    cluster.settle()
    run(cluster)
    cluster.launch("Failed", 3)
    cluster.settle()

    waits = cluster.decide().requeue_after_seconds

    assert not cluster.pods
    assert not cluster.batch_jobs
    assert waits is not None
    assert 10 <= waits <= 12
    cluster.wait(13)
    cluster.settle()
    assert sorted(cluster.pods) == WORKERS


@FLAVORS
@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        pytest.param([{"action": "FailJob"}], "MPIJobFailurePolicy", id="FailJob"),
        pytest.param([ANY], "MPIJobMaxRestartsExceeded", id="maxRestarts"),
    ],
)
@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_job_that_fails_by_its_policy_ends_its_launcher(
    kind: LauncherFlavor, rules: list[dict[str, Any]], reason: str, role: str
) -> None:
    run_policy = {"failurePolicy": {"rules": rules, "maxRestarts": 0}, "cleanPodPolicy": "All"}
    cluster = cluster_with(kind, run_policy=run_policy)
    if role == "launcher":
        cluster.launch("Failed", 3)
    else:
        cluster.set_phase("Failed", "worker-1", code=3)
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", reason)
    assert cluster.status.completion_time == cluster.now
    assert len(attempts(cluster)) == 1
    assert launcher(cluster)["spec"]["activeDeadlineSeconds"] == 1
    assert not cluster.pods
    cluster.end_batch("Failed", reason="DeadlineExceeded")
    assert cluster.settle() == []


@FLAVORS
def test_the_job_of_a_launcher_that_no_rule_matches_retries_it(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, {**ANY, "roles": ["Worker"]})
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.end_batch("Failed", reason="BackoffLimitExceeded", message="limit", failed=7)
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", "BackoffLimitExceeded")
    assert cluster.status.attempts is None


@FLAVORS
def test_a_failure_whose_job_has_failed_too_restarts(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.launch("Failed", 3)
    cluster.end_batch("Failed", reason="BackoffLimitExceeded", message="limit", failed=1)
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-launcher-x", "RestartJob")]


@FLAVORS
def test_a_launcher_that_is_gone_without_a_trace_restarts_the_job(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, {**ANY, "onReasons": ["Deleted"]})
    cluster.batch_pods = []
    cluster.settle()
    assert cluster.status.restarts is None
    launcher(cluster)["status"] = {"startTime": "2026-11-27T12:00:00Z", "failed": 1}
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-launcher", "RestartJob")]


@FLAVORS
def test_a_failure_that_only_the_job_knows_of_yet_waits_for_its_pod(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    launcher(cluster)["status"] = {"startTime": "2026-11-27T12:00:00Z", "failed": 1}
    cluster.settle()

    assert cluster.status.restarts is None


@FLAVORS
@pytest.mark.parametrize("graceful", [False, True])
def test_a_worker_that_somebody_deletes_restarts_the_job(kind: LauncherFlavor, graceful: bool) -> None:
    cluster = cluster_with(kind, {**ANY, "onReasons": ["Deleted"]}, graceful=graceful)
    cluster.remove("worker-1")
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-worker-1", "RestartJob")]


@FLAVORS
def test_a_rule_replaces_one_worker(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, {"action": "RestartPod"})
    before = {**cluster.pods, "launcher": launcher(cluster)["metadata"]["uid"]}
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.pods["pi-worker-0"] == before["pi-worker-0"]
    assert cluster.pods["pi-worker-1"] != before["pi-worker-1"]
    assert launcher(cluster)["metadata"]["uid"] == before["launcher"]
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.status.restarts is None


@FLAVORS
def test_an_ignored_worker_stays_failed(kind: LauncherFlavor) -> None:
    rule = {
        "action": "Ignore",
        "roles": ["Worker"],
        "onExitCodes": {"operator": "In", "values": [9]},
    }
    cluster = cluster_with(kind, rule, {"action": "RestartPod"})
    before = dict(cluster.pods)
    cluster.set_phase("Failed", "worker-0", code=9)
    cluster.settle()
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    changed = [name for name, pod in cluster.pods.items() if pod.uid != before[name].uid]
    assert changed == ["pi-worker-1"]
    assert cluster.reasons.count("FailureIgnored") == 1
    assert cluster.status.restarts is None


@FLAVORS
def test_a_launcher_does_not_wait_for_workers_whose_failure_a_rule_ignores(kind: LauncherFlavor) -> None:
    job = job_with(kind, {"action": "Ignore", "roles": ["Worker"]}, annotations={WAIT_ANNOTATION: "true"})
    cluster = InMemoryCluster(job, kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    cluster.set_phase("Running", "worker-0", ready=True, running_since=cluster.now)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    assert "pi-launcher" in cluster.batch_jobs

    cluster.launch(running_since=cluster.now)
    cluster.settle()

    assert cluster.conditions.endswith("Running T")


@FLAVORS
def test_a_restart_waits_while_the_spec_is_invalid(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.update_spec(job_with(kind, ANY, run_policy={"backoffLimit": 1}))
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.status.restarts is None
    assert sorted(cluster.pods) == WORKERS
    cluster.update_spec(job_with(kind, ANY))
    cluster.settle()
    assert attempts(cluster) == [(0, "pi-worker-1", "RestartJob")]


LATE: dict[str, Any] = {"run_policy": {"pendingTimeoutSeconds": 60}}


@FLAVORS
def test_a_job_whose_worker_does_not_run_in_time_gives_up_everything(kind: LauncherFlavor) -> None:
    cluster = InMemoryCluster(job_with(kind, **LATE), kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    cluster.set_phase("Running", "worker-0", ready=True)
    cluster.wait(59)
    cluster.settle()
    assert "Failed T" not in cluster.conditions
    cluster.wait(1)
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", "MPIJobPendingTimeout")
    assert not cluster.pods
    assert not cluster.batch_jobs


@FLAVORS
def test_a_rule_restarts_a_job_whose_launcher_does_not_run_in_time(kind: LauncherFlavor) -> None:
    cluster = InMemoryCluster(job_with(kind, ANY, **LATE), kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    cluster.set_phase("Running", ready=True)
    cluster.settle()
    cluster.launch("Pending", created_at=cluster.now)
    cluster.settle()
    assert cluster.status.assembled_time is None
    cluster.wait(60)
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-launcher-x", "RestartJob")]


@FLAVORS
def test_a_job_that_assembled_says_so(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, **LATE)

    assert cluster.status.assembled_time == cluster.now


@FLAVORS
def test_a_worker_that_cannot_pull_its_image_is_replaced_by_a_rule(kind: LauncherFlavor) -> None:
    rule = {"action": "RestartPod", "onReasons": ["ErrImagePull"], "forSeconds": 30}
    cluster = InMemoryCluster(job_with(kind, rule), kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    before = dict(cluster.pods)
    cluster.set_phase("Pending", "worker-1", troubles=(Trouble("ErrImagePull", "no such image", "mpi"),))
    cluster.settle()
    cluster.wait(30)
    cluster.settle()

    changed = [name for name, pod in cluster.pods.items() if pod.uid != before[name].uid]
    assert changed == ["pi-worker-1"]


@FLAVORS
def test_a_launcher_that_cannot_pull_its_image_restarts_the_job(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, {**ANY, "onReasons": ["ImagePullBackOff"], "forSeconds": 30})
    cluster.launch("Pending", troubles=(Trouble("ErrImagePull", "no such image", "mpi"),))
    cluster.settle()
    cluster.wait(30)
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-launcher-x", "RestartJob")]


@FLAVORS
def test_success_policies_are_refused(kind: LauncherFlavor) -> None:
    job = job_with(kind, ANY, run_policy={"successPolicy": {"rules": [{"roles": ["Launcher"]}]}})
    cluster = InMemoryCluster(job, kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()

    assert "spec.runPolicy.successPolicy" in str((cluster.status.conditions or [])[-1].message)
    assert "spec.runPolicy.successPolicy" in [problem.field for problem in problems(kind, job, Options())]


def test_workers_that_always_restart_are_replaced_without_a_match() -> None:
    """The kubelet would restart them without a failure policy."""
    cluster = cluster_with(V1ALPHA2, {**ANY, "roles": ["Launcher"]})
    before = cluster.pods["pi-worker-1"]
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.pods["pi-worker-1"].uid != before.uid


def test_workers_that_never_restart_stay_failed_without_a_match() -> None:
    cluster = cluster_with(V2BETA1, {**ANY, "roles": ["Launcher"]})
    before = cluster.pods["pi-worker-1"]
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.pods["pi-worker-1"].uid == before.uid


@FLAVORS
def test_success_precedes_a_failure(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.launch("Succeeded", 0)
    cluster.end_batch("Complete")
    cluster.settle()

    assert failed_condition(cluster) == ("Succeeded", "MPIJobSucceeded")
    assert cluster.status.restarts is None


@FLAVORS
def test_the_deadline_counts_over_all_attempts(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, run_policy={"activeDeadlineSeconds": 60})
    assert "activeDeadlineSeconds" not in launcher(cluster)["spec"]
    cluster.wait(50)
    cluster.launch("Failed", 3)
    cluster.settle()
    run(cluster)
    assert cluster.decide().requeue_after_seconds == 10
    cluster.wait(10)
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", "DeadlineExceeded")


@FLAVORS
def test_a_suspended_job_continues_with_its_attempt(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, graceful=True)
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.go()
    cluster.go_batch()
    cluster.settle()
    run(cluster)
    cluster.update_spec(job_with(kind, ANY, run_policy={"suspend": True}))
    cluster.settle()
    cluster.set_phase("Failed", code=143)
    cluster.settle()
    cluster.go()
    cluster.go_batch()
    cluster.settle()

    assert launcher(cluster)["spec"]["suspend"] is True
    assert not cluster.pods
    cluster.update_spec(job_with(kind, ANY))
    cluster.settle()
    run(cluster)
    assert {pod.attempt for pod in cluster.pods.values()} == {1}
    assert launcher(cluster)["metadata"]["labels"][RESTART_ATTEMPT] == "1"
    assert launcher(cluster)["spec"]["suspend"] is False
    assert cluster.status.restarts == 1


@FLAVORS
def test_an_old_status_changes_nothing(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY)
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.write(restarts=0)

    plan = cluster.decide()

    assert (plan.create, plan.delete) == ((), ())


@FLAVORS
def test_the_pod_group_stays_during_a_restart(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, ANY, options=Options(gang_scheduler=VOLCANO))
    before = cluster.group
    cluster.launch("Failed", 3)
    cluster.settle()

    assert cluster.group == before


def test_no_pod_may_run_commands_in_workers_between_attempts() -> None:
    cluster = cluster_with(V1ALPHA2, ANY, graceful=True)
    assert cluster.extras["Role/pi-launcher"]["rules"]
    cluster.launch("Failed", 3)
    cluster.settle()

    assert cluster.extras["Role/pi-launcher"]["rules"] == []


def test_a_launcher_that_is_a_worker_too_restarts_with_the_others() -> None:
    cluster = cluster_with(V2BETA1, ANY, runLauncherAsWorker=True)
    cluster.launch("Failed", 3)
    cluster.settle()
    run(cluster)

    assert attempts(cluster) == [(0, "pi-launcher-x", "RestartJob")]
    assert cluster.conditions == "Created T, Running T"


def test_a_policy_that_is_added_to_a_running_job_applies_to_it() -> None:
    job = mpi_job()
    cluster = InMemoryCluster(job, kind=V2BETA1)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    run(cluster)
    cluster.update_spec(job_with(V2BETA1, ANY))
    cluster.settle()
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert attempts(cluster) == [(0, "pi-worker-1", "RestartJob")]
    assert {pod.attempt for pod in cluster.pods.values()} == {1}


@FLAVORS
@pytest.mark.parametrize(("limit", "refused"), [(None, []), (3, ["spec.runPolicy.backoffLimit"])])
def test_a_backoff_limit_beside_the_policy_is_refused(
    kind: LauncherFlavor, limit: int | None, refused: list[str]
) -> None:
    job = job_with(kind, ANY, run_policy={"backoffLimit": limit})

    assert [problem.field for problem in problems(kind, job, Options())] == refused


@FLAVORS
def test_an_invalid_policy_fails_a_new_job(kind: LauncherFlavor) -> None:
    cluster = InMemoryCluster(job_with(kind, {"action": "Reboot"}), kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", "MPIJobFailedValidation")
    assert not cluster.pods


def cluster_on_nodes(kind: LauncherFlavor, *rules: dict[str, Any], **fields: Any) -> InMemoryCluster:
    """A running job whose launcher is on node ``n9``; pods terminate gracefully."""
    run_policy: dict[str, Any] = {"nodeLostSeconds": 60, **fields}
    if not rules:
        run_policy["failurePolicy"] = None
    cluster = cluster_with(kind, *rules, graceful=True, run_policy=run_policy)
    cluster.launch(assigned_node="n9", node="n9")
    for index in (0, 1):
        cluster.set_phase("Running", f"worker-{index}", assigned_node=f"n{index}", node=f"n{index}")
    cluster.settle()
    return cluster


@FLAVORS
def test_a_lost_launcher_is_created_again_elsewhere(kind: LauncherFlavor) -> None:
    """Its Job would wait for the end of the lost pod: it releases only pods that have ended, or whose Job is being deleted."""
    cluster = cluster_on_nodes(kind)
    old = launcher(cluster)["metadata"]["uid"]
    cluster.nodes = {"n9": NodeState("n9", 60)}
    cluster.step()

    assert "deletionTimestamp" in launcher(cluster)["metadata"]
    cluster.go_batch()
    cluster.step()
    assert launcher(cluster)["metadata"]["uid"] != old
    affinity = launcher(cluster)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "n9" in str(affinity)
    assert sorted(cluster.pods) == WORKERS


@FLAVORS
def test_a_lost_launcher_restarts_the_job_by_its_policy(kind: LauncherFlavor) -> None:
    cluster = cluster_on_nodes(kind, {**ANY, "onReasons": ["NodeLost"]})
    cluster.nodes = {"n9": NodeState("n9", 60)}
    recorded = cluster.step()

    assert recorded.delete == ()
    (attempt,) = cluster.status.attempts or []
    assert (attempt.role, attempt.reason, attempt.node) == ("Launcher", "NodeLost", "n9")
    assert "pi-launcher" in {deletion.name for deletion in cluster.step().delete}


@FLAVORS
def test_a_lost_worker_is_replaced(kind: LauncherFlavor) -> None:
    cluster = cluster_on_nodes(kind)
    old = cluster.pods["pi-worker-1"].uid
    cluster.nodes = {"n1": NodeState("n1", 60)}
    cluster.settle()

    assert cluster.pods["pi-worker-1"].uid != old


def test_a_suspended_job_does_not_wait_for_a_lost_launcher() -> None:
    cluster = cluster_on_nodes(V2BETA1)
    cluster.nodes = {"n9": NodeState("n9", 60)}
    cluster.update_spec(mpi_job(runPolicy={"nodeLostSeconds": 60, "suspend": True}))
    cluster.step()
    cluster.step()

    assert "deletionTimestamp" in launcher(cluster)["metadata"]


@FLAVORS
def test_too_short_a_time_until_a_node_is_lost_fails_a_new_job(kind: LauncherFlavor) -> None:
    job = job_with(kind, run_policy={"failurePolicy": None, "nodeLostSeconds": 5})
    cluster = InMemoryCluster(job, kind=kind)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()

    assert failed_condition(cluster) == ("Failed", "MPIJobFailedValidation")
