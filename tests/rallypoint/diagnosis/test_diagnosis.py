"""The causes that block a job, derived from its objects in the API server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rallypoint.diagnosis import (
    JobSnapshot,
    LastLines,
    LogRequest,
    Phase,
    diagnose,
    log_requests,
    nodes_to_read,
)
from rallypoint.diagnosis.snapshot import ArchivedPod
from tests.support.snapshots import (
    CREATED,
    NOW,
    RUNNING,
    Object,
    at,
    container,
    ended,
    event,
    false,
    job,
    master,
    node,
    pod,
    true,
)


def blocking_causes(
    *pods: Object, of: Object | None = None, **known: Any
) -> list[tuple[tuple[str, ...], str]]:
    """Whom and what the causes name, the root first."""
    found = diagnose(JobSnapshot(of or job(CREATED), NOW, pods=[*pods, master()], **known))
    return [(cause.about, cause.text) for cause in found.causes if cause.blocks]


WORKER = ("j-worker-0",)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(
            pod(node="", conditions=[false("PodScheduled", reason="Unschedulable", message="0/1 nodes")]),
            "Unschedulable: 0/1 nodes",
            id="no node",
        ),
        pytest.param(
            pod(node="", conditions=[]),
            "waiting for the scheduler default-scheduler, which has not reported on it",
            id="no scheduler",
        ),
        pytest.param(
            pod(containerStatuses=[container(waiting={"reason": "ErrImagePull", "message": "not found"})]),
            "ErrImagePull: not found",
            id="no image",
        ),
        pytest.param(
            pod(
                "j-worker-0",
                "Running",
                containerStatuses=[
                    container(waiting={"reason": "CrashLoopBackOff"}, last=ended(137), restarts=3)
                ],
            ),
            "CrashLoopBackOff: container pytorch ended 4 times, last with exit code 137, killed by SIGKILL",
            id="crash loop",
        ),
        pytest.param(
            pod("j-worker-0", "Running", containerStatuses=[container(terminated=ended(3), restarts=1)]),
            "container pytorch ended 2 times, last with exit code 3",
            id="terminated and about to restart",
        ),
        pytest.param(
            pod(
                initContainerStatuses=[
                    {"name": "prepare", "state": {"terminated": ended(4)}, "restartCount": 0}
                ]
            ),
            "container prepare ended once with exit code 4",
            id="init container terminated and about to restart",
        ),
        pytest.param(
            pod("j-worker-0", "Failed", containerStatuses=[container(terminated=ended(1))]),
            "failed: container pytorch ended with exit code 1",
            id="failed",
        ),
        pytest.param(
            pod("j-worker-0", "Failed", reason="Evicted", message="the node was low on disk"),
            "failed: Evicted: the node was low on disk",
            id="evicted before it started",
        ),
        pytest.param(
            pod(
                initContainerStatuses=[{"name": "init-pytorch", "state": {"running": {"startedAt": at(40)}}}],
                containerStatuses=[container(waiting={"reason": "PodInitializing"})],
            ),
            "running init container init-pytorch",
            id="waiting for its master",
        ),
        pytest.param(pod(), "waiting for node a to start it", id="no status from the kubelet"),
        pytest.param(
            pod(containerStatuses=[container(waiting={"reason": "ContainerCreating"})]),
            "creating its containers",
            id="being started",
        ),
        pytest.param(
            pod(
                "j-worker-0",
                "Running",
                conditions=[false("Ready", message="containers with unready status")],
                containerStatuses=[container(running={"startedAt": at(40)})],
            ),
            "running, not ready: containers with unready status",
            id="not ready",
        ),
    ],
)
def test_a_pod_blocks_the_job(found: Object, text: str) -> None:
    assert blocking_causes(found) == [(WORKER, text)]


def test_a_completed_container_blocks_nothing() -> None:
    """Its pod is not Ready any more, but its phase is still Running."""
    conditions = [false("Ready", reason="PodCompleted")]
    done = pod(
        "j-worker-0", "Running", conditions=conditions, containerStatuses=[container(terminated=ended(0))]
    )

    assert blocking_causes(done) == []


def test_scheduling_gates_block_a_pod() -> None:
    gated = pod(node="", conditions=[false("PodScheduled", reason="SchedulingGated")])
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]

    assert blocking_causes(gated) == [(WORKER, "has scheduling gates: kueue.x-k8s.io/topology")]


def test_a_warning_event_explains_why_containers_are_not_created() -> None:
    starting = pod(containerStatuses=[container(waiting={"reason": "ContainerCreating"})])
    old = event(starting, "FailedMount", "earlier", ago=50)
    new = event(starting, "FailedMount", "no volume", ago=5)

    assert blocking_causes(starting, events=[old, new]) == [(WORKER, "FailedMount: no volume")]


def test_an_image_pull_blocks_a_pod() -> None:
    starting = pod(containerStatuses=[container(waiting={"reason": "ContainerCreating"})])
    pulling = event(starting, "Pulling", "Pulling image", "Normal")

    assert blocking_causes(starting, events=[pulling]) == [(WORKER, "pulling its image")]


def test_the_last_log_line_of_a_container_is_quoted() -> None:
    waits = pod(initContainerStatuses=[{"name": "init-pytorch", "state": {"running": {"startedAt": at(40)}}}])
    last_lines = {("j-worker-0", "init-pytorch"): LastLines(NOW, ("earlier", "waiting for master"))}

    (cause,) = diagnose(JobSnapshot(job(CREATED), NOW, pods=[waits, master()], last_lines=last_lines)).causes

    assert (cause.text, cause.quote) == ("running init container init-pytorch", "waiting for master")


def test_a_running_sidecar_blocks_nothing() -> None:
    beside = {"name": "sidecar", "started": True, "state": {"running": {"startedAt": at(40)}}}
    found = pod(
        "j-worker-0",
        "Running",
        initContainerStatuses=[beside],
        containerStatuses=[container(running={"startedAt": at(40)})],
    )
    found["spec"]["initContainers"] = [{"name": "sidecar", "restartPolicy": "Always"}]

    assert blocking_causes(found) == []


def test_a_pod_on_a_lost_node_blocks_the_job() -> None:
    lost = node("a", {**false("Ready", message="Kubelet stopped posting node status."), "status": "Unknown"})
    found = pod("j-worker-0", "Running", node="a")
    elsewhere = pod(
        "j-worker-1", "Running", node="b", containerStatuses=[container(running={"startedAt": at(40)})]
    )

    causes = diagnose(JobSnapshot(job(CREATED, workers=2), NOW, pods=[found, elsewhere], nodes=lost)).causes

    assert [(cause.about, cause.text) for cause in causes if cause.blocks] == [
        (WORKER, "node a is not Ready: Kubelet stopped posting node status.")
    ]


@pytest.mark.parametrize(
    ("seconds", "finalizers", "text"),
    [
        pytest.param(-10, [], "being deleted, within its grace period", id="within its grace period"),
        pytest.param(
            30,
            [],
            "still exists after its grace period: its node has not reported its termination",
            id="no kubelet",
        ),
        pytest.param(
            30, ["x/y"], "still exists after its grace period: it has finalizers: x/y", id="finalizers"
        ),
    ],
)
def test_a_terminating_pod_blocks_the_job(seconds: float, finalizers: list[str], text: str) -> None:
    found = pod()
    found["metadata"] |= {"deletionTimestamp": at(seconds), "finalizers": finalizers}

    assert blocking_causes(found) == [(WORKER, text)]


def test_a_terminating_pod_on_a_lost_node_blocks_the_job() -> None:
    found = pod()
    found["metadata"]["deletionTimestamp"] = at(30)
    lost = node("a", false("Ready", reason="NodeStatusUnknown"))

    assert blocking_causes(found, nodes=lost)[0] == (
        WORKER,
        "still exists after its grace period: node a is not Ready: NodeStatusUnknown",
    )


def test_the_root_cause_comes_first_and_equal_causes_are_combined() -> None:
    waiting: Any = {
        "initContainerStatuses": [{"name": "init-pytorch", "state": {"running": {"startedAt": at(40)}}}],
        "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
    }
    unschedulable = [false("PodScheduled", reason="Unschedulable", message="no room")]
    pods = [
        pod("j-worker-0", **waiting),
        pod("j-worker-1", **waiting),
        pod("j-worker-2", node="", conditions=unschedulable),
    ]

    assert blocking_causes(*pods, of=job(CREATED, workers=3)) == [
        (("j-worker-2",), "Unschedulable: no room"),
        (("j-worker-0", "j-worker-1"), "running init container init-pytorch"),
    ]


def test_a_starting_pod_comes_before_pods_that_wait_for_it() -> None:
    waits = pod(initContainerStatuses=[{"name": "init-pytorch", "state": {"running": {"startedAt": at(40)}}}])
    pulls = pod("j-master-0", containerStatuses=[container(waiting={"reason": "ContainerCreating"})])

    found = causes_of(job(CREATED), pods=[waits, pulls])

    assert [about for about, _ in found] == [("j-master-0",), ("j-worker-0",)]


def test_combined_causes_have_the_earliest_time() -> None:
    unscheduled = [
        pod(
            f"j-worker-{number}",
            node="",
            conditions=[false("PodScheduled", since=ago, reason="Unschedulable")],
        )
        for number, ago in enumerate((20, 40))
    ]

    (cause,) = diagnose(JobSnapshot(job(CREATED, workers=2), NOW, pods=[*unscheduled, master()])).causes

    assert cause.since == NOW - timedelta(seconds=40)


def test_a_restart_is_reported_and_blocks_nothing() -> None:
    found = pod(
        "j-worker-0",
        "Running",
        containerStatuses=[container(running={"startedAt": at(40)}, last=ended(139), restarts=1)],
    )

    diagnosis = diagnose(JobSnapshot(job(CREATED, RUNNING), NOW, pods=[found, master()]))

    assert not diagnosis.blocked
    assert [cause.text for cause in diagnosis.causes] == [
        "container pytorch ended once with exit code 139, killed by SIGSEGV; the kubelet restarted it"
    ]


def test_a_job_with_running_pods_has_no_causes() -> None:
    running = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(45)})])

    diagnosis = diagnose(JobSnapshot(job(CREATED, RUNNING), NOW, pods=[running, master()]))

    assert (diagnosis.state, diagnosis.since) == ("Running", NOW - timedelta(seconds=50))
    assert not diagnosis.causes


def causes_of(of: Object, **known: Any) -> list[tuple[tuple[str, ...], str]]:
    return [(cause.about, cause.text) for cause in diagnose(JobSnapshot(of, NOW, **known)).causes]


def test_a_job_that_no_operator_reconciles() -> None:
    text = "no operator has reconciled it; is an operator that serves this kind running in this cluster?"

    assert causes_of(job()) == [((), text)]
    assert causes_of(job(age=1)) == []


def test_a_job_of_another_manager() -> None:
    owner = "kueue.x-k8s.io/multikueue"

    assert causes_of(job(CREATED, managedBy=owner))[0] == (
        (),
        f"left to {owner} by its run policy (managedBy); operators here ignore it",
    )


def test_a_deleted_job_with_finalizers() -> None:
    held = job(CREATED)
    held["metadata"] |= {"deletionTimestamp": at(5), "finalizers": ["a/b"]}

    assert causes_of(held)[0] == ((), "being deleted; waits for its finalizers: a/b")


SUSPENDED = true("Suspended", since=30)


def workload(*conditions: Object, checks: Sequence[Object] = ()) -> Object:
    status = {"conditions": list(conditions), "admissionChecks": list(checks)}
    return {"metadata": {"name": "pytorchjob-j-1"}, "status": status}


@pytest.mark.parametrize(
    ("labels", "workloads", "cause"),
    [
        pytest.param({}, [], ((), "suspended by its run policy (suspend: true)"), id="suspended by a user"),
        pytest.param(
            {"kueue.x-k8s.io/queue-name": "q"},
            [],
            (
                (),
                (
                    "suspended by its run policy (suspend: true); Kueue has not created a Workload for queue q; it may not manage "
                    "PyTorchJobs"
                ),
            ),
            id="no Kueue",
        ),
        pytest.param(
            {},
            [workload(false("QuotaReserved", reason="Pending", message="insufficient quota"))],
            (("pytorchjob-j-1",), "Kueue: Pending: insufficient quota"),
            id="no quota",
        ),
        pytest.param(
            {},
            [workload(true("Evicted", reason="Preempted", message="for another"), false("QuotaReserved"))],
            (("pytorchjob-j-1",), "Kueue: no quota reserved; evicted: Preempted: for another"),
            id="evicted, and no quota",
        ),
        pytest.param(
            {},
            [workload(true("Evicted", reason="Deactivated", message="by an admin"))],
            (("pytorchjob-j-1",), "Kueue: evicted: Deactivated: by an admin"),
            id="evicted",
        ),
        pytest.param(
            {},
            [
                workload(
                    true("QuotaReserved"), checks=[{"name": "gpus", "state": "Pending", "message": "no node"}]
                )
            ],
            (("pytorchjob-j-1",), "Kueue: admission check gpus Pending: no node"),
            id="an admission check",
        ),
        pytest.param(
            {},
            [workload(true("QuotaReserved"), true("Admitted"))],
            (("pytorchjob-j-1",), "Kueue has admitted it but has not resumed the job yet"),
            id="admitted",
        ),
        pytest.param(
            {}, [workload()], (("pytorchjob-j-1",), "waiting for Kueue to consider it"), id="undecided"
        ),
    ],
)
def test_a_suspended_job(labels: dict[str, str], workloads: list[Object], cause: tuple[Any, str]) -> None:
    held = job(CREATED, SUSPENDED, suspend=True)
    held["metadata"]["labels"] = labels

    assert causes_of(held, workloads=workloads) == [cause]
    assert diagnose(JobSnapshot(held, NOW)).state == "Suspended"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        pytest.param({}, "PodGroup has no status from its scheduler", id="no scheduler"),
        pytest.param(
            {"phase": "Inqueue", "conditions": [{"type": "Unschedulable", "message": "3/4 tasks"}]},
            "PodGroup Inqueue: 3/4 tasks",
            id="too large",
        ),
    ],
)
def test_a_pending_pod_group_blocks_the_job(status: Object, text: str) -> None:
    gang = {"metadata": {"name": "j", "creationTimestamp": at(60)}, "status": status}

    assert causes_of(job(CREATED), gangs=[gang])[0] == (("j",), text)


@pytest.mark.parametrize(
    ("least", "workers", "pods", "text"),
    [
        pytest.param(
            3, 2, ["j-worker-0", "j-worker-1"], "; 2 of its 3 pods exist, missing: j-launcher",
            id="a launcher that waits for its workers",
        ),
        pytest.param(
            3, 2, ["j-worker-1", "j-launcher-x7k2p"], "; 2 of its 3 pods exist, missing: j-worker-0",
            id="a worker",
        ),
        pytest.param(
            6, 5, ["j-worker-4"], "; 1 of its 6 pods exist, missing: j-launcher, j-worker-0, j-worker-1 and 2 more",
            id="most of the pods",
        ),
        pytest.param(
            10, 1, ["j-launcher", "j-worker-0"], "; 2 of its 10 pods exist",
            id="more than the job has",
        ),
        pytest.param(2, 1, [], "", id="no pods, while Volcano has not admitted the group"),
        pytest.param(2, 2, ["j-worker-0", "j-worker-1"], "", id="enough pods"),
    ],
)  # fmt: skip
def test_missing_members_of_a_gang_are_named(least: int, workers: int, pods: list[str], text: str) -> None:
    roles = {"Launcher": {}, "Worker": {"replicas": workers}}
    waiting = {**job(CREATED), "spec": {"mpiReplicaSpecs": roles}}
    gang = {"metadata": {"name": "j"}, "spec": {"minMember": least}, "status": {"phase": "Scheduling"}}

    causes = causes_of(waiting, pods=[pod(name) for name in pods], gangs=[gang])

    assert causes[0] == (("j",), f"PodGroup Scheduling{text}")


def test_a_running_pod_group_blocks_nothing() -> None:
    gang = {"metadata": {"name": "j", "creationTimestamp": at(60)}, "status": {"phase": "Running"}}

    assert (
        blocking_causes(
            pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})]),
            gangs=[gang],
        )
        == []
    )


def test_rejected_pods_block_the_job() -> None:
    waits = job(CREATED)
    refused = event(waits, "FailedCreatePod", "exceeded quota", kind="PyTorchJob")

    assert causes_of(waits, events=[refused]) == [
        ((), "2 of 2 pods do not exist: FailedCreatePod: exceeded quota")
    ]


def test_an_outdated_rejection_blocks_nothing() -> None:
    """Its event exists for an hour."""
    running = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])
    refused = event(job(), "FailedCreatePod", "exceeded quota", kind="PyTorchJob")

    assert blocking_causes(running, events=[refused]) == []


def test_a_rejected_service_blocks_a_job_that_does_not_run() -> None:
    running = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])
    running["metadata"]["creationTimestamp"] = at(60)
    other = pod("j-master-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])
    other["metadata"]["creationTimestamp"] = at(60)
    refused = event(job(), "FailedCreateService", 'services "j-master-0" already exists', kind="PyTorchJob")
    pods = [running, other]

    assert causes_of(job(CREATED), pods=pods, events=[refused]) == [
        ((), 'FailedCreateService: services "j-master-0" already exists')
    ]
    (note,) = diagnose(JobSnapshot(job(CREATED, true("Running")), NOW, pods=pods, events=[refused])).causes
    assert not note.blocks


def test_the_status_explains_missing_pods() -> None:
    waits = job(CREATED, false("Running", reason="MPIJobWaitingForPods", message="worker 1 does not answer"))

    assert causes_of(waits)[0] == ((), "worker 1 does not answer")


def test_missing_pods_are_not_reported_beside_a_blocking_cause() -> None:
    """As the launcher of an MPIJob that waits for its workers."""
    unschedulable = pod(
        node="", conditions=[false("PodScheduled", reason="Unschedulable", message="no room")]
    )

    assert causes_of(job(CREATED), pods=[unschedulable]) == [(WORKER, "Unschedulable: no room")]
    assert causes_of(job(CREATED)) == [((), "2 of 2 pods do not exist, and no condition or event says why")]
    assert causes_of(job(CREATED), pods_known=False) == []


FAILED = true("Failed", since=10, reason="PyTorchJobFailed", message="it has failed")
SAID = ((), "PyTorchJobFailed: it has failed")


def failed(name: str, code: int, *, ago: float, node: str = "a", **fields: Any) -> Object:
    return pod(name, "Failed", node, containerStatuses=[container(terminated=ended(code, ago=ago, **fields))])


def test_the_first_failed_pod_is_named() -> None:
    pods = [
        failed("j-master-0", 1, ago=18),
        failed("j-worker-0", 1, ago=17),
        failed("j-worker-1", 137, ago=20, node="b", reason="OOMKilled"),
    ]

    assert causes_of(job(CREATED, FAILED), pods=pods) == [
        SAID,
        (
            ("j-worker-1",),
            "was the first to fail, on b: container pytorch ended with exit code 137, killed by SIGKILL (OOMKilled)",
        ),
        (("j-master-0", "j-worker-0"), "failed after that: container pytorch ended with exit code 1"),
    ]


def test_a_terminated_pod_is_not_the_first_to_fail() -> None:
    stopped = failed("j-worker-0", 143, ago=30)
    stopped["metadata"]["deletionTimestamp"] = at(31)

    first = causes_of(job(CREATED, FAILED), pods=[stopped, failed("j-worker-1", 1, ago=20)])[1]

    assert first == (("j-worker-1",), "was the first to fail, on a: container pytorch ended with exit code 1")


def test_the_termination_message_is_quoted() -> None:
    pods = [failed("j-worker-0", 1, ago=20, message="a\nb\nc\nValueError: no\n")]

    assert causes_of(job(CREATED, FAILED), pods=pods)[1][1].endswith("exit code 1: b / c / ValueError: no")


def test_missing_pods_are_explained_by_their_events() -> None:
    """Events of the clean-up after the failure do not count, nor events of pods of an earlier job of that name or of another job."""
    gone = pod("j-worker-7")
    events = [
        event(gone, "Scheduled", "x", "Normal", ago=40),
        event(gone, "TaintManagerEviction", "Marking", "Normal", ago=20),
        event(gone, "Killing", "Stopping container", "Normal", ago=9),
        event(pod("j-worker-8"), "Killing", "Stopping container", "Normal", ago=9),
        event(pod("j-worker-9"), "BackOff", "of an earlier job", ago=70),
        event(pod("j-worker-late-worker-0"), "BackOff", "of another job", ago=20),
    ]

    assert causes_of(job(CREATED, FAILED), events=events) == [
        SAID,
        (("j-worker-7",), "no longer exists: TaintManagerEviction: Marking"),
    ]


def exited(of: Object, name: str, code: int, *, ago: float = 15, **counted: int) -> Object:
    text = f"Pod: n.{name} exited with code {code}"
    return event(of, "ExitedWithCode", text, "Normal", ago=ago, kind="PyTorchJob") | counted


@pytest.mark.parametrize(
    ("message", "rows"),
    [
        pytest.param(
            "last failure: j-worker-0: container pytorch ended with exit code 3", 1, id="in the job"
        ),
        pytest.param("it has failed", 2, id="nowhere else"),
    ],
)
def test_the_back_off_of_a_deleted_pod_is_reported_if_the_job_does_not_name_its_failure(
    message: str, rows: int
) -> None:
    failed_job = job(CREATED, true("Failed", since=10, reason="PyTorchJobFailed", message=message))
    back_off = event(pod("j-worker-0"), "BackOff", "Back-off restarting failed container", ago=12)

    assert len(causes_of(failed_job, events=[back_off])) == rows


def test_the_failure_that_the_job_names_quotes_its_deleted_pod() -> None:
    message = "it ran out of tries; last failure: j-worker-0: container pytorch ended with exit code 3"
    failed_job = job(CREATED, true("Failed", since=10, reason="PyTorchJobFailed", message=message))
    lines = {
        ("j-master-0", "pytorch"): LastLines(None, ("loading",)),
        ("j-worker-0", "pytorch"): LastLines(None, ("ValueError: boom",)),
    }

    (cause,) = diagnose(JobSnapshot(failed_job, NOW, lines_of_deleted_pods=lines)).causes

    assert cause.quote == "ValueError: boom"


def test_cleaned_up_pods_are_explained_by_events_of_the_operator() -> None:
    failed_job = job(CREATED, FAILED)
    events = [exited(failed_job, "j-worker-1", 1), event(pod("j-worker-0"), "Killing", "x", "Normal", ago=12)]

    assert causes_of(failed_job, events=events) == [
        SAID,
        (("j-worker-1",), "ended with exit code 1, reported once; that pod no longer exists"),
    ]


def test_an_existing_pod_is_not_reported_by_its_events_as_well() -> None:
    failed_job = job(CREATED, FAILED)
    events = [exited(failed_job, "j-worker-0", 3)]

    assert len(causes_of(failed_job, pods=[failed("j-worker-0", 3, ago=20)], events=events)) == 2


def test_a_pod_that_fails_in_the_second_of_its_creation_is_not_reported_as_deleted() -> None:
    failed_job = job(CREATED, FAILED)
    existing = failed("j-worker-0", 3, ago=15)
    existing["metadata"]["creationTimestamp"] = at(15)

    assert len(causes_of(failed_job, pods=[existing], events=[exited(failed_job, "j-worker-0", 3)])) == 2


def test_a_pod_that_was_replaced_in_the_second_of_its_failure_is_reported() -> None:
    restarting = job(CREATED, true("Restarting", since=3, reason="R", message="is restarting"))
    running = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(15)})])
    running["metadata"]["creationTimestamp"] = at(15)
    found = causes_of(restarting, pods=[running, master()], events=[exited(restarting, "j-worker-0", 3)])

    assert (WORKER, "ended with exit code 3, reported once; that pod no longer exists") in found


def test_restarts_by_the_operator_are_reported() -> None:
    """The replacement pods show nothing of it."""
    restarting = job(CREATED, true("Restarting", since=3, reason="R", message="is restarting"))
    events = [exited(restarting, "j-worker-0", 137, count=2), exited(restarting, "j-worker-0", 137, ago=4)]
    running = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(1)})])

    running["metadata"]["creationTimestamp"] = at(2)
    found = diagnose(JobSnapshot(restarting, NOW, pods=[running, master()], events=events))

    assert [(cause.about, cause.text, cause.blocks) for cause in found.causes] == [
        ((), "R: is restarting", True),
        (
            WORKER,
            "ended with exit code 137, killed by SIGKILL, reported 3 times; that pod no longer exists",
            False,
        ),
    ]
    assert found.causes[1].since == NOW - timedelta(seconds=4)


def test_a_restart_comes_after_its_cause() -> None:
    restarting = job(CREATED, true("Restarting", since=3, reason="R", message="is restarting"))
    going = pod("j-worker-0", "Running", "b")
    going["metadata"]["deletionTimestamp"] = at(5)
    lost = node("b", false("Ready", reason="NodeStatusUnknown"))

    found = causes_of(restarting, pods=[going, master()], nodes=lost)

    assert found == [
        (WORKER, "still exists after its grace period: node b is not Ready: NodeStatusUnknown"),
        ((), "R: is restarting"),
    ]


def test_pods_that_fail_in_the_same_second() -> None:
    pods = [failed("j-worker-0", 1, ago=20), failed("j-worker-1", 2, ago=20), failed("j-worker-2", 1, ago=19)]

    causes = causes_of(job(CREATED, FAILED), pods=pods)[1:]

    assert [(about[0], text.partition(":")[0]) for about, text in causes] == [
        ("j-worker-0", "failed first, in the same second, on a"),
        ("j-worker-1", "failed first, in the same second, on a"),
        ("j-worker-2", "failed after that"),
    ]


def test_a_failure_at_an_unknown_time_is_not_reported_as_later() -> None:
    evicted = pod("j-worker-0", "Failed", reason="Evicted", conditions=[])

    assert causes_of(job(CREATED, FAILED), pods=[evicted, failed("j-worker-1", 1, ago=20)])[2] == (
        WORKER,
        "failed at an unknown time: Evicted",
    )


def test_a_terminated_sidecar_is_not_the_failure() -> None:
    """It gets its signal when the others have ended, which may be in the same second."""
    side = {"name": "side", "state": {"terminated": ended(143)}}
    with_side = [
        pod(
            "j-worker-0",
            phase,
            initContainerStatuses=[side],
            containerStatuses=[container(terminated=ended(code))],
        )
        for phase, code in (("Failed", 1), ("Succeeded", 0))
    ]
    for side_pod in with_side:
        side_pod["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]

    assert causes_of(job(CREATED, FAILED), pods=with_side[:1])[1] == (
        WORKER,
        "was the first to fail, on a: container pytorch ended with exit code 1",
    )
    assert causes_of(job(CREATED, FAILED), pods=with_side[1:]) == [SAID]


def launcher(name: str, phase: str, code: int = 0) -> Object:
    state: dict[str, Any] = {"terminated": ended(code)} if code else {"running": {"startedAt": at(5)}}
    found = pod(name, phase, containerStatuses=[container(**state)])
    found["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "batch"}]
    return found


def test_a_retried_launcher() -> None:
    """The batch Job gives each launcher pod another name."""
    pods = [launcher("j-master-aaaaa", "Failed", 1), launcher("j-master-bbbbb", "Running")]

    found = diagnose(JobSnapshot(job(CREATED), NOW, pods=pods))

    assert [(cause.about, cause.blocks) for cause in found.causes] == [
        (("j-master-aaaaa",), False),
        ((), True),
    ]
    assert found.causes[1].text == "1 of 2 pods do not exist, and no condition or event says why"
    assert {phase.name: (phase.done, phase.total) for phase in found.phases}["created"] == (1, 2)


def test_a_failed_launcher_without_a_replacement() -> None:
    assert blocking_causes(launcher("j-worker-0", "Failed", 1)) == [
        (WORKER, "failed: container pytorch ended with exit code 1")
    ]


def test_outdated_warnings_are_ignored() -> None:
    """After it is scheduled, the pod pulls its image."""
    starting = pod(containerStatuses=[container(waiting={"reason": "ContainerCreating"})])
    early = event(starting, "FailedScheduling", "no room", ago=60)
    before = event(starting, "FailedMount", "no volume", ago=30)

    assert blocking_causes(starting, events=[early]) == [(WORKER, "creating its containers")]
    assert blocking_causes(starting, events=[early, before, event(starting, "Pulling", "x", "Normal")]) == [
        (WORKER, "pulling its image")
    ]


def test_a_missing_volume_comes_before_a_crashing_pod() -> None:
    creating = pod("j-master-0", containerStatuses=[container(waiting={"reason": "ContainerCreating"})])
    crashes = pod(
        "j-worker-0",
        "Running",
        containerStatuses=[container(waiting={"reason": "CrashLoopBackOff"}, last=ended(1), restarts=1)],
    )

    found = causes_of(
        job(CREATED), pods=[crashes, creating], events=[event(creating, "FailedMount", "no volume")]
    )

    assert [about for about, _ in found] == [("j-master-0",), WORKER]


def test_a_failed_liveness_probe_is_named() -> None:
    found = pod(
        "j-worker-0",
        "Running",
        containerStatuses=[container(waiting={"reason": "CrashLoopBackOff"}, last=ended(143), restarts=2)],
    )
    why = "Container pytorch failed liveness probe, will be restarted"

    ((_, text),) = blocking_causes(found, events=[event(found, "Killing", why, "Normal", ago=25)])

    assert text.endswith(f"exit code 143, killed by SIGTERM ({why})")


def crashing(number: int, **end: Any) -> Object:
    loop = container(waiting={"reason": "CrashLoopBackOff"}, last=ended(1, **end), restarts=1)
    return pod(f"j-worker-{number}", "Running", containerStatuses=[loop])


def test_equal_failures_are_combined_despite_different_last_lines() -> None:
    last_lines = {
        (f"j-worker-{number}", "pytorch"): LastLines(NOW, (f"I am {number}",)) for number in range(2)
    }

    (cause,) = diagnose(
        JobSnapshot(
            job(CREATED, workers=2), NOW, pods=[crashing(0), crashing(1), master()], last_lines=last_lines
        )
    ).causes

    assert (cause.about, cause.quote) == (("j-worker-0", "j-worker-1"), "")


def test_a_log_line_equal_to_the_termination_message_is_not_quoted() -> None:
    last_lines = {("j-worker-0", "pytorch"): LastLines(NOW, ("out of luck",))}

    (cause,) = diagnose(
        JobSnapshot(
            job(CREATED), NOW, pods=[crashing(0, message="out of luck"), master()], last_lines=last_lines
        )
    ).causes

    assert cause.text.endswith("exit code 1: out of luck")
    assert cause.quote == ""


def test_a_job_of_another_manager_is_not_reported_as_unreconciled() -> None:
    assert [text for _, text in causes_of(job(managedBy="kueue.x-k8s.io/multikueue"), pods_known=False)] == [
        "left to kueue.x-k8s.io/multikueue by its run policy (managedBy); operators here ignore it"
    ]


def test_objects_without_optional_fields() -> None:
    bare = {"metadata": {"name": "j-worker-0", "uid": "u", "creationTimestamp": at(50)}}
    odd = {"metadata": {}, "involvedObject": {"kind": "Pod", "name": "j-worker-9"}, "type": "Warning"}
    of_job = {
        "metadata": {},
        "involvedObject": {"uid": "job"},
        "type": "Warning",
        "reason": "FailedCreatePod",
    }
    strange = job({"type": "Running", "status": "False", "reason": "Blocked"}, {"status": "True"})
    strange["spec"]["pytorchReplicaSpecs"]["Worker"] = None

    assert causes_of(strange, pods=[bare], events=[odd, of_job])[0] == (
        (),
        "1 of 2 pods do not exist: Blocked",
    )
    assert causes_of(job(CREATED, true("Failed")), pods=[bare], events=[odd, of_job])[0] == ((), "")


def looping(
    name: str = "j-worker-0", *, restarts: int = 1, code: int = 1, ago: float = 20, phase: str = "Running"
) -> Object:
    loop = container(waiting={"reason": "CrashLoopBackOff"}, last=ended(code, ago=ago), restarts=restarts)
    return pod(name, phase, containerStatuses=[loop])


def test_events_of_the_operator_for_an_existing_pod_are_ignored() -> None:
    """The operator records each restart of a container by the kubelet; the Go operators record it in each reconcile, even with exit code 0."""
    of = job(CREATED)
    events = [exited(of, "j-worker-0", 1, ago=number) for number in (30, 20, 10)]
    events.append(exited(of, "j-master-0", 0, count=7))

    assert [
        cause.blocks
        for cause in diagnose(JobSnapshot(of, NOW, pods=[looping(), master()], events=events)).causes
    ] == [True]


def test_forbidden_pods_are_not_reported_as_missing() -> None:
    of = job(CREATED, FAILED)
    events = [exited(of, "j-worker-0", 1), event(pod("j-worker-1"), "BackOff", "x", ago=20)]

    assert causes_of(of, events=events, pods_known=False)[1:] == [
        (WORKER, "ended with exit code 1, reported once")
    ]


def test_forbidden_workloads_are_not_reported_as_missing() -> None:
    held = job(CREATED, SUSPENDED, suspend=True)
    held["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}

    assert causes_of(held, workloads_known=False) == [((), "suspended by its run policy (suspend: true)")]


def test_a_rejection_before_the_last_created_pod_is_outdated() -> None:
    of = job(CREATED, workers=2)
    refused = event(of, "FailedCreatePod", "exceeded quota", kind="PyTorchJob", ago=56)
    unschedulable = pod(
        node="", conditions=[false("PodScheduled", reason="Unschedulable", message="no room")]
    )

    assert causes_of(of, pods=[unschedulable], events=[refused]) == [(WORKER, "Unschedulable: no room")]


@pytest.mark.parametrize(
    "ago", [pytest.param(2, id="the current run"), pytest.param(90, id="an earlier run")]
)
def test_a_probe_failure_of_another_run_is_not_named(ago: float) -> None:
    found = pod(
        "j-worker-0",
        "Running",
        containerStatuses=[container(running={"startedAt": at(19)}, last=ended(1), restarts=1)],
    )
    killing_event = event(
        found, "Killing", "Container pytorch failed liveness probe, will be restarted", "Normal", ago=ago
    )

    (cause,) = diagnose(JobSnapshot(job(CREATED), NOW, pods=[found, master()], events=[killing_event])).causes

    assert cause.text == "container pytorch ended once with exit code 1; the kubelet restarted it"


def test_a_container_with_unknown_status_was_not_killed_by_a_signal() -> None:
    pods = [failed("j-worker-0", 137, ago=20, reason="ContainerStatusUnknown")]

    assert causes_of(job(CREATED, FAILED), pods=pods)[1][1].endswith("exit code 137 (ContainerStatusUnknown)")


def test_a_container_that_could_not_be_started_has_not_started() -> None:
    never = pod(containerStatuses=[container(terminated={**ended(128), "startedAt": "1970-01-01T00:00:00Z"})])

    assert diagnose(JobSnapshot(job(CREATED), NOW, pods=[never])).phases[-1] == Phase("started", None, 0, 2)


def test_failures_of_restartable_containers_are_named() -> None:
    """The job has reached its limit of restarts, and its pods are kept."""
    assert causes_of(job(CREATED, FAILED), pods=[looping(), master()]) == [
        SAID,
        (WORKER, "was the first to fail, on a: container pytorch ended with exit code 1"),
    ]


def test_the_time_of_an_eviction() -> None:
    """Its containers have no time, and it has had no part in being Ready since."""
    pods = [
        pod(
            "j-worker-0",
            "Failed",
            reason="Evicted",
            conditions=[false("Ready", since=50), true("DisruptionTarget", since=20)],
        ),
        failed("j-master-0", 1, ago=30),
        failed("j-worker-1", 1, ago=10),
    ]

    assert [about for about, _ in causes_of(job(CREATED, FAILED), pods=pods)[1:]] == [
        ("j-master-0",),
        WORKER,
        ("j-worker-1",),
    ]


def test_a_pod_that_was_deleted_before_others_failed() -> None:
    events = [
        event(
            {"metadata": {"name": "j-worker-0", "uid": "earlier"}},
            "Preempted",
            "by another",
            "Normal",
            ago=30,
        ),
        event(pod("j-worker-1"), "Killing", "Stopping", "Normal", ago=30),
    ]
    again = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(15)})])

    assert causes_of(job(CREATED, FAILED), pods=[failed("j-master-0", 1, ago=20), again], events=events)[
        1:
    ] == [
        (WORKER, "no longer exists: Preempted: by another"),
        (("j-master-0",), "was the first to fail, on a: container pytorch ended with exit code 1"),
    ]


def test_pods_from_events_of_the_operator_are_in_order_of_failure() -> None:
    of = job(CREATED, FAILED)
    events = [exited(of, "j-worker-1", 1, ago=17), exited(of, "j-worker-2", 137, ago=30)]

    found = causes_of(of, pods=[failed("j-master-0", 1, ago=20)], events=events)

    assert [(about[0], text.partition(",")[0]) for about, text in found[1:]] == [
        ("j-worker-2", "ended with exit code 137"),
        ("j-master-0", "was the first known to fail"),
        ("j-worker-1", "ended with exit code 1"),
    ]


def test_a_failure_before_the_deletion_counts() -> None:
    early, late = failed("j-worker-0", 1, ago=20), failed("j-worker-1", 143, ago=15)
    for evicted in (early, late):
        evicted["metadata"] |= {"deletionTimestamp": at(-12), "deletionGracePeriodSeconds": 30}

    assert causes_of(job(CREATED, FAILED), pods=[early, late])[1:] == [
        (WORKER, "was the first to fail, on a: container pytorch ended with exit code 1"),
        (
            ("j-worker-1",),
            "ended after its deletion was requested: container pytorch ended with exit code 143, killed by SIGTERM",
        ),
    ]


def test_the_reason_of_a_deletion_is_named() -> None:
    going = pod(
        conditions=[true("Ready"), true("DisruptionTarget", message="preempted by a pod of high priority")]
    )
    going["metadata"] |= {"deletionTimestamp": at(-10), "deletionGracePeriodSeconds": 30}

    (cause,) = diagnose(JobSnapshot(job(CREATED), NOW, pods=[going, master()])).causes

    assert cause.text == "being deleted, within its grace period: preempted by a pod of high priority"
    assert cause.since == NOW - timedelta(seconds=20)


def unplaced(name: str, message: str) -> Object:
    return pod(name, node="", conditions=[false("PodScheduled", reason="Unschedulable", message=message)])


@pytest.mark.parametrize(
    "waits", ["rejected by an optimistic rejection in PostFilter", "pod group is not ready, 3 minAvailable"]
)
def test_a_pod_that_waits_for_its_gang_comes_after_an_unschedulable_pod(waits: str) -> None:
    gang = {"metadata": {"name": "j"}, "status": {"phase": "Scheduling"}}
    pods = [unplaced("j-master-0", waits), unplaced("j-worker-0", "Insufficient nvidia.com/gpu")]

    whole = [about[0] for about, _ in causes_of(job(CREATED), pods=pods, gangs=[gang])]
    waiting = [about[0] for about, _ in causes_of(job(CREATED), pods=pods[:1], gangs=[gang])]

    assert whole == ["j-worker-0", "j-master-0", "j"]
    assert waiting == ["j", "j-master-0"]


@pytest.mark.parametrize(
    ("since", "text"), [(20, "PodGroup Inqueue: 3/4 tasks"), (55, "PodGroup Inqueue")], ids=["newer", "older"]
)
def test_the_last_message_of_the_scheduler_about_a_gang(since: float, text: str) -> None:
    """Volcano keeps the condition Unschedulable of a group that it has scheduled since."""
    found = [
        true("Unschedulable", since=since, message="3/4 tasks"),
        true("Scheduled", since=50, message="ready to be scheduled"),
    ]
    gang = {"metadata": {"name": "j", "uid": "g"}, "status": {"phase": "Inqueue", "conditions": found}}

    assert causes_of(job(CREATED), gangs=[gang])[0] == (("j",), text)


def test_an_event_explains_a_back_off_of_an_image_pull() -> None:
    backs_off = pod(
        containerStatuses=[
            container(waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'})
        ]
    )
    events = [
        event(backs_off, "Failed", 'Failed to pull image "x": not found', ago=20),
        event(backs_off, "BackOff", 'Back-off pulling image "x"', "Normal", ago=2),
    ]

    assert blocking_causes(backs_off, events=events) == [
        (WORKER, 'ImagePullBackOff: Back-off pulling image "x": Failed to pull image "x": not found')
    ]


def test_a_running_container_of_a_completed_pod() -> None:
    mesh = {"name": "istio-proxy", "state": {"running": {"startedAt": at(40)}}}
    found = pod(
        "j-worker-0",
        "Running",
        conditions=[false("Ready")],
        containerStatuses=[container(terminated=ended(0)), mesh],
    )

    assert blocking_causes(found) == [
        (WORKER, "container pytorch has completed, istio-proxy still runs and keeps the pod running")
    ]


def test_a_sidecar_that_does_not_start() -> None:
    side = {"name": "side", "started": False, "state": {"running": {"startedAt": at(40)}}}
    found = pod(
        initContainerStatuses=[side], containerStatuses=[container(waiting={"reason": "PodInitializing"})]
    )
    found["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]

    assert blocking_causes(found) == [(WORKER, "running init container side")]
    assert log_requests(job(CREATED), [found]) == [LogRequest("j-worker-0", "side")]


def test_a_succeeded_job() -> None:
    done = job(CREATED, true("Succeeded", since=5))
    done["status"]["completionTime"] = at(5)

    diagnosis = diagnose(JobSnapshot(done, NOW, pods=[failed("j-worker-0", 1, ago=9)]))

    assert (diagnosis.state, list(diagnosis.causes)) == ("Succeeded", [])


def test_phases() -> None:
    done = master(conditions=[true("PodScheduled", since=54), true("Ready")])
    unscheduled = pod("j-worker-0", node="", conditions=[false("PodScheduled")])
    unscheduled["spec"]["initContainers"] = [{"name": "init-pytorch"}]
    begun = job(CREATED, RUNNING)
    begun["status"]["startTime"] = at(58)

    found = diagnose(JobSnapshot(begun, NOW, pods=[done, unscheduled])).phases

    assert list(found) == [
        Phase("created", NOW - timedelta(seconds=60)),
        Phase("started", NOW - timedelta(seconds=58)),
        Phase("created", NOW - timedelta(seconds=55), 2, 2),
        Phase("scheduled", NOW - timedelta(seconds=54), 1, 2),
        Phase("initialized", None, 0, 2),
        Phase("started", NOW - timedelta(seconds=50), 1, 2),
        Phase("Running", NOW - timedelta(seconds=50)),
    ]


def test_phases_of_a_job_whose_pods_have_been_cleaned_up() -> None:
    done = diagnose(
        JobSnapshot(job(CREATED, true("Succeeded", since=5), workers=7), NOW, pods=[master()])
    ).phases

    assert {(phase.done, phase.total) for phase in done} == {(0, 0), (1, 1)}
    assert done[-1] == Phase("Succeeded", NOW - timedelta(seconds=5))


def test_logs_are_requested_of_failed_and_blocked_containers() -> None:
    pods = [
        failed("j-worker-0", 1, ago=20),
        pod(
            "j-worker-9",
            containerStatuses=[container(waiting={"reason": "CrashLoopBackOff"}, last=ended(1), restarts=1)],
        ),
        pod(
            "j-worker-2",
            initContainerStatuses=[{"name": "init", "state": {"running": {"startedAt": at(40)}}}],
        ),
        pod("j-worker-3", node="", conditions=[false("PodScheduled")]),
        master(),
    ]

    assert log_requests(job(CREATED), pods) == [
        LogRequest("j-worker-0", "pytorch", 10),
        LogRequest("j-worker-9", "pytorch", 10, previous=True),
        LogRequest("j-worker-2", "init"),
        LogRequest("j-master-0", "pytorch"),
    ]
    assert log_requests(job(true("Succeeded")), pods) == []


def test_nodes_of_unhealthy_pods_are_read() -> None:
    unready: Mapping[str, Any] = {"conditions": [false("Ready")]}
    going = pod("j-worker-2", "Running", "c")
    going["metadata"]["deletionTimestamp"] = at(5)
    pods = [pod("j-worker-0", "Running", "a", **unready), pod("j-worker-1", "Running", "b"), going]

    assert nodes_to_read(pods) == ["a", "c"]


def test_what_blocked_the_pods_of_a_deleted_job_stays_known() -> None:
    """They are being deleted, or gone: only how they were before counts."""
    looping = pod(
        "j-worker-0",
        "Failed",
        containerStatuses=[container(waiting={"reason": "CrashLoopBackOff"}, last=ended(3), restarts=1)],
    )
    stopped = pod("j-worker-1", "Running", containerStatuses=[container(terminated=ended(143, ago=3))])
    for found in (looping, stopped):
        found["metadata"] |= {"deletionTimestamp": at(-25), "deletionGracePeriodSeconds": 30}
    waits = pod(
        "j-worker-2", node="", conditions=[false("PodScheduled", reason="Unschedulable", message="no room")]
    )
    archived = [
        ArchivedPod(
            found["metadata"]["name"],
            found["metadata"]["uid"],
            NOW - timedelta(seconds=ago + 10),
            last_state=found,
            deleted=NOW - timedelta(seconds=ago),
        )
        for found, ago in (
            (waits, 4),
            (pod("j-master-0", node="", conditions=waits["status"]["conditions"]), 100),
        )
    ]

    def texts(**known: Any) -> list[tuple[tuple[str, ...], str]]:
        snapshot = JobSnapshot(
            job(RUNNING), NOW, pods=[looping, stopped], archived_pods=archived, pods_known=False, **known
        )
        return [(cause.about, cause.text) for cause in diagnose(snapshot).causes if cause.blocks]

    assert texts(is_deleted=True) == [
        (("j-worker-2",), "Unschedulable: no room"),
        (("j-worker-0",), "CrashLoopBackOff: container pytorch ended 2 times, last with exit code 3"),
    ]
    assert texts() == [(("j-worker-0", "j-worker-1"), "being deleted, within its grace period")]
    said = {("j-worker-0", "pytorch"): LastLines(NOW, ("KeyError: 'loss'",))}
    snapshot = JobSnapshot(job(RUNNING), NOW, pods=[looping], is_deleted=True, lines_of_deleted_pods=said)
    assert diagnose(snapshot).causes[0].quote == "KeyError: 'loss'"


def test_a_deleted_pod_says_by_its_last_state_how_it_failed() -> None:
    """Its events only say that the kubelet waited."""
    failed = job(
        true("Failed", since=5, message="Job j has failed because it has reached the specified backoff limit")
    )
    looping = pod(
        "j-worker-0",
        "Failed",
        containerStatuses=[container(waiting={"reason": "CrashLoopBackOff"}, last=ended(3))],
    )
    refused = event(
        looping, "BackOff", "Back-off restarting failed container in pod j-worker-0_n(uid)", ago=8
    )
    archived = ArchivedPod(
        "j-worker-0", "j-worker-0", NOW - timedelta(seconds=50), last_state=looping, deleted=NOW
    )

    def text(**known: Any) -> str:
        return diagnose(JobSnapshot(failed, NOW, events=[refused], **known)).causes[1].text

    restarted = container(terminated=ended(143, ago=2), last=ended(3), restarts=1)
    stopped = pod("j-worker-0", "Failed", containerStatuses=[restarted])
    stopped["metadata"] |= {"deletionTimestamp": at(-25), "deletionGracePeriodSeconds": 30}
    for last_state in (looping, stopped):
        known = replace(archived, last_state=last_state)
        assert text(archived_pods=[known]) == "no longer exists: container pytorch ended with exit code 3"
    assert text(archived_pods=[archived]) == "no longer exists: container pytorch ended with exit code 3"
    assert (
        text() == "no longer exists: BackOff: Back-off restarting failed container in pod j-worker-0_n(uid)"
    )
