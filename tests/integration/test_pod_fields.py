"""Newer fields of pod templates reach the pods untouched, and a pod whose resources are changed in place stays as it is."""

from collections.abc import Generator, Mapping
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support.jobs import TIMEOUT_SECONDS, Jobs

NAMESPACE = "default"
GATES = (
    "AtomicWriteVolumeUserFields",
    "EmptyDirVolumeMode",
    "EvictionRequestAPI",
    "GRPCContainerProbeTLS",
    "GenericWorkload",
    "H2CContainerProbe",
    "VolumeBindMountOptions",
)
"""The feature gates of the fields that Kubernetes 1.37 has added, and of ``schedulingGroup``. All are off by default."""


def pod(container: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """The part of a pod's spec that a test compares."""
    return {**spec, "containers": [dict(container)]}


DEVICES = pod(
    {
        "resources": {
            "limits": {"cpu": "2", "example.com/gpu": "2"},
            "requests": {"cpu": "1", "example.com/gpu": "2"},
            "claims": [{"name": "fabric", "request": "channel"}],
        },
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    },
    resourceClaims=[{"name": "fabric", "resourceClaimTemplateName": "fabric"}],
)
"""Claims and extended resources, which a DeviceClass may serve, and what a resize of the CPU does."""
FILES = {"items": [{"key": "a", "path": "a", "user": 1000}], "defaultUser": 1001}
NEWEST = pod(
    {
        "livenessProbe": {"httpGet": {"port": 80, "protocol": "HTTP2"}},
        "readinessProbe": {"grpc": {"port": 81, "mode": "TLS"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "bindMountOptions": ["noexec"]}],
    },
    volumes=[
        {"name": "scratch", "emptyDir": {"mode": 0o755}},
        {"name": "config", "configMap": {"name": "config", **FILES}},
        {"name": "secret", "secret": {"secretName": "secret", **FILES}},
    ],
)
RESPONDERS = pod({}, evictionResponders=[{"name": "checkpoint.example.com/save", "priority": 10_000}])
GROUP = pod({}, schedulingGroup={"podGroupName": "mine"})
KINDS = [
    pytest.param("PyTorchJob", "pytorch", "v1", id="PyTorchJob"),
    pytest.param("MPIJob", "mpi", "v2beta1", id="MPIJob"),
]


class Typed(Jobs):
    """Jobs of any kind whose workers have a given pod spec."""

    def __init__(self, plane: ControlPlane, kind: str, container: str, version: str) -> None:
        super().__init__(plane, NAMESPACE)
        self.kind, self.container, self.version = kind, container, version
        self.field = f"{kind.lower().removesuffix('job')}ReplicaSpecs"

    def body(self, name: str, spec: Mapping[str, Any], typo: str = "") -> dict[str, Any]:
        (container,) = spec["containers"]
        named = {"name": self.container, "image": "x", **container}
        worker = {**spec, "nodeName": "node-0", "containers": [named]} | ({typo: 1} if typo else {})
        plain = {"nodeName": "node-0", "containers": [{"name": self.container, "image": "x"}]}
        roles = {"Worker": {"replicas": 1, "template": {"spec": worker}}}
        if self.kind == "MPIJob":
            roles["Launcher"] = {"template": {"spec": plain}}
        return {
            "apiVersion": f"kubeflow.org/{self.version}",
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": {self.field: roles},
        }

    def submit(self, name: str, spec: Mapping[str, Any], typo: str = "") -> None:
        """Create a job under strict validation of its fields."""
        self._plane.request("POST", f"{self.path()}?fieldValidation=Strict", self.body(name, spec, typo))

    def worker(self, name: str, index: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.request("GET", self.pod_path(name, index))
        return found

    def pod_path(self, name: str, index: int = 0) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods/{name}-worker-{index}"

    def wait_for_worker(self, name: str, index: int = 0) -> None:
        path = self.pod_path(name, index)
        self._plane.wait(path, lambda: self._plane.has(path), seconds=TIMEOUT_SECONDS)


def is_part_of(given: Any, found: Any) -> bool:
    """Return whether all that is given is found; lists may end in more than was given."""
    if isinstance(given, Mapping):
        return all(key in found and is_part_of(value, found[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) <= len(found) and all(map(is_part_of, given, found))
    return bool(given == found)


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        install(plane, WITH_MPI_V1)
        with in_cluster_service(plane, ("--mpi-ssh-check=false",)):
            yield plane


@pytest.fixture(scope="module")
def gated() -> Generator[ControlPlane]:
    """A control plane with all of these gates."""
    gates = ",".join(f"{gate}=true" for gate in GATES)
    with ControlPlane(nodes=1, feature_gates=gates) as plane:
        install(plane, WITH_MPI_V1)
        with in_cluster_service(plane, ("--mpi-ssh-check=false",)):
            yield plane


@pytest.mark.newest
@pytest.mark.parametrize(("kind", "container", "version"), KINDS)
def test_claims_and_extended_resources_reach_the_pod(
    plane: ControlPlane, kind: str, container: str, version: str
) -> None:
    jobs, name = Typed(plane, kind, container, version), f"devices-{kind.lower()}"

    jobs.submit(name, DEVICES)

    jobs.wait_for_worker(name)
    assert is_part_of(DEVICES, jobs.worker(name)["spec"])


@pytest.mark.newest
@pytest.mark.parametrize(("kind", "container", "version"), KINDS)
def test_a_pod_that_is_resized_in_place_stays_as_it_is(
    plane: ControlPlane, kind: str, container: str, version: str
) -> None:
    """Also while its kubelet waits for room. A worker that is added later has the resources of the template."""
    jobs, name = Typed(plane, kind, container, version), f"resized-{kind.lower()}"
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    jobs.submit(name, pod({"resources": resources}))
    jobs.wait_for(name, "Running")
    statuses = jobs.worker(name)["status"]["containerStatuses"]
    # A kubelet that can resize reports the resources.
    reported = [{**status, "resources": resources} for status in statuses]
    jobs.patch_pod_status(f"{name}-worker-0", {"containerStatuses": reported})
    before = jobs.worker(name)
    resized = {"requests": {"cpu": "3", "memory": "2Gi"}}

    (current,) = before["spec"]["containers"]
    changed = [{**current, "resources": resized}]
    plane.request("PATCH", f"{jobs.pod_path(name)}/resize", {"spec": {"containers": changed}})
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    conditions = [*before["status"]["conditions"], pending]
    jobs.patch_pod_status(f"{name}-worker-0", {"conditions": conditions})
    plane.request("PATCH", f"{jobs.path(name)}/scale", {"spec": {"replicas": 2}})
    jobs.wait_for_worker(name, 1)

    after = jobs.worker(name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["containers"][0]["resources"] == resized
    assert jobs.worker(name, 1)["spec"]["containers"][0]["resources"] == resources
    assert ("Running", "True") in jobs.conditions(name)
    assert ("Restarting", "True") not in jobs.conditions(name)


@pytest.mark.newest_only
@pytest.mark.parametrize(("kind", "container", "version"), KINDS)
@pytest.mark.parametrize(
    ("word", "spec"),
    [
        pytest.param("fields", NEWEST, id="probes, mounts and volumes"),
        pytest.param("responders", RESPONDERS, id="eviction responders"),
        pytest.param("group", GROUP, id="a scheduling group"),
    ],
)
def test_the_fields_of_kubernetes_1_37_reach_the_pod(
    gated: ControlPlane, kind: str, container: str, version: str, word: str, spec: dict[str, Any]
) -> None:
    """A write through the job keeps them."""
    jobs, name = Typed(gated, kind, container, version), f"{word}-{kind.lower()}"

    jobs.submit(name, spec)
    jobs.patch(name, {"metadata": {"annotations": {"a": "b"}}})

    jobs.wait_for_worker(name)
    stored = gated.request("GET", jobs.path(name))["spec"][jobs.field]["Worker"]["template"]["spec"]
    assert is_part_of(spec, stored)
    assert is_part_of(spec, jobs.worker(name)["spec"])


@pytest.mark.newest_only
def test_eviction_responders_in_a_group_are_refused_before_the_first_pod(gated: ControlPlane) -> None:
    """The API server would refuse the pods."""
    both = {**RESPONDERS, **GROUP}
    named = {"name": "both", "namespace": NAMESPACE}
    own = {**both, "containers": [{"name": "own", "image": "x"}]}
    with pytest.raises(Refused, match="evictionResponders"):
        gated.request(
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": own},
        )
    jobs = Typed(gated, "PyTorchJob", "pytorch", "v1")

    jobs.submit("both", both)

    jobs.wait_for("both", "Failed")
    field = "spec.pytorchReplicaSpecs[Worker].template.spec.evictionResponders: Forbidden"
    assert field in jobs.condition("both", "Failed")["message"]
    assert jobs.pods("both") == []


def test_the_fields_of_kubernetes_1_37_are_stored_by_every_server(plane: ControlPlane) -> None:
    """A server that is older than the fields drops them from the pods."""
    for index, spec in enumerate((DEVICES, NEWEST, RESPONDERS, GROUP)):
        jobs = Typed(plane, "PyTorchJob", "pytorch", "v1")
        jobs.submit(f"stored-{index}", spec)

        stored = plane.request("GET", jobs.path(f"stored-{index}"))["spec"][jobs.field]["Worker"]
        assert is_part_of(spec, stored["template"]["spec"])


@pytest.mark.parametrize("typo", ["schedulingGroups", "evictionResponder", "resourceClaim"])
def test_a_typo_in_a_newer_field_is_refused(plane: ControlPlane, typo: str) -> None:
    jobs = Typed(plane, "PyTorchJob", "pytorch", "v1")

    with pytest.raises(Refused, match=f'unknown field "spec.*{typo}"'):
        jobs.submit("typo", pod({}), typo)
