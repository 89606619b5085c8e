"""The HorizontalPodAutoscaler of an elastic job."""

from api.meta import HORIZONTAL_POD_AUTOSCALERS
from api.v1.pytorchjob import RESOURCE
from controller.domain import WriteMode
from controller.kind.autoscaler import autoscaler
from tests.support.builders import UID, pytorch_job

METRICS = [{"type": "Resource", "resource": {"name": "cpu"}}]


def test_the_autoscaler_scales_the_job_that_owns_it() -> None:
    child = autoscaler(RESOURCE, pytorch_job("elastic"), 1, 3, METRICS)

    assert child.body() == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "elastic",
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": "elastic",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "elastic"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": METRICS,
        },
    }


def test_the_autoscaler_is_applied() -> None:
    child = autoscaler(RESOURCE, pytorch_job("elastic"), 1, 3, METRICS)

    assert (child.resource, child.name, child.write_mode) == (
        HORIZONTAL_POD_AUTOSCALERS,
        "elastic",
        WriteMode.APPLY,
    )
