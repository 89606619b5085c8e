"""MPIJobs of each version under the real Kueue, which also queues pods and batch Jobs without a known owner."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support.jobs import TIMEOUT_SECONDS, MPIJobs
from tests.support.schedulers.gangs import open_nodes
from tests.support.schedulers.kueue import kueue
from tests.support.schedulers.operator import Operator

QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
CPUS = 4
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


class QueuedJobs(MPIJobs):
    """MPIJobs in a namespace with a queue."""

    def __init__(self, plane: ControlPlane, setting: Setting, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.namespace = namespace
        self._setting = setting

    def workloads(self) -> list[Any]:
        path = f"{QUEUES}/namespaces/{self.namespace}/workloads"
        found: list[Any] = self._plane.request("GET", path)["items"]
        return found

    def used(self) -> str:
        """CPUs of the ClusterQueue's quota that are taken."""
        queue = self._plane.request("GET", f"{QUEUES}/clusterqueues/{self.namespace}")
        (flavor,) = queue.get("status", {}).get("flavorsUsage") or [{"resources": [{"total": "0"}]}]
        (resource,) = flavor["resources"]
        return str(resource["total"])

    def submit(self, version: str, name: str) -> None:
        resources = {"requests": {"cpu": "1"}}
        template = {"spec": {"containers": [{"name": "mpi", "image": "x", "resources": resources}]}}
        roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
        queue = self._setting.local_queue
        labels = {} if queue == "default" else {QUEUE_NAME: queue}
        body = {"metadata": {"labels": labels}, "spec": {"mpiReplicaSpecs": roles}}
        self.create(name, body, version)


QUEUE_NAME = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module", params=list(SETTINGS.values()), ids=list(SETTINGS))
def environment(
    request: pytest.FixtureRequest, operator: Operator
) -> Generator[tuple[ControlPlane, Setting]]:
    """A control plane with Kueue in that setting, and the controller."""
    setting: Setting = request.param
    with ControlPlane(nodes=2, scheduler=True) as plane:
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        with (
            kueue(plane, jobs_without_queue_name=setting.jobs_without_queue_name),
            operator.running(plane, FLAGS),
        ):
            yield plane, setting


@pytest.fixture
def jobs(environment: tuple[ControlPlane, Setting]) -> QueuedJobs:
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
    return QueuedJobs(plane, setting, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_is_admitted_once_runs_ends_and_releases_its_quota(
    environment: tuple[ControlPlane, Setting], jobs: QueuedJobs, version: str
) -> None:
    plane, _ = environment
    jobs.submit(version, "pi")

    plane.wait(
        "all pods running", lambda: len(jobs.pod_objects("pi", "Running")) == 3, seconds=TIMEOUT_SECONDS
    )
    jobs.wait_for("pi", "Running")
    (workload,) = jobs.workloads()
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "MPIJob"
    plane.wait("the quota of three pods in use", lambda: jobs.used() == "3", seconds=TIMEOUT_SECONDS)

    jobs.end_launcher("pi")

    jobs.wait_for("pi", "Succeeded")
    plane.wait("its quota returned", lambda: jobs.used() == "0", seconds=TIMEOUT_SECONDS)
    assert len(jobs.workloads()) == 1


@pytest.mark.other_programs
def test_a_pod_without_a_job_is_queued_in_this_setting(
    environment: tuple[ControlPlane, Setting], jobs: QueuedJobs
) -> None:
    """This proves that the test above can fail."""
    plane, _ = environment
    resources = {"requests": {"cpu": str(CPUS + 1)}}
    pod = {
        "metadata": {"name": "alone"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
    }

    plane.request("POST", f"/api/v1/namespaces/{jobs.namespace}/pods", pod)

    (made,) = jobs.items("pods")
    assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]


@pytest.mark.other_programs
def test_a_dry_run_shows_whether_kueue_manages_a_kind(
    environment: tuple[ControlPlane, Setting], jobs: QueuedJobs
) -> None:
    """As docs/how-to/kueue.md says: PyTorchJob is off in this configuration, and MPIJob is on."""
    plane, setting = environment
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}, {"name": "mpi", "image": "x"}]}}
    role = {"replicas": 1, "template": template}
    specs = {
        ("v1", "PyTorchJob"): {"pytorchReplicaSpecs": {"Master": role}},
        ("v2beta1", "MPIJob"): {"mpiReplicaSpecs": {"Launcher": role, "Worker": role}},
    }
    suspended: dict[str, bool] = {}
    for (version, kind), spec in specs.items():
        body = {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": kind,
            "metadata": {"name": "dry", "labels": {QUEUE_NAME: setting.local_queue}},
            "spec": spec,
        }
        path = f"/apis/kubeflow.org/{version}/namespaces/{jobs.namespace}/{kind.lower()}s?dryRun=All"
        answer = plane.request("POST", path, body)
        suspended[kind] = bool((answer["spec"].get("runPolicy") or {}).get("suspend"))

    assert suspended == {"PyTorchJob": False, "MPIJob": True}
