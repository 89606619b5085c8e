"""PyTorchJob: the worked examples of its contract and further rules."""

from collections.abc import Sequence
from typing import Any

import pytest

from api.v1.pytorchjob import PyTorchJob
from controller.domain import Counts, Snapshot
from controller.kind import Options
from controller.kind.pods import pod
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import NOON, pytorch_job, template

METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
]

BERT = pytorch_job(
    "bert",
    nprocPerNode="2",
    master={
        "template": {
            "spec": {
                "containers": [
                    {"name": "pytorch", "image": "img", "env": [{"name": "RANK", "value": "99"}]},
                    {"name": "sidecar", "image": "sc"},
                ]
            }
        }
    },
    worker={"restartPolicy": "ExitCode"},
)
ELASTIC = pytorch_job(
    "elastic",
    masters=None,
    elasticPolicy={
        "minReplicas": 1,
        "maxReplicas": 3,
        "maxRestarts": 10,
        "rdzvConf": [{"key": "timeout", "value": "900"}, {"key": "join_timeout", "value": "600"}],
        "metrics": METRICS,
    },
)


def body(job: PyTorchJob, role: str, index: int, options: Options | None = None) -> dict[str, Any]:
    roles = PYTORCH.roles(job)
    return pod(PYTORCH, job, roles, roles[role], index, options or Options())


def env(job: PyTorchJob, role: str = "Worker", index: int = 0) -> list[str]:
    """What is injected into a pod, as ``NAME=value`` in order."""
    roles = PYTORCH.roles(job)
    return [f"{name}={value}" for name, value in PYTORCH.env(job, roles, roles[role], index, Options())]


def value(name: str, variables: Sequence[str]) -> str | None:
    """The value of a variable that is there once at most."""
    found = [variable.removeprefix(f"{name}=") for variable in variables if variable.startswith(f"{name}=")]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("role", "index", "rank"),
    [
        pytest.param("Master", 0, "0", id="the master has rank 0"),
        pytest.param("Worker", 0, "1", id="workers come after the master"),
        pytest.param("Worker", 1, "2", id="in the order of their index"),
    ],
)
def test_example_13_1_environment(role: str, index: int, rank: str) -> None:
    assert env(BERT, role, index) == [
        "PYTHONUNBUFFERED=1",
        "MASTER_PORT=23456",
        "PET_MASTER_PORT=23456",
        "MASTER_ADDR=bert-master-0",
        "PET_MASTER_ADDR=bert-master-0",
        "WORLD_SIZE=6",
        f"RANK={rank}",
        f"PET_NODE_RANK={rank}",
        "PET_NPROC_PER_NODE=2",
        "PET_NNODES=3",
    ]


