"""The permissions of v1 launchers on a real API server, and those that the controller needs to grant them.

The controller runs as the shipped ServiceAccount, with or without the component ``mpi-v1``; the audit log lists its requests.
"""

import subprocess
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.service import (
    ACCOUNT,
    MPI_V1_RIGHTS,
    STANDALONE,
    WITH_MPI_V1,
    in_cluster_service,
    install,
)
from tests.support.jobs import Jobs, MPIJobs, job
from tests.support.rights import Right, denied_rights, granted_rights, requested_rights

NAMESPACE = "default"
API_SERVER = ("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",)
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Mpi(MPIJobs):
    """MPIJobs of v1 on that control plane."""

    def job(self, name: str, workers: int, account: str = "", **spec: Any) -> None:
        pod: dict[str, Any] = {"nodeName": "node-0", "containers": [{"name": "mpi", "image": "x"}]}
        roles = {
            "Launcher": {"template": {"spec": {**pod, "serviceAccountName": account}}},
            "Worker": {"replicas": workers, "template": {"spec": pod}},
        }
        self.create(name, {"spec": {"mpiReplicaSpecs": roles, **spec}})

    def rules(self, name: str) -> list[dict[str, Any]]:
        return list(self._plane.request("GET", f"{RBAC}/roles/{name}-launcher").get("rules") or ())


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(
        nodes=1, audit_policy=policy([ACCOUNT], watches=True), api_server_flags=API_SERVER
    ) as plane:
        yield plane


@pytest.fixture(scope="module")
def jobs(plane: ControlPlane) -> Iterator[Mpi]:
    """With the component, and the controller running."""
    install(plane, WITH_MPI_V1)
    leave_behind(plane, "old")
    with in_cluster_service(plane):
        yield Mpi(plane, NAMESPACE)


def leave_behind(plane: ControlPlane, name: str) -> None:
    """A v1alpha2 job as the operator of 2020 leaves it: a batch Job that launches, and a StatefulSet of workers."""
    template = {"spec": {"containers": [{"name": "mpi", "image": "x"}], "restartPolicy": "Never"}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 1, "template": template}}
    whole = {
        "apiVersion": "kubeflow.org/v1alpha2",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": roles},
    }
    path = f"/apis/kubeflow.org/v1alpha2/namespaces/{NAMESPACE}/mpijobs"
    uid = plane.request("POST", path, whole)["metadata"]["uid"]
    owner = {
        "apiVersion": "kubeflow.org/v1alpha2",
        "kind": "MPIJob",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    labels = {"mpi_job_name": name}
    workers = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "mpi", "image": "x"}]}}
    specs: dict[tuple[str, str, str], Any] = {
        ("batch", "Job", "launcher"): {"template": template},
        ("apps", "StatefulSet", "worker"): {"selector": {"matchLabels": labels}, "template": workers},
    }
    for (group, kind, suffix), spec in specs.items():
        metadata = {"name": f"{name}-{suffix}", "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": spec}
        plane.request("POST", f"/apis/{group}/v1/namespaces/{NAMESPACE}/{kind.lower()}s", body)


def can(plane: ControlPlane, account: str, verb: str, resource: str, name: str = "") -> bool:
    resource, _, subresource = resource.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "resourceAttributes": {
                "verb": verb, "group": "", "resource": resource, "subresource": subresource,
                "namespace": NAMESPACE, "name": name,
            },
        },
    }  # fmt: skip
    return bool(plane.request("POST", REVIEWS, review)["status"]["allowed"])


def test_without_the_component_a_job_names_the_missing_permission(plane: ControlPlane) -> None:
    """Retries become less frequent."""
    install(plane, STANDALONE)
    jobs = Mpi(plane, NAMESPACE)
    with in_cluster_service(plane):
        jobs.job("poor", 1)
        plane.wait("an event", lambda: "MissingPermissions" in jobs.event_reasons("poor"), seconds=30)
        plane.wait("a second try", lambda: len(denied(plane)) > 1, seconds=30)

    assert set(denied(plane)) == {
        ("", "serviceaccounts", "create"),
        ("rbac.authorization.k8s.io", "roles", "create"),
    }
    assert len(denied(plane)) < 40
    assert "manifests/components/mpi-v1" in jobs.condition("poor", "Running")["message"]
    assert not jobs.pods("poor")
    plane.request("DELETE", jobs.path("poor"))
    assert plane.audit_log is not None
    plane.audit_log.write_text("")


def denied(plane: ControlPlane) -> list[Right]:
    """Of what jobs are made of; the jobs themselves and their definition are another component's to write."""
    return [
        refused_call
        for refused_call in denied_rights(plane)
        if refused_call[1] not in {"customresourcedefinitions", "mpijobs"}
    ]


