"""Plans reconcile by reconcile: the first one, histories of conditions, and events."""

from datetime import timedelta
from typing import Any

import pytest

from api.pod_problems import Trouble
from controller.domain import Count, Severity
from controller.kind import Options
from controller.reconcile.plan import decide
from rallypoint.diagnosis.terminations import EXITED
from tests.support.builders import NOON, pod, pytorch_job, service, snapshot, template
from tests.support.in_memory_cluster import (
    InMemoryCluster,
    Step,
    pending_cluster,
    phase,
    run_policy,
    running_cluster,
)

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]
SELECTOR = (
    "training.kubeflow.org/job-name=train,"
    "training.kubeflow.org/operator-name=pytorchjob-controller,"
    "training.kubeflow.org/replica-type="
)
RUN = phase("Running")
FAIL_A_WORKER = phase("Failed", "worker-0", code=1)


@pytest.mark.parametrize(
    ("fields", "steps", "conditions"),
    [
        pytest.param({}, [], "Created T", id="created, pods pending"),
        pytest.param({}, [RUN], "Created T, Running T", id="running"),
        pytest.param({}, [phase("Running", "worker-0")], "Created T", id="workers run before their master"),
        pytest.param(
            {}, [RUN, phase("Succeeded", "master-0")], "Created T, Running F, Succeeded T", id="success"
        ),
        pytest.param(
            {}, [phase("Succeeded", "master-0")], "Created T, Succeeded T", id="success unseen running"
        ),
        pytest.param(
            {"policy": "Never"},
            [RUN, FAIL_A_WORKER],
            "Created T, Running F, Failed T",
            id="replica failure with Never",
        ),
        pytest.param(
            {"policy": "Never"},
            [FAIL_A_WORKER],
            "Created T, Failed T",
            id="replica failure with Never before it ran",
        ),
        pytest.param(
            {"graceful": True}, [RUN, FAIL_A_WORKER], "Created T, Restarting T", id="restart in progress"
        ),
        pytest.param(
            {},
            [RUN, phase("Failed", "master-0")],
            "Created T, Restarting T",
            id="the master is created again",
        ),
        pytest.param(
            {}, [RUN, FAIL_A_WORKER, RUN], "Created T, Running T", id="the restarted pod runs again"
        ),
        pytest.param({"run_policy": {"suspend": True}}, [], "Created T, Suspended T", id="created suspended"),
        pytest.param(
            {},
            [RUN, run_policy(suspend=True)],
            "Created T, Running F, Suspended T",
            id="running then suspended",
        ),
        pytest.param(
            {},
            [RUN, phase("Failed", "master-0"), run_policy(suspend=True)],
            "Created T, Restarting T, Suspended T",
            id="restarting then suspended",
        ),
        pytest.param(
            {"run_policy": {"suspend": True}},
            [run_policy(suspend=False)],
            "Created T, Suspended F",
            id="resumed, not yet running",
        ),
        pytest.param(
            {},
            [RUN, run_policy(suspend=True), run_policy()],
            "Created T, Running F, Suspended F",
            id="resumed after it ran, not yet running",
        ),
        pytest.param(
            {"run_policy": {"suspend": True}},
            [run_policy(suspend=False), RUN],
            "Created T, Suspended F, Running T",
            id="resumed and running",
        ),
        pytest.param(
            {"run_policy": {"backoffLimit": 1}},
            [RUN, phase("Running", "worker-0", restarts=1)],
            "Created T, Running F, Failed T",
            id="backoff",
        ),
        pytest.param(
            {"run_policy": {"activeDeadlineSeconds": 9}},
            [RUN, lambda cluster: cluster.wait(9)],
            "Created T, Running F, Failed T",
            id="deadline",
        ),
        pytest.param(
            {"policy": "ExitCode"},
            [RUN, FAIL_A_WORKER],
            "Created T, Running F, Failed T",
            id="permanent exit code",
        ),
    ],
)
def test_steps_produce_a_history_of_conditions(
    fields: dict[str, Any], steps: list[Step], conditions: str
) -> None:
    cluster = pending_cluster(**fields)
    for step in steps:
        step(cluster)
        cluster.settle()

    assert cluster.conditions == conditions


