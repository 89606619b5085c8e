"""``rallypoint check`` on a real API server: silent on a healthy installation, and each seeded fault in its line."""

import copy
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.crds import all_crds
from controller.kinds import DEFAULT
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane, Refused, User
from rallypoint.testing.manifests import build
from rallypoint.testing.service import STANDALONE
from tests.support.mpiversions import manifest

ORDINARY = "ordinary"
OURS = "rallypoint-system"
SHADOW = STANDALONE.parent / "shadow"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{OURS}/deployments/training-operator"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
LEASE_ID = "1ca428e5.training-operator.kubeflow.org"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "rbac.authorization.k8s.io/v1"
GO_DEFINITION = Path(__file__).with_name("training-operator.yaml")
Object = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What one run of the command says."""

    status: int
    findings: list[dict[str, str]]

    def texts(self, level: str, check: str = "") -> list[str]:
        return [
            finding["text"]
            for finding in self.findings
            if finding["level"] == level and check in ("", finding["check"])
        ]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster with the standalone installation; nobody runs the Deployment's pods, so its status says that it is ready."""
    with ControlPlane(users=[User(ORDINARY)], nodes=1) as plane:
        plane.apply(*build(STANDALONE))
        plane.request("PATCH", f"{DEPLOYMENT}/status", {"status": {"replicas": 2, "readyReplicas": 2}})
        for name in (LEASE_ID, "mpi-operator"):
            hold(plane, OURS, name, "training-operator-7d-x_1")
        yield plane


Check = Callable[..., Report]


