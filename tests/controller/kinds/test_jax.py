"""JAXJob: the worked example of its contract and further rules."""

from typing import Any

import pytest

from api.v1.jaxjob import JAXJob
from controller.domain import Counts, Verdict
from controller.kind import Options
from controller.kind.pods import pod, service
from controller.kinds.jax import JAX
from tests.support.builders import job_of, template

SPMD = job_of(
    JAX,
    "spmd",
    Worker={
        "replicas": 2,
        "restartPolicy": "OnFailure",
        "template": {
            "spec": {"containers": [{"name": "jax", "image": "img"}, {"name": "log", "image": "l"}]}
        },
    },
)


def body(job: JAXJob, index: int) -> dict[str, Any]:
    roles = JAX.roles(job)
    return pod(JAX, job, roles, roles["Worker"], index, Options())


def env(job: JAXJob, index: int = 0) -> list[str]:
    """What is injected into a pod, as ``NAME=value`` in order."""
    roles = JAX.roles(job)
    return [f"{name}={value}" for name, value in JAX.env(job, roles, roles["Worker"], index, Options())]


@pytest.mark.parametrize("index", [0, 1])
def test_example_12_environment(index: int) -> None:
    assert env(SPMD, index) == [
        "PYTHONUNBUFFERED=1",
        "COORDINATOR_PORT=6666",
        "COORDINATOR_ADDRESS=spmd-worker-0",
        "NUM_PROCESSES=2",
        f"PROCESS_ID={index}",
    ]


@pytest.mark.parametrize(
    ("index", "job_role"),
    [
        pytest.param(0, "master", id="the coordinator"),
        pytest.param(1, None, id="another worker"),
    ],
)
def test_example_12_pods(index: int, job_role: str | None) -> None:
    made = body(SPMD, index)
    jax, log = made["spec"]["containers"]

    assert made["metadata"]["labels"].get("training.kubeflow.org/job-role") == job_role
    assert made["spec"]["restartPolicy"] == "OnFailure"
    assert jax["ports"] == [{"name": "jaxjob-port", "containerPort": 6666}]
    assert "ports" not in log
    assert jax["env"] == log["env"]


def test_example_12_services() -> None:
    assert service(JAX, SPMD, JAX.roles(SPMD)["Worker"], 1)["spec"]["ports"] == [
        {"name": "jaxjob-port", "port": 6666}
    ]


def test_a_port_of_the_user_is_used() -> None:
    ports = [{"name": "jaxjob-port", "containerPort": 8080}]
    job = job_of(JAX, Worker={"template": template("jax", ports=ports)})

    assert "COORDINATOR_PORT=8080" in env(job)
    assert body(job, 0)["spec"]["containers"][0]["ports"] == ports


def test_a_variable_of_the_user_comes_first() -> None:
    own = {"name": "PROCESS_ID", "value": "7"}
    job = job_of(JAX, Worker={"replicas": 2, "template": template("jax", env=[own])})

    made = body(job, 1)["spec"]["containers"][0]["env"]

    assert [variable["value"] for variable in made if variable["name"] == "PROCESS_ID"] == ["7", "1"]


def test_pods_are_not_restarted_unless_the_job_says_so() -> None:
    (role,) = JAX.roles(job_of(JAX, Worker={})).values()

    assert (role.replicas, role.restart_policy) == (1, "Never")


@pytest.mark.parametrize(
    ("policy", "counts", "verdict"),
    [
        pytest.param("Never", Counts(), Verdict(), id="nothing yet"),
        pytest.param(
            "Never", Counts(active=1), Verdict(running="JAXJob ml/train is running."), id="one runs"
        ),
        pytest.param(
            "Never",
            Counts(active=1, succeeded=1),
            Verdict(running="JAXJob ml/train is running."),
            id="one is done",
        ),
        pytest.param(
            "Never",
            Counts(succeeded=2),
            Verdict(succeeded="JAXJob ml/train successfully completed."),
            id="all are",
        ),
        pytest.param(
            "Never",
            Counts(active=1, failed=1),
            Verdict(
                running="JAXJob ml/train is running.",
                failed="JAXJob train is failed because 1 Worker replica(s) failed.",
            ),
            id="one failed permanently",
        ),
        pytest.param(
            "ExitCode",
            Counts(active=1, failed=1),
            Verdict(
                running="JAXJob ml/train is running.",
                restarting="JAXJob train is restarting because 1 Worker replica(s) failed.",
            ),
            id="one is replaced",
        ),
    ],
)
def test_all_workers_decide(policy: str, counts: Counts, verdict: Verdict) -> None:
    job = job_of(JAX, Worker={"replicas": 2, "restartPolicy": policy})

    assert JAX.completion_rule(job, JAX.roles(job), {"Worker": counts}) == verdict


def test_a_master_is_a_problem() -> None:
    job = job_of(JAX, Worker={}, Master={})

    assert [str(problem) for problem in JAX.problems(job, Options())] == [
        'spec.jaxReplicaSpecs[Master]: Unsupported value: "Master": supported values: "Worker"'
    ]


def test_a_ttl_deletion_is_recorded_with_the_reason_of_pods() -> None:
    assert JAX.ttl_event_reasons == ("SuccessfulDeletePod", "FailedDeletePod")
