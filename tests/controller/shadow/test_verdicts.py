"""Decisions about moments: what becomes of a failed pod and of the children of a finished job, with and without defects in planning."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api.meta import PODS
from controller.domain import Deletion, Snapshot
from controller.kinds.pytorch import PYTORCH
from controller.shadow.declared import Difference, Rule, settle
from controller.shadow.verdicts import (
    JOB_FAILED,
    JOB_SUCCEEDED,
    KEPT,
    REPLACED,
    Verdict,
    cleanup_differences,
    judge,
    kept_children,
    outcome_differences,
)
from tests.support.in_memory_cluster import InMemoryCluster, run_policy, running_cluster
from tests.support.shadow import Defective, Mutation, condition, status

WORKER = "train-worker-0"


def failed(policy: str = "OnFailure", code: int = 137, **fields: Any) -> InMemoryCluster:
    """Return a job at the moment at which one of its workers has failed."""
    cluster = running_cluster(policy, **fields)
    cluster.set_phase("Failed", "worker-0", code=code)
    return cluster


def verdict(cluster: InMemoryCluster, kind: Any = None) -> Verdict:
    return judge(
        kind or cluster.kind,
        cluster.job,
        cluster.observe(),
        cluster.pods[WORKER],
        cluster.now,
        cluster.options,
    )


@pytest.mark.parametrize(
    ("policy", "code", "outcome"),
    [
        ("OnFailure", 1, REPLACED),
        ("Always", 1, REPLACED),
        ("ExitCode", 137, REPLACED),
        ("ExitCode", 1, JOB_FAILED),
        ("Never", 137, JOB_FAILED),
    ],
)
def test_a_verdict_follows_the_restart_policy(policy: str, code: int, outcome: str) -> None:
    assert verdict(failed(policy, code)).outcome == outcome


def test_a_pause_before_the_replacement_does_not_change_the_verdict() -> None:
    cluster = failed()
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=137)

    assert verdict(cluster).outcome == REPLACED


def test_a_pod_that_fails_when_the_job_has_succeeded_is_no_decision() -> None:
    cluster = failed()
    cluster.set_phase("Succeeded", "master-0", code=0)

    assert verdict(cluster).outcome == JOB_SUCCEEDED


def after_the_replacement() -> tuple[InMemoryCluster, InMemoryCluster]:
    """Return the job at the failure, and after an operator without defects has acted."""
    before, after = failed(), failed()
    after.settle()
    after.set_phase("Running")
    after.settle()
    return before, after


def after_the_failure() -> tuple[InMemoryCluster, InMemoryCluster]:
    before, after = failed("Never"), failed("Never")
    after.settle()
    return before, after


def keeps_failed_pods(plan: Any, job: Any, snapshot: Any) -> Any:
    return replace(plan, delete=())


def deletes_failed_pods(plan: Any, job: Any, snapshot: Snapshot) -> Any:
    failed_pods = [pod for pod in snapshot.pods if pod.phase == "Failed"]
    ends = status(
        lambda wire: wire.update(conditions=[own for own in wire["conditions"] if own["type"] != "Failed"])
    )
    changed = ends(plan, job, snapshot)
    return replace(changed, delete=tuple(Deletion(PODS, pod.name, pod.uid) for pod in failed_pods))


@pytest.mark.parametrize(
    ("state", "mutate", "ours", "theirs"),
    [
        pytest.param(after_the_replacement, keeps_failed_pods, KEPT, REPLACED, id="never replaces"),
        pytest.param(
            after_the_replacement,
            status(lambda wire: condition(wire, "Failed")),
            JOB_FAILED,
            REPLACED,
            id="fails the job",
        ),
        pytest.param(
            after_the_failure, deletes_failed_pods, REPLACED, JOB_FAILED, id="replaces where the job fails"
        ),
    ],
)
def test_a_defect_in_a_restart_decision_is_reported(
    state: Callable[[], tuple[InMemoryCluster, InMemoryCluster]], mutate: Mutation, ours: str, theirs: str
) -> None:
    before, after = state()
    found = verdict(before, Defective(before.kind, mutate))
    (difference,) = outcome_differences([found], after.job, without(after, before.pods[WORKER].uid))

    assert (difference.rule, difference.ours, difference.theirs) == (Rule.RESTART, ours, theirs)
    assert not settle("PyTorchJob", difference).is_declared


def without(cluster: InMemoryCluster, uid: str) -> Snapshot:
    """Return the children; a replacement has another UID, which this cluster counts up in its own way."""
    snapshot = cluster.observe()
    pods = [
        msgspec.structs.replace(pod, uid="another") if pod.uid == uid and pod.phase != "Failed" else pod
        for pod in snapshot.pods
    ]
    return replace(snapshot, pods=tuple(pods))


@pytest.mark.parametrize("state", [after_the_replacement, after_the_failure])
def test_a_decision_without_a_defect_does_not_differ(
    state: Callable[[], tuple[InMemoryCluster, InMemoryCluster]],
) -> None:
    before, after = state()
    snapshot = without(after, before.pods[WORKER].uid)

    assert list(outcome_differences([verdict(before)], after.job, snapshot)) == []


def test_two_pods_that_fail_together_are_judged_together() -> None:
    """The first is to be replaced, the second ends the job."""
    _, after = after_the_failure()
    verdicts = [Verdict("train-worker-0", "a", REPLACED), Verdict("train-worker-1", "b", JOB_FAILED)]

    assert list(outcome_differences(verdicts, after.job, after.observe())) == []


def test_a_backoff_limit_that_only_this_operator_reaches_is_declared() -> None:
    _, after = after_the_replacement()
    run_policy(backoffLimit=1)(after)
    (difference,) = outcome_differences([Verdict(WORKER, "gone", JOB_FAILED)], after.job, after.observe())

    assert settle("PyTorchJob", difference).rule == "backoff-limit"


def finished(policy: str) -> InMemoryCluster:
    """Return a job that has just succeeded, before its pods are cleaned up."""
    cluster = running_cluster(run_policy={"cleanPodPolicy": policy})
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.step()
    return cluster


@pytest.mark.parametrize(
    ("policy", "mutate", "reported"),
    [
        pytest.param("All", keeps_failed_pods, 6, id="keeps what All deletes"),
        pytest.param("Running", keeps_failed_pods, 4, id="keeps what Running deletes"),
        pytest.param("All", lambda plan, job, snapshot: plan, 0, id="no defect, All"),
        pytest.param("None", lambda plan, job, snapshot: plan, 0, id="no defect, None"),
    ],
)
def test_a_defect_in_the_cleanup_is_reported(policy: str, mutate: Mutation, reported: int) -> None:
    cluster = finished(policy)
    kept = kept_children(
        Defective(PYTORCH, mutate), cluster.job, cluster.observe(), cluster.now, cluster.options
    )
    cluster.settle()
    found: list[Difference] = list(cleanup_differences(kept, cluster.observe()))

    assert len(found) == reported
    assert {difference.rule for difference in found} <= {Rule.CLEANUP}