@pytest.fixture
def check(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Check:
    def check(*arguments: str, user: str = "admin") -> Report:
        capsys.readouterr()
        status = main(["check", f"--kubeconfig={plane.kubeconfig(user)}", "-o", "json", *arguments])
        out = capsys.readouterr().out
        return Report(status, json.loads(out)["findings"])

    return check


def hold(plane: ControlPlane, namespace: str, name: str, holder: str, *, age_seconds: float = 0.0) -> None:
    """Let a holder hold a Lease for an hour after its last renewal."""
    at = (datetime.now(UTC) - timedelta(seconds=age_seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": at}
    plane.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
    )


@contextmanager
def existing(plane: ControlPlane, path: str, *bodies: Object) -> Generator[None]:
    """Create objects in a collection, and delete them at the end."""
    with ExitStack() as stack:
        for body in bodies:
            created = plane.request("POST", path, body)
            stack.callback(plane.request, "DELETE", f"{path}/{created['metadata']['name']}")
        yield


@contextmanager
def changed(plane: ControlPlane, path: str, patch: Object) -> Generator[None]:
    """Patch an object, and restore it at the end."""
    before = plane.request("GET", path)
    plane.request("PATCH", path, patch)
    try:
        yield
    finally:
        after = plane.request("GET", path)
        before["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"]
        plane.request("PUT", path, before)


@contextmanager
def namespace(plane: ControlPlane, name: str, **labels: str) -> Generator[None]:
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    plane.wait("its account", lambda: plane.has(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield
    plane.request("DELETE", f"/api/v1/namespaces/{name}")
    plane.wait("its end", lambda: not plane.has(f"/api/v1/namespaces/{name}"))


@contextmanager
def deployment(plane: ControlPlane, body: Object, *, ready: int = 1) -> Generator[None]:
    path = f"/apis/apps/v1/namespaces/{body['metadata']['namespace']}/deployments"
    with existing(plane, path, body):
        status = {"status": {"replicas": ready, "readyReplicas": ready}}
        plane.request("PATCH", f"{path}/{body['metadata']['name']}/status", status)
        yield


def go_deployment(namespace: str, *arguments: str) -> Object:
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {
        "name": "training-operator",
        "image": "ghcr.io/kubeflow/training-v1/training-operator:v1-855e096",
        "command": ["/manager", *arguments],
    }
    return {
        "metadata": {"name": "training-operator", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def job(name: str, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "jax", "image": "none"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": name},
        "spec": {"jaxReplicaSpecs": {"Worker": {"template": template}}, **spec},
    }


JOBS = "/apis/kubeflow.org/v1/namespaces/{}/jaxjobs"


@pytest.mark.parametrize("before", ["", "upgrade", "switch", "uninstall"])
def test_a_healthy_installation_has_no_fault(check: Check, before: str) -> None:
    with_flag = ["--before", before] if before else []
    report = check(*with_flag)

    assert [finding for finding in report.findings if finding["level"] != "ok"] == []
    assert report.status == 0


def test_an_operator_that_still_runs_is_reported_before_the_way_back(check: Check) -> None:
    report = check("--before", "back")

    assert "a Go operator that starts now" in report.texts("warning", "operators")[0]
    assert report.texts("warning", "stored versions") == [
        "mpijobs.kubeflow.org may have jobs stored as v1, so that the CRD of mpi-operator cannot replace it"
    ]
    assert report.texts("ok", "harm") == [
        "training-operator would harm no unfinished job",
        "mpi-operator would harm no unfinished job",
    ]
    assert report.status == 0


def test_missing_rights_are_named_by_role(plane: ControlPlane, check: Check) -> None:
    path = f"/apis/{RBAC}/clusterrolebindings/training-operator-mpi"
    binding = plane.request("GET", path)
    plane.request("DELETE", path)
    try:
        report = check()
    finally:
        binding["metadata"] = {"name": binding["metadata"]["name"], "labels": binding["metadata"]["labels"]}
        plane.request("POST", path.rpartition("/")[0], binding)

    (text,) = report.texts("blocker")
    assert f"system:serviceaccount:{OURS}:training-operator lacks rights of the shipped role mpi" in text
    assert "secrets: get, create" in text
    assert report.status == 1


def test_a_shadow_beside_the_operator(plane: ControlPlane, check: Check) -> None:
    documents = build(SHADOW)
    (body,) = (document for document in documents if document["kind"] == "Deployment")
    where, name = body["metadata"]["namespace"], body["metadata"]["name"]
    plane.apply(*documents)
    status = {"status": {"replicas": 1, "readyReplicas": 1}}
    plane.request("PATCH", f"/apis/apps/v1/namespaces/{where}/deployments/{name}/status", status)
    both, shadow = check(), check("-n", where)
    plane.request("DELETE", f"/api/v1/namespaces/{where}")
    plane.wait("its end", lambda: not plane.has(f"/api/v1/namespaces/{where}"))

    assert [finding for finding in both.findings if finding["level"] != "ok"] == []
    assert "runs as a shadow and writes nothing" in " ".join(both.texts("ok", "operators"))
    assert shadow.texts("ok", "rights")[0].startswith(f"system:serviceaccount:{where}:{name} has the")
    assert shadow.texts("blocker") == []


def test_rights_on_a_lease_of_another_namespace_are_checked_there(plane: ControlPlane, check: Check) -> None:
    arguments = ["--leader-elect=true", "--leader-election-namespace=kube-public"]
    containers = plane.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    containers[0]["args"] = arguments
    with changed(plane, DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}}):
        report = check()

    (text,) = report.texts("blocker", "rights")
    assert "in namespace kube-public" in text
    assert "rallypoint-system" not in text.partition("lacks")[2]


def test_an_older_definition_and_one_of_another_operator(plane: ControlPlane, check: Check) -> None:
    name = "jaxjobs.kubeflow.org"
    shipped = next(crd for crd in all_crds() if crd["metadata"]["name"] == name)
    older = copy.deepcopy(shipped)
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["runPolicy"]["properties"]["ttlSecondsAfterFinished"]
    foreign = copy.deepcopy(older)
    foreign["metadata"]["annotations"] = {"controller-gen.kubebuilder.io/version": "v0.14.0"}
    reports: dict[str, Report] = {}
    try:
        for what, definition in (("older", older), ("foreign", foreign)):
            current = plane.request("GET", f"{DEFINITIONS}/{name}")
            definition["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
            plane.request("PUT", f"{DEFINITIONS}/{name}", definition)
            reports[what] = check()
    finally:
        current = plane.request("GET", f"{DEFINITIONS}/{name}")
        shipped = {
            **shipped,
            "metadata": {**shipped["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]},
        }
        plane.request("PUT", f"{DEFINITIONS}/{name}", shipped)

    (text,) = reports["older"].texts("warning")
    assert text.startswith(f"{name} is of another version: lacks v1.spec.runPolicy.ttlSecondsAfterFinished")
    (text,) = reports["foreign"].texts("warning")
    assert "another operator's (made by controller-gen v0.14.0)" in text


def test_a_conversion_webhook_blocks(plane: ControlPlane, check: Check) -> None:
    client = {"url": "https://127.0.0.1:1/convert"}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }
    path = f"{DEFINITIONS}/jaxjobs.kubeflow.org"
    plane.request("PATCH", path, {"spec": {"conversion": conversion}})
    try:
        report = check()
    finally:
        plane.request("PATCH", path, {"spec": {"conversion": {"strategy": "None", "webhook": None}}})

    assert "conversion webhook" in report.texts("blocker", "CRDs")[0]


def test_a_missing_definition_blocks_a_running_operator(plane: ControlPlane, check: Check) -> None:
    path = f"{DEFINITIONS}/jaxjobs.kubeflow.org"
    plane.request("DELETE", path)
    plane.wait("it to be gone", lambda: not plane.has(path))
    try:
        report = check()
    finally:
        plane.apply(next(crd for crd in all_crds() if crd["metadata"]["name"] == "jaxjobs.kubeflow.org"))

    assert report.texts("blocker", "CRDs")[0].startswith("not installed: jaxjobs.kubeflow.org")


@pytest.mark.parametrize(
    ("arguments", "lease_namespace", "level", "says"),
    [
        pytest.param((), "", "blocker", "both write", id="without leader election"),
        pytest.param(("--leader-elect",), "", "blocker", "are not the same", id="with its Lease elsewhere"),
        pytest.param(("--leader-elect",), "kubeflow", "ok", "held by", id="with a common Lease"),
        pytest.param(
            ("--leader-elect", "--enable-scheme=MXJob"), "", "ok", "serves MXJob", id="for another kind"
        ),
    ],
)
def test_a_go_operator_beside_ours(
    plane: ControlPlane, check: Check, arguments: tuple[str, ...], lease_namespace: str, level: str, says: str
) -> None:
    containers = plane.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    if lease_namespace:
        containers[0]["args"] = ["--leader-elect=true", f"--leader-election-namespace={lease_namespace}"]
    with (
        namespace(plane, "kubeflow"),
        deployment(plane, go_deployment("kubeflow", *arguments)),
        changed(plane, DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}}),
    ):
        if lease_namespace:
            hold(plane, "kubeflow", LEASE_ID, "training-operator-1_2")
        report = check()

    assert any(says in text for text in report.texts(level, "operators"))
    blockers = [text for text in report.texts("blocker", "operators") if "both write to" in text]
    assert bool(blockers) == (level == "blocker")


def test_a_lease_that_an_unknown_process_holds_blocks(plane: ControlPlane, check: Check) -> None:
    with namespace(plane, "mpi-operator"):
        hold(plane, "mpi-operator", "mpi-operator", "laptop_1")
        report = check()

    (text,) = report.texts("blocker", "operators")
    assert text.startswith("laptop_1 holds the Lease mpi-operator/mpi-operator")


def test_a_webhook_without_its_service_blocks(plane: ControlPlane, check: Check) -> None:
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v1"],
        "resources": ["jaxjobs"],
        "operations": ["DELETE"],
    }
    webhook = {
        "name": "validator.jaxjob.training-operator.kubeflow.org",
        "clientConfig": {"service": {"namespace": "kubeflow", "name": "training-operator", "path": "/"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [webhook]}
    with existing(plane, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body):
        report = check()

    (text,) = report.texts("blocker", "webhooks")
    assert "refers to a Service that does not exist: jobs cannot be created or changed" in text


def test_a_full_quota_of_the_operator_blocks(plane: ControlPlane, check: Check) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{OURS}/resourcequotas"
    with existing(plane, path, quota):
        # Nothing counts quotas here; its status says what such a controller would write.
        plane.request(
            "PATCH", f"{path}/none/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
        )
        report = check()

    (text,) = report.texts("blocker", "admission")
    assert "exceeded quota: none" in text


def test_pod_security_of_a_jobs_namespace(plane: ControlPlane, check: Check) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    with namespace(plane, "strict", **labels), existing(plane, JOBS.format("strict"), job("j")):
        report = check()

    (text,) = report.texts("warning", "admission")
    assert text.startswith("JAXJob strict/j: a new pod of it would be refused")
    assert 'violates PodSecurity "restricted' in text


@pytest.fixture
def lenient(plane: ControlPlane) -> Iterator[str]:
    """The path of PyTorchJobs while their definition is one that validates and drops nothing."""
    (lenient,) = (
        document
        for document in yaml.safe_load_all(GO_DEFINITION.read_text())
        if document["kind"] == "CustomResourceDefinition"
    )
    shipped = next(crd for crd in all_crds() if crd["metadata"]["name"] == "pytorchjobs.kubeflow.org")
    path, jobs = f"{DEFINITIONS}/pytorchjobs.kubeflow.org", JOBS.replace("jax", "pytorch").format("default")

    def replace(definition: Object) -> None:
        current = plane.request("GET", path)["metadata"]["resourceVersion"]
        plane.request(
            "PUT", path, {**definition, "metadata": {**definition["metadata"], "resourceVersion": current}}
        )

    replace(lenient)
    try:
        plane.wait("no rules", lambda: _accepts(plane, f"{jobs}?dryRun=All", pytorch_job("any", "Boss")))
        yield jobs
    finally:
        replace(shipped)
        plane.wait("rules", lambda: not _accepts(plane, f"{jobs}?dryRun=All", pytorch_job("any", "Boss")))


def pytorch_job(name: str, role: str, **pod: Any) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}], **pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {role: {"template": template}}},
    }


def test_jobs_that_the_definitions_would_refuse(plane: ControlPlane, lenient: str, check: Check) -> None:
    with existing(plane, lenient, pytorch_job("wrong", "Boss"), pytorch_job("right", "Master")):
        report = check("--before", "switch")

    (text,) = report.texts("warning", "validation")
    assert text.startswith("PyTorchJob default/wrong is not valid by the CRDs of this version: spec")
    assert report.status == 0


def test_fields_that_the_go_operator_would_drop(plane: ControlPlane, lenient: str, check: Check) -> None:
    with existing(plane, lenient, pytorch_job("new", "Master", futureField=1), pytorch_job("old", "Master")):
        report = check("--before", "back", "--to", "training-operator")

    (text,) = report.texts("blocker", "fields")
    field = "spec.pytorchReplicaSpecs.Master.template.spec.futureField"
    assert text.startswith(f"PyTorchJob default/new: training-operator drops {field}")
    assert report.status == 1


def _accepts(plane: ControlPlane, path: str, body: Object) -> bool:
    try:
        plane.request("POST", path, body)
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [("volcano", "podgroups.scheduling.volcano.sh"), ("gangs", "podgroups.scheduling.x-k8s.io")],
)
def test_a_gang_scheduler_without_its_definition_blocks(check: Check, scheduler: str, says: str) -> None:
    report = check("--gang-scheduler-name", scheduler)

    assert f"needs {says}, which the cluster does not serve" in report.texts("blocker", "schedulers")[0]


