"""The life of a job whose launcher is a batch Job, decision by decision: Life stands for the API server and all controllers but ours."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.children import Exit
from api.job import JobCondition
from controller.domain import Count
from controller.kind import Options
from controller.kinds.mpi.hosts import LATE_SECONDS, WAIT_ANNOTATION
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.v2beta1 import V2BETA1
from rallypoint.testing.in_memory_cluster import Life
from rallypoint.testing.mpi import container, mpi_job

RUNNING = "Created T, Running T"
WORKERS = ["pi-worker-0", "pi-worker-1"]
PLACE = {"nodeSelector": {"zone": "a"}, "containers": [container()]}


def life_of(*, options: Options | None = None, graceful: bool = False, **fields: Any) -> Life:
    """A job once all that it needs is made."""
    life = Life(mpi_job(**fields), kind=V2BETA1, options=options, graceful=graceful)  # type: ignore[arg-type]  # has no use for the rest
    life.settle()
    return life


def running(**fields: Any) -> Life:
    """The same once launcher and workers run."""
    life = life_of(**fields)
    up(life)
    if life.batch_jobs:
        life.launch()
        life.settle()
    return life


def up(life: Life, *names: str) -> None:
    life.become("Running", *names, ready=True)
    life.settle()


def suspended(life: Life, yes: bool = True, **fields: Any) -> None:
    """Play the queue: suspend the job or let it go on, with its spec as it then is."""
    life.respecify(mpi_job(runPolicy={"suspend": yes}, **fields))
    life.settle()


def launcher(life: Life) -> dict[str, Any]:
    ((_, job),) = life.batch_jobs.items()
    spec: dict[str, Any] = job["spec"]
    return spec


def members(life: Life) -> int:
    """How many pods the gang is of."""
    assert life.group is not None
    return int(msgspec.json.decode(life.group.spec)["minMember"])


def waiting(life: Life) -> JobCondition:
    """Why the job does not run."""
    (found,) = [one for one in life.status.conditions or () if (one.type, one.status) == ("Running", "False")]
    return found


def test_all_is_made_at_once() -> None:
    life = life_of()

    assert life.made == WORKERS
    assert sorted(life.extras) == ["pi", "pi-config", "pi-ssh"]
    assert list(life.batch_jobs) == ["pi-launcher"]
    assert launcher(life)["podReplacementPolicy"] == "Failed"
    assert life.conditions == "Created T"
    assert life.counters == {"Launcher": {}, "Worker": {}}
    assert [(event.reason, event.message) for event in life.events] == [
        ("MPIJobCreated", "MPIJob hpc/pi is created.")
    ]


def test_limits_are_the_launcher_s() -> None:
    life = life_of(runPolicy={"backoffLimit": 3, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5})

    assert (launcher(life)["backoffLimit"], launcher(life)["activeDeadlineSeconds"]) == (3, 60)
    assert "ttlSecondsAfterFinished" not in launcher(life)


def test_a_job_runs_once_its_launcher_and_all_its_workers_do() -> None:
    life = life_of()
    up(life, "worker-0")
    life.launch()
    life.settle()
    assert life.conditions == "Created T"
    up(life, "worker-1")

    assert life.conditions == RUNNING
    assert life.counters == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert life.reasons.count("MPIJobRunning") == 1


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param(None, WORKERS, id="None is the default"),
        pytest.param("None", WORKERS, id="None"),
        pytest.param("Running", ["pi-worker-1"], id="Running"),
        pytest.param("All", [], id="All"),
    ],
)
def test_the_end_of_the_launcher_is_the_end(policy: str | None, left: list[str]) -> None:
    life = running(runPolicy={"cleanPodPolicy": policy})
    life.become("Succeeded", "worker-1")
    life.settle()
    life.launch("Succeeded", 0)
    life.end_batch("Complete")
    life.settle()

    assert life.conditions == "Created T, Running F, Succeeded T"
    assert life.status.completion_time == life.now
    assert life.counters == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert sorted(life.pods) == left
    assert list(life.batch_jobs) == ["pi-launcher"]
    assert life.counts == [Count.CREATED, Count.SUCCESSFUL]


def test_a_job_that_was_never_seen_running_says_so() -> None:
    life = life_of()
    life.end_batch("Complete")
    life.settle()

    assert life.conditions == "Created T, Running F, Succeeded T"


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
            "limit: container mpi exited with code 3",
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
    life = running()
    life.batch_pods = []
    if pod is not None:
        life.launch("Failed", 3, **pod)
    life.end_batch("Failed", failed=1, **batch)
    life.settle()

    failed = (life.status.conditions or [])[-1]
    assert (failed.type, failed.reason, failed.message) == ("Failed", reason, message)
    assert life.events[-1].reason == reason
    assert life.counters["Launcher"] == {"failed": 1}
    assert life.status.completion_time is not None


def test_the_launcher_gets_its_ttl_when_its_end_is_known() -> None:
    """With one from the start it may be gone before it was seen, and would be made again."""
    life = running(runPolicy={"ttlSecondsAfterFinished": 5})
    life.end_batch("Complete")
    life.step()
    assert "ttlSecondsAfterFinished" not in launcher(life)
    life.settle()
    assert launcher(life)["ttlSecondsAfterFinished"] == 5

    life.batch_jobs.clear()
    life.settle()
    assert life.batch_jobs == {}


def test_a_launcher_that_somebody_deletes_is_made_again() -> None:
    life = running()
    life.batch_jobs.clear()
    life.batch_pods.clear()
    life.settle()

    assert list(life.batch_jobs) == ["pi-launcher"]
    assert life.counters == {"Launcher": {}, "Worker": {"active": 2}}


def test_a_worker_that_somebody_deletes_is_made_again() -> None:
    life = running()
    life.go("worker-1")
    life.settle()

    assert life.made == [*WORKERS, "pi-worker-1"]
    assert life.conditions == RUNNING


def test_scaling() -> None:
    life = running(runLauncherAsWorker=True)
    life.respecify(mpi_job(4, runLauncherAsWorker=True))
    life.settle()
    assert sorted(life.pods) == [f"pi-worker-{index}" for index in range(4)]
    assert life.extras["pi-config"]["data"]["hostfile"].count("worker") == 4
    made = len(life.made)
    life.respecify(mpi_job(1, runLauncherAsWorker=True))
    life.settle()

    assert list(life.pods) == ["pi-worker-0"]
    assert len(life.made) == made


def test_a_failed_worker_changes_the_counters_only() -> None:
    life = running()
    life.become("Failed", "worker-0", code=1)
    life.settle()

    assert life.conditions == RUNNING
    assert life.counters["Worker"] == {"active": 1, "failed": 1}
    assert life.made == WORKERS


def test_it_is_replaced_when_the_launcher_tries_again_after_a_suspension() -> None:
    """Tries are counted by what is there of the launcher, which a suspension takes away."""
    life = running()
    life.become("Failed", "worker-0", code=1)
    life.launch("Running", restarts=1)
    life.settle()
    suspended(life)
    life.batch_pods.clear()
    suspended(life, False)
    up(life)
    life.launch()
    life.settle()
    made = len(life.made)
    life.become("Failed", "worker-1", code=1)
    life.settle()
    assert life.made[made:] == []
    life.launch("Running", restarts=1)
    life.settle()

    assert life.made[made:] == ["pi-worker-1"]


def test_it_is_replaced_when_the_launcher_tries_again() -> None:
    life = running()
    life.become("Failed", "worker-0", code=1)
    life.launch("Running", restarts=1)
    life.settle()
    assert life.made == [*WORKERS, "pi-worker-0"]

    life.become("Failed", "worker-0", code=1)
    life.settle()
    assert life.made == [*WORKERS, "pi-worker-0"], "once for each try of the launcher"


def test_an_evicted_worker_is_replaced() -> None:
    life = running()
    life.become("Failed", "worker-1", reason="Evicted")
    life.step()
    assert life.conditions == "Created T, Restarting T"
    assert life.events[-1].message == "1/2 workers are evicted"
    assert sorted(life.pods) == WORKERS, "told before the pod goes"
    life.settle()
    assert life.made == [*WORKERS, "pi-worker-1"]
    up(life)

    assert life.conditions == RUNNING
    assert life.counts == [Count.CREATED, Count.RESTARTED]
    assert life.status.completion_time is None


def test_a_worker_that_is_evicted_again_is_replaced_after_a_pause() -> None:
    life = running()
    life.become("Failed", "worker-1", reason="Evicted")
    life.settle()
    up(life)
    made = list(life.made)
    life.become("Failed", "worker-1", reason="Evicted")
    life.settle()

    assert life.made == made
    assert life.decide().requeue_after_seconds == 10
    assert (life.status.conditions or [])[-1].message == (
        "1/2 workers are evicted. pi-worker-1 has failed 2 times in a row; its replacement is due at 2026-01-01T12:00:10Z."
    )
    life.wait(10)
    life.settle()
    assert life.made == [*made, "pi-worker-1"]
    assert life.counts == [Count.CREATED, *2 * [Count.RESTARTED]]


def test_a_loss_takes_nobody_else_off_the_list() -> None:
    """Soon after the start, too, when there has been no quiet time yet."""
    life = life_of()
    life.become("Running", ready=True, running_since=life.now)
    life.launch()
    life.settle()
    life.wait(1)
    life.become("Failed", "worker-1", reason="Evicted", ready=False)
    life.step()
    life.step()

    assert life.extras["pi-config"]["data"]["discover_hosts.sh"] == "#!/bin/sh\necho pi-worker-0.pi.hpc.svc\n"


def test_what_mpi_operator_has_said_of_an_eviction_was_not_the_end() -> None:
    life = running()
    conditions = [one.model_copy() for one in life.status.conditions or ()]
    conditions[-1] = conditions[-1].model_copy(update={"type": "Failed", "reason": "MPIJobEvicted"})
    life.write(conditions=conditions)
    life.end_batch("Complete")
    life.settle()

    assert life.conditions == "Created T, Running F, Succeeded T"


@pytest.mark.parametrize("flag", [False, True])
def test_the_launcher_waits_for_the_workers(flag: bool) -> None:
    policy: dict[str, Any] = {} if flag else {"launcherCreationPolicy": "WaitForWorkersReady"}
    life = life_of(options=Options(of_kinds=(MPIOptions(wait_for_workers=flag),)), **policy)
    up(life, "worker-0")
    assert life.batch_jobs == {}
    life.become("Running", "worker-1", ready=False)
    life.settle()
    assert life.batch_jobs == {}
    assert "Launcher" not in life.counters
    up(life, "worker-1")

    assert list(life.batch_jobs) == ["pi-launcher"]


def test_a_worker_that_is_ready_is_asked_for_its_ssh_server() -> None:
    """Readiness without a probe says that a process runs, and not that it listens."""
    life = life_of(launcherCreationPolicy="WaitForWorkersReady")
    for index in (0, 1):
        life.become("Running", f"worker-{index}", ready=True, address=f"10.0.0.{index}")
    probes = life.decide().probes
    assert [(one.address, one.ports, one.greeting) for one in probes] == [
        ("10.0.0.0", (22, 2222), b"SSH-"),
        ("10.0.0.1", (22, 2222), b"SSH-"),
    ]
    life.settle()
    assert life.batch_jobs == {}
    life.answered.add(probes[0].uid)
    life.wait(LATE_SECONDS)
    life.settle()
    assert waiting(life).message == "The launcher waits for pi-worker-1."
    life.answered.add(probes[1].uid)
    life.settle()

    assert list(life.batch_jobs) == ["pi-launcher"]
    assert life.decide().probes == ()


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        pytest.param(
            Options(of_kinds=(MPIOptions(ssh_check=False),)),
            {"launcherCreationPolicy": "WaitForWorkersReady"},
            id="not if the flag says so",
        ),
        pytest.param(Options(), {}, id="not if nobody waits"),
    ],
)
def test_nobody_is_asked_without_need(options: Options, spec: dict[str, Any]) -> None:
    life = life_of(options=options, **spec)
    life.become("Running", ready=True, address="10.0.0.1")
    assert life.decide().probes == ()
    life.settle()

    assert list(life.batch_jobs) == ["pi-launcher"]


def test_a_port_that_the_template_calls_ssh_comes_first() -> None:
    ports = [{"name": "ssh", "containerPort": 2200}]
    life = life_of(
        worker={"spec": {"containers": [container(ports=ports)]}},
        launcherCreationPolicy="WaitForWorkersReady",
    )
    life.become("Running", ready=True, address="10.0.0.1")

    assert life.decide().probes[0].ports == (2200, 22, 2222)


def test_the_status_names_a_worker_that_is_late() -> None:
    life = life_of(workers=6, launcherCreationPolicy="WaitForWorkersReady")
    up(life, "worker-0", "worker-2")
    left = life.decide().requeue_after_seconds
    assert left is not None
    life.wait(LATE_SECONDS)
    life.settle()

    assert life.conditions == "Running F, Created T"
    assert waiting(life).reason == "MPIJobWaitingForPods"
    assert waiting(life).message == "The launcher waits for pi-worker-1, pi-worker-3, pi-worker-4 and 1 more."
    up(life, "worker-1", "worker-3", "worker-4")
    assert waiting(life).message == "The launcher waits for pi-worker-5."
    up(life)
    life.launch()
    life.settle()
    assert life.conditions == RUNNING


FETCH = Exit("fetch", 1, message="no such host", init=True)


def test_an_init_container_that_fails_is_named() -> None:
    """Of workers and of the launcher, until the job runs."""
    life = life_of()
    life.become("Pending", "worker-1", exits=(FETCH,))
    life.launch("Pending", exits=(msgspec.structs.replace(FETCH, message=""),))
    life.settle()
    assert waiting(life).reason == "MPIJobWaitingForPods"
    assert waiting(life).message == (
        "Pods do not start: init container fetch of pi-worker-1 exited with code 1: no such host; "
        "init container fetch of pi-launcher-x exited with code 1."
    )
    up(life)
    life.launch()
    life.settle()

    assert life.conditions == RUNNING


def test_it_is_named_where_the_launcher_waits() -> None:
    life = life_of(launcherCreationPolicy="WaitForWorkersReady")
    up(life, "worker-0")
    life.become("Pending", "worker-1", exits=(FETCH,))
    life.wait(LATE_SECONDS)
    life.settle()

    assert waiting(life).message == (
        "The launcher waits for pi-worker-1. "
        "Pods do not start: init container fetch of pi-worker-1 exited with code 1: no such host."
    )


def test_the_launcher_of_a_job_made_suspended_is_suspended() -> None:
    life = life_of(runPolicy={"suspend": True})

    assert life.made == []
    assert launcher(life)["suspend"] is True
    assert life.conditions == "Created T, Running F, Suspended T"
    assert life.status.start_time is None
    assert life.counters == {"Launcher": {}, "Worker": {}}
    suspended(life, False)
    assert life.made == WORKERS
    assert launcher(life)["suspend"] is False
    assert life.conditions == "Created T, Running F, Suspended F"
    assert life.status.start_time == life.now


def test_it_waits_for_the_workers_when_it_is_resumed() -> None:
    waits: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}
    life = life_of(runPolicy={"suspend": True}, **waits)
    suspended(life, False, **waits)
    assert life.made == WORKERS
    assert launcher(life)["suspend"] is True
    up(life)

    assert launcher(life)["suspend"] is False


def test_suspending_ends_the_pods() -> None:
    life = running(graceful=True)
    suspended(life)
    assert all(pod.deleting for pod in life.pods.values())
    assert launcher(life)["suspend"] is True
    assert life.counters == {"Launcher": {"active": 1}, "Worker": {}}
    life.batch_pods.clear()
    suspended(life, False)
    assert life.conditions == "Created T, Running F, Suspended T", "until the last pod of before is gone"
    life.go("worker-0", "worker-1")
    life.settle()

    assert life.made == [*WORKERS, *WORKERS]
    assert life.conditions == "Created T, Running F, Suspended F"


@pytest.mark.parametrize(
    "has_start", [pytest.param(False, id="a new server"), pytest.param(True, id="an old server")]
)
def test_a_resumed_launcher_goes_where_the_spec_now_says(has_start: bool) -> None:
    """Labels are added to, what chooses a node is replaced; older servers take no other place while the Job has a start."""
    life = running(launcher={"spec": {**PLACE, "tolerations": [{"key": "old"}]}})
    suspended(life, launcher={"spec": PLACE})
    life.batch_jobs["pi-launcher"]["status"] = {"startTime": "2026-01-01T00:00:00Z"} if has_start else {}
    there = {
        "metadata": {"labels": {"queue": "blue"}},
        "spec": {"nodeSelector": {"zone": "b"}, "containers": [container()]},
    }
    suspended(life, False, launcher=there)

    template = launcher(life)["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "b"}
    assert "tolerations" not in template["spec"]
    assert template["metadata"]["labels"]["queue"] == "blue"
    assert template["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert launcher(life)["suspend"] is False
    assert "startTime" not in life.batch_jobs["pi-launcher"]["status"]


def test_nothing_is_cleared_where_the_place_stays_the_same() -> None:
    life = running()
    suspended(life)
    life.batch_jobs["pi-launcher"]["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    suspended(life, False)

    assert launcher(life)["suspend"] is False
    assert "startTime" in life.batch_jobs["pi-launcher"]["status"]


def test_a_job_that_cannot_be_run_fails_with_the_field_named() -> None:
    life = life_of(workers=0)

    text = (
        "Found validation errors: spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0: must be greater than or equal to 1; "
        "without workers, leave Worker out and set runLauncherAsWorker"
    )
    assert life.conditions == "Created T, Failed T"
    assert [(one.reason, one.message) for one in life.events] == [("ValidationError", text)]
    assert life.counts == [Count.CREATED, Count.FAILED]
    assert life.made == []
    assert life.extras == {}


def test_a_job_that_runs_already_is_told_and_goes_on() -> None:
    life = running()
    life.respecify(mpi_job(0))
    life.settle()
    assert life.conditions == RUNNING
    assert life.events[-1].reason == "ValidationError"
    assert sorted(life.pods) == WORKERS
    life.end_batch("Complete")
    life.settle()

    assert life.conditions == "Created T, Running F, Succeeded T"


def test_a_job_without_workers_is_told_what_that_means() -> None:
    life = life_of(workers=None)

    assert life.events[0].message.endswith("add a Worker, or set runLauncherAsWorker.")
    life.launch()
    life.settle()
    assert life.conditions == RUNNING


@pytest.mark.parametrize(
    ("scheduler", "spec", "place"),
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
def test_gangs(scheduler: str, spec: dict[str, Any], place: tuple[str, str]) -> None:
    """Pods are made at once and told of their group; no group outlives the job."""
    life = running(options=Options(gang_scheduler=scheduler))
    template = launcher(life)["template"]

    assert life.group is not None
    assert life.group.spec.decode() == str(spec).replace("'", '"').replace(" ", "")
    assert template["metadata"][place[0]][place[1]] == "pi"
    assert template["spec"]["schedulerName"] == scheduler
    life.end_batch("Complete")
    life.settle()
    assert life.group is None


@pytest.mark.parametrize("scheduler", ["volcano", "other"])
def test_a_group_has_none_of_the_job_s_annotations(scheduler: str) -> None:
    """As mpi-operator makes it: they may be meant for whoever looks at the job alone."""
    life = Life(
        mpi_job(annotations={"example.com/a": "b"}),
        kind=V2BETA1,  # type: ignore[arg-type]
        options=Options(gang_scheduler=scheduler),
    )
    (group,) = [child for child in life.decide().create if child.resource.kind == "PodGroup"]

    assert "annotations" not in group.body()["metadata"]


def queue(life: Life) -> str | None:
    """The queue that the group of the job is in."""
    assert life.group is not None
    spec: dict[str, str] = msgspec.json.decode(life.group.spec)
    return spec.get("queue")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"runPolicy": {"schedulingPolicy": {"queue": "night"}}}, id="the policy says so"),
        pytest.param({"annotations": {"scheduling.volcano.sh/queue-name": "night"}}, id="an annotation does"),
    ],
)
def test_a_group_moves_to_another_queue_with_its_job(later: dict[str, Any]) -> None:
    life = running(
        options=Options(gang_scheduler="volcano"), runPolicy={"schedulingPolicy": {"queue": "day"}}
    )
    assert queue(life) == "day"

    life.respecify(mpi_job(**later))
    life.settle()

    assert queue(life) == "night"


def test_a_group_stays_in_its_queue_where_the_job_names_none() -> None:
    """Volcano may have chosen it."""
    life = running(
        options=Options(gang_scheduler="volcano"), runPolicy={"schedulingPolicy": {"queue": "day"}}
    )
    life.respecify(mpi_job())

    assert life.settle() == []
    assert queue(life) == "day"


@pytest.mark.parametrize(
    ("result", "counters"),
    [("Complete", {"succeeded": 1}), ("Failed", {"failed": 1})],
)
def test_a_launcher_that_has_ended_is_not_active_though_its_pod_still_runs(
    result: str, counters: dict[str, int]
) -> None:
    """Its Job's end may be seen before that of its pod, and nobody counts a job that is over."""
    life = running()
    ((name, job),) = life.batch_jobs.items()
    ended = {"type": result, "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    failed = {"failed": 1} if result == "Failed" else {}
    life.batch_jobs[name] = {**job, "status": {**job.get("status", {}), "conditions": [ended], **failed}}
    life.settle()

    assert life.counters["Launcher"] == counters


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
def test_a_launcher_that_waits_for_its_workers_is_a_member_from_when_it_starts(
    scheduler: str, options: Options, fields: dict[str, Any]
) -> None:
    """Or no scheduler would start the workers, without which there is no launcher."""
    life = life_of(
        options=replace(
            options,
            gang_scheduler=scheduler,
            of_kinds=(replace(options.of(MPIOptions), ssh_check=False),),
        ),
        **fields,
    )
    assert (sorted(life.pods), life.batch_jobs) == (WORKERS, {})
    assert members(life) == 2

    up(life)

    assert list(life.batch_jobs) == ["pi-launcher"]
    assert members(life) == 3


def test_a_launcher_that_waits_again_after_a_suspension_is_no_member() -> None:
    options = Options(gang_scheduler="volcano", of_kinds=(MPIOptions(ssh_check=False),))
    waits: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}
    life = running(options=options, **waits)
    suspended(life, **waits)
    assert life.group is None

    suspended(life, False, **waits)

    assert members(life) == 2