@pytest.mark.parametrize(
    ("fields", "steps", "reason", "message"),
    [
        pytest.param({}, [], "Created", "PyTorchJob train is created.", id="created"),
        pytest.param({}, [RUN], "Running", "PyTorchJob train is running.", id="running"),
        pytest.param(
            {"masters": None},
            [RUN],
            "Running",
            "PyTorchJob ml/train is running.",
            id="running without a master",
        ),
        pytest.param(
            {},
            [phase("Succeeded", "master-0")],
            "Succeeded",
            "PyTorchJob train is successfully completed.",
            id="succeeded",
        ),
        pytest.param(
            {"masters": None},
            [phase("Succeeded")],
            "Succeeded",
            "PyTorchJob ml/train successfully completed.",
            id="succeeded without a master",
        ),
        pytest.param(
            {"graceful": True},
            [RUN, FAIL_A_WORKER],
            "Restarting",
            "job train is restarting because Worker replica(s) failed.",
            id="restarting",
        ),
        pytest.param(
            {"policy": "ExitCode"},
            [FAIL_A_WORKER],
            "Failed",
            'job "train" is failing because "Worker" replica(s) failed.',
            id="a permanent exit code",
        ),
        pytest.param(
            {"policy": "Never"},
            [FAIL_A_WORKER],
            "Failed",
            "PyTorchJob train is failed because 1 Worker replica(s) failed.",
            id="a failed replica",
        ),
        pytest.param(
            {"run_policy": {"backoffLimit": -1}},
            [],
            "Failed",
            "Job train has failed because it has reached the specified backoff limit",
            id="out of tries",
        ),
        pytest.param(
            {"run_policy": {"activeDeadlineSeconds": 0}},
            [],
            "Failed",
            "Job train has failed because it was active longer than specified deadline",
            id="out of time",
        ),
        pytest.param(
            {"run_policy": {"suspend": True}},
            [],
            "Suspended",
            "PyTorchJob train is suspended.",
            id="suspended",
        ),
        pytest.param(
            {"run_policy": {"suspend": True}},
            [run_policy()],
            "Resumed",
            "PyTorchJob train is resumed.",
            id="resumed",
        ),
    ],
)
def test_the_last_condition_has_its_reason_and_message(
    fields: dict[str, Any], steps: list[Step], reason: str, message: str
) -> None:
    cluster = pending_cluster(**fields)
    for step in steps:
        step(cluster)
        cluster.settle()
    last = (cluster.status.conditions or [])[-1]

    assert (last.reason, last.message) == (f"PyTorchJob{reason}", message)


def test_the_first_reconcile_creates_all_children_and_the_whole_status() -> None:
    cluster = InMemoryCluster(pytorch_job())

    plan = cluster.step()

    assert [(child.resource.kind, child.name) for child in plan.create] == [
        (kind, name) for name in ALL_CHILDREN for kind in ("Pod", "Service")
    ]
    assert plan.delete == ()
    assert cluster.status.start_time == NOON
    assert cluster.status.to_wire()["replicaStatuses"] == {
        "Master": {"selector": f"{SELECTOR}master"},
        "Worker": {"selector": f"{SELECTOR}worker"},
    }
    assert cluster.counts == [Count.CREATED]


def test_times_are_whole_seconds() -> None:
    cluster = InMemoryCluster(pytorch_job())
    cluster.now = NOON + timedelta(milliseconds=999)

    cluster.step()

    assert cluster.status.start_time == NOON


def test_a_running_job_needs_no_action() -> None:
    cluster = running_cluster()

    assert cluster.is_idle(cluster.decide())


def test_success_comes_before_failure() -> None:
    cluster = running_cluster("Never")
    cluster.set_phase("Succeeded", "master-0")
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert Count.FAILED not in cluster.counts


