"""Jobs of every kind in real pods on two nodes: their programs find each other by the names in their environment, and succeed."""

from pathlib import Path

import pytest

from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job

MEET = Path(__file__).with_name("meet.py").read_text()
ROLES = {
    "PyTorchJob": {"Master": 1, "Worker": 3},
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 3},
    "PaddleJob": {"Worker": 4},
    "JAXJob": {"Worker": 4},
}


SERVICES = {
    "per-replica": {"PyTorchJob": 4, "TFJob": 4, "XGBoostJob": 4, "PaddleJob": 4, "JAXJob": 4},
    "addressed": {"PyTorchJob": 1, "TFJob": 4, "XGBoostJob": 4, "PaddleJob": 1, "JAXJob": 1},
    "per-job": dict.fromkeys(ROLES, 1),
}
"""By mode, the number of Services of a job."""


@pytest.mark.parametrize("mode", SERVICES)
@pytest.mark.parametrize("kind", ROLES)
def test_programs_find_each_other(workloads: Workloads, kind: str, mode: str) -> None:
    container = {
        "image": BASE,
        "command": ["python", "-c", MEET],
        "env": [{"name": "MEET_AS", "value": kind}],
    }
    roles = {role: {"replicas": count, **container} for role, count in ROLES[kind].items()}
    policy = {"runPolicy": {"cleanPodPolicy": "None"}}
    document = job(kind, "meet", roles, **policy)
    document["metadata"]["annotations"] = {"training.kubeflow.org/services": mode}
    workloads.apply(document)

    workloads.wait_for(kind, "meet", "Succeeded")
    pods = workloads.pods("meet")
    workloads.wait("all pods to end", lambda: all(is_over(pod) for pod in workloads.pods("meet").values()))

    assert sorted(workloads.logs(pod).splitlines()[-1] for pod in pods) == [
        f"rank {rank} of 4: 6" for rank in range(4)
    ]
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"node-1", "node-2"}
    selector = "--selector=training.kubeflow.org/job-name=meet"
    services = workloads.kubectl("get", "services", selector, "-o", "name").splitlines()
    assert len(services) == SERVICES[mode][kind]


def is_over(pod: dict[str, dict[str, str]]) -> bool:
    return pod["status"]["phase"] == "Succeeded"
