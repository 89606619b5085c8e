"""The controller as its Deployment runs it: in a pod's environment, as the shipped ServiceAccount, with the shipped flags.

The audit log lists the requests. None is forbidden, and every granted permission is used.
"""

from collections.abc import Generator

import pytest

from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import ACCOUNT, in_cluster_service, install
from tests.support.jobs import Jobs, job
from tests.support.rights import denied_rights, granted_rights, requested_rights

NAMESPACE = "default"
API_SERVER = (
    "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    "--feature-gates=WatchList=false",  # older servers have none, so that rights to list are needed
)
GANGS = {
    (group, "podgroups", verb)
    for group in ("scheduling.k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io")
    for verb in ("get", "list", "watch", "create", "patch", "delete")
} | {("scheduling.volcano.sh", "queues", "get")}
"""Permissions for --gang-scheduler-name, which is not set here; the recorded cases use them."""
NEVER_REQUESTED = {("kubeflow.org", "jobs of any kind/finalizers", "update"), *GANGS}
"""Rights that no request needs: the first is looked up by an admission plugin that is on here, when a pod names its owner."""
LEADS = 'leader_election_master_status{name="1ca428e5.training-operator.kubeflow.org"}'


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(
        nodes=1, audit_policy=policy([ACCOUNT], watches=True), api_server_flags=API_SERVER
    ) as plane:
        install(plane)
        yield plane


def test_complete_job_runs_use_exactly_the_granted_permissions(plane: ControlPlane) -> None:
    jobs = Jobs(plane, NAMESPACE)
    with in_cluster_service(plane) as running:
        live_and_expire(plane, jobs)
        follow_an_elastic_policy(plane, jobs)
        meet_taken_names(plane, jobs)
        write_beside_a_user(plane, jobs)
        suspect_a_node(plane, jobs)
        assert (
            running.metric('controller_runtime_reconcile_panics_total{controller="pytorchjob-controller"}')
            == 0
        )

    assert denied_rights(plane) == []
    assert granted_rights("ClusterRole") - requested_rights(plane) == NEVER_REQUESTED


def test_a_standby_replica_takes_over_from_the_leader(plane: ControlPlane) -> None:
    jobs = Jobs(plane, NAMESPACE)
    with in_cluster_service(plane, replica="first") as first:
        plane.wait("the first to lead", lambda: first.metric(LEADS) == 1, seconds=60)
        with in_cluster_service(plane, replica="second") as second:
            jobs.create("before", job(workers=1))
            jobs.wait_for("before", "Running")
            assert second.metric(LEADS) == 0

            del plane.processes[first.process.name]
            first.process.stop(grace_seconds=30)
            jobs.create("after", job(workers=1))
            jobs.wait_for("after", "Running")
            assert second.metric(LEADS) == 1

    assert denied_rights(plane) == []
    assert granted_rights("Role") - requested_rights(plane) == set()


def live_and_expire(plane: ControlPlane, jobs: Jobs) -> None:
    """Created, Running, a failed worker replaced, Succeeded, pods and Services cleaned up, the job deleted."""
    jobs.create("life", job(workers=1, runPolicy={"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 3}))
    jobs.wait_for("life", "Running")
    first = jobs.uid("life-worker-0")
    jobs.end_pod("life-worker-0", "Failed", 1)
    plane.wait("a new pod", lambda: jobs.uid("life-worker-0") not in {"", first}, seconds=30)
    jobs.end_pod("life-master-0", "Succeeded", 0)
    plane.wait("the job to go", lambda: not plane.has(jobs.path("life")), seconds=60)
    assert jobs.pods("life") == []


def follow_an_elastic_policy(plane: ControlPlane, jobs: Jobs) -> None:
    """An autoscaler beside the job: made, changed with the policy, deleted while the job is suspended."""
    path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/elastic"
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    body = job(workers=2, elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "metrics": metrics})
    del body["spec"]["pytorchReplicaSpecs"]["Master"]
    jobs.create("elastic", body)
    jobs.wait_for("elastic", "Running")
    plane.wait("an autoscaler", lambda: plane.has(path), seconds=30)

    jobs.patch("elastic", {"spec": {"elasticPolicy": {"maxReplicas": 4}}})
    plane.wait("another maximum", lambda: plane.request("GET", path)["spec"]["maxReplicas"] == 4, seconds=30)
    jobs.patch("elastic", {"spec": {"runPolicy": {"suspend": True}}})
    jobs.wait_for("elastic", "Suspended")
    plane.wait("no autoscaler", lambda: not plane.has(path), seconds=30)


def suspect_a_node(plane: ControlPlane, jobs: Jobs) -> None:
    """A pod that is not ready is a reason to read its node, for a job that asks about nodes."""
    jobs.create("asks", job(workers=0, runPolicy={"nodeLostSeconds": 60}))
    jobs.wait_for("asks", "Running")
    unready = {"type": "Ready", "status": "False"}
    jobs.patch_pod_status("asks-master-0", {"conditions": [unready]})

    wanted = {("", "nodes", "get"), ("coordination.k8s.io", "leases", "list")}
    plane.wait("node and Leases read", lambda: wanted <= requested_rights(plane), seconds=60)


def meet_taken_names(plane: ControlPlane, jobs: Jobs) -> None:
    """Foreign pods and Services are read and reported repeatedly, and left alone."""
    container = {"name": "main", "image": "x"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-worker-0"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken-worker-1"}}
    core = f"/api/v1/namespaces/{NAMESPACE}"
    plane.request("POST", f"{core}/pods", {**pod, "spec": {"containers": [container], "nodeName": "node-0"}})
    plane.request("POST", f"{core}/services", {**service, "spec": {"ports": [{"port": 80}]}})
    jobs.create("taken", job(workers=2))

    wanted = {("", "pods", "get"), ("", "services", "get"), ("", "events", "patch")}
    plane.wait("both names looked up", lambda: wanted <= requested_rights(plane), seconds=60)
    assert jobs.owner(f"{core}/pods/taken-worker-0") == ""


def write_beside_a_user(plane: ControlPlane, jobs: Jobs) -> None:
    """A status write from an older version of the job reads the newest version."""
    jobs.create("busy", job(workers=1))
    jobs.wait_for("busy", "Running")
    suspend = False

    def has_collided() -> bool:
        nonlocal suspend
        suspend = not suspend
        jobs.patch("busy", {"spec": {"runPolicy": {"suspend": suspend}}})
        for note in "abcdefgh":
            jobs.patch("busy", {"metadata": {"annotations": {"note": note}}})
        return ("kubeflow.org", "jobs of any kind", "get") in requested_rights(plane)

    plane.wait("a write that came too late", has_collided, seconds=60)


def test_requests_have_their_own_priority_level(plane: ControlPlane) -> None:
    """By API Priority and Fairness; else they would wait behind those of every other ServiceAccount."""
    with in_cluster_service(plane):
        pass

    assert dispatched(plane, "training-operator", "workload-high") > 0
    assert dispatched(plane, "training-operator-leases", "leader-election") > 0
    assert dispatched(plane, "service-accounts", "workload-low") == 0


def dispatched(plane: ControlPlane, schema: str, level: str) -> float:
    """Requests that the API server has let through by this FlowSchema at this priority level."""
    labels = f'{{flow_schema="{schema}",priority_level="{level}"}}'
    wanted = f"apiserver_flowcontrol_dispatched_requests_total{labels} "
    lines = str(plane.request("GET", "/metrics")).splitlines()
    return next((float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted)), 0.0)
