"""State of a run from its pods."""

from typing import Any

import pytest

from bench.nccl import job_state


def pod(name: str, phase: str = "Running", role: str = "worker", **status: Any) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": "0"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "node"},
        "status": {"phase": phase, **status},
    }


def container(**state_: Any) -> dict[str, Any]:
    return {"state": state_}


def test_the_first_rank_is_in_the_master() -> None:
    master = pod("m", role="master")

    assert job_state.first_rank_pod("pytorchjob", [pod("w"), master]) is master
    assert job_state.first_rank_pod("mpijob", [pod("w"), master]) is None


def test_the_younger_of_two_launchers_counts() -> None:
    launchers = [pod("old"), pod("new")]
    for launcher, when in zip(launchers, ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"), strict=True):
        launcher["metadata"] |= {
            "labels": {"training.kubeflow.org/job-role": "launcher"},
            "creationTimestamp": when,
        }

    assert job_state.first_rank_pod("mpijob", launchers) is launchers[1]


@pytest.mark.parametrize(
    ("status", "speaks"),
    [
        ({}, False),
        (container(waiting={}), False),
        (container(running={}), True),
        (container(terminated={}), True),
    ],
)
def test_pods_with_a_log(status: dict[str, Any], speaks: bool) -> None:
    assert job_state.has_log(pod("m", containerStatuses=[status] if status else [])) is speaks


def test_a_dead_worker() -> None:
    dead = pod("w", "Failed", containerStatuses=[container(terminated={"exitCode": 137})], reason="Evicted")

    assert (
        job_state.failure_reason("pytorchjob", {}, [pod("m"), dead])
        == "pod w has failed with exit code 137: Evicted"
    )
    assert (
        job_state.failure_reason("pytorchjob", {}, [pod("w", containerStatuses=[{"restartCount": 1}])])
        == "pod w has been restarted"
    )
    assert job_state.failure_reason("pytorchjob", {}, [pod("m"), pod("w", "Succeeded")]) == ""


def test_a_worker_that_is_cleaned_away_after_the_master() -> None:
    pods = [pod("m", "Succeeded", role="master"), pod("w", "Failed")]

    assert job_state.failure_reason("pytorchjob", {}, pods) == ""


def test_a_failed_job_without_pods() -> None:
    failed = {
        "status": {
            "conditions": [{"type": "Failed", "status": "True", "message": "no container named pytorch"}]
        }
    }

    assert (
        job_state.failure_reason("pytorchjob", failed, []) == "the job has failed: no container named pytorch"
    )


@pytest.mark.parametrize(
    ("job", "pods", "why"),
    [
        pytest.param({}, [], "does the operator run?", id="no controller has handled the job"),
        pytest.param(
            {"status": {"conditions": [{"type": "Suspended", "status": "True", "message": "queued"}]}},
            [],
            "the job is Suspended: queued",
            id="a queue holds it",
        ),
        pytest.param(
            {},
            [
                pod(
                    "m",
                    "Pending",
                    conditions=[
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "no GPU",
                        }
                    ],
                )
            ],
            "m: Unschedulable: no GPU",
            id="no node has room",
        ),
        pytest.param(
            {},
            [
                pod(
                    name,
                    "Pending",
                    conditions=[
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "full",
                        }
                    ],
                )
                for name in ("m", "w-0", "w-1")
            ],
            "m and 2 more: Unschedulable: full",
            id="no node has room for any of many",
        ),
        pytest.param(
            {
                "status": {
                    "conditions": [
                        {
                            "type": "Running",
                            "message": "delete the Secret",
                            "lastUpdateTime": "2026-01-01T00:01:00Z",
                        },
                        {
                            "type": "Created",
                            "message": "is created",
                            "lastUpdateTime": "2026-01-01T00:00:00Z",
                        },
                    ]
                }
            },
            [],
            "delete the Secret",
            id="waiting for user action",
        ),
        pytest.param(
            {},
            [
                pod(
                    "m",
                    "Pending",
                    containerStatuses=[
                        container(waiting={"reason": "ImagePullBackOff", "message": "no such image"})
                    ],
                )
            ],
            "m: ImagePullBackOff: no such image",
            id="no image",
        ),
    ],
)
def test_reasons_of_a_pending_start(job: dict[str, Any], pods: list[dict[str, Any]], why: str) -> None:
    assert why in job_state.pending_reason(job, pods)


def test_nodes_by_host_name() -> None:
    named = pod("launcher-x7")
    named["spec"]["hostname"] = "launcher"

    assert job_state.nodes_by_host([pod("w"), named]) == {"w": "node", "launcher": "node"}
