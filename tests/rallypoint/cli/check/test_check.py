"""The checks with a server that answers as scripted: rights that are missing, clocks, versions and pulls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
from aiohttp import web

from controller.crds.kubernetes import shipped
from controller.kinds.jax import JAX
from controller.kube.errors import Conflict, Forbidden, Invalid
from rallypoint.cli.check import admission, all_findings, definitions, jobs, rights, server
from rallypoint.cli.check.facts import Fact, Facts, Options, Reader, ServerDates, read_facts, unreadable
from rallypoint.cli.check.findings import Before, Finding, Level
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.check.upgrade import conflict, located, tool_findings
from rallypoint.cli.cluster import Cluster, ServedResource
from rallypoint.testing.controlplane.programs import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from tests.support.scripted import ReceivedRequest, answer_json, calling, status_object

Answers = Mapping[tuple[str, str], Any]
FORBIDDEN = 'deployments.apps is forbidden: User "u" cannot list resource "deployments" in API group "apps" at the cluster scope'


@asynccontextmanager
async def facts(answers: Answers, options: Options | None = None) -> AsyncIterator[Facts]:
    """Facts of a server that answers these requests, given by method and path, and says 404 to others; a list's answers come in turn."""

    async def answer(_: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        found = answers.get((received.method, received.path))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            return answer_json(status_object(404, "NotFound"), 404)
        return answer_json(found, found.get("code", 200) if found.get("kind") == "Status" else 200)

    async with calling(answer) as (client, scripted):
        cluster = Cluster(client, scripted.url, "", ())
        made = await read_facts(cluster, options or Options(), ServerDates())
        try:
            yield made
        finally:
            made.worker.shutdown()


def of_version(version: str) -> list[Finding]:
    made = Facts(
        Reader(Cluster.__new__(Cluster)),
        Options(),
        Fact({"gitVersion": version}),
        {},
        Fact([]),
        Fact([]),
        0.0,
    )
    return list(server.version_findings(made))


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("v1.28.15", Level.BLOCKER),
        ("v1.29.0-gke.1", Level.OK),
        ("v1.36.3+k3s1", Level.OK),
        ("v1.99.0", Level.WARNING),
        ("unknown", Level.UNKNOWN),
    ],
)
def test_the_version_of_the_server(version: str, level: Level) -> None:
    assert [finding.level for finding in of_version(version)] == [level]


def test_the_supported_versions_are_those_of_the_tests() -> None:
    def minor(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.removeprefix("v").split(".")[:2]))

    assert (minor(OLDEST_KUBERNETES), minor(NEWEST_KUBERNETES)) == (server.OLDEST, server.NEWEST)
    assert minor(NEWEST_KUBERNETES) == minor(shipped().version)


def test_the_offset_is_the_median_of_the_dates() -> None:
    dates = ServerDates()
    assert dates.offset_seconds() is None
    for seconds in (100, 100, 100, 5000):
        dates.observe(format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True), 0.0)
    dates.observe("no date", 0.0)
    dates.observe("Thu, 01 Jan 1970 00:00:00 -0000", 0.0)  # without a time zone

    assert dates.offset_seconds() == pytest.approx(100, abs=5)


@pytest.mark.parametrize(
    ("offset", "level"), [(0.0, Level.OK), (-60.0, Level.WARNING), (None, Level.UNKNOWN)]
)
def test_the_clock(offset: float | None, level: Level) -> None:
    made = Facts(Reader(Cluster.__new__(Cluster)), Options(), Fact({}), {}, Fact([]), Fact([]), offset)

    assert [finding.level for finding in server.clock_findings(made)] == [level]


def test_a_missing_right_is_named() -> None:
    found = unreadable("operators", Forbidden(403, "Forbidden", FORBIDDEN))

    assert found.text == "not checked: you have no right to list deployments.apps"
    assert "not checked: a policy" in unreadable("x", Forbidden(403, "Forbidden", "a policy")).text
    assert unreadable("x", TimeoutError()).level is Level.UNKNOWN


@pytest.mark.parametrize("before", [None, *Before])
async def test_a_server_that_forbids_everything_gets_no_exception(before: Before | None) -> None:
    async def answer(_: web.Request, __: ReceivedRequest) -> web.StreamResponse:
        return answer_json(status_object(403, "Forbidden", FORBIDDEN), 403)

    async with calling(answer) as (client, scripted):
        made = await read_facts(Cluster(client, scripted.url, "", ()), Options(before=before), ServerDates())
        found = await all_findings(made)
        made.worker.shutdown()

    assert {finding.level for finding in found} - {Level.OK} == {Level.UNKNOWN}


