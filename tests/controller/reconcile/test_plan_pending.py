"""Plans of jobs with ``pendingTimeoutSeconds``, and with rules about pods that have not failed."""

from typing import Any

import pytest

from api.pod_problems import Trouble
from controller.domain import FailureReason
from controller.kind import Options
from controller.policy.gang import VOLCANO
from controller.reconcile.plan import problems
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, pending_cluster, running_cluster

ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
TEXT = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
UNSCHEDULABLE = Trouble("Unschedulable", TEXT, "PodScheduled")
GANG = Trouble("Unschedulable", "rejected while waiting on permit", "PodScheduled")
PULL, BACK_OFF = (
    Trouble(reason, f"{reason} img", f"pytorch {reason}") for reason in ("ErrImagePull", "ImagePullBackOff")
)
GATED = Trouble("SchedulingGated", "Scheduling is blocked", "PodScheduled")
GPU = "nvidia.com/gpu GPU-5aa"
FAILS = {"onExitCodes": {"operator": "In", "values": [1]}}


def cluster_of(*rules: dict[str, Any], limit: int | None = 60, **fields: Any) -> InMemoryCluster:
    policy = {"failurePolicy": {"rules": rules}} if rules else {}
    given = {**policy, **({"pendingTimeoutSeconds": limit} if limit else {})}
    return pending_cluster(run_policy=given, **fields)


def last(cluster: InMemoryCluster) -> tuple[str, str]:
    found = (cluster.status.conditions or [])[-1]
    return found.type, found.reason or ""


def message(cluster: InMemoryCluster) -> str:
    return (cluster.status.conditions or [])[-1].message or ""


def attempts(cluster: InMemoryCluster) -> list[tuple[str | None, str | None, str | None]]:
    return [(found.pod, found.reason, found.action) for found in cluster.status.attempts or ()]


# pendingTimeoutSeconds


def test_a_job_that_cannot_assemble_fails_and_frees_what_it_holds() -> None:
    cluster = cluster_of()
    cluster.set_phase("Running", "master-0", "worker-0")
    cluster.set_phase("Pending", "worker-1", troubles=(UNSCHEDULABLE,))
    cluster.settle()
    waits = cluster.decide()
    assert waits.requeue_after_seconds == 60
    cluster.wait(59)
    cluster.settle()
    assert "Failed T" not in cluster.conditions
    cluster.wait(1)
    failing = cluster.step()

    assert last(cluster) == ("Failed", "PyTorchJobPendingTimeout")
    assert message(cluster) == (
        f"job train has failed because 1 of 3 pods did not run within pendingTimeoutSeconds (60 s); train-worker-1: {TEXT}"
    )
    assert failing.failure_reason is FailureReason.PENDING_TIMEOUT
    cluster.settle()
    assert not cluster.pods


def test_a_job_that_a_rule_fails_because_it_cannot_assemble_frees_what_it_holds() -> None:
    cluster = cluster_of({"action": "FailJob", "onReasons": ["PendingTimeout"]})
    cluster.set_phase("Pending", troubles=(UNSCHEDULABLE,))
    cluster.wait(60)
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobFailurePolicy")
    assert not cluster.pods


@pytest.mark.parametrize(
    ("troubles", "pod"),
    [
        pytest.param({}, "train-master-0", id="the first of all"),
        pytest.param({"worker-0": GANG, "worker-1": UNSCHEDULABLE}, "train-worker-1", id="not one that waits for its gang"),
        pytest.param({"worker-0": GANG}, "train-worker-0", id="one with a word before one without"),
    ],
)  # fmt: skip
def test_the_pod_that_says_most_is_named(troubles: dict[str, Trouble], pod: str) -> None:
    cluster = cluster_of()
    for name, trouble in troubles.items():
        cluster.set_phase("Pending", name, troubles=(trouble,))
    cluster.wait(60)
    cluster.settle()

    assert f"(60 s); {pod}: " in message(cluster)


def test_rules_decide_about_a_job_that_cannot_assemble() -> None:
    cluster = cluster_of({"action": "RestartJob", "onReasons": ["Unschedulable"]}, limit=30)
    cluster.set_phase("Pending", troubles=(UNSCHEDULABLE,))
    cluster.wait(30)
    cluster.settle()

    assert attempts(cluster) == [("train-master-0", "PendingTimeout", "RestartJob")]
    assert {pod.attempt for pod in cluster.pods.values()} == {1}
    cluster.set_phase("Pending", troubles=(UNSCHEDULABLE,))
    cluster.wait(29)
    cluster.settle()
    assert cluster.status.restarts == 1
    cluster.wait(1)
    cluster.settle()
    assert cluster.status.restarts == 2


