"""XGBoostJob: the worked example of its contract and further rules."""

from typing import Any

import pytest

from api.v1.xgboostjob import XGBoostJob
from controller.domain import Counts, Verdict
from controller.kind import Options
from controller.kind.pods import pod, service
from controller.kinds.xgboost import XGBOOST
from tests.support.builders import job_of, template
from tests.support.in_memory_cluster import InMemoryCluster

PORT = template("xgboost", ports=[{"name": "xgboostjob-port", "containerPort": 9991}])
IRIS = job_of(
    XGBOOST,
    "iris",
    Master={"replicas": 1, "template": PORT},
    Worker={"replicas": 2, "restartPolicy": "ExitCode", "template": PORT},
)


def body(job: XGBoostJob, role: str, index: int) -> dict[str, Any]:
    roles = XGBOOST.roles(job)
    return pod(XGBOOST, job, roles, roles[role], index, Options())


def env(job: XGBoostJob, role: str = "Master", index: int = 0) -> list[str]:
    """What is injected into a pod, as ``NAME=value`` in order."""
    roles = XGBOOST.roles(job)
    return [f"{name}={value}" for name, value in XGBOOST.env(job, roles, roles[role], index, Options())]


@pytest.mark.parametrize(
    ("role", "index", "rank"),
    [
        pytest.param("Master", 0, "0", id="the master has rank 0"),
        pytest.param("Worker", 0, "1", id="workers come after it"),
        pytest.param("Worker", 1, "2", id="in the order of their index"),
    ],
)
def test_example_12_environment(role: str, index: int, rank: str) -> None:
    assert env(IRIS, role, index) == [
        "MASTER_PORT=9991",
        "MASTER_ADDR=iris-master-0",
        "WORLD_SIZE=3",
        f"RANK={rank}",
        "PYTHONUNBUFFERED=1",
        "WORKER_PORT=9991",
        "WORKER_ADDRS=iris-worker-0,iris-worker-1",
    ]


@pytest.mark.parametrize(
    ("role", "index", "job_role"),
    [
        pytest.param("Master", 0, "master", id="the master"),
        pytest.param("Worker", 0, None, id="a worker"),
    ],
)
def test_example_12_pods(role: str, index: int, job_role: str | None) -> None:
    made = body(IRIS, role, index)

    assert made["metadata"]["labels"].get("training.kubeflow.org/job-role") == job_role
    assert made["spec"]["restartPolicy"] == "Never"


def test_example_12_services() -> None:
    assert service(XGBOOST, IRIS, XGBOOST.roles(IRIS)["Worker"], 1)["spec"]["ports"] == [
        {"name": "xgboostjob-port", "port": 9991}
    ]


ALONE = [
    "MASTER_PORT=9999",
    "MASTER_ADDR=train-master-0",
    "WORLD_SIZE=1",
    "RANK=0",
    "PYTHONUNBUFFERED=1",
]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        pytest.param({"Master": {}}, ALONE, id="a master alone has no worker variables"),
        pytest.param(
            {"Master": {}, "Worker": {"replicas": 0}}, ALONE, id="zero workers have no worker variables"
        ),
        pytest.param(
            {"Master": {"template": PORT}, "Worker": {}},
            [
                "MASTER_PORT=9991",
                "MASTER_ADDR=train-master-0",
                "WORLD_SIZE=2",
                "RANK=0",
                "PYTHONUNBUFFERED=1",
                "WORKER_PORT=9999",
                "WORKER_ADDRS=train-worker-0",
            ],
            id="one worker with another port",
        ),
    ],
)
def test_edge_vectors(roles: dict[str, Any], expected: list[str]) -> None:
    assert env(job_of(XGBOOST, **roles)) == expected


def test_pods_are_not_restarted_unless_the_job_says_so() -> None:
    (role,) = XGBOOST.roles(job_of(XGBOOST, Master={})).values()

    assert (role.replicas, role.restart_policy) == (1, "Never")


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        pytest.param(
            {"Worker": {}},
            ["spec.xgbReplicaSpecs[Master]: Required value: must be present"],
            id="workers without a master",
        ),
        pytest.param(
            {"Master": {"replicas": 2}},
            ["spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"],
            id="two masters",
        ),
        pytest.param({"Master": {}}, [], id="a master alone"),
        pytest.param({"Master": {}, "Worker": {"replicas": 0}}, [], id="no workers"),
    ],
)
def test_a_job_needs_a_single_master(roles: dict[str, Any], expected: list[str]) -> None:
    assert [str(problem) for problem in XGBOOST.problems(job_of(XGBOOST, **roles), Options())] == expected


@pytest.mark.parametrize(
    ("master", "worker", "verdict"),
    [
        pytest.param(Counts(), Counts(active=2), Verdict(), id="workers alone do not make it run"),
        pytest.param(
            Counts(active=1), Counts(), Verdict(running="XGBoostJob train is running."), id="the master does"
        ),
        pytest.param(
            Counts(active=1),
            Counts(succeeded=2),
            Verdict(running="XGBoostJob train is running."),
            id="nor do they end it",
        ),
        pytest.param(
            Counts(succeeded=1),
            Counts(failed=2),
            Verdict(succeeded="XGBoostJob train is successfully completed."),
            id="the master's success wins",
        ),
        pytest.param(
            Counts(failed=1),
            Counts(active=2),
            Verdict(failed="XGBoostJob train is failed because 1 Master replica(s) failed."),
            id="the master failed",
        ),
    ],
)
def test_the_master_decides(master: Counts, worker: Counts, verdict: Verdict) -> None:
    job = job_of(XGBOOST, Master={}, Worker={"replicas": 2})

    assert XGBOOST.completion_rule(job, XGBOOST.roles(job), {"Master": master, "Worker": worker}) == verdict


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_a_failed_worker_is_replaced_and_the_job_continues(policy: str) -> None:
    cluster = InMemoryCluster(job_of(XGBOOST, Master={}, Worker={"restartPolicy": policy}), kind=XGBOOST)
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=137)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.created_pods == ["train-master-0", "train-worker-0", "train-worker-0"]


def test_no_selector_is_written_as_nothing_scales_it() -> None:
    cluster = InMemoryCluster(job_of(XGBOOST, Master={}), kind=XGBOOST)
    cluster.settle()

    assert cluster.status.to_wire()["replicaStatuses"] == {"Master": {}}


def test_a_ttl_deletion_is_recorded_with_the_reason_of_jobs() -> None:
    assert XGBOOST.ttl_event_reasons == ("SuccessfulDeleteJob", "FailedDeleteJob")
