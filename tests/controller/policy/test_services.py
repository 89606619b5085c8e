"""Which Services a job gets, by its annotation, the flag and the pods that it has."""

import pytest

from api.children import Pod
from api.labels import SERVICES
from api.services import ServiceMode
from api.v1.pytorchjob import PyTorchJob
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from controller.policy.services import decided
from tests.support.builders import pod, pytorch_job, template

SHARED = pod(service="train")
SINGLE = pod()


def job_with(annotation: str | None, **fields: object) -> PyTorchJob:
    job = pytorch_job(**fields)  # type: ignore[arg-type]
    job.metadata.annotations = None if annotation is None else {SERVICES: annotation}
    return job


@pytest.mark.parametrize(
    ("annotation", "flag", "pods", "mode"),
    [
        pytest.param(None, "per-replica", (), "per-replica", id="the flag decides"),
        pytest.param(None, "per-job", (), "per-job", id="the flag decides about a job without pods"),
        pytest.param("addressed", "per-job", (), "addressed", id="the annotation overrides the flag"),
        pytest.param("none", "addressed", (), "addressed", id="an unknown annotation counts as none"),
        pytest.param("per-replica", "addressed", (SHARED,), "per-job", id="pods of a job's Service keep it"),
        pytest.param(
            "per-job", "addressed", (SINGLE,), "per-replica", id="other pods keep their own Services"
        ),
        pytest.param(None, "addressed", (SINGLE,), "addressed", id="fewer Services have the same names"),
        pytest.param(
            None, "per-replica", (SINGLE, SHARED), "per-job", id="one pod of the job's Service is enough"
        ),
        pytest.param(
            "per-job", "per-replica", (pod(service="other"),), "per-replica", id="another subdomain"
        ),
        pytest.param(
            "per-replica",
            "per-job",
            (pod(phase="Failed", service="train"),),
            "per-job",
            id="an ended pod counts",
        ),
    ],
)
def test_a_job_keeps_the_names_that_its_pods_know(
    annotation: str | None, flag: str, pods: tuple[Pod, ...], mode: str
) -> None:
    job = job_with(annotation)

    assert decided(PYTORCH, job, pods, Options(services=ServiceMode(flag))).services == mode


@pytest.mark.parametrize("field", ["hostname", "subdomain", "setHostnameAsFQDN"])
def test_a_job_whose_template_names_its_pods_gets_a_service_for_each(field: str) -> None:
    spec = {**template()["spec"], field: field == "setHostnameAsFQDN" or "own"}
    job = job_with(None, worker={"template": {"spec": spec}})

    assert decided(PYTORCH, job, (), Options(services=ServiceMode.PER_JOB)).services == "per-replica"