def kueue_configuration(frameworks: list[str]) -> Object:
    text = yaml.safe_dump({"kind": "Configuration", "integrations": {"frameworks": frameworks}})
    return {
        "metadata": {"name": "kueue-manager-config"},
        "data": {"controller_manager_config.yaml": text},
    }


def test_kueue_that_does_not_manage_a_kind(plane: ControlPlane, check: Check) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "localqueues.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "names": {"kind": "LocalQueue", "plural": "localqueues"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    kinds = [f"kubeflow.org/{kind.resource.singular}" for kind in DEFAULT]
    queued = job("queued")
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}

    with namespace(plane, "kueue-system"), existing(plane, JOBS.format("default"), queued):
        without = check()
        plane.apply(definition)
        unreadable = check()
        path = "/api/v1/namespaces/kueue-system/configmaps"
        with existing(plane, path, kueue_configuration(["batch/job", "kubeflow.org/mpijob"])):
            partly = check()
        with existing(plane, path, kueue_configuration(kinds)):
            wholly = check()
        plane.request("DELETE", f"{DEFINITIONS}/localqueues.kueue.x-k8s.io")

    assert (
        "jobs with a queue in a cluster without Kueue (1): JAXJob default/queued"
        in without.texts("warning", "kueue")[0]
    )
    assert unreadable.status == 2
    (text,) = partly.texts("warning", "kueue")
    assert text.startswith("Kueue does not manage JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob")
    assert "jobs with a queue that run outside any quota (1): JAXJob default/queued" in text
    assert wholly.texts("warning", "kueue") == []


