"""v2beta1 MPIJobs on a real API server with its controller of batch Jobs, with the shipped permissions only."""

import asyncio
import json
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from api.labels import RESTART_ATTEMPT
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig, write_private
from rallypoint.testing.service import ACCOUNT, OPERATOR_NAMESPACE, in_cluster_service, install, service
from tests.support.breakpoint_proxy import BreakpointProxy
from tests.support.jobs import MPIJobs
from tests.support.rights import denied_rights, requested_rights, rights_for_mpijobs

NAMESPACE = "default"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
API_SERVER = ("--feature-gates=WatchList=false",)
"""Older servers have none, so that rights to list are needed."""
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


class Mpi(MPIJobs):
    """MPIJobs of v2beta1 on that control plane."""

    version = "v2beta1"

    def job(self, name: str, workers: int = 2, zone: str = "", **spec: Any) -> None:
        self.create(name, {"spec": {**self.roles(workers, zone), **spec}})

    def roles(self, workers: int = 2, zone: str = "") -> dict[str, Any]:
        pod: dict[str, Any] = {"containers": [{"name": "mpi", "image": "x"}], "nodeName": "node-0"}
        placed = {**pod, "nodeSelector": {"zone": zone}} if zone else pod
        launcher = {**placed, "nodeName": ""} if zone else pod
        return {
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": launcher}},
                "Worker": {"replicas": workers, "template": {"spec": placed if not zone else pod}},
            }
        }

    def is_suspended(self, name: str) -> bool | None:
        """Of the launcher; None while there is none."""
        path = f"{BATCH}?fieldSelector=metadata.name%3D{name}-launcher"
        found = self._plane.request("GET", path)["items"]
        return bool(found[0]["spec"]["suspend"]) if found else None

    def launcher_conditions(self, name: str) -> list[str]:
        return [condition["type"] for condition in self.launcher(name)["status"].get("conditions", ())]

    def attempts(self, name: str) -> list[tuple[str, int, str]]:
        """Return role, exit code and action of the attempts in the status."""
        status = self._plane.request("GET", self.path(name)).get("status", {})
        return [
            (attempt["role"], attempt["exitCode"], attempt["action"])
            for attempt in status.get("attempts", ())
        ]

    def launcher(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.request("GET", f"{BATCH}/{name}-launcher")
        return found


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(
        nodes=1, audit_policy=policy([ACCOUNT], watches=True), api_server_flags=API_SERVER
    ) as plane:
        yield plane


@pytest.fixture(scope="module")
def jobs(plane: ControlPlane) -> Iterator[Mpi]:
    install(plane)
    mpi = Mpi(plane, NAMESPACE)
    leave_behind(plane, mpi)
    with in_cluster_service(plane):
        yield mpi


def leave_behind(plane: ControlPlane, mpi: Mpi) -> None:
    """A job as mpi-operator leaves it: its Service, and a launcher that has been started."""
    mpi.job("left")
    owner = {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "left", "controller": True,
        "uid": plane.request("GET", mpi.path("left"))["metadata"]["uid"], "blockOwnerDeletion": True,
    }  # fmt: skip
    metadata = {"labels": {"app": "left"}, "ownerReferences": [owner]}
    service = {"clusterIP": "None", "selector": {"training.kubeflow.org/job-name": "left"}}
    plane.request("POST", f"{CORE}/services", {"metadata": {"name": "left", **metadata}, "spec": service})
    pod = {"restartPolicy": "Never", "containers": [{"name": "mpi", "image": "x"}], "nodeName": "node-0"}
    batch = {"metadata": {"name": "left-launcher", **metadata}, "spec": {"template": {"spec": pod}}}
    plane.request("POST", BATCH, batch)


def calls(plane: ControlPlane, name: str) -> Counter[tuple[str, str, int]]:
    """Return the controller's calls for that job: verb, resource and code."""
    assert plane.audit_log is not None
    found: Counter[tuple[str, str, int]] = Counter()
    for line in plane.audit_log.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        call = json.loads(line)
        target = call.get("objectRef") or {}
        if str(target.get("name", "")).split("-")[0].split(".")[0] == name:
            resource = "/".join(part for part in (target["resource"], target.get("subresource", "")) if part)
            found[call["verb"], resource, call["responseStatus"]["code"]] += 1
    return found


async def test_a_launcher_is_created_once_despite_a_lost_response(plane: ControlPlane) -> None:
    """The controller is behind a gateway; it reads what has the launcher's name. It ends before that of the other tests starts."""
    install(plane)
    mpi = Mpi(plane, NAMESPACE)
    token = (plane.service_account_folder(OPERATOR_NAMESPACE, "training-operator") / "token").read_text()

    def live(url: str) -> None:
        config = kubeconfig(url, plane.authority.pem, token, user="training-operator")
        with service(plane, write_private(plane.directory / "kubeconfigs" / "gateway.yaml", config)):
            mpi.job("unheard")
            mpi.wait_for("unheard", "Running")
            mpi.end_launcher("unheard")
            mpi.wait_for("unheard", "Succeeded")

    connection = await from_kubeconfig(str(plane.kubeconfig()))
    async with BreakpointProxy(connection, lost_responses=[("POST", BATCH)]) as proxy:
        await asyncio.to_thread(live, proxy.url)

    of_launcher = {call: count for call, count in calls(plane, "unheard").items() if call[1] == "jobs"}
    assert of_launcher == {("create", "jobs", 201): 1, ("create", "jobs", 409): 1, ("get", "jobs", 200): 1}


def test_a_job_runs_from_created_to_succeeded(plane: ControlPlane, jobs: Mpi) -> None:
    jobs.job("life")
    jobs.wait_for("life", "Running")
    jobs.end_launcher("life")
    jobs.wait_for("life", "Succeeded")

    counts = calls(plane, "life")
    assert counts.total() <= 2 + 12
    assert {code for _, _, code in counts} <= {200, 201}
    assert not [verb for verb, resource, _ in counts if resource == "secrets" and verb != "create"]


def test_a_resumed_launcher_gets_the_node_placement_of_its_queue(plane: ControlPlane, jobs: Mpi) -> None:
    jobs.job("moved", runPolicy={"suspend": True})
    plane.wait("a suspended launcher", lambda: jobs.is_suspended("moved") is True, seconds=30)
    jobs.patch("moved", {"spec": {**jobs.roles(zone="b"), "runPolicy": {"suspend": False}}})
    plane.wait("it to be resumed", lambda: jobs.is_suspended("moved") is False, seconds=30)

    assert jobs.launcher("moved")["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "b"}


def test_objects_of_mpi_operator_are_taken_over(plane: ControlPlane, jobs: Mpi) -> None:
    """A Service as it makes them is mended, and a launcher of its own is not made a second time."""
    owner = plane.request("GET", jobs.path("left"))["metadata"]["uid"]

    def is_repaired() -> bool:
        spec = plane.request("GET", f"{CORE}/services/left")["spec"]
        return bool(spec.get("publishNotReadyAddresses"))

    plane.wait("the Service to be repaired", is_repaired, seconds=30)
    (reference,) = jobs.launcher("left")["metadata"]["ownerReferences"]
    assert reference["uid"] == owner
    assert "hostname" not in jobs.launcher("left")["spec"]["template"]["spec"], "it is the one that was there"


def test_a_secret_of_that_name_is_left_alone(plane: ControlPlane, jobs: Mpi) -> None:
    secret = {"metadata": {"name": "taken-ssh"}, "stringData": {"theirs": "x"}}
    before = plane.request("POST", f"{CORE}/secrets", secret)
    jobs.job("taken")
    plane.wait("an event", lambda: "ErrResourceExists" in jobs.event_reasons("taken"), seconds=30)

    assert "delete the Secret taken-ssh" in jobs.condition("taken", "Running")["message"]
    assert jobs.conditions("taken")[-1] == ("Created", "True"), "which kubectl shows"
    assert plane.request("GET", f"{CORE}/secrets/taken-ssh") == before
    assert not jobs.pods("taken")
    plane.request("DELETE", f"{CORE}/secrets/taken-ssh")
    jobs.patch("taken", {"metadata": {"annotations": {"again": "now"}}, "spec": {"slotsPerWorker": 2}})
    jobs.wait_for("taken", "Running")


@pytest.mark.parametrize(
    ("name", "kind", "body"),
    [
        pytest.param("hosts-config", "ConfigMap", {"data": {"theirs": "x"}}, id="list of hosts"),
        pytest.param(
            "first-launcher",
            "Job",
            {
                "spec": {
                    "suspend": True,
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}
                    },
                }
            },
            id="launcher",
        ),
    ],
)
def test_foreign_objects_are_left_alone(
    plane: ControlPlane, jobs: Mpi, name: str, kind: str, body: dict[str, Any]
) -> None:
    path = BATCH if kind == "Job" else f"{CORE}/configmaps"
    before = plane.request("POST", path, {"metadata": {"name": name}, **body})["metadata"]["uid"]
    job = name.partition("-")[0]
    jobs.job(job)
    plane.wait("an event", lambda: "ErrResourceExists" in jobs.event_reasons(job), seconds=30)

    assert f"delete the {kind} {name}" in jobs.condition(job, "Running")["message"]
    assert plane.request("GET", f"{path}/{name}")["metadata"]["uid"] == before


