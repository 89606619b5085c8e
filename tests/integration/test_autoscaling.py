"""The real HorizontalPodAutoscaler controller scales jobs by their CPU usage, which a stand-in for metrics-server reports.

The operator makes the autoscaler of an elastic PyTorchJob with metrics; users make those of other kinds.
"""

from collections.abc import Generator
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.flags import TEST_CONTROLLERS
from rallypoint.testing.pod_metrics import PodMetrics, pod_metrics
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support.jobs import TIMEOUT_SECONDS, Jobs

NAMESPACE = "default"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
CONTROLLERS = (*TEST_CONTROLLERS, "horizontal-pod-autoscaler-controller")
QUICK = tuple(
    f"--horizontal-pod-autoscaler-{flag}"
    for flag in (
        "sync-period=1s",
        "downscale-stabilization=1s",
        "initial-readiness-delay=1s",
        "cpu-initialization-period=1s",
    )
)
"""By default the controller waits for minutes."""
METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
]
IDLE, AT_TARGET, BUSY = 50, 500, 950
"""In thousandths of a CPU, of which each pod requests one."""


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1, controllers=CONTROLLERS, controller_manager_flags=QUICK) as plane:
        install(plane, WITH_MPI_V1)
        with in_cluster_service(plane, ("--mpi-ssh-check=false",)):
            yield plane


@pytest.fixture
def metrics(plane: ControlPlane) -> Generator[PodMetrics]:
    with pod_metrics(plane, AT_TARGET) as metrics:
        yield metrics


class Elastic(Jobs):
    """Jobs of two workers that request one CPU each."""

    def __init__(self, plane: ControlPlane, kind: str, container: str, version: str) -> None:
        super().__init__(plane, NAMESPACE)
        self.kind, self.container, self.version = kind, container, version

    def submit(self, name: str, roles: tuple[str, ...] = (), **spec: Any) -> None:
        container = {"name": self.container, "image": "x", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"nodeName": "node-0", "containers": [container]}}
        specs: dict[str, Any] = {role: {"replicas": 1, "template": template} for role in roles}
        specs["Worker"] = {"replicas": 2, "template": template, "restartPolicy": "OnFailure"}
        field = f"{self.kind.lower().removesuffix('job')}ReplicaSpecs"
        self.create(name, {"spec": {field: specs, **spec}})
        self.wait_for(name, "Running")

    def autoscale(self, name: str) -> None:
        """Create an autoscaler, as a user does."""
        target = {"apiVersion": f"kubeflow.org/{self.version}", "kind": self.kind, "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4, "metrics": METRICS}
        self._plane.request("POST", AUTOSCALERS, {"metadata": {"name": name}, "spec": spec})

    def wait_for_workers(self, name: str, count: int) -> None:
        def workers() -> list[str]:
            return [pod["metadata"]["name"] for pod in self.pod_objects(name, "Running")]

        wanted = [f"{name}-worker-{index}" for index in range(count)]
        self._plane.wait(
            f"{count} workers of {name}",
            lambda: sorted(pod for pod in workers() if "-worker-" in pod) == wanted,
            seconds=TIMEOUT_SECONDS,
        )


def scale_with_the_load(metrics: PodMetrics, jobs: Elastic, name: str) -> None:
    """Wait until the workers are as many as the load needs."""
    jobs.wait_for_workers(name, 2)
    metrics.usage = BUSY
    jobs.wait_for_workers(name, 4)
    metrics.usage = IDLE
    jobs.wait_for_workers(name, 1)


@pytest.mark.full
def test_an_elastic_pytorchjob_with_metrics_is_scaled_within_its_bounds(
    plane: ControlPlane, metrics: PodMetrics
) -> None:
    jobs = Elastic(plane, "PyTorchJob", "pytorch", "v1")
    jobs.submit("elastic", elasticPolicy={"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS})

    scale_with_the_load(metrics, jobs, "elastic")

    found = plane.request("GET", f"{AUTOSCALERS}/elastic")
    active = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert found["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    assert active["ScalingActive"] == active["AbleToScale"] == "True"


@pytest.mark.parametrize(
    ("kind", "container", "version", "roles", "spec"),
    [
        pytest.param("MPIJob", "mpi", "v2beta1", ("Launcher",), {}, id="MPIJob v2beta1"),
        pytest.param("MPIJob", "mpi", "v1", ("Launcher",), {}, id="MPIJob v1"),
        pytest.param("TFJob", "tensorflow", "v1", ("PS",), {"enableDynamicWorker": True}, id="TFJob"),
    ],
)
def test_an_autoscaler_of_a_user_scales_a_job(
    plane: ControlPlane,
    metrics: PodMetrics,
    kind: str,
    container: str,
    version: str,
    roles: tuple[str, ...],
    spec: dict[str, Any],
) -> None:
    """The launcher or parameter server is not counted: it would keep four workers from being four times the load."""
    jobs, name = Elastic(plane, kind, container, version), f"{kind.lower()}-{version}"
    jobs.submit(name, roles, **spec)

    jobs.autoscale(name)

    scale_with_the_load(metrics, jobs, name)