@pytest.mark.parametrize("action", ["RestartPod", "Ignore"])
def test_only_the_end_of_an_attempt_helps(action: str) -> None:
    cluster = cluster_of({"action": action}, {"action": "FailJob", "onReasons": ["PendingTimeout"]})
    cluster.wait(60)
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobFailurePolicy")


def test_without_a_match_the_job_fails() -> None:
    cluster = cluster_of({"action": "RestartJob", "onReasons": ["Evicted"]})
    cluster.wait(60)
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobPendingTimeout")


def test_a_job_that_ran_once_waits_only_for_pods_that_exist() -> None:
    cluster = cluster_of()
    cluster.set_phase("Running")
    cluster.settle()
    assert cluster.status.assembled_time == cluster.now
    cluster.wait(1000)
    cluster.go("worker-1")
    cluster.settle()
    assert sorted(cluster.pods) == ALL_PODS
    cluster.wait(59)
    cluster.settle()
    assert "Failed T" not in cluster.conditions
    cluster.wait(1)
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobPendingTimeout")


def test_pods_that_a_quota_forbids_are_late_too() -> None:
    cluster = cluster_of()
    cluster.set_phase("Running", "master-0", "worker-0")
    cluster.go("worker-1")
    cluster.is_blocked = True
    cluster.wait(60)
    cluster.step()

    assert "1 of 3 pods did not run within pendingTimeoutSeconds (60 s); train-worker-1: it could not be" in (
        message(cluster)
    )


def test_a_job_that_may_create_no_pod_is_late_too() -> None:
    cluster = cluster_of()
    cluster.go()
    cluster.pods.clear()
    cluster.is_blocked = True
    cluster.wait(60)
    cluster.step()

    assert last(cluster) == ("Failed", "PyTorchJobPendingTimeout")


def test_the_time_in_a_queue_does_not_count() -> None:
    policy = {"pendingTimeoutSeconds": 60}
    cluster = InMemoryCluster(pytorch_job(run_policy=policy), options=Options(gang_scheduler=VOLCANO))
    cluster.settle()
    cluster.wait(1000)
    cluster.admit()
    cluster.settle()
    assert sorted(cluster.pods) == ALL_PODS
    cluster.set_phase("Pending", troubles=(GANG,))
    cluster.wait(59)
    cluster.settle()
    assert "Failed T" not in cluster.conditions
    cluster.wait(1)
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobPendingTimeout")
    assert cluster.group is None


def test_the_time_behind_a_gate_does_not_count() -> None:
    cluster = cluster_of()
    cluster.set_phase("Pending", "worker-1", troubles=(GATED,))
    cluster.wait(1000)
    cluster.settle()

    assert "Failed T" not in cluster.conditions


def test_the_time_of_a_suspension_does_not_count() -> None:
    role = {"restartPolicy": "OnFailure"}
    cluster = cluster_of()
    cluster.update_spec(
        pytorch_job(master=role, worker=role, run_policy={"pendingTimeoutSeconds": 60, "suspend": True})
    )
    cluster.settle()
    cluster.wait(1000)
    cluster.update_spec(pytorch_job(master=role, worker=role, run_policy={"pendingTimeoutSeconds": 60}))
    cluster.settle()
    cluster.wait(59)
    cluster.settle()

    assert "Failed T" not in cluster.conditions


def test_success_precedes_the_timeout() -> None:
    cluster = cluster_of()
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.wait(60)
    cluster.settle()

    assert "Succeeded T" in cluster.conditions


def test_a_time_of_zero_is_refused() -> None:
    job = pytorch_job(run_policy={"pendingTimeoutSeconds": 0})
    kind = cluster_of(limit=None).kind

    assert [problem.field for problem in problems(kind, job, Options())] == [
        "spec.runPolicy.pendingTimeoutSeconds"
    ]


# Rules about pods that have not failed


def troubled(*rules: dict[str, Any], **fields: Any) -> InMemoryCluster:
    cluster = cluster_of(*rules, limit=None, **fields)
    cluster.set_phase("Running", "master-0", "worker-0")
    cluster.settle()
    return cluster


def test_a_pod_that_cannot_pull_its_image_restarts_the_job_after_a_minute() -> None:
    cluster = troubled({"action": "RestartJob", "onReasons": ["ImagePullBackOff"]})
    cluster.set_phase("Pending", "worker-1", troubles=(PULL,))
    cluster.settle()
    assert cluster.decide().requeue_after_seconds == 60
    cluster.wait(40)
    cluster.set_phase("Pending", "worker-1", troubles=(BACK_OFF,))
    cluster.settle()
    assert cluster.status.restarts is None
    cluster.wait(20)
    cluster.set_phase("Pending", "worker-1", troubles=(PULL,))
    cluster.settle()

    assert attempts(cluster) == [("train-worker-1", "ImagePullBackOff", "RestartJob")]
    assert "train-worker-1 failed (ImagePullBackOff: ErrImagePull img), rule 1" in message(cluster)