async def test_a_lease_that_its_holder_renews_is_not_expired() -> None:
    def listed(renewed: str) -> dict[str, Any]:
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed}
        lease = {"metadata": {"name": "mpi-operator", "namespace": "n"}, "spec": spec}
        return {"metadata": {}, "items": [lease]}

    path = "/apis/coordination.k8s.io/v1/leases"
    empty: dict[str, Any] = {"metadata": {}, "items": []}
    base = {
        ("GET", "/version"): {"gitVersion": "v1.36.3"},
        ("GET", "/apis/apps/v1/deployments"): empty,
        ("GET", "/apis/apps/v1/statefulsets"): empty,
    }
    old, newer = listed("2020-01-01T00:00:00.000000Z"), listed("2020-01-01T00:00:02.000000Z")
    async with facts({**base, ("GET", path): [old, old, newer]}) as renewing:
        assert [lease.is_changing for lease in renewing.leases.get()] == [True, True]
    async with facts({**base, ("GET", path): old}) as dead:
        assert [lease.is_changing for lease in dead.leases.get()] == [False, False]


NAMESPACE = "/api/v1/namespaces/rallypoint-system"
EMPTY: dict[str, Any] = {"metadata": {}, "items": []}
NO_OPERATOR = {("GET", "/apis/apps/v1/deployments"): EMPTY, ("GET", "/apis/apps/v1/statefulsets"): EMPTY}