def test_pods_that_still_run_count_as_succeeded_after_success() -> None:
    cluster = running_cluster()
    cluster.set_phase("Succeeded", "master-0")
    cluster.settle()

    assert cluster.counters == {"Master": {"succeeded": 1}, "Worker": {"succeeded": 2}}
    assert cluster.counts == [Count.CREATED, Count.SUCCESSFUL]


@pytest.mark.parametrize(
    ("stranger", "deleted"),
    [
        pytest.param(pod("chief"), ["train-chief-0"] * 2, id="of a role that the job does not have"),
        pytest.param(pod(index=-1), ["train-chief-0"], id="without an index"),
        pytest.param(pod(index=7), ["train-worker-7", "train-chief-0"], id="beyond the replicas"),
    ],
)
def test_a_pod_without_a_slot_decides_nothing(stranger: Any, deleted: list[str]) -> None:
    cluster = running_cluster("Never")
    pods = (*cluster.pods.values(), stranger)
    observed = snapshot(*pods, *cluster.services.values(), service("chief"))

    plan = decide(cluster.kind, cluster.job, observed, cluster.now, Options())

    assert [deletion.name for deletion in plan.delete] == deleted
    assert plan.create == ()
    assert plan.status is not None
    assert plan.status.to_wire() == cluster.status.to_wire()


@pytest.mark.parametrize(
    ("code", "events"),
    [
        pytest.param(0, [], id="an exit code of zero is not reported"),
        pytest.param(3, ["Pod: ml.train-worker-0 exited with code 3"], id="any other exit code is reported"),
    ],
)
def test_an_exit_code_is_recorded_once(code: int, events: list[str]) -> None:
    cluster = running_cluster()
    cluster.set_phase("Running", "worker-0", code=code)
    cluster.settle()
    cluster.settle()

    messages = [event.message for event in cluster.events if event.reason == "ExitedWithCode"]
    assert messages == events
    assert [match.groups() for message in messages if (match := EXITED.match(message))] == [
        ("train-worker-0", "3")
    ] * len(messages)


@pytest.mark.parametrize(
    ("deleting", "messages"),
    [
        pytest.param(False, ["no image"], id="a reason that keeps a pod from running is reported"),
        pytest.param(True, [], id="nothing is reported of a pod that is being deleted"),
    ],
)
def test_a_trouble_is_recorded_once(deleting: bool, messages: list[str]) -> None:
    cluster = pending_cluster()
    trouble = Trouble("ImagePullBackOff", "no image", "pytorch")
    cluster.set_phase("Pending", "worker-0", deleting=deleting, troubles=(trouble,))
    cluster.settle()
    cluster.settle()

    assert [event.message for event in cluster.events] == messages


def test_a_restart_policy_in_the_template_is_reported_before_the_pod_is_created() -> None:
    own = template()
    own["spec"]["restartPolicy"] = "Always"
    cluster = pending_cluster(worker={"template": own})

    assert [(event.reason, event.message) for event in cluster.events] == [
        (
            "SetPodTemplateRestartPolicy",
            "Restart policy in pod template will be overwritten by restart policy in replica spec",
        )
    ]


@pytest.mark.parametrize(
    ("end", "events"),
    [
        pytest.param(
            phase("Succeeded", "master-0"), [(Severity.NORMAL, "PyTorchJobSucceeded")], id="success"
        ),
        pytest.param(
            phase("Failed", "worker-0", code=1),
            [(Severity.NORMAL, "ExitedWithCode"), (Severity.WARNING, "PyTorchJobFailed")],
            id="a permanent exit code",
        ),
        pytest.param(
            lambda cluster: cluster.wait(60),
            [(Severity.NORMAL, "PyTorchJobFailed")],
            id="a limit, as a Normal event",
        ),
    ],
)
def test_the_end_of_a_job_is_recorded_once(end: Step, events: list[tuple[Severity, str]]) -> None:
    cluster = running_cluster("ExitCode", run_policy={"activeDeadlineSeconds": 60})
    end(cluster)
    cluster.settle()

    assert [(event.severity, event.reason) for event in cluster.events] == events
