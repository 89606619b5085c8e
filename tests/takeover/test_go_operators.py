"""Running jobs move from the real Go operators to this operator and back, and no pod changes.

Everything that is created or deleted meanwhile is asked of the API server, which keeps a record of what its watches saw.
"""

import json
import ssl
import urllib.request
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.mpijob import RESOURCE as MPIJOBS
from controller.crds import all_crds
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.gooperators import (
    LOCK_NAMESPACE,
    definitions,
    mpi_operator,
    training_operator,
)
from rallypoint.testing.manifests import build
from rallypoint.testing.service import ACCOUNT, WITH_MPI_V1, Service, in_cluster_service, install

VERSIONS = Path(__file__).parents[2] / "manifests" / "components" / "mpi-versions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
SETTLED_SECONDS = 120.0
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of job in one of its versions, and the roles of a job of three pods."""

    kind: str
    replicas: str
    container: str
    roles: Mapping[str, int]
    version: str = "v1"

    @property
    def collection(self) -> str:
        return f"/apis/kubeflow.org/{self.version}/namespaces/default/{self.kind.lower()}s"

    def path(self, name: str) -> str:
        return f"{self.collection}/{name}"

    def job(self, name: str, **spec: Any) -> Object:
        container = {"name": self.container, "image": "trainer:1", "command": ["train"]}
        template = {"spec": {"nodeName": "node-0", "containers": [container]}}
        roles = {role: {"replicas": count, "template": template} for role, count in self.roles.items()}
        return {
            "apiVersion": f"kubeflow.org/{self.version}",
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": {self.replicas: roles, **spec},
        }


MPI_V1 = Kind("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2})
MPI_V2BETA1 = Kind("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}, "v2beta1")
OTHERS = (
    Kind("PyTorchJob", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    Kind("TFJob", "tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": 2}),
    Kind("XGBoostJob", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    Kind("PaddleJob", "paddleReplicaSpecs", "paddle", {"Worker": 3}),
    Kind("JAXJob", "jaxReplicaSpecs", "jax", {"Worker": 3}),
)
NAMES = [kind.kind for kind in OTHERS]
PODS_OF_A_JOB = 3


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


class Jobs:
    """Jobs of many kinds, and what happens to their children."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._since = ""

    def start(self, kinds: Iterable[Kind], suffix: str, **spec: Any) -> None:
        """One job of each kind, with that in its spec; return when all of its pods and its status say that it runs."""
        made = [(kind, f"{kind.kind.lower()}-{kind.version}-{suffix}") for kind in kinds]
        for kind, name in made:
            self._plane.request("POST", kind.collection, kind.job(name, **spec))
        for kind, name in made:
            self._plane.wait(f"{name} to run", partial(self._runs, kind, name), seconds=SETTLED_SECONDS)

    def finish(self, kind: Kind, suffix: str) -> None:
        """Let every pod of a job end well; return when the job says so."""
        name = f"{kind.kind.lower()}-{kind.version}-{suffix}"
        for pod in self._pods(name):
            body = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
            self._plane.request("PATCH", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", body)
        self._plane.wait(
            f"{name} to succeed", lambda: "Succeeded" in self._state(kind, name), seconds=SETTLED_SECONDS
        )

    def pods(self) -> dict[str, tuple[str, int]]:
        """UID and restarts of each pod, by its name."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                sum(status["restartCount"] for status in pod.get("status", {}).get("containerStatuses", ())),
            )
            for pod in self._plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        }

    def remember_now(self) -> None:
        """Start the period that ``changes`` covers."""
        self._since = self._plane.request("GET", "/api/v1/namespaces/default/pods")["metadata"][
            "resourceVersion"
        ]

    def changes(self, but: str = "-") -> list[str]:
        """Every pod and batch Job that came or went since ``remember_now``, but those with that text in their names."""
        paths = ("/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs")
        events = [event for path in paths for event in watched(self._plane, path, self._since)]
        changes = (
            f"{event['type']} {event['object']['kind']} {event['object']['metadata']['name']}"
            for event in events
        )
        return [
            line
            for line in changes
            if line.split()[0] in {"ADDED", "DELETED"} and (not but or but not in line)
        ]

    def _runs(self, kind: Kind, name: str) -> bool:
        pods = self._pods(name)
        return len(pods) == PODS_OF_A_JOB and "Running" in self._state(kind, name)

    def _pods(self, name: str) -> list[Object]:
        items = self._plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return [item for item in items if item["metadata"]["name"].startswith(f"{name}-")]

    def _state(self, kind: Kind, name: str) -> set[str]:
        status = self._plane.request("GET", kind.path(name)).get("status", {})
        return {
            condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"
        }


def watched(plane: ControlPlane, path: str, since: str) -> Iterator[Object]:
    """Return the events since that resourceVersion."""
    query = f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=2"
    request = urllib.request.Request(plane.server + query)
    request.add_header("Authorization", f"Bearer {plane.users['admin'].token}")
    context = ssl.create_default_context(cafile=str(plane.authority.path))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        yield from map(json.loads, answer)


@contextmanager
def rallypoint(plane: ControlPlane, *flags: str) -> Generator[Service]:
    """This operator with all of its rights, once it works."""
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "training-operator-leases",
    }
    namespace, name = ACCOUNT.split(":")[2:]
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]
    rbac = "rbac.authorization.k8s.io/v1"
    bindings = [binding for binding in build(VERSIONS) if binding["kind"] == "ClusterRoleBinding"]
    for binding in bindings:
        binding["subjects"] = subjects
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOCK_NAMESPACE}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role["name"]},
            "roleRef": role,
            "subjects": subjects,
        },
        *(manifest for manifest in build(VERSIONS) if manifest["kind"] == "ClusterRole"),
        *bindings,
    )
    with in_cluster_service(plane, [f"--lock-namespace={LOCK_NAMESPACE}", *flags]) as service:
        plane.wait("it to work", lambda: service.metric("leader_election_master_status") == 1)
        yield service


def is_safe(plane: ControlPlane, operator: str) -> bool:
    """Whether ``rallypoint preflight`` says that the Go operator can be started."""
    return main(["preflight", operator, f"--kubeconfig={plane.kubeconfig()}"]) == 0


def test_jobs_of_training_operator_are_taken_over_and_handed_back(plane: ControlPlane) -> None:
    """With its own definitions before and after, so that MPIJob has v1 alone there."""
    jobs, kinds = Jobs(plane), [*OTHERS, MPI_V1]
    plane.apply(*definitions("training-operator"))
    with training_operator(plane):
        jobs.start(kinds, "old")
    before = jobs.pods()
    jobs.remember_now()

    install(plane, WITH_MPI_V1)
    with rallypoint(plane):
        jobs.start([*kinds, MPI_V2BETA1], "new")
    assert is_safe(plane, "training-operator")
    assert jobs.changes(but="-new") == []
    before |= {name: pod for name, pod in jobs.pods().items() if "-new" in name}
    jobs.remember_now()

    plane.apply(*definitions("training-operator"))
    with training_operator(plane):
        jobs.start(kinds, "later")
        assert jobs.changes(but="-later") == []
        assert {name: pod for name, pod in jobs.pods().items() if "-later" not in name} == before
        for kind in kinds:
            jobs.finish(kind, "old")


def test_jobs_of_both_operators_are_taken_over_and_handed_back(plane: ControlPlane) -> None:
    """Back to both at once, over our definition of MPIJob, which alone serves both of their versions."""
    jobs = Jobs(plane)
    plane.apply(
        *(crd for crd in definitions("training-operator") if crd["spec"]["names"]["kind"] != "MPIJob")
    )
    plane.apply(*definitions("mpi-operator"))
    with training_operator(plane, NAMES), mpi_operator(plane):
        jobs.start([*OTHERS, MPI_V2BETA1], "old")
    before = jobs.pods()
    jobs.remember_now()

    install(plane, WITH_MPI_V1)
    with rallypoint(plane):
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "new")
        jobs.start([MPI_V1], "ssh-new", flavor="v2beta1")
        jobs.start([MPI_V2BETA1], "exec-new", flavor="v1")
    assert is_safe(plane, "training-operator")
    assert is_safe(plane, "mpi-operator")
    assert jobs.changes(but="-new") == []
    before |= {name: pod for name, pod in jobs.pods().items() if "-new" in name}
    jobs.remember_now()

    with training_operator(plane), mpi_operator(plane):
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "later")
        assert jobs.changes(but="-later") == []
        assert {name: pod for name, pod in jobs.pods().items() if "-later" not in name} == before
        for kind in (*OTHERS, MPI_V2BETA1):
            jobs.finish(kind, "old")
        jobs.finish(MPI_V1, "new")


def test_a_training_operator_that_keeps_mpijobs_leaves_those_of_v2beta1(plane: ControlPlane) -> None:
    """Kind by kind: it has restarted with ``--enable-scheme=MPIJob``, over our definitions."""
    jobs = Jobs(plane)
    plane.apply(*all_crds())
    with mpi_operator(plane):
        jobs.start([MPI_V2BETA1], "old")
        jobs.remember_now()
        with training_operator(plane, [MPIJOBS.kind, "TFJob"]):
            jobs.start([MPI_V1, MPI_V2BETA1], "new")
            assert jobs.changes(but="-new") == []
            assert len(jobs.changes(but="")) == 2 * PODS_OF_A_JOB + 1
