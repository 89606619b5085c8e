"""Plans for a job whose launcher is a batch Job; the cluster is simulated in memory."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.children import Exit
from api.job import JobCondition
from api.meta import PODS
from controller.domain import Count, FailureReason, Snapshot
from controller.kind import Options
from controller.kinds.mpi.hosts import LATE_SECONDS, WAIT_ANNOTATION
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.v2beta1 import V2BETA1
from tests.support.builders import NOON
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import container, mpi_job

RUNNING = "Created T, Running T"
WORKERS = ["pi-worker-0", "pi-worker-1"]
PLACED_SPEC = {"nodeSelector": {"zone": "a"}, "containers": [container()]}


def pending_cluster(
    *, options: Options | None = None, graceful: bool = False, **fields: Any
) -> InMemoryCluster:
    """A job once all that it needs is made."""
    cluster = InMemoryCluster(mpi_job(**fields), kind=V2BETA1, options=options, graceful=graceful)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    return cluster


def running(**fields: Any) -> InMemoryCluster:
    """The same once launcher and workers run."""
    cluster = pending_cluster(**fields)
    up(cluster)
    if cluster.batch_jobs:
        cluster.launch()
        cluster.settle()
    return cluster


def up(cluster: InMemoryCluster, *names: str) -> None:
    cluster.set_phase("Running", *names, ready=True)
    cluster.settle()


def suspended(cluster: InMemoryCluster, yes: bool = True, **fields: Any) -> None:
    """Play the queue: suspend the job or let it go on, with its spec as it then is."""
    cluster.update_spec(mpi_job(runPolicy={"suspend": yes}, **fields))
    cluster.settle()


def launcher(cluster: InMemoryCluster) -> dict[str, Any]:
    ((_, job),) = cluster.batch_jobs.items()
    spec: dict[str, Any] = job["spec"]
    return spec


def members(cluster: InMemoryCluster) -> int:
    """How many pods the gang is of."""
    assert cluster.group is not None
    return int(msgspec.json.decode(cluster.group.spec)["minMember"])


def waiting(cluster: InMemoryCluster) -> JobCondition:
    """Why the job does not run."""
    (found,) = [
        condition
        for condition in cluster.status.conditions or ()
        if (condition.type, condition.status) == ("Running", "False")
    ]
    return found


def test_all_children_are_created_at_once() -> None:
    cluster = pending_cluster()

    assert cluster.created_pods == WORKERS
    assert sorted(cluster.extras) == ["pi", "pi-config", "pi-ssh"]
    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert launcher(cluster)["podReplacementPolicy"] == "Failed"
    assert cluster.conditions == "Created T"
    assert cluster.counters == {"Launcher": {}, "Worker": {}}
    assert [(event.reason, event.message) for event in cluster.events] == [
        ("MPIJobCreated", "MPIJob hpc/pi is created.")
    ]


def test_limits_apply_to_the_launcher() -> None:
    cluster = pending_cluster(
        runPolicy={"backoffLimit": 3, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}
    )

    assert (launcher(cluster)["backoffLimit"], launcher(cluster)["activeDeadlineSeconds"]) == (3, 60)
    assert "ttlSecondsAfterFinished" not in launcher(cluster)


def test_a_job_runs_once_its_launcher_and_all_its_workers_do() -> None:
    cluster = pending_cluster()
    up(cluster, "worker-0")
    cluster.launch()
    cluster.settle()
    assert cluster.conditions == "Created T"
    up(cluster, "worker-1")

    assert cluster.conditions == RUNNING
    assert cluster.counters == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert cluster.reasons.count("MPIJobRunning") == 1


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param(None, WORKERS, id="None is the default"),
        pytest.param("None", WORKERS, id="None"),
        pytest.param("Running", ["pi-worker-1"], id="Running"),
        pytest.param("All", [], id="All"),
    ],
)
def test_the_end_of_the_launcher_ends_the_job(policy: str | None, left: list[str]) -> None:
    cluster = running(runPolicy={"cleanPodPolicy": policy})
    cluster.set_phase("Succeeded", "worker-1")
    cluster.settle()
    cluster.launch("Succeeded", 0)
    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert cluster.status.completion_time == cluster.now
    assert cluster.counters == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert sorted(cluster.pods) == left
    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert cluster.counts == [Count.CREATED, Count.SUCCESSFUL]


def test_a_job_that_was_never_observed_running_has_a_false_running_condition() -> None:
    cluster = pending_cluster()
    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"


@pytest.mark.parametrize(
    ("batch", "pod", "reason", "message"),
    [
        pytest.param({}, None, "MPIJobFailed", "", id="no reason given"),
        pytest.param(
            {"reason": "DeadlineExceeded", "message": "late"},
            None,
            "DeadlineExceeded",
            "late",
            id="out of time",
        ),
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            None,
            "BackoffLimitExceeded",
            "limit",
            id="out of tries, the pod gone",
        ),
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            {},
            "BackoffLimitExceeded",
            "limit: container mpi ended with exit code 3",
            id="out of tries, with a code",
        ),
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            {"reason": "Evicted", "message": "disk"},
            "BackoffLimitExceeded/Evicted",
            "limit: disk",
            id="out of tries, evicted",
        ),
    ],
)
def test_a_failure_has_the_launcher_s_reason(
    batch: dict[str, Any], pod: dict[str, Any] | None, reason: str, message: str
) -> None:
    cluster = running()
    cluster.batch_pods = []
    if pod is not None:
        cluster.launch("Failed", 3, **pod)
    cluster.end_batch("Failed", failed=1, **batch)
    (plan, *_) = [plan for plan in cluster.settle() if Count.FAILED in plan.counts]

    failed = (cluster.status.conditions or [])[-1]
    assert (failed.type, failed.reason, failed.message) == ("Failed", reason, message)
    assert plan.failure_reason == (FailureReason.DEADLINE if reason == "DeadlineExceeded" else "")
    assert cluster.events[-1].reason == reason
    assert cluster.counters["Launcher"] == {"failed": 1}
    assert cluster.status.completion_time is not None


FAILURE = Exit("mpi", 3, "Error", "rank 1 died\nno luck")


@pytest.mark.parametrize(
    ("batch", "pod", "message"),
    [
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            {"phase": "Failed", "exits": (FAILURE,)},
            "limit: container mpi ended with exit code 3: rank 1 died / no luck",
            id="a failed pod",
        ),
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            {"phase": "Running", "previous_failure": FAILURE, "restarts": 2, "deleting": True},
            "limit: container mpi ended with exit code 3: rank 1 died / no luck",
            id="a pod that was restarted in place and is being deleted",
        ),
        pytest.param(
            {"reason": "BackoffLimitExceeded", "message": "limit"},
            {"phase": "Failed", "exits": (Exit("mpi", 137, "OOMKilled"),)},
            "limit: container mpi ended with exit code 137, killed by SIGKILL (OOMKilled)",
            id="out of memory",
        ),
        pytest.param(
            {"reason": "DeadlineExceeded", "message": "late"},
            {"phase": "Running", "previous_failure": FAILURE, "restarts": 1},
            "late: container mpi ended with exit code 3: rank 1 died / no luck",
            id="at the deadline, a pod that failed before",
        ),
        pytest.param(
            {"reason": "DeadlineExceeded", "message": "late"},
            {"phase": "Failed", "exits": (Exit("mpi", 143),), "deleting": True},
            "late",
            id="a pod that was deleted at the deadline",
        ),
    ],
)
def test_the_end_of_a_launcher_at_a_limit_names_its_last_failure(
    batch: dict[str, Any], pod: dict[str, Any], message: str
) -> None:
    cluster = running()
    cluster.launch(**pod)
    cluster.end_batch("Failed", failed=1, **batch)
    cluster.settle()

    assert (cluster.status.conditions or [])[-1].message == message


def test_the_launcher_gets_its_ttl_when_it_has_ended() -> None:
    """A Job with a TTL from the start may be deleted before it is observed, and would be created again."""
    cluster = running(runPolicy={"ttlSecondsAfterFinished": 5})
    cluster.end_batch("Complete")
    cluster.step()
    assert "ttlSecondsAfterFinished" not in launcher(cluster)
    cluster.settle()
    assert launcher(cluster)["ttlSecondsAfterFinished"] == 5

    cluster.batch_jobs.clear()
    cluster.settle()
    assert cluster.batch_jobs == {}


def test_a_deleted_launcher_is_created_again() -> None:
    cluster = running()
    cluster.batch_jobs.clear()
    cluster.batch_pods.clear()
    cluster.settle()

    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert cluster.counters == {"Launcher": {}, "Worker": {"active": 2}}


def test_a_deleted_worker_is_created_again() -> None:
    cluster = running()
    cluster.go("worker-1")
    cluster.settle()

    assert cluster.created_pods == [*WORKERS, "pi-worker-1"]
    assert cluster.conditions == RUNNING


def test_scaling_creates_and_deletes_workers() -> None:
    cluster = running(runLauncherAsWorker=True)
    cluster.update_spec(mpi_job(4, runLauncherAsWorker=True))
    cluster.settle()
    assert sorted(cluster.pods) == [f"pi-worker-{index}" for index in range(4)]
    assert cluster.extras["pi-config"]["data"]["hostfile"].count("worker") == 4
    made = len(cluster.created_pods)
    cluster.update_spec(mpi_job(1, runLauncherAsWorker=True))
    cluster.settle()

    assert list(cluster.pods) == ["pi-worker-0"]
    assert len(cluster.created_pods) == made


def test_a_failed_worker_changes_the_counters_only() -> None:
    cluster = running()
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()

    assert cluster.conditions == RUNNING
    assert cluster.counters["Worker"] == {"active": 1, "failed": 1}
    assert cluster.created_pods == WORKERS


def test_a_failed_worker_is_replaced_when_the_launcher_restarts_after_a_suspension() -> None:
    """Tries are counted by what is there of the launcher, which a suspension takes away."""
    cluster = running()
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.launch("Running", restarts=1)
    cluster.settle()
    suspended(cluster)
    cluster.batch_pods.clear()
    suspended(cluster, False)
    up(cluster)
    cluster.launch()
    cluster.settle()
    made = len(cluster.created_pods)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    assert cluster.created_pods[made:] == []
    cluster.launch("Running", restarts=1)
    cluster.settle()

    assert cluster.created_pods[made:] == ["pi-worker-1"]


def test_a_failed_worker_is_replaced_when_the_launcher_restarts() -> None:
    cluster = running()
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.launch("Running", restarts=1)
    cluster.settle()
    assert cluster.created_pods == [*WORKERS, "pi-worker-0"]

    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()
    assert cluster.created_pods == [*WORKERS, "pi-worker-0"], "once for each try of the launcher"


def test_an_evicted_worker_is_replaced() -> None:
    cluster = running()
    cluster.set_phase("Failed", "worker-1", reason="Evicted")
    cluster.step()
    assert cluster.conditions == "Created T, Restarting T"
    assert cluster.events[-1].message == "1/2 workers are evicted"
    assert sorted(cluster.pods) == WORKERS, "reported before the pod is deleted"
    cluster.settle()
    assert cluster.created_pods == [*WORKERS, "pi-worker-1"]
    up(cluster)

    assert cluster.conditions == RUNNING
    assert cluster.counts == [Count.CREATED, Count.RESTARTED]
    assert cluster.status.completion_time is None


def test_a_worker_that_is_evicted_again_is_replaced_after_a_pause() -> None:
    cluster = running()
    cluster.set_phase("Failed", "worker-1", reason="Evicted")
    cluster.settle()
    up(cluster)
    made = list(cluster.created_pods)
    cluster.set_phase("Failed", "worker-1", reason="Evicted")
    cluster.settle()

    assert cluster.created_pods == made
    assert cluster.decide().requeue_after_seconds == 10
    assert (cluster.status.conditions or [])[-1].message == (
        "1/2 workers are evicted. pi-worker-1 has failed 2 times in a row; its replacement is due at 2026-01-01T12:00:10Z."
    )
    cluster.wait(10)
    cluster.settle()
    assert cluster.created_pods == [*made, "pi-worker-1"]
    assert cluster.counts == [Count.CREATED, *2 * [Count.RESTARTED]]


def test_a_lost_worker_removes_no_other_worker_from_the_list() -> None:
    """This also holds soon after the start, before the hosts have settled."""
    cluster = pending_cluster()
    cluster.set_phase("Running", ready=True, running_since=cluster.now)
    cluster.launch()
    cluster.settle()
    cluster.wait(1)
    cluster.set_phase("Failed", "worker-1", reason="Evicted", ready=False)
    cluster.step()
    cluster.step()

    assert (
        cluster.extras["pi-config"]["data"]["discover_hosts.sh"] == "#!/bin/sh\necho pi-worker-0.pi.hpc.svc\n"
    )


def test_an_evicted_worker_that_ends_slowly_is_reported_once_while_the_gang_waits() -> None:
    cluster = pending_cluster(options=Options(gang_scheduler="volcano"), graceful=True, workers=1)

    cluster.set_phase("Failed", "worker-0", reason="Evicted")
    cluster.settle()
    cluster.wait(60)
    cluster.settle()

    assert cluster.pods["pi-worker-0"].deleting
    assert (cluster.status.conditions or [])[-1].reason == "MPIJobWaitingForGangAfterResume"
    assert [event.reason for event in cluster.events].count("MPIJobEvicted") == 1
    assert cluster.counts == [Count.CREATED, Count.RESTARTED]


def test_a_failed_condition_of_mpi_operator_for_an_eviction_is_not_final() -> None:
    cluster = running()
    conditions = [condition.model_copy() for condition in cluster.status.conditions or ()]
    conditions[-1] = conditions[-1].model_copy(update={"type": "Failed", "reason": "MPIJobEvicted"})
    cluster.write(conditions=conditions)
    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"


@pytest.mark.parametrize("flag", [False, True])
def test_the_launcher_waits_for_the_workers(flag: bool) -> None:
    policy: dict[str, Any] = {} if flag else {"launcherCreationPolicy": "WaitForWorkersReady"}
    cluster = pending_cluster(options=Options(of_kinds=(MPIOptions(wait_for_workers=flag),)), **policy)
    up(cluster, "worker-0")
    assert cluster.batch_jobs == {}
    cluster.set_phase("Running", "worker-1", ready=False)
    cluster.settle()
    assert cluster.batch_jobs == {}
    assert "Launcher" not in cluster.counters
    up(cluster, "worker-1")

    assert list(cluster.batch_jobs) == ["pi-launcher"]


def test_the_ssh_server_of_a_ready_worker_is_probed() -> None:
    """Readiness without a probe means that a process runs, not that it listens."""
    cluster = pending_cluster(launcherCreationPolicy="WaitForWorkersReady")
    for index in (0, 1):
        cluster.set_phase("Running", f"worker-{index}", ready=True, address=f"10.0.0.{index}")
    probes = cluster.decide().probes
    assert [(probe.address, probe.ports, probe.greeting) for probe in probes] == [
        ("10.0.0.0", (22, 2222), b"SSH-"),
        ("10.0.0.1", (22, 2222), b"SSH-"),
    ]
    cluster.settle()
    assert cluster.batch_jobs == {}
    cluster.probed_uids.add(probes[0].uid)
    cluster.wait(LATE_SECONDS)
    cluster.settle()
    assert waiting(cluster).message == "The launcher waits for pi-worker-1."
    cluster.probed_uids.add(probes[1].uid)
    cluster.settle()

    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert cluster.decide().probes == ()


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        pytest.param(
            Options(of_kinds=(MPIOptions(ssh_check=False),)),
            {"launcherCreationPolicy": "WaitForWorkersReady"},
            id="not with the flag off",
        ),
        pytest.param(Options(), {}, id="not without a waiting launcher"),
    ],
)
def test_workers_are_not_probed_without_need(options: Options, spec: dict[str, Any]) -> None:
    cluster = pending_cluster(options=options, **spec)
    cluster.set_phase("Running", ready=True, address="10.0.0.1")
    assert cluster.decide().probes == ()
    cluster.settle()

    assert list(cluster.batch_jobs) == ["pi-launcher"]


def test_a_port_named_ssh_is_probed_first() -> None:
    ports = [{"name": "ssh", "containerPort": 2200}]
    cluster = pending_cluster(
        worker={"spec": {"containers": [container(ports=ports)]}},
        launcherCreationPolicy="WaitForWorkersReady",
    )
    cluster.set_phase("Running", ready=True, address="10.0.0.1")

    assert cluster.decide().probes[0].ports == (2200, 22, 2222)


def test_the_status_names_a_late_worker() -> None:
    cluster = pending_cluster(workers=6, launcherCreationPolicy="WaitForWorkersReady")
    up(cluster, "worker-0", "worker-2")
    left = cluster.decide().requeue_after_seconds
    assert left is not None
    cluster.wait(LATE_SECONDS)
    cluster.settle()

    assert cluster.conditions == "Running F, Created T"
    assert waiting(cluster).reason == "MPIJobWaitingForPods"
    assert (
        waiting(cluster).message == "The launcher waits for pi-worker-1, pi-worker-3, pi-worker-4 and 1 more."
    )
    up(cluster, "worker-1", "worker-3", "worker-4")
    assert waiting(cluster).message == "The launcher waits for pi-worker-5."
    up(cluster)
    cluster.launch()
    cluster.settle()
    assert cluster.conditions == RUNNING


FETCH = Exit("fetch", 1, message="no such host", init=True)


def test_the_status_names_a_failing_init_container() -> None:
    """Of workers and of the launcher, until the job runs."""
    cluster = pending_cluster()
    cluster.set_phase("Pending", "worker-1", exits=(FETCH,))
    cluster.launch("Pending", exits=(msgspec.structs.replace(FETCH, message=""),))
    cluster.settle()
    assert waiting(cluster).reason == "MPIJobWaitingForPods"
    assert waiting(cluster).message == (
        "Pods do not start: init container fetch of pi-worker-1 exited with code 1: no such host; "
        "init container fetch of pi-launcher-x exited with code 1."
    )
    up(cluster)
    cluster.launch()
    cluster.settle()

    assert cluster.conditions == RUNNING


def test_a_waiting_launcher_names_a_failing_init_container() -> None:
    cluster = pending_cluster(launcherCreationPolicy="WaitForWorkersReady")
    up(cluster, "worker-0")
    cluster.set_phase("Pending", "worker-1", exits=(FETCH,))
    cluster.wait(LATE_SECONDS)
    cluster.settle()

    assert waiting(cluster).message == (
        "The launcher waits for pi-worker-1. "
        "Pods do not start: init container fetch of pi-worker-1 exited with code 1: no such host."
    )


def test_the_launcher_of_a_job_that_is_created_suspended_is_suspended() -> None:
    cluster = pending_cluster(runPolicy={"suspend": True})

    assert cluster.created_pods == []
    assert launcher(cluster)["suspend"] is True
    assert cluster.conditions == "Created T, Running F, Suspended T"
    assert cluster.status.start_time is None
    assert cluster.counters == {"Launcher": {}, "Worker": {}}
    suspended(cluster, False)
    assert cluster.created_pods == WORKERS
    assert launcher(cluster)["suspend"] is False
    assert cluster.conditions == "Created T, Running F, Suspended F"
    assert cluster.status.start_time == cluster.now


def test_a_resumed_launcher_waits_for_the_workers() -> None:
    waits: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}
    cluster = pending_cluster(runPolicy={"suspend": True}, **waits)
    suspended(cluster, False, **waits)
    assert cluster.created_pods == WORKERS
    assert launcher(cluster)["suspend"] is True
    up(cluster)

    assert launcher(cluster)["suspend"] is False


def test_suspending_deletes_the_pods() -> None:
    cluster = running(graceful=True)
    suspended(cluster)
    assert all(pod.deleting for pod in cluster.pods.values())
    assert launcher(cluster)["suspend"] is True
    cluster.batch_pods.clear()
    suspended(cluster, False)
    assert cluster.conditions == "Created T, Running F, Suspended T", "until the last pod of before is gone"
    cluster.go("worker-0", "worker-1")
    cluster.settle()

    assert cluster.created_pods == [*WORKERS, *WORKERS]
    assert cluster.conditions == "Created T, Running F, Suspended F"


def test_pods_of_a_suspended_job_are_active_until_they_have_ended() -> None:
    cluster = running(graceful=True)
    suspended(cluster)
    assert cluster.counters == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    cluster.batch_pods.clear()
    cluster.go("worker-0")
    cluster.settle()
    assert cluster.counters == {"Launcher": {}, "Worker": {"active": 1}}
    cluster.go("worker-1")
    cluster.settle()

    assert cluster.counters == {"Launcher": {}, "Worker": {}}


@pytest.mark.parametrize(
    "has_start", [pytest.param(False, id="a new server"), pytest.param(True, id="an old server")]
)
def test_a_resumed_launcher_gets_the_current_node_placement(has_start: bool) -> None:
    """Labels are added to, what chooses a node is replaced; older servers take no other place while the Job has a start."""
    cluster = running(launcher={"spec": {**PLACED_SPEC, "tolerations": [{"key": "old"}]}})
    suspended(cluster, launcher={"spec": PLACED_SPEC})
    cluster.batch_jobs["pi-launcher"]["status"] = {"startTime": "2026-01-01T00:00:00Z"} if has_start else {}
    there = {
        "metadata": {"labels": {"queue": "blue"}},
        "spec": {"nodeSelector": {"zone": "b"}, "containers": [container()]},
    }
    suspended(cluster, False, launcher=there)

    template = launcher(cluster)["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "b"}
    assert "tolerations" not in template["spec"]
    assert template["metadata"]["labels"]["queue"] == "blue"
    assert template["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert launcher(cluster)["suspend"] is False
    assert "startTime" not in cluster.batch_jobs["pi-launcher"]["status"]


def test_the_start_time_is_preserved_if_the_node_placement_is_unchanged() -> None:
    cluster = running()
    suspended(cluster)
    cluster.batch_jobs["pi-launcher"]["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    suspended(cluster, False)

    assert launcher(cluster)["suspend"] is False
    assert "startTime" in cluster.batch_jobs["pi-launcher"]["status"]


def test_an_invalid_job_fails_for_that_reason() -> None:
    plan = V2BETA1.decide(mpi_job(workers=0), Snapshot(), NOON, Options(), ())

    assert (plan.counts[-1], plan.failure_reason) == (Count.FAILED, FailureReason.INVALID)


def test_an_invalid_job_fails_and_names_the_field() -> None:
    cluster = pending_cluster(workers=0)

    text = (
        "Found validation errors: spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0: must be greater than or equal to 1; "
        "without workers, leave Worker out and set runLauncherAsWorker"
    )
    assert cluster.conditions == "Created T, Failed T"
    assert [(event.reason, event.message) for event in cluster.events] == [("ValidationError", text)]
    assert cluster.counts == [Count.CREATED, Count.FAILED]
    assert cluster.created_pods == []
    assert cluster.extras == {}


def test_a_policy_that_is_set_after_the_end_deletes_the_workers() -> None:
    """So ``rallypoint why`` frees what they hold."""
    cluster = running()
    cluster.end_batch("Complete")
    cluster.settle()
    assert sorted(cluster.pods) == WORKERS
    cluster.update_spec(mpi_job(runPolicy={"cleanPodPolicy": "Running"}))
    cluster.settle()

    assert not cluster.pods


def test_a_running_job_that_becomes_invalid_records_an_event_and_continues() -> None:
    cluster = running()
    cluster.update_spec(mpi_job(0))
    cluster.settle()
    assert cluster.conditions == RUNNING
    assert cluster.events[-1].reason == "ValidationError"
    assert cluster.events[-1].message.endswith(
        "; the job keeps its current pods; none is created, replaced or deleted"
    )
    assert sorted(cluster.pods) == WORKERS
    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"


def test_a_job_without_workers_gets_a_warning() -> None:
    cluster = pending_cluster(workers=None)

    assert cluster.events[0].message.endswith("add a Worker, or set runLauncherAsWorker.")
    cluster.launch()
    cluster.settle()
    assert cluster.conditions == RUNNING


@pytest.mark.parametrize(
    ("scheduler", "spec", "membership"),
    [
        pytest.param(
            "volcano",
            {"minMember": 3, "minResources": {}},
            ("annotations", "scheduling.k8s.io/group-name"),
            id="volcano",
        ),
        pytest.param(
            "other",
            {"minMember": 3, "scheduleTimeoutSeconds": 0},
            ("labels", "scheduling.x-k8s.io/pod-group"),
            id="another",
        ),
    ],
)
def test_pods_are_members_of_their_gang(
    scheduler: str, spec: dict[str, Any], membership: tuple[str, str]
) -> None:
    """Pods are created at once as members of their group; no group outlives the job."""
    cluster = running(options=Options(gang_scheduler=scheduler))
    template = launcher(cluster)["template"]

    assert cluster.group is not None
    assert cluster.group.spec.decode() == str(spec).replace("'", '"').replace(" ", "")
    assert template["metadata"][membership[0]][membership[1]] == "pi"
    assert template["spec"]["schedulerName"] == scheduler
    cluster.end_batch("Complete")
    cluster.settle()
    assert cluster.group is None


def test_the_status_says_why_the_gang_waits() -> None:
    """Not which workers are missing: that follows from the gang."""
    cluster = pending_cluster(
        options=Options(gang_scheduler="volcano"), launcherCreationPolicy="WaitForWorkersReady"
    )
    cluster.queue = {"status": {"state": "Closed"}}
    cluster.wait(max(LATE_SECONDS, 30))
    cluster.settle()

    running_ = next(found for found in cluster.status.conditions or () if found.type == "Running")
    assert (running_.status, running_.reason) == ("False", "MPIJobWaitingForGang")
    assert (running_.message or "").endswith("queue default is Closed")
    assert cluster.settle() == []

    cluster.admit()
    cluster.settle()
    running_ = next(found for found in cluster.status.conditions or () if found.type == "Running")
    assert running_.reason == "MPIJobWaitingForPods"

    up(cluster)
    cluster.launch()
    cluster.settle()
    assert cluster.conditions == RUNNING


@pytest.mark.parametrize("scheduler", ["volcano", "other"])
def test_a_pod_group_has_no_annotations_of_the_job(scheduler: str) -> None:
    """mpi-operator does the same: annotations may be meant for readers of the job only."""
    cluster = InMemoryCluster(
        mpi_job(annotations={"example.com/a": "b"}),
        kind=V2BETA1,  # type: ignore[arg-type]
        options=Options(gang_scheduler=scheduler),
    )
    (group,) = [child for child in cluster.decide().create if child.resource.kind == "PodGroup"]

    assert "annotations" not in group.body()["metadata"]


def queue(cluster: InMemoryCluster) -> str | None:
    """The queue that the group of the job is in."""
    assert cluster.group is not None
    spec: dict[str, str] = msgspec.json.decode(cluster.group.spec)
    return spec.get("queue")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"runPolicy": {"schedulingPolicy": {"queue": "night"}}}, id="the policy says so"),
        pytest.param({"annotations": {"scheduling.volcano.sh/queue-name": "night"}}, id="an annotation does"),
    ],
)
def test_a_pod_group_moves_to_another_queue_with_its_job(later: dict[str, Any]) -> None:
    cluster = running(
        options=Options(gang_scheduler="volcano"), runPolicy={"schedulingPolicy": {"queue": "day"}}
    )
    assert queue(cluster) == "day"

    cluster.update_spec(mpi_job(**later))
    cluster.settle()

    assert queue(cluster) == "night"


def test_a_pod_group_keeps_its_queue_if_the_job_names_none() -> None:
    """Volcano may have chosen it."""
    cluster = running(
        options=Options(gang_scheduler="volcano"), runPolicy={"schedulingPolicy": {"queue": "day"}}
    )
    cluster.update_spec(mpi_job())

    assert cluster.settle() == []
    assert queue(cluster) == "day"


@pytest.mark.parametrize(
    ("result", "counters"),
    [("Complete", {"succeeded": 1}), ("Failed", {"failed": 1})],
)
def test_a_launcher_that_has_ended_is_not_active_though_its_pod_still_runs(
    result: str, counters: dict[str, int]
) -> None:
    """The end of the Job may be observed before that of its pod, and the counters of a finished job are not updated later."""
    cluster = running()
    ((name, job),) = cluster.batch_jobs.items()
    ended = {"type": result, "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    failed = {"failed": 1} if result == "Failed" else {}
    cluster.batch_jobs[name] = {**job, "status": {**job.get("status", {}), "conditions": [ended], **failed}}
    cluster.settle()

    assert cluster.counters["Launcher"] == counters


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        pytest.param(Options(), {"launcherCreationPolicy": "WaitForWorkersReady"}, id="by the policy"),
        pytest.param(Options(), {"annotations": {WAIT_ANNOTATION: "true"}}, id="by the annotation"),
        pytest.param(Options(of_kinds=(MPIOptions(wait_for_workers=True),)), {}, id="by the flag"),
        pytest.param(
            Options(of_kinds=(MPIOptions(topology_label="zone"),)), {}, id="by the flag of the order of hosts"
        ),
    ],
)
@pytest.mark.parametrize("scheduler", ["volcano", "other"])
def test_a_launcher_that_waits_for_its_workers_joins_the_gang_when_it_starts(
    scheduler: str, options: Options, fields: dict[str, Any]
) -> None:
    """Or no scheduler would start the workers, without which there is no launcher."""
    cluster = pending_cluster(
        options=replace(
            options,
            gang_scheduler=scheduler,
            of_kinds=(replace(options.of(MPIOptions), ssh_check=False),),
        ),
        **fields,
    )
    assert (sorted(cluster.pods), cluster.batch_jobs) == (WORKERS, {})
    assert members(cluster) == 2

    up(cluster)

    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert members(cluster) == 3


def test_a_launcher_that_waits_again_after_a_suspension_is_not_a_member() -> None:
    options = Options(gang_scheduler="volcano", of_kinds=(MPIOptions(ssh_check=False),))
    waits: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}
    cluster = running(options=options, **waits)
    suspended(cluster, **waits)
    assert cluster.group is None

    suspended(cluster, False, **waits)

    assert members(cluster) == 2


def test_an_overridden_restart_policy_of_the_template_is_reported() -> None:
    cluster = pending_cluster(launcher={"spec": {"containers": [container()], "restartPolicy": "Always"}})

    assert cluster.reasons.count("SetPodTemplateRestartPolicy") == 1
    assert launcher(cluster)["template"]["spec"]["restartPolicy"] == "OnFailure"


PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


@given(data=st.data())
def test_an_applied_plan_leaves_nothing_to_do(data: st.DataObject) -> None:
    """Whatever happens to its pods, its launcher and its spec; nor does a job that is over come back."""
    draw = data.draw
    spec: dict[str, Any] = {
        "workers": draw(st.sampled_from([None, 1, 3])),
        "runLauncherAsWorker": draw(st.booleans()),
        "launcherCreationPolicy": draw(st.sampled_from(["AtStartup", "WaitForWorkersReady"])),
    }
    options = Options(gang_scheduler=draw(st.sampled_from(["", "volcano"])))
    cluster = pending_cluster(options=options, graceful=draw(st.booleans()), **spec)
    for _ in range(draw(st.integers(1, 6))):
        was_over = cluster.status.completion_time
        match draw(st.sampled_from(["pod", "gone", "launcher", "end", "suspend", "resume", "scale", "wait"])):
            case "pod" if cluster.pods:
                name = draw(st.sampled_from(sorted(cluster.pods))).removeprefix("pi-")
                reason = draw(st.sampled_from(["", "Evicted"]))
                cluster.set_phase(
                    draw(st.sampled_from(PHASES)), name, ready=draw(st.booleans()), reason=reason
                )
            case "gone" if cluster.pods:
                cluster.go(draw(st.sampled_from(sorted(cluster.pods))).removeprefix("pi-"))
            case "launcher" if cluster.batch_jobs and not launcher(cluster).get("suspend"):
                cluster.launch(draw(st.sampled_from(PHASES)), restarts=draw(st.integers(0, 2)))
            case "end" if cluster.batch_jobs:
                cluster.end_batch(draw(st.sampled_from(["Complete", "Failed"])))
            case "suspend" | "resume" as what:
                cluster.update_spec(
                    mpi_job(**spec, runPolicy={"suspend": what == "suspend", "cleanPodPolicy": "All"})
                )
            case "scale":
                spec["workers"] = draw(st.sampled_from([1, 2, 4]))
                cluster.update_spec(mpi_job(**spec))
            case _:
                cluster.wait(60)
        cluster.settle()
        cluster.step()

        assert cluster.is_idle(cluster.decide())
        if was_over:
            assert cluster.status.completion_time == was_over


def test_a_plan_contains_only_the_first_missing_workers_up_to_the_limit() -> None:
    cluster = InMemoryCluster(mpi_job(workers=5), kind=V2BETA1, options=Options(most_missing=2))  # type: ignore[arg-type]  # has no use for the rest

    plans = [cluster.step() for _ in range(4)]

    workers = [[child.name for child in plan.create if child.resource == PODS] for plan in plans]
    assert workers == [
        ["pi-worker-0", "pi-worker-1"],
        ["pi-worker-2", "pi-worker-3"],
        ["pi-worker-4"],
        [],
    ]
    assert [plan.is_partial for plan in plans] == [True, True, False, False]


INVALID = {"failurePolicy": {"rules": [{"action": "RestartJob", "roles": ["Evaluator"]}]}}


def test_a_job_whose_spec_became_invalid_is_suspended() -> None:
    cluster = running(graceful=True)
    cluster.update_spec(mpi_job(runPolicy=INVALID))
    cluster.settle()
    cluster.update_spec(mpi_job(runPolicy={**INVALID, "suspend": True}))
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Suspended T"
    assert all(pod.deleting for pod in cluster.pods.values())
    # With a failure policy the Job of the launcher is deleted, not suspended.
    assert "deletionTimestamp" in cluster.batch_jobs["pi-launcher"]["metadata"]
    cluster.go()
    cluster.go_batch()
    cluster.settle()
    assert not cluster.pods


def test_a_suspended_job_whose_spec_becomes_invalid_stays_suspended() -> None:
    cluster = running(graceful=True)
    suspended(cluster)
    cluster.go()
    cluster.settle()
    cluster.update_spec(mpi_job(runPolicy={**INVALID, "suspend": True}))
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Suspended T"
    assert "MPIJobResumed" not in cluster.reasons
    cluster.update_spec(mpi_job(runPolicy=INVALID))
    cluster.settle()
    assert cluster.conditions == "Created T, Running F, Suspended T"
    assert "ValidationError" in cluster.reasons
    suspended(cluster, yes=False)
    assert cluster.conditions.endswith("Suspended F")
