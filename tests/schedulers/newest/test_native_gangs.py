"""Gangs under Kubernetes' own gang scheduling, on four simulated nodes with 64 GPUs each, two in each of two zones."""

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.flags import TEST_CONTROLLERS
from rallypoint.testing.service import WITH_MPI_V1, install
from tests.support.jobs import TIMEOUT_SECONDS, Jobs, MPIJobs
from tests.support.schedulers.gangs import NAMESPACE, open_nodes
from tests.support.schedulers.operator import Operator

GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,DRAWorkloadResourceClaims=true"
CONTROLLERS = (*TEST_CONTROLLERS, "podgroup-protection-controller", "resourceclaim-controller")
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
FLAGS = ("--gang-scheduler-name=Kubernetes", "--mpi-ssh-check=false")
"""No process answers in simulated pods."""
GROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups"
ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def plane(operator: Operator) -> Generator[ControlPlane]:
    with ControlPlane(
        nodes=4, scheduler=True, feature_gates=GATES, controllers=CONTROLLERS, api_server_flags=(SERVED,)
    ) as plane:
        open_nodes(plane)
        for index in range(4):
            change = {"metadata": {"labels": {ZONE: "ab"[index // 2]}}}
            plane.request("PATCH", f"/api/v1/nodes/node-{index}", change)
        for name, value in (("low", 1), ("high", 1000)):
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            plane.apply({**kind, "metadata": {"name": name}, "value": value})
        install(plane, WITH_MPI_V1)
        with operator.running(plane, FLAGS):
            yield plane


class Gangs(Jobs):
    """PyTorchJobs of a master and workers, each with some of a node's 64 GPUs."""

    def submit(self, name: str, pods: int, gpus: int, **spec: Any) -> None:
        container = {"name": "pytorch", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
        template = {"spec": {"containers": [container], **spec.pop("pod", {})}}
        roles = {
            "Master": {"replicas": 1, "template": template},
            "Worker": {"replicas": pods - 1, "template": template, "restartPolicy": "OnFailure"},
        }
        self.create(name, {"spec": {"pytorchReplicaSpecs": roles, **spec}})

    def group(self, name: str) -> dict[str, Any]:
        group: dict[str, Any] = self._plane.request("GET", f"{GROUPS}/{name}")
        return group

    def has_group(self, name: str) -> bool:
        return self._plane.has(f"{GROUPS}/{name}")

    def nodes(self, name: str) -> list[str]:
        """Return the nodes of the job's pods that have one and still run."""
        pods = self.pod_objects(name, "Running") + self.pod_objects(name, "Pending")
        return sorted(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

    def wait_until_running(self, name: str, pods: int) -> None:
        self.wait(f"{pods} pods of {name} running", lambda: len(self.pod_objects(name, "Running")) == pods)
        self.wait_for(name, "Running")

    def wait_for_report(self, name: str) -> str:
        """Wait until the job's status says what its gang waits for, and return the message."""
        reason = f"{self.kind}WaitingForGang"
        self.wait(
            f"the report of {name}",
            lambda: (
                ("Running", "False") in self.conditions(name)
                and self.condition(name, "Running")["reason"] == reason
            ),
        )
        return str(self.condition(name, "Running")["message"])

    def end(self, name: str) -> None:
        """End the job: its master succeeds, and then its workers do."""
        for pod in self.pods(name):
            self.end_pod(pod, "Succeeded", 0)
        self.wait_for(name, "Succeeded")

    def remove(self, name: str) -> None:
        self._plane.request("DELETE", self.path(name))
        self.wait(f"{name} gone", lambda: not self.pods(name) and not self.has_group(name))

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        self._plane.wait(what, holds, seconds=TIMEOUT_SECONDS)


@pytest.fixture
def jobs(plane: ControlPlane) -> Generator[Gangs]:
    jobs = Gangs(plane, NAMESPACE)
    yield jobs
    for job in plane.request("GET", jobs.path())["items"]:
        jobs.remove(job["metadata"]["name"])


def test_a_gang_that_fits_runs_and_its_group_goes_when_it_ends(jobs: Gangs) -> None:
    jobs.submit("fits", 4, 64)

    jobs.wait_until_running("fits", 4)
    assert jobs.group("fits")["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "disruptionMode": {"all": {}},
        "priority": 0,
    }
    assert {json.dumps(pod["spec"]["schedulingGroup"]) for pod in jobs.pod_objects("fits")} == {
        '{"podGroupName": "fits"}'
    }
    assert {pod["spec"]["schedulerName"] for pod in jobs.pod_objects("fits")} == {"default-scheduler"}
    jobs.end("fits")
    jobs.wait("its group gone", lambda: not jobs.has_group("fits"))
    assert len(jobs.pods("fits")) == 4


def test_a_gang_that_does_not_fit_holds_nothing_and_says_why(jobs: Gangs) -> None:
    """Four of its five pods would have a node; the other job needs all of these nodes."""
    jobs.submit("large", 5, 64)
    message = jobs.wait_for_report("large")
    jobs.submit("small", 4, 64)

    jobs.wait_until_running("small", 4)
    assert jobs.nodes("large") == []
    assert "waits for its PodGroup large, which is not scheduled and needs 5 pods at once: " in message
    assert "Insufficient nvidia.com/gpu" in message


def test_the_next_gang_runs_when_the_one_before_it_ends(jobs: Gangs) -> None:
    jobs.submit("first", 3, 64)
    jobs.wait_until_running("first", 3)
    jobs.submit("second", 3, 64)
    jobs.wait_for_report("second")
    assert jobs.nodes("second") == []

    jobs.end("first")

    jobs.wait_until_running("second", 3)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({}, id="by default"),
        pytest.param(
            {"failurePolicy": {"maxRestarts": 3, "rules": [{"action": "RestartJob"}]}}, id="as a whole"
        ),
    ],
)
def test_a_gang_is_preempted_as_a_whole_and_runs_again_later(jobs: Gangs, policy: dict[str, Any]) -> None:
    """The gang of higher priority needs one node more than are free."""
    low = {"schedulingPolicy": {"priorityClass": "low"}, **policy}
    jobs.submit("victim", 3, 64, runPolicy=low)
    jobs.wait_until_running("victim", 3)
    before = {pod["metadata"]["uid"] for pod in jobs.pod_objects("victim")}

    jobs.submit("urgent", 2, 64, pod={"priorityClassName": "high"})

    jobs.wait_until_running("urgent", 2)
    jobs.wait(
        "the victims replaced",
        lambda: (
            len(
                {
                    pod["metadata"]["uid"]
                    for pod in jobs.pod_objects("victim")
                    if pod["status"]["phase"] == "Pending"
                }
                - before
            )
            == 3
        ),
    )
    assert jobs.nodes("victim") == []
    jobs.end("urgent")
    jobs.wait_until_running("victim", 3)


def test_a_pod_is_replaced_after_others_have_succeeded(jobs: Gangs) -> None:
    jobs.submit("partly", 4, 16)
    jobs.wait_until_running("partly", 4)
    old = jobs.uid("partly-worker-1")
    jobs.end_pod("partly-worker-0", "Succeeded", 0)
    jobs.end_pod("partly-worker-1", "Failed", 1)

    jobs.wait("its replacement", lambda: jobs.uid("partly-worker-1") not in {"", old})

    jobs.wait("it running", lambda: len(jobs.pod_objects("partly", "Running")) == 3)
    assert jobs.group("partly")["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}


def test_a_gang_with_a_topology_constraint_stays_in_one_zone(plane: ControlPlane, jobs: Gangs) -> None:
    """Another job takes a node of zone a, so that only zone b has room for both pods."""
    jobs.submit("other", 1, 64, pod={"nodeSelector": {"kubernetes.io/hostname": "node-0"}})
    plane.request(
        "PATCH", "/api/v1/nodes/node-0", {"metadata": {"labels": {"kubernetes.io/hostname": "node-0"}}}
    )
    jobs.wait_until_running("other", 1)
    policy = {"schedulingConstraints": {"topology": [{"key": ZONE}]}}

    jobs.submit("zonal", 2, 64, runPolicy={"schedulingPolicy": policy})

    jobs.wait_until_running("zonal", 2)
    assert jobs.nodes("zonal") == ["node-2", "node-3"]


def test_the_pods_of_a_gang_share_a_resource_claim(plane: ControlPlane, jobs: Gangs) -> None:
    kind = {"apiVersion": "resource.k8s.io/v1"}
    plane.apply(
        {**kind, "kind": "DeviceClass", "metadata": {"name": "fabric"}, "spec": {}},
        {
            **kind,
            "kind": "ResourceSlice",
            "metadata": {"name": "fabric"},
            "spec": {
                "driver": "fabric.example.com",
                "allNodes": True,
                "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "channel-0"}],
            },
        },
        {
            **kind,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "fabric", "namespace": NAMESPACE},
            "spec": {
                "spec": {
                    "devices": {"requests": [{"name": "channel", "exactly": {"deviceClassName": "fabric"}}]}
                }
            },
        },
    )
    claim = {"name": "channel", "resourceClaimTemplateName": "fabric"}

    jobs.submit(
        "linked",
        3,
        1,
        pod={"resourceClaims": [claim]},
        runPolicy={"schedulingPolicy": {"resourceClaims": [claim]}},
    )

    jobs.wait_until_running("linked", 3)
    claims = plane.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims")["items"]
    assert [claim["status"]["reservedFor"][0]["resource"] for claim in claims] == ["podgroups"]


def test_a_job_is_scaled_suspended_and_resumed_with_its_group(jobs: Gangs) -> None:
    jobs.submit("changing", 2, 16)
    jobs.wait_until_running("changing", 2)
    first = jobs.group("changing")["metadata"]["uid"]
    worker = jobs._plane.request("GET", jobs.path("changing"))["spec"]["pytorchReplicaSpecs"]["Worker"]

    jobs.patch("changing", {"spec": {"pytorchReplicaSpecs": {"Worker": {**worker, "replicas": 3}}}})

    jobs.wait_until_running("changing", 4)
    assert jobs.group("changing")["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    jobs.patch("changing", {"spec": {"runPolicy": {"suspend": True}}})
    jobs.wait("its pods and group gone", lambda: not jobs.pods("changing") and not jobs.has_group("changing"))
    jobs.patch("changing", {"spec": {"runPolicy": {"suspend": False}}})
    jobs.wait_until_running("changing", 4)
    assert jobs.group("changing")["metadata"]["uid"] != first


def test_a_job_created_again_gets_a_group_of_its_own(plane: ControlPlane, jobs: Gangs) -> None:
    jobs.submit("again", 2, 16)
    jobs.wait_until_running("again", 2)
    uid = plane.request("GET", jobs.path("again"))["metadata"]["uid"]

    plane.request("DELETE", jobs.path("again"))
    jobs.wait("it gone", lambda: not plane.has(jobs.path("again")))
    jobs.submit("again", 2, 16)

    jobs.wait(
        "the new group",
        lambda: (
            jobs.has_group("again") and jobs.group("again")["metadata"]["ownerReferences"][0]["uid"] != uid
        ),
    )
    jobs.wait_until_running("again", 2)


class MPIGangs(Gangs, MPIJobs):
    """MPIJobs of a launcher and two workers."""

    kind = "MPIJob"
    container = "mpi"
    version = "v1"

    def start(self, version: str, name: str, annotations: dict[str, str], gpus: int = 16) -> None:
        container = {"name": "mpi", "image": "x"}
        worker = {**container, "resources": {"limits": {GPU: str(gpus)}}}
        roles = {
            "Launcher": {"template": {"spec": {"containers": [container]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
        }
        body = {"metadata": {"annotations": annotations}, "spec": {"mpiReplicaSpecs": roles}}
        self.create(name, body, version)


@pytest.mark.parametrize("version", ["v1", "v2beta1", "v1alpha2"])
@pytest.mark.parametrize(
    "annotations",
    [pytest.param({}, id="at once"), pytest.param({"kubeflow.org/mpi-wait-for-workers": "true"}, id="later")],
)
def test_an_mpijob_of_each_version_runs_is_suspended_and_ends(
    plane: ControlPlane, version: str, annotations: dict[str, str]
) -> None:
    jobs = MPIGangs(plane, NAMESPACE)
    name = f"mpi-{version}-{'later' if annotations else 'now'}"
    jobs.start(version, name, annotations)
    jobs.wait_until_running(name, 3)
    jobs.wait(
        "the launcher a member",
        lambda: jobs.group(name)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}},
    )
    assert all(pod["spec"]["schedulingGroup"] == {"podGroupName": name} for pod in jobs.pod_objects(name))

    jobs.patch(name, {"spec": {"runPolicy": {"suspend": True}}})
    jobs.wait("its pods and group gone", lambda: not jobs.pods(name) and not jobs.has_group(name))
    jobs.patch(name, {"spec": {"runPolicy": {"suspend": False}}})
    jobs.wait_until_running(name, 3)

    jobs.end_launcher(name)
    jobs.wait_for(name, "Succeeded")
    jobs.remove(name)


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_an_mpijob_that_does_not_fit_says_why(plane: ControlPlane, version: str) -> None:
    jobs = MPIGangs(plane, NAMESPACE)
    name = f"mpi-large-{version}"
    jobs.start(version, name, {}, gpus=65)

    message = jobs.wait_for_report(name)

    assert f"waits for its PodGroup {name}, which is not scheduled and needs 3 pods at once: " in message
    assert jobs.nodes(name) == []
    jobs.remove(name)


def test_pods_of_different_priorities_are_reported(jobs: Gangs) -> None:
    jobs.submit(
        "mixed",
        2,
        1,
        runPolicy={"schedulingPolicy": {"priorityClass": "low"}},
        pod={"priorityClassName": "high"},
    )

    message = jobs.wait_for_report("mixed")

    assert "should have the same priority as the pod group's priority" in message


def test_a_gang_with_eviction_responders_is_refused(jobs: Gangs) -> None:
    """Kubernetes accepts them in no pod of a group."""
    responders = [{"name": "checkpoint.example.com/save", "priority": 1}]

    jobs.submit("evictable", 2, 1, pod={"evictionResponders": responders})

    jobs.wait_for("evictable", "Failed")
    message = jobs.condition("evictable", "Failed")["message"]
    field = "spec.pytorchReplicaSpecs[Master].template.spec.evictionResponders"
    assert f"{field}: Forbidden: may not be set beside schedulingGroup" in message
    assert jobs.pods("evictable") == []
    assert not jobs.has_group("evictable")


@pytest.mark.parametrize(
    ("gates", "flags"),
    [
        pytest.param("GenericWorkload=true", (), id="the API is off"),
        pytest.param("", (SERVED,), id="the gate is off"),
    ],
)
def test_without_the_api_a_job_says_what_to_enable_and_gets_no_pods(
    gates: str, flags: tuple[str, ...], operator: Operator
) -> None:
    with ControlPlane(nodes=1, scheduler=True, feature_gates=gates, api_server_flags=flags) as plane:
        install(plane, WITH_MPI_V1)
        jobs = Gangs(plane, NAMESPACE)
        with operator.running(plane, FLAGS):
            jobs.submit("blocked", 2, 1)
            jobs.wait("the report", lambda: ("Running", "False") in jobs.conditions("blocked"))

        condition = jobs.condition("blocked", "Running")
        assert condition["reason"] == "PyTorchJobBlocked"
        assert condition["message"] == (
            "the API server serves no podgroups.scheduling.k8s.io: "
            "enable scheduling.k8s.io/v1beta1 and the feature gate GenericWorkload, in Kubernetes 1.37 or newer"
        )
        assert jobs.pods("blocked") == []