def test_a_pod_that_failed_the_job_by_a_trouble_is_cleaned_up_as_pending() -> None:
    rule = {"action": "FailJob", "onReasons": ["ImagePullBackOff"], "forSeconds": 0}
    policy = {"cleanPodPolicy": "Running", "failurePolicy": {"rules": [rule]}}
    cluster = running_cluster(run_policy=policy)
    cluster.set_phase("Pending", "worker-1", troubles=(PULL,))
    cluster.settle()

    assert last(cluster) == ("Failed", "PyTorchJobFailurePolicy")
    assert not cluster.pods


def test_a_trouble_that_passes_begins_anew() -> None:
    cluster = troubled({"action": "RestartJob", "onReasons": ["Unschedulable"], "forSeconds": 30})
    for _ in range(3):
        cluster.set_phase("Pending", "worker-1", troubles=(UNSCHEDULABLE,))
        cluster.settle()
        cluster.wait(29)
        cluster.settle()
        cluster.set_phase("Pending", "worker-1", troubles=())
        cluster.settle()
        cluster.wait(5)

    assert cluster.status.restarts is None


def test_a_rule_without_reasons_never_matches_a_pod_that_has_not_failed() -> None:
    cluster = troubled({"action": "FailJob"}, {"action": "RestartJob", "onReasons": ["Evicted"]})
    cluster.set_phase("Pending", "worker-1", troubles=(PULL,))
    cluster.settle()
    cluster.wait(10_000)
    cluster.settle()

    assert "Failed T" not in cluster.conditions
    assert cluster.status.restarts is None


def test_an_ignored_trouble_is_no_failure() -> None:
    cluster = troubled(
        {"action": "Ignore", "roles": ["Worker"], "onReasons": ["Unschedulable"]},
        {"action": "FailJob", "onReasons": ["Unschedulable"]},
    )
    cluster.set_phase("Pending", "worker-1", troubles=(UNSCHEDULABLE,))
    cluster.settle()
    cluster.wait(1000)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert "FailureIgnored" not in cluster.reasons


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_pod_with_an_unhealthy_device_is_replaced_alone(policy: str) -> None:
    rules = [
        {"action": "RestartPod", "onReasons": ["UnhealthyDevice"], "forSeconds": 0},
        {"action": "FailJob", "onReasons": ["Deleted"]},
    ]
    cluster = running_cluster(policy, graceful=True, run_policy={"failurePolicy": {"rules": rules}})
    old = cluster.pods["train-worker-1"].uid
    cluster.set_phase("Running", "worker-1", unhealthy_devices=GPU)
    cluster.settle()
    assert cluster.pods["train-worker-1"].deleting
    cluster.go("worker-1")
    cluster.settle()

    assert cluster.pods["train-worker-1"].uid != old
    assert cluster.status.restarts is None
    assert "Failed T" not in cluster.conditions


def test_an_unhealthy_device_of_a_failed_pod_is_a_reason_at_once() -> None:
    rule = {"action": "RestartJobAndIgnoreMaxRestarts", "onReasons": ["UnhealthyDevice"]}
    cluster = troubled(rule, {"action": "FailJob"})
    cluster.set_phase("Failed", "worker-0", code=1, unhealthy_devices=GPU)
    cluster.settle()

    assert attempts(cluster) == [("train-worker-0", None, "RestartJobAndIgnoreMaxRestarts")]
    assert (cluster.status.attempts or [])[0].message == f"unhealthy: {GPU}"


def test_a_job_without_such_rules_costs_nothing() -> None:
    cluster = troubled({"action": "RestartJob"})
    cluster.set_phase("Pending", "worker-1", troubles=(PULL,))

    assert cluster.observe().troubles_since == {}


def test_the_time_of_a_gang_in_its_queue_does_not_count_for_a_pod_that_is_not_created_yet() -> None:
    policy = {"pendingTimeoutSeconds": 60, "failurePolicy": {"rules": [{"action": "RestartJob", **FAILS}]}}
    options = Options(gang_scheduler=VOLCANO)
    cluster = InMemoryCluster(pytorch_job(run_policy=policy), options=options, graceful=True)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    cluster.set_phase("Running")
    cluster.admit("Running")
    cluster.settle()
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    cluster.admit("Pending")  # all pods are being deleted, and the group goes back into its queue
    cluster.go()
    cluster.settle()
    cluster.wait(600)
    cluster.admit("Inqueue")
    cluster.step()
    cluster.go("worker-1")  # its creation was refused, or it is beyond the first 1,000 pods
    cluster.step()

    assert cluster.conditions == "Created T, Restarting T"
    assert "train-worker-1" in cluster.pods