@pytest.mark.parametrize(
    ("role", "job_role", "policy", "init"),
    [
        pytest.param("Master", "master", "OnFailure", [], id="the master"),
        pytest.param("Worker", None, "Never", ["init-pytorch"], id="a worker"),
    ],
)
def test_example_13_1_pods(role: str, job_role: str | None, policy: str, init: list[str]) -> None:
    made = body(BERT, role, 0)
    spec = made["spec"]

    assert made["metadata"]["labels"].get("training.kubeflow.org/job-role") == job_role
    assert spec["restartPolicy"] == policy
    assert [container["name"] for container in spec.get("initContainers", ())] == init
    assert spec["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_example_13_1_the_sidecar_has_the_environment_and_no_port() -> None:
    pytorch, sidecar = body(BERT, "Master", 0)["spec"]["containers"]

    assert pytorch["env"] == [{"name": "RANK", "value": "99"}, *sidecar["env"]]
    assert len(sidecar["env"]) == 10
    assert "ports" not in sidecar


@pytest.mark.parametrize("index", [0, 1])
def test_example_13_2_environment(index: int) -> None:
    assert env(ELASTIC, "Worker", index) == [
        "PYTHONUNBUFFERED=1",
        "PET_NPROC_PER_NODE=auto",
        "PET_RDZV_ENDPOINT=elastic-worker-0:23456",
        "PET_RDZV_BACKEND=c10d",
        "PET_NNODES=1:3",
        "PET_MAX_RESTARTS=10",
        "PET_RDZV_CONF=timeout=900,join_timeout=600",
    ]


@pytest.mark.parametrize(
    ("index", "job_role"),
    [
        pytest.param(0, "master", id="the first worker leads where there is no master"),
        pytest.param(1, None, id="the second does not"),
    ],
)
def test_example_13_2_pods(index: int, job_role: str | None) -> None:
    made = body(ELASTIC, "Worker", index)

    assert made["metadata"]["labels"].get("training.kubeflow.org/job-role") == job_role
    assert "initContainers" not in made["spec"]


def test_example_13_2_autoscaler() -> None:
    (child,) = PYTORCH.extras(ELASTIC, Snapshot(), NOON, Options())
    spec = child.body()["spec"]

    assert child.name == "elastic"
    assert (spec["minReplicas"], spec["maxReplicas"], spec["metrics"]) == (1, 3, METRICS)
    assert (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) == ("PyTorchJob", "elastic")


@pytest.mark.parametrize(
    ("job", "role", "index", "expected"),
    [
        pytest.param(
            pytorch_job("both", elasticPolicy={"nProcPerNode": 4, "standalone": True, "rdzvId": "x"}),
            "Worker",
            1,
            [
                "PYTHONUNBUFFERED=1",
                "MASTER_PORT=23456",
                "PET_MASTER_PORT=23456",
                "MASTER_ADDR=both-master-0",
                "PET_MASTER_ADDR=both-master-0",
                "WORLD_SIZE=3",
                "RANK=2",
                "PET_NODE_RANK=2",
                "PET_RDZV_ENDPOINT=both-worker-0:23456",
                "PET_RDZV_BACKEND=c10d",
                "PET_NNODES=2:2",
                "PET_NPROC_PER_NODE=4",
                "PET_RDZV_ID=x",
                "PET_STANDALONE=1",
            ],
            id="a master beside elastic workers (standalone is 1, not empty)",
        ),
        pytest.param(
            pytorch_job(masters=None, nprocPerNode="-3"),
            "Worker",
            0,
            ["PYTHONUNBUFFERED=1", "PET_NPROC_PER_NODE=-3", "PET_NNODES=2"],
            id="workers only",
        ),
        pytest.param(
            pytorch_job(workers=None, nprocPerNode="+3"),
            "Master",
            0,
            [
                "PYTHONUNBUFFERED=1",
                "MASTER_PORT=23456",
                "PET_MASTER_PORT=23456",
                "MASTER_ADDR=train-master-0",
                "PET_MASTER_ADDR=train-master-0",
                "WORLD_SIZE=3",
                "RANK=0",
                "PET_NODE_RANK=0",
                "PET_NPROC_PER_NODE=+3",
                "PET_NNODES=1",
            ],
            id="a master only",
        ),
    ],
)
def test_example_13_3(job: PyTorchJob, role: str, index: int, expected: list[str]) -> None:
    assert env(job, role, index) == expected


@pytest.mark.parametrize(
    ("nproc", "text", "processes"),
    [
        pytest.param(None, "auto", 1, id="unset counts as auto"),
        pytest.param("auto", "auto", 1, id="auto counts as 1"),
        pytest.param("cpu", "cpu", 1, id="cpu counts as 1"),
        pytest.param("gpu", "gpu", 1, id="gpu counts as 1"),
        pytest.param("junk", "junk", 1, id="any word counts as 1"),
        pytest.param("", "", 1, id="the empty string counts as 1"),
        pytest.param("4", "4", 4, id="a number"),
        pytest.param("+4", "+4", 4, id="a number with a plus"),
        pytest.param("-4", "-4", -4, id="a negative number"),
        pytest.param("0", "0", 0, id="zero"),
        pytest.param("4.0", "4.0", 1, id="a fraction is a word"),
        pytest.param(" 4", " 4", 1, id="a number with a space is a word"),
        pytest.param("1_0", "1_0", 1, id="a number with an underscore is a word"),
        pytest.param("٤", "٤", 1, id="a digit of another script is a word"),
        pytest.param("9" * 30, "9" * 30, 1, id="a number beyond 64 bits is a word"),
    ],
)
def test_matrix_6_1(nproc: str | None, text: str, processes: int) -> None:
    job = pytorch_job() if nproc is None else pytorch_job(nprocPerNode=nproc)
    variables = env(job)

    assert value("PET_NPROC_PER_NODE", variables) == text
    assert value("WORLD_SIZE", variables) == str(3 * processes)


def test_matrix_6_1_the_deprecated_field_does_not_count_in_the_world_size() -> None:
    variables = env(pytorch_job(elasticPolicy={"nProcPerNode": 4}))

    assert value("PET_NPROC_PER_NODE", variables) == "4"
    assert value("WORLD_SIZE", variables) == "3"


def test_master_and_worker_can_have_different_ports() -> None:
    def with_port(number: int) -> dict[str, Any]:
        ports = [{"name": "pytorchjob-port", "containerPort": number}]
        return {"template": template(ports=ports)}

    job = pytorch_job(master=with_port(1), worker=with_port(2), elasticPolicy={})
    variables = env(job)

    assert value("MASTER_PORT", variables) == "1"
    assert value("PET_RDZV_ENDPOINT", variables) == "train-worker-0:2"


@pytest.mark.parametrize(
    ("job", "role", "count"),
    [
        pytest.param(pytorch_job(), "Worker", 1, id="a worker with a master waits"),
        pytest.param(pytorch_job(elasticPolicy={}), "Worker", 1, id="elastic or not"),
        pytest.param(pytorch_job(), "Master", 0, id="the master does not"),
        pytest.param(pytorch_job(masters=None), "Worker", 0, id="workers alone do not"),
    ],
)
def test_workers_wait_for_the_master(job: PyTorchJob, role: str, count: int) -> None:
    roles = PYTORCH.roles(job)

    assert len(PYTORCH.init_containers(job, roles, roles[role], Options())) == count


@pytest.mark.parametrize(
    ("fields", "succeeded"),
    [
        pytest.param({"masters": None}, False, id="not elastic: all workers"),
        pytest.param({"masters": None, "elasticPolicy": {}}, True, id="elastic: the first worker"),
        pytest.param({"elasticPolicy": {}}, False, id="elastic with a master: the master"),
    ],
)
def test_roles_decide_when_a_job_succeeds(fields: dict[str, Any], succeeded: bool) -> None:
    job = pytorch_job(**fields)
    roles = PYTORCH.roles(job)
    counts = {name: Counts(succeeded=1) if name == "Worker" else Counts(active=1) for name in roles}

    assert bool(PYTORCH.completion_rule(job, roles, counts).succeeded) is succeeded


def test_a_ttl_deletion_is_recorded_with_the_reason_of_pods() -> None:
    assert PYTORCH.ttl_event_reasons == ("SuccessfulDeletePod", "FailedDeletePod")
