"""Elastic PyTorchJobs: rules that the worked examples of the contract do not show."""

from typing import Any

import pytest

from controller.domain import Snapshot
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import NOON, pytorch_job

METRICS = [{"type": "Resource", "resource": {"name": "cpu"}}]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(
            {"rdzvHost": "etcd-client", "rdzvPort": 2379, "rdzvBackend": "etcd-v2"},
            ["PET_RDZV_ENDPOINT=etcd-client:2379", "PET_RDZV_BACKEND=etcd-v2", "PET_NNODES=2:2"],
            id="a rendezvous host of its own",
        ),
        pytest.param(
            {"rdzvPort": 1},
            ["PET_RDZV_ENDPOINT=train-worker-0:1", "PET_RDZV_BACKEND=c10d", "PET_NNODES=2:2"],
            id="a port of its own",
        ),
        pytest.param(
            {"rdzvConf": []},
            ["PET_RDZV_ENDPOINT=train-worker-0:23456", "PET_RDZV_BACKEND=c10d", "PET_NNODES=2:2"],
            id="an empty rdzvConf is left out",
        ),
        pytest.param(
            {"standalone": False, "maxRestarts": 0},
            [
                "PET_RDZV_ENDPOINT=train-worker-0:23456",
                "PET_RDZV_BACKEND=c10d",
                "PET_NNODES=2:2",
                "PET_MAX_RESTARTS=0",
            ],
            id="zero restarts are written, a false standalone is not",
        ),
        pytest.param(
            {"minReplicas": 1},
            ["PET_RDZV_ENDPOINT=train-worker-0:23456", "PET_RDZV_BACKEND=c10d", "PET_NNODES=1:1"],
            id="minReplicas alone is also the maximum",
        ),
        pytest.param(
            {"maxReplicas": 4},
            ["PET_RDZV_ENDPOINT=train-worker-0:23456", "PET_RDZV_BACKEND=c10d", "PET_NNODES=4:4"],
            id="maxReplicas alone is also the minimum",
        ),
    ],
)
def test_elastic_environment(policy: dict[str, Any], expected: list[str]) -> None:
    job = pytorch_job(masters=None, elasticPolicy=policy)

    roles = PYTORCH.roles(job)
    env = [f"{name}={value}" for name, value in PYTORCH.env(job, roles, roles["Worker"], 0, Options())]
    assert env == ["PYTHONUNBUFFERED=1", "PET_NPROC_PER_NODE=auto", *expected]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="no elastic policy"),
        pytest.param({"elasticPolicy": {}}, id="no metrics"),
        pytest.param({"elasticPolicy": {"metrics": []}}, id="an empty list of metrics"),
    ],
)
def test_no_autoscaler(fields: dict[str, Any]) -> None:
    assert list(PYTORCH.extras(pytorch_job(**fields), Snapshot(), NOON, Options())) == []


def test_the_bounds_of_the_autoscaler_default_to_the_workers() -> None:
    job = pytorch_job(workers=4, elasticPolicy={"metrics": METRICS})
    (child,) = PYTORCH.extras(job, Snapshot(), NOON, Options())
    spec = child.body()["spec"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (4, 4)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"elasticPolicy": {}}, [], id="an elastic job with workers"),
        pytest.param(
            {"workers": None, "elasticPolicy": {}},
            [
                "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"
            ],
            id="an elastic job without workers",
        ),
        pytest.param(
            {"nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 1}},
            ["spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"],
            id="processes per node named twice",
        ),
        pytest.param({"elasticPolicy": {"nProcPerNode": 1}}, [], id="the deprecated field alone"),
        pytest.param(
            {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
            ["spec.elasticPolicy.minReplicas: Invalid value: 3: must be at most maxReplicas (2)"],
            id="bounds that contradict each other",
        ),
        pytest.param({"elasticPolicy": {"minReplicas": 2, "maxReplicas": 2}}, [], id="equal bounds"),
    ],
)
def test_problems_of_elastic_jobs(fields: dict[str, Any], expected: list[str]) -> None:
    assert [str(problem) for problem in PYTORCH.problems(pytorch_job(**fields), Options())] == expected
