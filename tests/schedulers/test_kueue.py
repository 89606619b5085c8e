"""MPIJobs of each version under the real Kueue, which also queues pods and batch Jobs without a known owner."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support.schedulers.gangs import open_nodes
from tests.support.schedulers.kueue import kueue

QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
CPUS = 4
SECONDS = 90.0
FLAGS = ("--mpi-ssh-check=false",)
"""No process answers in simulated pods."""
VERSIONS = ("v1", "v2beta1", "v1alpha2")


@dataclass(frozen=True)
class Setting:
    """Under which pods of a job are queued, unless Kueue knows that the job is."""

    local_queue: str
    """Also that of jobs which name none, if it is ``default``."""
    jobs_without_queue_name: bool


SETTINGS = {
    "a default queue": Setting("default", False),
    "all jobs": Setting("main", True),
}


@dataclass(frozen=True)
class Cluster:
    plane: ControlPlane
    setting: Setting
    namespace: str

    def path(self, plural: str, name: str = "", version: str = "v1") -> str:
        prefix = f"/apis/kubeflow.org/{version}" if plural == "mpijobs" else "/api/v1"
        base = f"{prefix}/namespaces/{self.namespace}/{plural}"
        return f"{base}/{name}" if name else base

    def items(self, path: str) -> list[Any]:
        found: list[Any] = self.plane.request("GET", path)["items"]
        return found

    def pods(self) -> list[Any]:
        return self.items(self.path("pods"))

    def workloads(self) -> list[Any]:
        return self.items(f"{QUEUES}/namespaces/{self.namespace}/workloads")

    def used(self) -> str:
        """CPUs of the ClusterQueue's quota that are taken."""
        queue = self.plane.request("GET", f"{QUEUES}/clusterqueues/{self.namespace}")
        (flavor,) = queue.get("status", {}).get("flavorsUsage") or [{"resources": [{"total": "0"}]}]
        (resource,) = flavor["resources"]
        return str(resource["total"])

    def conditions(self, name: str) -> set[str]:
        job = self.plane.request("GET", self.path("mpijobs", name))
        conditions = job.get("status", {}).get("conditions", ())
        return {condition["type"] for condition in conditions if condition["status"] == "True"}

    def running(self) -> list[str]:
        return sorted(
            pod["metadata"]["labels"].get("training.kubeflow.org/job-role")
            or pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]
            for pod in self.pods()
            if pod["status"]["phase"] == "Running"
        )

    def create(self, version: str, name: str) -> None:
        resources = {"requests": {"cpu": "1"}}
        template = {"spec": {"containers": [{"name": "mpi", "image": "x", "resources": resources}]}}
        roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
        labels = {} if self.setting.local_queue == "default" else {QUEUE_NAME: self.setting.local_queue}
        job = {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": "MPIJob",
            "metadata": {"name": name, "labels": labels},
            "spec": {"mpiReplicaSpecs": roles},
        }
        self.plane.request("POST", self.path("mpijobs", version=version), job)

    def end_launcher(self) -> None:
        (launcher,) = (pod for pod in self.pods() if "-launcher" in pod["metadata"]["name"])
        mark = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
        self.plane.request("PATCH", self.path("pods", launcher["metadata"]["name"]), mark)


QUEUE_NAME = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module", params=list(SETTINGS.values()), ids=list(SETTINGS))
def environment(request: pytest.FixtureRequest) -> Generator[tuple[ControlPlane, Setting]]:
    """A control plane with Kueue in that setting, and the controller."""
    setting: Setting = request.param
    with ControlPlane(nodes=2, scheduler=True) as plane:
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        with (
            kueue(plane, jobs_without_queue_name=setting.jobs_without_queue_name),
            in_cluster_service(plane, FLAGS),
        ):
            yield plane, setting


@pytest.fixture
def cluster(environment: tuple[ControlPlane, Setting]) -> Cluster:
    """A namespace whose pods are queued, with a quota of its own."""
    plane, setting = environment
    name = f"team-{len(plane.request('GET', '/api/v1/namespaces')['items'])}"
    quota = {"name": "cpu", "nominalQuota": CPUS}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {**kind, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            **kind,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            **kind,
            "kind": "LocalQueue",
            "metadata": {"name": setting.local_queue, "namespace": name},
            "spec": {"clusterQueue": name},
        },
    )
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    plane.wait("its ServiceAccount", lambda: plane.has(account))
    return Cluster(plane, setting, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_is_admitted_once_runs_ends_and_releases_its_quota(cluster: Cluster, version: str) -> None:
    plane = cluster.plane
    cluster.create(version, "pi")

    plane.wait("all pods running", lambda: len(cluster.running()) == 3, seconds=SECONDS)
    plane.wait("the job Running", lambda: "Running" in cluster.conditions("pi"), seconds=SECONDS)
    (workload,) = cluster.workloads()
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "MPIJob"
    plane.wait("the quota of three pods in use", lambda: cluster.used() == "3", seconds=SECONDS)

    cluster.end_launcher()

    plane.wait("the job Succeeded", lambda: "Succeeded" in cluster.conditions("pi"), seconds=SECONDS)
    plane.wait("its quota returned", lambda: cluster.used() == "0", seconds=SECONDS)
    assert len(cluster.workloads()) == 1


def test_a_pod_without_a_job_is_queued_in_this_setting(cluster: Cluster) -> None:
    """This proves that the test above can fail."""
    resources = {"requests": {"cpu": str(CPUS + 1)}}
    pod = {
        "metadata": {"name": "alone"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
    }

    cluster.plane.request("POST", cluster.path("pods"), pod)

    (made,) = cluster.pods()
    assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]