def test_a_job_whose_worker_is_rejected_leaves_no_running_pods(plane: ControlPlane, jobs: Mpi) -> None:
    """A batch Job that is deleted leaves its pods, unless it is said that they go with it."""
    roles = jobs.roles()
    roles["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "No Name"
    jobs.job("refused", **roles)
    jobs.wait_for("refused", "Failed")

    assert 'Invalid value: "No Name"' in jobs.condition("refused", "Failed")["message"]
    plane.wait("no launcher", lambda: jobs.is_suspended("refused") is None, seconds=60)
    plane.wait("no pods", lambda: not jobs.pods("refused"), seconds=60)


def test_a_job_that_runs_is_suspended_and_resumed(plane: ControlPlane, jobs: Mpi) -> None:
    jobs.job("paused")
    jobs.wait_for("paused", "Running")
    jobs.patch("paused", {"spec": {"runPolicy": {"suspend": True}}})
    jobs.wait_for("paused", "Suspended")
    plane.wait("no pods", lambda: not jobs.pods("paused"), seconds=60)
    assert jobs.conditions("paused")[-1] == ("Suspended", "True"), "which kubectl shows"
    jobs.patch("paused", {"spec": {"runPolicy": {"suspend": False}}})
    jobs.wait_for("paused", "Running")

    assert jobs.is_suspended("paused") is False


def test_a_failure_policy_restarts_launcher_and_workers_together(plane: ControlPlane, jobs: Mpi) -> None:
    """The Job controller deletes and retries for real; no pod of the first attempt outlives it."""
    rules = [{"action": "RestartJob", "name": "any"}]
    jobs.job("again", runPolicy={"failurePolicy": {"maxRestarts": 1, "rules": rules}})
    jobs.wait_for("again", "Running")
    before = {pod["metadata"]["uid"] for pod in jobs.pod_objects("again")}
    jobs.end_launcher("again", code=3)
    plane.wait("a restart", lambda: jobs.attempts("again") == [("Launcher", 3, "RestartJob")], seconds=30)
    jobs.wait_for("again", "Running")
    pods = jobs.pod_objects("again")

    assert len(before) == len(pods) == 3
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    assert {pod["metadata"]["labels"][RESTART_ATTEMPT] for pod in pods} == {"1"}
    jobs.end_pod("again-worker-1", "Failed", 4)
    jobs.wait_for("again", "Failed")
    assert jobs.condition("again", "Failed")["reason"] == "MPIJobMaxRestartsExceeded"
    assert jobs.attempts("again")[1:] == [("Worker", 4, "RestartJob")]
    plane.wait("the launcher's end", lambda: "Failed" in jobs.launcher_conditions("again"), seconds=30)
    assert {code for _, _, code in calls(plane, "again")} <= {200, 201}


def test_a_suspended_job_with_a_failure_policy_counts_no_failure(plane: ControlPlane, jobs: Mpi) -> None:
    policy = {"failurePolicy": {"rules": [{"action": "RestartJob"}]}}
    jobs.job("rested", runPolicy=policy)
    jobs.wait_for("rested", "Running")
    old = jobs.launcher("rested")["metadata"]["uid"]
    jobs.patch("rested", {"spec": {"runPolicy": {"suspend": True}}})
    plane.wait("a suspended launcher", lambda: jobs.is_suspended("rested") is True, seconds=90)
    assert jobs.launcher("rested")["metadata"]["uid"] != old
    jobs.patch("rested", {"spec": {"runPolicy": {"suspend": False}}})
    jobs.wait_for("rested", "Running")

    assert jobs.attempts("rested") == []
    jobs.end_launcher("rested")
    jobs.wait_for("rested", "Succeeded")


def test_no_call_was_forbidden_and_every_permission_was_used(plane: ControlPlane, jobs: Mpi) -> None:
    """By the end of all that these jobs have met."""
    assert [
        refused_call
        for refused_call in denied_rights(plane)
        if refused_call[1] != "customresourcedefinitions"
    ] == []
    # This version's controller of batch Jobs forgets the start of a suspended one by itself; older ones leave it to us.
    assert rights_for_mpijobs() - requested_rights(plane) == {("batch", "jobs/status", "patch")}
