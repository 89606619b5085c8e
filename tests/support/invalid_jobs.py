"""Small jobs of every kind, and the invalid ones in the tests of training-operator's webhooks.

Source: training-operator 1.9, pkg/webhooks/*/*_test.go.
"""

from typing import Any

import pytest

from controller.kind import JobKind, ReplicaKind
from controller.kinds.jax import JAX
from controller.kinds.mpi import MPI
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST

Object = dict[str, Any]

PYTORCH_ROLES = "spec.pytorchReplicaSpecs"


def role(*, name: str, image: str | None = "train:1", **fields: Any) -> Object:
    container: Object = {"name": name} | ({} if image is None else {"image": image})
    return {**fields, "template": {"spec": {"containers": [container]}}}


def job(
    kind: JobKind[Any], roles: Object | None, *, name: str = "test", version: str = "", **spec: Any
) -> Object:
    fields = dict(spec) if roles is None else {replicas_field(kind): roles, **spec}
    return {
        "apiVersion": f"{kind.resource.group}/{version or kind.resource.version}",
        "kind": kind.resource.kind,
        "metadata": {"name": name},
        "spec": fields,
    }


def replicas_field(kind: JobKind[Any]) -> str:
    return kind.replicas_field if isinstance(kind, ReplicaKind) else "mpiReplicaSpecs"


def roles(kind: ReplicaKind[Any], **changes: Any) -> Object:
    """Return the roles of a valid job of a kind: its Worker, and its Master if it needs one."""
    names = ("Master", "Worker") if kind is XGBOOST else ("Worker",)
    return {name: role(name=kind.container) for name in names} | changes


def mpi_job(
    version: str,
    *,
    name: str = "test",
    launcher: Object | None = None,
    worker: Object | None = None,
    **spec: Any,
) -> Object:
    workers: Object = {"replicas": 2} | (worker or {})
    given = {"Launcher": role(name="mpi", **(launcher or {})), "Worker": role(name="mpi", **workers)}
    return job(MPI, given, name=name, version=version, **spec)


WEBHOOK_KINDS: tuple[ReplicaKind[Any], ...] = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX)


def common_cases() -> list[Any]:
    """The cases that the tests of all five webhooks have: as far as they are refused when a job is created."""
    cases: list[Any] = []
    for kind in WEBHOOK_KINDS:
        at, label = f"spec.{kind.replicas_field}", kind.resource.kind
        only = {"Master": role(name=kind.container)} if kind is XGBOOST else {"Worker": {}}
        (first,) = only
        empty: Object = {first: {"template": {"spec": {"containers": []}}}}
        cases += [
            pytest.param(
                job(kind, roles(kind), name="0-test"), "metadata.name: Invalid value", id=f"{label}: name"
            ),
            pytest.param(
                job(kind, empty), f"{at}: Required value: the template", id=f"{label}: no containers"
            ),
            pytest.param(
                job(kind, {first: role(name=kind.container, image="")}),
                f"{at}: Required value: each container must have an image",
                id=f"{label}: empty image",
            ),
        ]
        if kind is not PYTORCH:
            text = (
                f"{at}: Required value: the template of each role must have at least one container with name"
            )
            cases.append(
                pytest.param(
                    job(kind, {first: role(name="")}), text, id=f"{label}: default container missing"
                )
            )
        if kind is not JAX:
            foreign = job(kind, roles(kind), runPolicy={"managedBy": "other-job-controller"})
            text = "spec.runPolicy.managedBy: Unsupported value"
            cases.append(pytest.param(foreign, text, id=f"{label}: unsupported managedBy"))
    return cases


ELASTIC = {"Master": role(name="pytorch"), "Worker": role(name="pytorch")}
OWN_CASES: list[Any] = [
    pytest.param(
        job(PYTORCH, {"Master": role(name="pytorch", replicas=2)}),
        f"{PYTORCH_ROLES}: Forbidden: replicas of Master must be 1 or omitted",
        id="PyTorchJob: two masters",
    ),
    pytest.param(
        job(PYTORCH, ELASTIC, nprocPerNode="1", elasticPolicy={"nProcPerNode": 1}),
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
        id="PyTorchJob: nprocPerNode twice",
    ),
    pytest.param(
        job(PYTORCH, {"Master": role(name="pytorch", replicas=1)}, elasticPolicy={}),
        f"{PYTORCH_ROLES}: Required value: must have the role Worker if elasticPolicy is used",
        id="PyTorchJob: elastic without workers",
    ),
    pytest.param(
        job(PYTORCH, {"Worker": role(name="pytorch", replicas=0)}, elasticPolicy={}),
        f"{PYTORCH_ROLES}: Forbidden: at least one role must have replicas",
        id="PyTorchJob: zero workers",
    ),
    pytest.param(
        job(TENSORFLOW, {"Chief": role(name="tensorflow"), "Master": role(name="tensorflow")}),
        "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
        id="TFJob: chief and master",
    ),
    pytest.param(
        job(XGBOOST, {"Master": role(name="xgboost", replicas=2)}),
        "spec.xgbReplicaSpecs: Forbidden: replicas of Master must be 1 or omitted",
        id="XGBoostJob: two masters",
    ),
    pytest.param(
        job(XGBOOST, {"Worker": role(name="xgboost", replicas=1)}),
        "spec.xgbReplicaSpecs: Required value: must have the role Master",
        id="XGBoostJob: no master",
    ),
    pytest.param(job(PADDLE, None), "spec.paddleReplicaSpecs: Required value", id="PaddleJob: no roles"),
    pytest.param(job(JAX, None), "spec.jaxReplicaSpecs: Required value", id="JAXJob: no roles"),
]
WEBHOOK_CASES: list[Any] = [*common_cases(), *OWN_CASES]
"""Jobs that the webhooks refuse at creation, and the start of the error. The definitions accept one more; see ``test_rules``."""
