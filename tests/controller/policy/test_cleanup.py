"""Which children of a finished or suspended job are deleted, and when the job expires."""

from datetime import timedelta

import pytest

from api.job import JobCondition, JobStatus, RunPolicy
from controller.policy.cleanup import after_finish, clean_pod_policy, everything, expires_in
from tests.support.builders import NOON, pod, service, snapshot

SNAPSHOT = snapshot(
    pod("master", phase="Succeeded"),
    service("master"),
    pod(index=0, phase="Running"),
    service(index=0),
    pod(index=1, phase="Pending"),
    service(index=1),
    pod(index=2, phase="Failed"),
    service(index=2),
    service(index=3),
)
BOTH_OF_WORKERS_0_AND_1 = [
    "Pod train-worker-0",
    "Pod train-worker-1",
    "Service train-worker-0",
    "Service train-worker-1",
]


def cleaned(policy: str | None) -> list[str]:
    deletions = after_finish(policy, SNAPSHOT)
    return [f"{deletion.resource.kind} {deletion.name}" for deletion in deletions]


@pytest.mark.parametrize(
    ("policy", "ended", "cleans_failed", "effective"),
    [
        pytest.param(None, "Failed", True, "Running", id="a failed job"),
        pytest.param(None, "Failed", False, None, id="as training-operator"),
        pytest.param(None, "Succeeded", True, None, id="a job that succeeded"),
        pytest.param("None", "Failed", True, "None", id="the job's own policy"),
        pytest.param("All", "Failed", True, "All", id="all"),
    ],
)
def test_a_setting_cleans_up_after_failed_jobs(
    policy: str | None, ended: str, cleans_failed: bool, effective: str | None
) -> None:
    status = JobStatus(conditions=[JobCondition(type=ended, status="True")])

    found = clean_pod_policy(RunPolicy(clean_pod_policy=policy), status, cleans_failed=cleans_failed)

    assert found == effective


@pytest.mark.parametrize("policy", [None, "None"], ids=["unset", "by name"])
def test_the_default_policy_none_deletes_nothing(policy: str | None) -> None:
    assert cleaned(policy) == []


def test_running_deletes_running_and_pending_pods_with_their_services() -> None:
    assert cleaned("Running") == BOTH_OF_WORKERS_0_AND_1


@pytest.mark.parametrize("policy", ["All", "", "running", "Sometimes"])
def test_all_and_unknown_policies_delete_everything(policy: str) -> None:
    assert len(cleaned(policy)) == len(SNAPSHOT.pods) + len(SNAPSHOT.services)


def test_deletions_carry_the_uid() -> None:
    assert [(deletion.name, deletion.uid) for deletion in everything(snapshot(pod(), service()))] == [
        ("train-worker-0", "train-worker-0-uid"),
        ("train-worker-0", "train-worker-0-service-uid"),
    ]


def test_children_that_are_being_deleted_are_not_deleted_again() -> None:
    assert everything(snapshot(pod(deleting=True), service(deleting=True))) == ()


@pytest.mark.parametrize(
    ("ttl", "after", "left"),
    [
        pytest.param(60, 20, 40, id="before its TTL"),
        pytest.param(60, 60, 0, id="at its TTL"),
        pytest.param(60, 90, -30, id="after its TTL"),
        pytest.param(0, 0, 0, id="a TTL of zero"),
        pytest.param(None, 10**6, None, id="no TTL"),
        pytest.param(60, -10, 70, id="a completion in the future waits longer"),
    ],
)
def test_a_finished_job_expires_after_its_ttl(ttl: int | None, after: float, left: float | None) -> None:
    policy, status = RunPolicy(ttl_seconds_after_finished=ttl), JobStatus(completion_time=NOON)

    assert expires_in(policy, status, NOON + timedelta(seconds=after)) == left


def test_a_suspended_job_does_not_expire() -> None:
    policy = RunPolicy(ttl_seconds_after_finished=1, suspend=True)

    assert expires_in(policy, JobStatus(completion_time=NOON), NOON + timedelta(days=1)) is None


def test_a_job_without_completion_time_does_not_expire() -> None:
    assert expires_in(RunPolicy(ttl_seconds_after_finished=1), JobStatus(), NOON) is None