def test_jobs_that_only_the_operator_queues_block_its_removal(plane: ControlPlane, check: Check) -> None:
    containers = plane.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    containers[0]["args"] = [*(containers[0].get("args") or ()), "--kueue"]
    queued = job("queued")
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    path = "/api/v1/namespaces/kueue-system/configmaps"
    with (
        namespace(plane, "kueue-system"),
        existing(plane, JOBS.format("default"), queued),
        changed(plane, DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}}),
    ):
        reports = {before: check("--before", before) for before in ("back", "uninstall")}
        with existing(plane, path, kueue_configuration(["kubeflow.org/jaxjob"])):
            after = check("--before", "back")

    for report in reports.values():
        (text,) = report.texts("blocker", "kueue")
        assert text.startswith("only this operator queues these jobs (1): JAXJob default/queued;")
    assert after.texts("blocker", "kueue") == []


def test_fields_of_another_manager_conflict_with_an_upgrade(plane: ControlPlane, check: Check) -> None:
    with changed(plane, DEPLOYMENT, {"spec": {"replicas": 3}}):
        report = check("--before", "upgrade")

    (text,) = report.texts("warning", "conflicts")
    assert text.startswith("deployment training-operator: ")
    assert "owns .spec.replicas, so that an apply as kubectl is refused" in text