def test_a_template_s_restart_policy_is_said_to_be_overridden() -> None:
    life = life_of(launcher={"spec": {"containers": [container()], "restartPolicy": "Always"}})

    assert life.reasons.count("SetPodTemplateRestartPolicy") == 1
    assert launcher(life)["template"]["spec"]["restartPolicy"] == "OnFailure"


PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


@given(data=st.data())
def test_a_plan_that_has_come_true_leaves_nothing_to_do(data: st.DataObject) -> None:
    """Whatever happens to its pods, its launcher and its spec; nor does a job that is over come back."""
    draw = data.draw
    spec: dict[str, Any] = {
        "workers": draw(st.sampled_from([None, 1, 3])),
        "runLauncherAsWorker": draw(st.booleans()),
        "launcherCreationPolicy": draw(st.sampled_from(["AtStartup", "WaitForWorkersReady"])),
    }
    options = Options(gang_scheduler=draw(st.sampled_from(["", "volcano"])))
    life = life_of(options=options, graceful=draw(st.booleans()), **spec)
    for _ in range(draw(st.integers(1, 6))):
        was_over = life.status.completion_time
        match draw(st.sampled_from(["pod", "gone", "launcher", "end", "suspend", "resume", "scale", "wait"])):
            case "pod" if life.pods:
                name = draw(st.sampled_from(sorted(life.pods))).removeprefix("pi-")
                reason = draw(st.sampled_from(["", "Evicted"]))
                life.become(draw(st.sampled_from(PHASES)), name, ready=draw(st.booleans()), reason=reason)
            case "gone" if life.pods:
                life.go(draw(st.sampled_from(sorted(life.pods))).removeprefix("pi-"))
            case "launcher" if life.batch_jobs and not launcher(life).get("suspend"):
                life.launch(draw(st.sampled_from(PHASES)), restarts=draw(st.integers(0, 2)))
            case "end" if life.batch_jobs:
                life.end_batch(draw(st.sampled_from(["Complete", "Failed"])))
            case "suspend" | "resume" as what:
                life.respecify(
                    mpi_job(**spec, runPolicy={"suspend": what == "suspend", "cleanPodPolicy": "All"})
                )
            case "scale":
                spec["workers"] = draw(st.sampled_from([1, 2, 4]))
                life.respecify(mpi_job(**spec))
            case _:
                life.wait(60)
        life.settle()
        life.step()

        assert life.is_idle(life.decide())
        if was_over:
            assert life.status.completion_time == was_over