def test_a_launcher_can_exec_into_its_own_workers_only(plane: ControlPlane, jobs: Mpi) -> None:
    jobs.job("train", 2, runPolicy={"cleanPodPolicy": "Running"})
    jobs.wait_for("train", "Running")

    def allowed(verb: str, resource: str, name: str = "") -> bool:
        return can(plane, "train-launcher", verb, resource, name)

    plane.wait("the right", lambda: allowed("create", "pods/exec", "train-worker-0"), seconds=10)
    assert allowed("get", "pods/exec", "train-worker-1")
    assert allowed("get", "pods", "train-worker-1")
    for verb, resource, name in (
        ("create", "pods/exec", ""),
        ("create", "pods/exec", "train-worker-2"),
        ("create", "pods/exec", "train-launcher"),
        ("list", "pods", ""),
        ("watch", "pods", ""),
        ("get", "pods", "other"),
        ("delete", "pods", "train-worker-0"),
    ):
        assert not allowed(verb, resource, name), (verb, resource, name)

    jobs.patch("train", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}})
    plane.wait("more", lambda: allowed("create", "pods/exec", "train-worker-2"), seconds=30)
    jobs.patch("train", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}})
    plane.wait("less", lambda: not allowed("create", "pods/exec", "train-worker-1"), seconds=30)

    jobs.patch("train", {"spec": {"runPolicy": {"suspend": True}}})
    plane.wait("none", lambda: not allowed("create", "pods/exec", "train-worker-0"), seconds=30)
    other = {"template": {"spec": {"serviceAccountName": "another"}}}
    jobs.patch("train", {"spec": {"mpiReplicaSpecs": {"Launcher": other}}})
    jobs.patch("train", {"spec": {"runPolicy": {"suspend": False}}})
    plane.wait("it again", lambda: can(plane, "another", "create", "pods/exec", "train-worker-0"), seconds=30)
    assert not allowed("create", "pods/exec", "train-worker-0")

    plane.wait("a launcher", lambda: jobs.uid("train-launcher") != "", seconds=30)
    jobs.wait_for("train", "Running")
    jobs.end_launcher("train")
    jobs.wait_for("train", "Succeeded")
    plane.wait(
        "no right", lambda: not can(plane, "another", "create", "pods/exec", "train-worker-0"), seconds=30
    )


def test_kubectl_exec_needs_no_other_permission(plane: ControlPlane, jobs: Mpi) -> None:
    """The real kubectl runs as the launcher: its first calls are allowed; then the missing kubelet is the only failure."""
    jobs.job("exec", 1)
    jobs.wait_for("exec", "Running")
    plane.wait(
        "the right", lambda: can(plane, "exec-launcher", "get", "pods/exec", "exec-worker-0"), seconds=10
    )
    folder = plane.service_account_folder(NAMESPACE, "exec-launcher")
    kubectl = str(binaries.ensure(["kubectl"])["kubectl"])

    def run(pod: str) -> str:
        command = [
            kubectl, f"--server={plane.server}", f"--certificate-authority={folder / 'ca.crt'}",
            f"--token={(folder / 'token').read_text()}", f"--namespace={NAMESPACE}", "exec", pod, "--", "true",
        ]  # fmt: skip
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env={"HOME": "/nowhere"}
        )
        assert ran.returncode != 0
        return ran.stderr

    assert "Forbidden" in run("exec-launcher")
    assert "Forbidden" not in (said := run("exec-worker-0")), said


def test_no_permission_is_granted_before_the_job_owns_the_pods(plane: ControlPlane, jobs: Mpi) -> None:
    """A PyTorchJob of that name has pods of just those names."""
    other = Jobs(plane, NAMESPACE)
    other.create("same", job(workers=1))
    other.wait_for("same", "Running")

    jobs.job("same", 2)

    plane.wait("an event", lambda: "ErrResourceExists" in reasons(plane, "MPIJob", "same"), seconds=30)
    assert jobs.rules("same") == []
    assert jobs.uid("same-launcher") == ""
    assert jobs.owner(f"/api/v1/namespaces/{NAMESPACE}/pods/same-worker-0") == "same"
    plane.request("DELETE", jobs.path("same"))