def pod_with(**state: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": state}]}}


@pytest.mark.parametrize(
    ("state", "level", "says"),
    [
        ({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, Level.BLOCKER, "no such image"),
        ({"terminated": {"exitCode": 1}}, Level.BLOCKER, "ends with 1"),
        ({"terminated": {"exitCode": 0}}, Level.OK, "was pulled"),
        ({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, Level.OK, "was pulled"),
    ],
)
async def test_a_pull_ends_with_the_state_of_the_pod_and_without_the_pod(
    state: dict[str, Any], level: Level, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    pod = f"{NAMESPACE}/pods/rallypoint-check-0"
    waiting = pod_with(waiting={"reason": "ContainerCreating"})
    answers: Answers = {
        **NO_OPERATOR,
        ("POST", f"{NAMESPACE}/pods"): {"metadata": {"name": "rallypoint-check-0"}},
        ("GET", pod): [waiting, pod_with(**state)],
        ("DELETE", pod): {},
    }
    async with facts(answers, Options(pull=True, image="registry/own:1")) as made:
        (found,) = [finding async for finding in admission.pull_findings(made)]

    assert (found.level, says in found.text, "registry/own:1" in found.text) == (level, True, True)


async def test_a_pod_that_cannot_be_deleted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    pod = f"{NAMESPACE}/pods/rallypoint-check-0"
    answers: Answers = {
        **NO_OPERATOR,
        ("POST", f"{NAMESPACE}/pods"): {"metadata": {"name": "rallypoint-check-0"}},
        ("GET", pod): pod_with(terminated={"exitCode": 0}),
        ("DELETE", pod): status_object(403, "Forbidden"),
    }
    async with facts(answers, Options(pull=True)) as made:
        pulled, left = [finding async for finding in admission.pull_findings(made)]

    assert (pulled.level, left.level) == (Level.OK, Level.WARNING)
    assert left.remedy.endswith("delete pod rallypoint-check-0")


async def test_a_pod_that_does_not_start_is_deleted() -> None:
    deleted = asyncio.Event()
    created: list[Any] = []

    async def answer(_: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if received.method == "DELETE":
            deleted.set()
        if received.method == "POST":
            created.append(orjson.loads(received.body))
        listed = received.path.startswith("/apis/apps")
        return answer_json(EMPTY if listed else {"metadata": {}, "status": {"phase": "Pending"}})

    async with calling(answer) as (client, scripted):
        made = Facts(
            Reader(Cluster(client, scripted.url, "", ())),
            Options(pull=True),
            Fact({}),
            {},
            Fact([]),
            Fact([]),
            0.0,
        )
        (found,) = [finding async for finding in admission.pull_findings(made)]

    assert (found.level, "did not start" in found.text, deleted.is_set()) == (Level.UNKNOWN, True, True)
    (pod,) = created
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "control-plane" not in pod["metadata"]["labels"]


async def test_nothing_is_pulled_without_the_flag() -> None:
    async with facts(NO_OPERATOR) as made:
        assert [finding async for finding in admission.pull_findings(made)] == []


@pytest.mark.parametrize(
    ("message", "level", "remedy"),
    [
        ('violates PodSecurity "restricted:latest"', Level.BLOCKER, "enforce"),
        ("exceeded quota: q", Level.BLOCKER, "ResourceQuota"),
        ("admission webhook w does not support dry run", Level.UNKNOWN, ""),
        ("no", Level.BLOCKER, "the message"),
    ],
)
def test_a_refused_pod_has_a_remedy(message: str, level: Level, remedy: str) -> None:
    found = admission.refusal("refused", Invalid(422, "Invalid", message))

    assert found.level is level
    assert remedy in found.remedy
    assert message in found.text


def test_a_conflict_names_manager_and_fields() -> None:
    causes = ((".spec.replicas", 'conflict with "hpa" using autoscaling/v2'),)
    found = conflict("deployment d", Conflict(409, "Conflict", "no", causes=causes), "kubectl")

    assert found.text == "deployment d: hpa owns .spec.replicas, so that an apply as kubectl is refused"


def test_an_object_is_moved_with_its_subjects() -> None:
    binding = {"metadata": {"namespace": "a"}, "subjects": [{"namespace": "a"}]}

    assert located(binding, "b") == {"metadata": {"namespace": "b"}, "subjects": [{"namespace": "b"}]}
    assert binding["metadata"] == {"namespace": "a"}


async def test_containers_of_the_operator_that_do_not_start_are_reported() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"image": "rallypoint:1"}]}}
    deployment = {"metadata": {"name": "o", "namespace": "n"}, "spec": {"template": template}}
    pods = {
        "metadata": {},
        "items": [
            {**pod_with(waiting={"reason": "ImagePullBackOff", "message": "no such image"})},
            {**pod_with(waiting={"reason": "CrashLoopBackOff"})},
            {**pod_with(waiting={"reason": "ContainerCreating"})},
        ],
    }
    answers: Answers = {
        **NO_OPERATOR,
        ("GET", "/apis/apps/v1/deployments"): {"metadata": {}, "items": [deployment]},
        ("GET", "/api/v1/namespaces/n/pods"): pods,
    }
    async with facts(answers) as made:
        found = [finding async for finding in admission.operator_state_findings(made)]

    assert [(finding.check, finding.level) for finding in found] == [
        ("image", Level.BLOCKER),
        ("operators", Level.BLOCKER),
    ]
    assert "no such image" in found[0].text


def installed(*workloads: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    return {**NO_OPERATOR, ("GET", "/apis/apps/v1/deployments"): {"metadata": {}, "items": list(workloads)}}


def workload(image: str, namespace: str) -> dict[str, Any]:
    template = {
        "spec": {"containers": [{"name": "o", "image": image}], "serviceAccountName": "training-operator"}
    }
    return {"metadata": {"name": "training-operator", "namespace": namespace}, "spec": {"template": template}}


OURS, GO = workload("rallypoint:1", "rallypoint-system"), workload("training-operator:v1", "kubeflow")
SHADOW = workload("registry/rallypoint:2", "rallypoint-shadow")
SHADOW["spec"]["template"]["spec"]["containers"][0]["args"] = ["--shadow"]
MPI = JobSummary("MPIJob", "n", "pi", "u", False, False, False, "", (), flavor="v1")
REVIEW = ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")


@pytest.mark.parametrize(
    ("workloads", "unfinished", "allowed", "levels"),
    [
        pytest.param([OURS], [MPI], False, [Level.BLOCKER], id="missing"),
        pytest.param([OURS], [MPI], True, [Level.OK], id="granted"),
        pytest.param([OURS], [replace(MPI, flavor="v2beta1")], False, [], id="no such job"),
        pytest.param([], [MPI], False, [Level.WARNING], id="before the installation"),
        pytest.param([SHADOW], [MPI], False, [Level.WARNING], id="with a shadow"),
    ],
)
async def test_rights_for_older_mpijobs(
    workloads: list[Any], unfinished: list[JobSummary], *, allowed: bool, levels: list[Level]
) -> None:
    answers = {**installed(*workloads), REVIEW: {"status": {"allowed": allowed}}}
    async with facts(answers) as made:
        found = [finding async for finding in rights.component_findings(made, unfinished)]

    assert [finding.level for finding in found] == levels


@pytest.mark.parametrize(
    ("namespace", "workloads", "count"),
    [
        pytest.param("", [GO], 1, id="moved"),
        pytest.param("kubeflow", [GO], 0, id="into its own namespace"),
        pytest.param("", [], 0, id="of no operator"),
    ],
)
async def test_a_binding_that_the_installation_takes(
    namespace: str, workloads: list[Any], count: int
) -> None:
    subject = {"kind": "ServiceAccount", "namespace": "kubeflow", "name": "training-operator"}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/training-operator"
    answers = {**installed(*workloads), ("GET", path): {"subjects": [subject]}}
    async with facts(answers, Options(namespace=namespace)) as made:
        found = [finding async for finding in rights.binding_findings(made)]

    assert [(finding.level, "loses these rights" in finding.text) for finding in found] == [
        (Level.WARNING, True)
    ] * count


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NO_MUTATION = {("GET", WEBHOOKS.replace("validating", "mutating")): EMPTY}
SERVICE = "/api/v1/namespaces/kubeflow/services/training-operator"


def webhooks(group: str = "kubeflow.org", policy: str = "Fail") -> dict[str, Any]:
    client = {"service": {"namespace": "kubeflow", "name": "training-operator"}}
    webhook = {"clientConfig": client, "rules": [{"apiGroups": [group]}], "failurePolicy": policy}
    configuration = {
        "metadata": {"name": "validator.training-operator.kubeflow.org"},
        "webhooks": [webhook],
    }
    return {"metadata": {}, "items": [configuration]}


@pytest.mark.parametrize(
    ("listed", "has_service", "workloads", "before", "expected"),
    [
        pytest.param(EMPTY, False, [], None, [(Level.OK, "no webhook")], id="none"),
        pytest.param(webhooks("apps"), False, [], None, [(Level.OK, "no webhook")], id="of other resources"),
        pytest.param(webhooks(), False, [GO], None, [(Level.BLOCKER, "cannot be created")], id="no service"),
        pytest.param(
            webhooks(policy="Ignore"),
            False,
            [GO],
            None,
            [(Level.BLOCKER, "no effect")],
            id="ignored failures",
        ),
        pytest.param(webhooks(), True, [OURS], None, [(Level.BLOCKER, "is left of")], id="left"),
        pytest.param(webhooks(), True, [GO], None, [], id="of the operator that runs"),
        pytest.param(webhooks(), True, [GO], Before.SWITCH, [(Level.WARNING, "stays when")], id="switch"),
        pytest.param(webhooks(), True, [OURS], Before.BACK, [], id="before the way back"),
    ],
)
async def test_webhooks(
    listed: Any,
    workloads: list[Any],
    before: Before | None,
    expected: list[tuple[Level, str]],
    *,
    has_service: bool,
) -> None:
    answers = {**installed(*workloads), **NO_MUTATION, ("GET", WEBHOOKS): listed}
    if has_service:
        answers["GET", SERVICE] = {"metadata": {}}
    async with facts(answers, Options(before=before)) as made:
        found = [finding async for finding in definitions.webhook_findings(made)]

    assert [finding.level for finding in found] == [level for level, _ in expected]
    assert all(text in finding.text for finding, (_, text) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("stored", "go_operators", "levels"),
    [
        pytest.param(["v1"], [], [], id="current"),
        pytest.param(["v2beta1", "v1"], [], [Level.OK], id="older ones"),
        pytest.param(["v1"], ["training-operator"], [], id="back to the same version"),
        pytest.param(["v1"], ["mpi-operator"], [Level.WARNING], id="back to another version"),
    ],
)
async def test_stored_versions(stored: list[str], go_operators: list[str], levels: list[Level]) -> None:
    definition = {
        "spec": {"versions": [{"name": "v1", "storage": True}, {"name": "v2beta1"}]},
        "status": {"storedVersions": stored},
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mpijobs.kubeflow.org"
    options = Options(go_operators=go_operators)
    async with facts({**NO_OPERATOR, ("GET", path): definition}, options) as made:
        found = list(definitions.stored_version_findings(made))

    assert [finding.level for finding in found] == levels


@pytest.mark.parametrize(
    ("marks", "tools"),
    [
        pytest.param({}, [], id="kubectl"),
        pytest.param({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, ["Helm"], id="Helm"),
        pytest.param({"annotations": {"argocd.argoproj.io/tracking-id": "a"}}, ["Argo CD"], id="Argo CD"),
        pytest.param({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}, ["Flux"], id="Flux"),
    ],
)
async def test_the_tool_that_manages_the_installation(marks: dict[str, Any], tools: list[str]) -> None:
    managed = {**OURS, "metadata": {**OURS["metadata"], **marks}}
    async with facts(installed(managed, GO)) as made:
        found = [finding async for finding in tool_findings(made)]

    assert [finding.text.partition(" manages")[0] for finding in found] == tools


@pytest.mark.parametrize(("allowed", "level"), [(True, Level.OK), (False, Level.WARNING)])
async def test_the_rights_to_install(level: Level, *, allowed: bool) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    async with facts({**NO_OPERATOR, ("POST", path): {"status": {"allowed": allowed}}}) as made:
        found = [finding async for finding in rights.install_findings(made)]

    assert [finding.level for finding in found] == [level]


async def test_all_pages_of_jobs_are_read() -> None:
    pages: list[str] = []

    async def answer(_: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if received.path != "/apis/kubeflow.org/v1/jaxjobs":
            return answer_json(EMPTY)
        assert received.query["limit"] == "500"
        position = int(received.query.get("continue", "0"))
        pages.append(received.query.get("continue", ""))
        items = [{"metadata": {"name": f"j{position}-{n}", "namespace": "n"}, "spec": {}} for n in range(500)]
        following = {"continue": str(position + 1)} if position < 3 else {}
        return answer_json({"metadata": following, "items": items})

    resource = JAX.resource
    served = ServedResource(resource, frozenset({resource.plural}), frozenset())
    async with calling(answer) as (client, scripted):
        cluster = Cluster(client, scripted.url, "", [served])
        made = await read_facts(cluster, Options(before=Before.UNINSTALL), ServerDates())
        scan = await jobs.scan_jobs(made)
        made.worker.shutdown()

    assert (len(scan.jobs), pages) == (2000, ["", "1", "2", "3"])


@pytest.mark.parametrize(
    ("kind", "name", "level"),
    [
        pytest.param("JAXJob", "train", Level.WARNING, id="the Service of a whole job"),
        pytest.param("JAXJob", "train-worker-0", Level.OK, id="that of a replica"),
        pytest.param("MPIJob", "train", Level.OK, id="that of an MPIJob, which mpi-operator makes, too"),
    ],
)
async def test_jobs_with_one_service_before_the_way_back(kind: str, name: str, level: Level) -> None:
    owner = {"kind": kind, "name": "train", "uid": "u", "controller": True}
    service = {"metadata": {"name": name, "namespace": "n", "ownerReferences": [owner]}}
    job = jobs.JobSummary(kind, "n", "train", "u", False, False, True, "", ())
    async with facts({("GET", "/api/v1/services"): {"metadata": {}, "items": [service]}}) as made:
        (finding,) = [finding async for finding in jobs.service_findings(made, [job])]

    assert finding.level is level
    assert (f"{kind} n/train" in finding.text) == (level is Level.WARNING)


async def test_a_shadow_is_no_installation() -> None:
    """It names the image that will run, and neither the namespace nor the pod."""
    async with facts(installed(SHADOW, GO)) as made:
        _, spec = admission.operator_pod(made)

        assert made.namespace == "rallypoint-system"
        assert made.ours is not None
        assert made.installed is None
    assert spec["containers"][0]["image"] == "registry/rallypoint:2"
    assert "--shadow" not in spec["containers"][0]["args"]


async def test_a_sidecar_keeps_its_image() -> None:
    body = workload("rallypoint:1", "rallypoint-system")
    containers = body["spec"]["template"]["spec"]["containers"]
    containers.insert(0, {"name": "proxy", "image": "proxy:1"})
    async with facts(installed(body), Options(image="rallypoint:2")) as made:
        _, spec = admission.operator_pod(made)

    assert [(c["name"], c["image"]) for c in spec["containers"]] == [
        ("o", "rallypoint:2"),
        ("proxy", "proxy:1"),
    ]