def test_what_an_uninstall_leaves(plane: ControlPlane, check: Check) -> None:
    held, idle = job("held"), job("idle", runPolicy={"suspend": True})
    held["metadata"]["finalizers"] = ["example.org/keep"]
    labels = {"training.kubeflow.org/job-name": "gone"}
    pod = {
        "metadata": {"name": "stray", "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "none"}]},
    }
    path = JOBS.format("default")
    with existing(plane, path, held, idle), existing(plane, "/api/v1/namespaces/default/pods", pod):
        plane.request(
            "PATCH", f"{path}/held/status", {"status": {"replicaStatuses": {"Worker": {"active": 1}}}}
        )
        report = check("--before", "uninstall")
        plane.request("PATCH", f"{path}/held", {"metadata": {"finalizers": []}})

    texts = report.texts("warning")
    assert [text.partition(":")[0] for text in texts] == [
        "jobs with running pods (1)",
        "jobs that wait or are suspended, and never start (1)",
        "jobs with finalizers (example.org/keep), which cannot be deleted without whoever removes them (1)",
        "deleting the CustomResourceDefinitions deletes all jobs (2) and their pods",
        "pods of no existing job (1)",
    ]


def test_jobs_that_a_go_operator_would_harm(plane: ControlPlane, check: Check) -> None:
    us = "kubeflow.org/training-operator"
    with ExitStack() as stack:
        for version, name, policy in (
            ("v1", "old", {}),
            ("v2beta1", "new", {}),
            ("v2beta1", "wrong", {"managedBy": us}),
            ("v1alpha2", "older", {}),
        ):
            path = f"/apis/kubeflow.org/{version}/namespaces/default/mpijobs"
            body = copy.deepcopy(manifest(version, name, runPolicy=policy))
            stack.enter_context(existing(plane, path, body))
        training = check("--before", "back", "--to", "training-operator")
        mpi = check("--before", "back", "--to", "mpi-operator")
        old = check("--before", "back", "--to", "training-operator", "--release", "1.8")
        over = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
        plane.request("PATCH", "/apis/kubeflow.org/v1/namespaces/default/mpijobs/wrong/status", over)
        after = check("--before", "back", "--to", "training-operator")

    (text,) = training.texts("blocker", "harm")
    assert text.startswith("MPIJob default/wrong: runs as v2beta1 and would get a second launcher as v1")
    assert [text.partition(" and ")[0] for text in mpi.texts("blocker", "harm")] == [
        "MPIJob default/older: runs as v1alpha2",
        "MPIJob default/wrong: runs as v2beta1",
    ]
    assert "MPIJob default/new: runs as v2beta1 and would get a second launcher" in " ".join(
        old.texts("blocker", "harm")
    )
    assert after.texts("blocker") == []
    assert training.texts("blocker", "fields") == mpi.texts("blocker", "fields") == []


def test_a_name_of_a_tenant_cannot_control_the_terminal(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    body = copy.deepcopy(manifest("v1", "evil", runPolicy={"managedBy": "\x1b[2J\nok  all is well\u202e"}))
    with existing(plane, "/apis/kubeflow.org/v1/namespaces/default/mpijobs", body):
        capsys.readouterr()
        main(
            [
                "check",
                "--before",
                "back",
                "--to",
                "training-operator",
                "--release",
                "1.8",
                f"--kubeconfig={plane.kubeconfig()}",
            ]
        )
    out = capsys.readouterr().out

    assert "MPIJob default/evil: would also run here" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert not any(line.startswith("ok  all") for line in out.splitlines())


def test_an_ordinary_user_reads_what_is_unknown(check: Check) -> None:
    report = check(user=ORDINARY)

    assert report.status == 2
    assert report.texts("ok", "server") != []
    assert "not checked: you have no right to list deployments.apps" in report.texts("unknown", "operators")
    (text,) = report.texts("unknown", "jobs")
    assert text.startswith("not checked: you have no right to list ")


def test_an_administrator_of_one_namespace_checks_that_one(plane: ControlPlane, check: Check) -> None:
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": ORDINARY}],
    }
    with existing(plane, f"/apis/{RBAC}/namespaces/{OURS}/rolebindings", binding):
        report = check("-n", OURS, user=ORDINARY)

    assert report.texts("ok", "operators")[0].startswith(f"Rallypoint ({OURS}/training-operator)")
    assert report.texts("unknown", "scope")[0].startswith(f"only namespace {OURS} was read")


def test_pull_starts_a_pod_and_deletes_it(plane: ControlPlane, check: Check) -> None:
    with changed(plane, DEPLOYMENT, {"spec": {"template": {"spec": {"nodeName": "node-0"}}}}):
        report = check("--pull")

    assert report.texts("ok", "image")[0].endswith("was pulled and starts")
    pods = f"/api/v1/namespaces/{OURS}/pods"
    plane.wait("no pod", lambda: plane.request("GET", pods)["items"] == [])


def test_a_server_that_does_not_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))

    assert main(["check", f"--kubeconfig={file}"]) == 2
    assert "the server does not answer" in capsys.readouterr().err
