"""PaddleJob: the worked examples of its contract and further rules."""

from collections.abc import Mapping
from typing import Any

import pytest

from api.v1.paddlejob import PaddleJob
from controller.domain import Counts, Snapshot, Verdict
from controller.kind import Options
from controller.kind.pods import pod, service
from controller.kinds.paddle import PADDLE
from tests.support.builders import NOON, job_of, template

COLLECTIVE = job_of(
    PADDLE,
    "coll",
    Worker={
        "replicas": 2,
        "template": template("paddle", ports=[{"name": "master", "containerPort": 37777}]),
    },
)
SERVERS = job_of(PADDLE, "ps", Master={"replicas": 2}, Worker={"replicas": 2})
OWN_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


def body(job: PaddleJob, role: str, index: int) -> dict[str, Any]:
    roles = PADDLE.roles(job)
    return pod(PADDLE, job, roles, roles[role], index, Options())


def env(job: PaddleJob, role: str, index: int = 0) -> list[tuple[str, str | Mapping[str, Any]]]:
    roles = PADDLE.roles(job)
    return PADDLE.env(job, roles, roles[role], index, Options())


@pytest.mark.parametrize(
    ("index", "meeting"),
    [
        pytest.param(
            0,
            [("POD_IP_DUMMY", OWN_IP), ("PADDLE_MASTER", "$(POD_IP_DUMMY):37777")],
            id="the first trainer serves at its own IP",
        ),
        pytest.param(1, [("PADDLE_MASTER", "coll-worker-0:37777")], id="another trainer has its DNS name"),
    ],
)
def test_example_12_1_environment(index: int, meeting: list[Any]) -> None:
    assert env(COLLECTIVE, "Worker", index) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PADDLE_JOB_ID", "coll"),
        ("PADDLE_NNODES", "2"),
        *meeting,
    ]


def test_example_12_1_the_ip_is_read_from_the_pod() -> None:
    made = body(COLLECTIVE, "Worker", 0)["spec"]["containers"][0]["env"]

    assert made[3:] == [
        {"name": "POD_IP_DUMMY", "valueFrom": OWN_IP},
        {"name": "PADDLE_MASTER", "value": "$(POD_IP_DUMMY):37777"},
    ]


@pytest.mark.parametrize(
    ("role", "index", "rest"),
    [
        pytest.param(
            "Master",
            0,
            [
                ("POD_IP_DUMMY", OWN_IP),
                ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543"),
                ("PADDLE_SERVER_NUM", "1"),
            ],
            id="the first server",
        ),
        pytest.param(
            "Master",
            1,
            [("PADDLE_MASTER", "ps-master-0:36543"), ("PADDLE_SERVER_NUM", "1")],
            id="another server",
        ),
        pytest.param(
            "Worker",
            0,
            [("PADDLE_MASTER", "ps-master-0:36543"), ("PADDLE_TRAINER_NUM", "1")],
            id="the first trainer",
        ),
    ],
)
def test_example_12_2_environment(role: str, index: int, rest: list[Any]) -> None:
    assert env(SERVERS, role, index) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PADDLE_JOB_ID", "ps"),
        ("PADDLE_NNODES", "4"),
        *rest,
    ]


@pytest.mark.parametrize(
    ("job", "role", "index", "job_role"),
    [
        pytest.param(SERVERS, "Master", 0, "master", id="a server"),
        pytest.param(SERVERS, "Master", 1, "master", id="every server"),
        pytest.param(SERVERS, "Worker", 0, None, id="a trainer"),
        pytest.param(COLLECTIVE, "Worker", 0, None, id="a trainer of a collective job"),
    ],
)
def test_the_first_master_or_trainer_has_the_master_label(
    job: PaddleJob, role: str, index: int, job_role: str | None
) -> None:
    labels = body(job, role, index)["metadata"]["labels"]

    assert labels.get("training.kubeflow.org/job-role") == job_role


def test_services_have_the_port_named_master() -> None:
    assert service(PADDLE, SERVERS, PADDLE.roles(SERVERS)["Worker"], 0)["spec"]["ports"] == [
        {"name": "master", "port": 36543}
    ]


def test_all_trainers_use_the_port_of_the_host() -> None:
    ports = [{"name": "master", "containerPort": 1}]
    job = job_of(PADDLE, Master={"template": template("paddle", ports=ports)}, Worker={})

    assert ("PADDLE_MASTER", "train-master-0:1") in env(job, "Worker")


def test_failed_pods_are_restarted_unless_the_job_says_otherwise() -> None:
    (role,) = PADDLE.roles(job_of(PADDLE, Master={})).values()

    assert (role.replicas, role.restart_policy) == (1, "OnFailure")


def test_an_elastic_policy_changes_nothing() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 3, "metrics": [{"type": "Resource"}]}
    job = job_of(PADDLE, elasticPolicy=policy, Worker={})

    assert env(job, "Worker") == env(job_of(PADDLE, Worker={}), "Worker")
    assert list(PADDLE.extras(job, Snapshot(), NOON, Options())) == []
    assert list(PADDLE.problems(job, Options())) == []


def test_an_elastic_policy_without_trainers_is_valid() -> None:
    assert list(PADDLE.problems(job_of(PADDLE, elasticPolicy={}, Master={}), Options())) == []


def test_a_container_that_is_missing_is_named_in_quotes() -> None:
    (problem,) = PADDLE.problems(job_of(PADDLE, Worker={"template": template("main")}), Options())

    assert (
        str(problem) == "spec.paddleReplicaSpecs[Worker].template.spec.containers: Required value: "
        'must have at least one container with name "paddle"'
    )


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        pytest.param(
            {"Master": Counts(active=1), "Worker": Counts()},
            Verdict(running="PaddleJob train is running."),
            id="a server runs",
        ),
        pytest.param(
            {"Master": Counts(active=2), "Worker": Counts(succeeded=1)},
            Verdict(running="PaddleJob train is running."),
            id="trainers do not end a job with servers",
        ),
        pytest.param(
            {"Master": Counts(active=1, succeeded=1), "Worker": Counts(active=1)},
            Verdict(running="PaddleJob train is running."),
            id="one server is done",
        ),
        pytest.param(
            {"Master": Counts(succeeded=2), "Worker": Counts(active=1)},
            Verdict(succeeded="PaddleJob train is successfully completed."),
            id="all servers are",
        ),
        pytest.param(
            {"Worker": Counts(active=1)},
            Verdict(running="PaddleJob ml/train is running."),
            id="a trainer runs",
        ),
        pytest.param(
            {"Worker": Counts(succeeded=1)},
            Verdict(succeeded="PaddleJob ml/train successfully completed."),
            id="all trainers are done",
        ),
        pytest.param(
            {"Worker": Counts(failed=1)},
            Verdict(restarting="PaddleJob train is restarting because 1 Worker replica(s) failed."),
            id="a trainer failed",
        ),
    ],
)
def test_roles_decide_the_verdict(counts: dict[str, Counts], verdict: Verdict) -> None:
    roles: dict[str, Any] = {name: {"replicas": 2 if name == "Master" else 1} for name in counts}
    job = job_of(PADDLE, **roles)

    assert PADDLE.completion_rule(job, PADDLE.roles(job), counts) == verdict


def test_a_ttl_deletion_is_recorded_with_the_reason_of_pods() -> None:
    assert PADDLE.ttl_event_reasons == ("SuccessfulDeletePod", "FailedDeletePod")