def reasons(plane: ControlPlane, kind: str, name: str) -> set[str]:
    items = plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return {
        item["reason"]
        for item in items
        if (item["involvedObject"]["kind"], item["involvedObject"]["name"]) == (kind, name)
    }


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_no_permission_outlives_its_job(plane: ControlPlane, jobs: Mpi, version: str) -> None:
    """Nor one that is deleted without its children: others' pods may get the names later."""
    name = f"left-{version}"
    jobs.job(name, 1, flavor=version)
    plane.wait(
        "the right",
        lambda: can(plane, f"{name}-launcher", "create", "pods/exec", f"{name}-worker-0"),
        seconds=30,
    )

    plane.request("DELETE", jobs.path(name), {"propagationPolicy": "Orphan"})

    plane.wait("no right", lambda: jobs.rules(name) == [], seconds=30)
    assert not can(plane, f"{name}-launcher", "create", "pods/exec", f"{name}-worker-0")
    plane.wait("the job gone", lambda: not plane.has(jobs.path(name)), seconds=30)
    assert plane.has(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}-worker-0")


def test_a_job_without_workers_gets_no_permission(plane: ControlPlane, jobs: Mpi) -> None:
    jobs.job("alone", 0)
    jobs.wait_for("alone", "Running")

    assert jobs.rules("alone") == []
    assert not can(plane, "alone-launcher", "create", "pods/exec", "train-worker-0")
    assert not can(plane, "alone-launcher", "list", "pods")


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        pytest.param(f"{RBAC}/roles", "Role", "roled-launcher", id="Role"),
        pytest.param(f"{RBAC}/rolebindings", "RoleBinding", "bound-launcher", id="RoleBinding"),
        pytest.param(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
            "ServiceAccount",
            "known-launcher",
            id="ServiceAccount",
        ),
    ],
)
def test_foreign_objects_are_left_alone(
    plane: ControlPlane, jobs: Mpi, path: str, kind: str, name: str
) -> None:
    group = "rbac.authorization.k8s.io"
    foreign: dict[str, Any] = {"kind": kind, "metadata": {"name": name}}
    if kind == "ServiceAccount":
        foreign["apiVersion"] = "v1"
    else:
        foreign["apiVersion"] = f"{group}/v1"
    if kind == "RoleBinding":
        foreign["roleRef"] = {"apiGroup": group, "kind": "Role", "name": "nothing"}
    before = plane.request("POST", path, foreign)["metadata"]["resourceVersion"]
    job = name.removesuffix("-launcher")

    jobs.job(job, 1)

    plane.wait(
        "an event",
        lambda: any("Err" in reason or "Failed" in reason for reason in jobs.event_reasons(job)),
        seconds=30,
    )
    assert plane.request("GET", f"{path}/{name}")["metadata"]["resourceVersion"] == before
    assert jobs.uid(name) == ""
    plane.request("DELETE", jobs.path(job))


def test_an_account_that_the_template_names_is_used_unchanged(plane: ControlPlane, jobs: Mpi) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)

    jobs.job("named", 1, account="trainer")
    jobs.wait_for("named", "Running")

    assert can(plane, "trainer", "create", "pods/exec", "named-worker-0")
    assert not plane.has(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/named-launcher")


def test_a_job_runs_in_a_restricted_namespace(plane: ControlPlane, jobs: Mpi) -> None:
    """The additions to the user's pods need no further privileges."""
    name = "restricted-mpi"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    there = Mpi(plane, name)
    security = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {"spec": {"containers": [{"name": "mpi", "image": "x", "securityContext": security}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 1, "template": template}}

    there.create("tight", {"spec": {"mpiReplicaSpecs": roles}})

    plane.wait("its pods", lambda: there.pods("tight") == ["tight-launcher", "tight-worker-0"], seconds=30)


def test_a_job_that_another_operator_started_continues_until_it_is_suspended(
    plane: ControlPlane, jobs: Mpi
) -> None:
    launcher = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/old-launcher"
    workers = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/old-worker"
    plane.wait("a word on it", lambda: "FlavorMismatch" in jobs.event_reasons("old"), seconds=30)
    first = plane.request("GET", launcher)["metadata"]["uid"]

    jobs.patch("old", {"spec": {"runPolicy": {"suspend": True}}})
    plane.wait("no StatefulSet", lambda: not plane.has(workers), seconds=30)

    def is_new() -> bool:
        return plane.has(launcher) and plane.request("GET", launcher)["metadata"]["uid"] != first

    plane.wait("a launcher of the new form", is_new, seconds=30)
    assert plane.request("GET", launcher)["spec"]["suspend"]


def test_the_component_grants_exactly_the_needed_permissions(plane: ControlPlane, jobs: Mpi) -> None:
    """After the jobs above no call was rejected, and every permission was used except those that are only granted on."""
    jobs.wait_for("alone", "Running")
    assert denied(plane) == []
    handed_on = {("", "pods/exec", "get"), ("", "pods/exec", "create")}
    assert granted_rights("ClusterRole", MPI_V1_RIGHTS) - requested_rights(plane) == handed_on
