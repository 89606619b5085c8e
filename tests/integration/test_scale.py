"""``/scale`` of every kind and version that has it, on a real API server: pods, lists of hosts and selectors follow.

The pods are simulated. What their programs do about it is the subject of tests/e2e and of the examples.
"""

from collections.abc import Generator
from typing import Any
from urllib.parse import quote

import pytest

from rallypoint.testing.controlplane import ControlPlane, Refused
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support import kubectl
from tests.support.jobs import TIMEOUT_SECONDS, Jobs

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
POD = {"nodeName": "node-0", "containers": [{"name": "x", "image": "x"}]}


class Scaled(Jobs):
    """Jobs of any kind, with their subresource."""

    def __init__(self, plane: ControlPlane, kind: str, container: str, version: str) -> None:
        super().__init__(plane, NAMESPACE)
        self.kind, self.container, self.version = kind, container, version

    @property
    def resource(self) -> str:
        """The argument of kubectl that names kind and version."""
        return f"{self.kind.lower()}s.{self.version}.kubeflow.org"

    def submit(self, name: str, roles: dict[str, int], workers: int, **spec: Any) -> None:
        prefix = "xgb" if self.kind == "XGBoostJob" else self.kind.lower().removesuffix("job")
        template = {"spec": {**POD, "containers": [{"name": self.container, "image": "x"}]}}
        specs = {
            role: {"replicas": replicas, "template": template, "restartPolicy": "OnFailure"}
            for role, replicas in {**roles, "Worker": workers}.items()
        }
        self.create(name, {"spec": {f"{prefix}ReplicaSpecs": specs, **spec}})

    def scale(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.request("GET", f"{self.path(name)}/scale")
        return found

    def put_scale(self, name: str, replicas: int) -> None:
        """Replace the subresource, as an autoscaler does."""
        self._plane.request(
            "PUT", f"{self.path(name)}/scale", self.scale(name) | {"spec": {"replicas": replicas}}
        )

    def selected(self, name: str) -> list[str]:
        """Return the names of the pods that the selector of the subresource matches."""
        selector = quote(self.scale(name)["status"]["selector"])
        return sorted(
            pod["metadata"]["name"]
            for pod in self._plane.request("GET", f"{PODS}?labelSelector={selector}")["items"]
        )

    def wait_for_workers(self, name: str, count: int) -> None:
        """Wait until these workers run, and the subresource and its selector say so."""
        workers = [f"{name}-worker-{index}" for index in range(count)]
        self._plane.wait(
            f"{count} workers of {name}",
            lambda: (
                self.selected(name) == workers == [pod for pod in self.pods(name) if "-worker-" in pod]
                and self.scale(name)["status"]["replicas"] == count
            ),
            seconds=TIMEOUT_SECONDS,
        )

    def wait_for_hosts(self, name: str, key: str, hosts: list[str]) -> None:
        def found() -> list[str]:
            data = self._plane.request("GET", f"{CONFIG_MAPS}/{name}-config")["data"]
            return list(data[key].splitlines())

        self._plane.wait(f"{key} of {name}", lambda: found() == hosts, seconds=TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        install(plane, WITH_MPI_V1)
        with in_cluster_service(plane, ("--mpi-ssh-check=false",)):
            yield plane


@pytest.mark.parametrize(
    ("name", "kind", "container", "version", "roles", "spec"),
    [
        pytest.param("elastic", "PyTorchJob", "pytorch", "v1", {}, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}, id="elastic PyTorchJob"),
        pytest.param("led", "PyTorchJob", "pytorch", "v1", {"Master": 1}, {}, id="PyTorchJob with a master"),
        pytest.param("dynamic", "TFJob", "tensorflow", "v1", {"PS": 1, "Chief": 1}, {"enableDynamicWorker": True}, id="TFJob with dynamic workers"),
        pytest.param("paddle", "PaddleJob", "paddle", "v1", {}, {}, id="PaddleJob"),
        pytest.param("jax", "JAXJob", "jax", "v1", {}, {}, id="JAXJob"),
        pytest.param("mpi-v1", "MPIJob", "mpi", "v1", {"Launcher": 1}, {}, id="MPIJob v1"),
        pytest.param("mpi-v1alpha2", "MPIJob", "mpi", "v1alpha2", {"Launcher": 1}, {}, id="MPIJob v1alpha2"),
        pytest.param("mpi-v2beta1", "MPIJob", "mpi", "v2beta1", {"Launcher": 1}, {}, id="MPIJob v2beta1"),
        pytest.param("mpi-ranks", "MPIJob", "mpi", "v2beta1", {"Launcher": 1}, {"runLauncherAsWorker": True}, id="MPIJob v2beta1 with ranks in the launcher"),
    ],
)  # fmt: skip
def test_workers_follow_the_scale_subresource(
    plane: ControlPlane,
    name: str,
    kind: str,
    container: str,
    version: str,
    roles: dict[str, int],
    spec: dict[str, Any],
) -> None:
    """Up by kubectl, down as an autoscaler does, to nothing and back; worker 0 is the same pod until it goes.

    A v2beta1 MPIJob must have a worker, as in mpi-operator: the operator says so, and changes nothing until it has.
    """
    jobs = Scaled(plane, kind, container, version)
    jobs.submit(name, roles, 2, **spec)
    jobs.wait_for(name, "Running")
    jobs.wait_for_workers(name, 2)
    first, others = jobs.uid(f"{name}-worker-0"), [pod for pod in jobs.pods(name) if "-worker-" not in pod]

    kubectl.run(plane, f"kubectl scale {jobs.resource}/{name} --replicas=4")
    jobs.wait_for_workers(name, 4)
    jobs.put_scale(name, 1)
    jobs.wait_for_workers(name, 1)
    assert jobs.uid(f"{name}-worker-0") == first

    jobs.put_scale(name, 0)
    must_have_one = version == "v2beta1"
    if must_have_one:
        plane.wait("the event", lambda: "ValidationError" in jobs.event_reasons(name))
    else:
        jobs.wait_for_workers(name, 0)
    jobs.put_scale(name, 2)
    jobs.wait_for_workers(name, 2)
    assert (jobs.uid(f"{name}-worker-0") == first) is must_have_one
    assert [pod for pod in jobs.pods(name) if "-worker-" not in pod] == others
    assert {type_ for type_, status in jobs.conditions(name) if status == "True"} == {"Created", "Running"}


@pytest.mark.parametrize(
    ("version", "key", "host"),
    [
        pytest.param("v1", "discover_hosts.sh", "echo {}:1", id="v1"),
        pytest.param("v2beta1", "discover_hosts.sh", "echo {}.{job}.default.svc", id="v2beta1"),
        pytest.param("v1alpha2", "hostfile", "{} slots=1", id="v1alpha2"),
    ],
)
def test_the_list_of_hosts_of_an_mpijob_follows(
    plane: ControlPlane, version: str, key: str, host: str
) -> None:
    """The script that horovodrun reads names the workers that run; v1alpha2 has only the hostfile."""
    jobs, name = Scaled(plane, "MPIJob", "mpi", version), f"hosts-{version}"
    head = ["#!/bin/sh"] if key == "discover_hosts.sh" else []

    def lines(count: int) -> list[str]:
        return head + [host.format(f"{name}-worker-{index}", job=name) for index in range(count)]

    jobs.submit(name, {"Launcher": 1}, 1)
    jobs.wait_for(name, "Running")
    jobs.wait_for_hosts(name, key, lines(1))
    for count in (3, 2, 4):
        jobs.put_scale(name, count)
        jobs.wait_for_hosts(name, key, lines(count))


def test_the_size_of_an_xgboostjob_is_fixed(plane: ControlPlane) -> None:
    jobs = Scaled(plane, "XGBoostJob", "xgboost", "v1")
    jobs.submit("fixed", {"Master": 1}, 1)
    jobs.wait_for("fixed", "Running")

    with pytest.raises(AssertionError, match="NotFound"):
        kubectl.run(plane, f"kubectl scale {jobs.resource}/fixed --replicas=4")
    with pytest.raises(Refused, match="404"):
        jobs.scale("fixed")
