"""The variable with the folder of a job's checkpoints."""

from typing import Any

import pytest

from api.batch import BATCH_JOBS
from api.job import Job
from api.labels import CHECKPOINT_DIR
from api.meta import PODS
from controller.domain import Child, WriteMode
from controller.kind import JobKind, Options
from controller.kinds.jax import JAX
from controller.kinds.mpi.v1 import V1
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.kinds.mxnet import MXNET
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from controller.policy.checkpoints import DIRECTORY_VARIABLE, with_directory
from controller.reconcile.plan import decide
from tests.support.builders import NOON, job_of, pytorch_job, snapshot, template
from tests.support.mpi import mpi_job, v1_job

ROLES: dict[Any, list[str]] = {
    PYTORCH: ["Master", "Worker"],
    TENSORFLOW: ["Worker"],
    XGBOOST: ["Master"],
    PADDLE: ["Worker"],
    JAX: ["Worker"],
    MXNET: ["Scheduler", "Server", "Worker"],
}
VARIABLE = {"name": DIRECTORY_VARIABLE, "value": "/checkpoints/train"}


def job_with(kind: Any, roles: list[str]) -> Job:
    fields: dict[str, Any] = {role: {} for role in roles}
    job: Job = job_of(kind, **fields)
    return job


def with_annotation(job: Job) -> Job:
    job.metadata.annotations = {CHECKPOINT_DIR: VARIABLE["value"]}
    return job


def pod_bodies(kind: JobKind[Any], job: Job) -> list[dict[str, Any]]:
    """Return the pods that the first reconcile with pods creates."""
    found: list[Child] = list(decide(kind, job, snapshot(), NOON, Options()).create)
    return [
        child.body() for child in found if child.resource == PODS and child.write_mode is WriteMode.CREATE
    ]


def env(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [variable for container in pod["spec"]["containers"] for variable in container.get("env") or ()]


@pytest.mark.parametrize(
    ("kind", "job"),
    [
        *(pytest.param(kind, job_with(kind, roles), id=kind.resource.kind) for kind, roles in ROLES.items()),
        pytest.param(V2BETA1, mpi_job(), id="MPIJob v2beta1"),
        pytest.param(V1, v1_job(), id="MPIJob v1"),
    ],
)
def test_pods_of_each_kind_get_the_folder(kind: Any, job: Job) -> None:
    pods = pod_bodies(kind, with_annotation(job))

    assert pods
    assert all(VARIABLE in env(pod) for pod in pods)


def test_a_batch_job_gets_the_folder_in_its_template() -> None:
    body = {"spec": {"template": {"spec": {"containers": [{"name": "mpi"}]}}}}
    child = with_directory(with_annotation(mpi_job()), Child(BATCH_JOBS, "pi-launcher", lambda: body))

    assert child.body()["spec"]["template"]["spec"]["containers"][0]["env"] == [VARIABLE]
    assert "env" not in body["spec"]["template"]["spec"]["containers"][0]


def test_a_template_that_sets_the_variable_wins() -> None:
    own = {"name": DIRECTORY_VARIABLE, "value": "/mine"}
    job = pytorch_job(master={"template": template(env=[own])}, workers=None)
    (pod,) = pod_bodies(PYTORCH, with_annotation(job))

    assert [variable for variable in env(pod) if variable["name"] == DIRECTORY_VARIABLE] == [own]


def test_jobs_without_the_annotation_get_no_variable() -> None:
    pods = pod_bodies(PYTORCH, pytorch_job())

    assert DIRECTORY_VARIABLE not in {variable["name"] for pod in pods for variable in env(pod)}
