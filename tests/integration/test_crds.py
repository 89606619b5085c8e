"""The CustomResourceDefinitions in a real kube-apiserver: validation, pruning, immutable fields and scaling."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from api.job import replica_field
from api.labels import LAST_APPLIED
from api.meta import Resource
from api.v1.pytorchjob import RESOURCE
from controller.crds import all_crds
from controller.crds.command import main
from controller.crds.kubernetes import FILE, PodSchemas, Release, ask, shipped
from controller.kind import JobKind
from controller.kinds import ALL, DEFAULT
from controller.kinds.pytorch import PYTORCH
from controller.kube.client import JSON_PATCH, Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import ApiError, Conflict, Invalid
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused
from tests.support.kubectl import run
from tests.support.last_applied import annotations_bytes, last_applied

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "parity" / "golden"
RECORDED = [
    pytest.param(kind, path.read_text(), id=f"{path.parent.parent.name}-{path.parent.name}")
    for kind in ALL
    for path in sorted(GOLDEN.glob(f"{kind.resource.singular}*/*/case.yaml"))
]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
CONTAINER = (*WORKER, "template", "spec", "containers", 0)


@pytest.fixture
async def client(control_plane: ControlPlane, crds: list[Path]) -> AsyncIterator[Client]:
    async with Client(await from_kubeconfig(str(control_plane.kubeconfig()))) as client:
        yield client


def job(*changes: tuple[tuple[str | int, ...], Any]) -> dict[str, Any]:
    """A small valid job, with the values at these paths changed."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    made: dict[str, Any] = {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
    }
    for path, value in changes:
        node: Any = made
        for step in path[:-1]:
            node = node.setdefault(step, {}) if isinstance(node, dict) else node[step]
        node[path[-1]] = value
    return made


async def create(
    client: Client, namespace: str, body: dict[str, Any], resource: Resource = RESOURCE, **params: str
) -> Any:
    path = resource.path(namespace)
    return orjson.loads(await client.request("POST", path, params=params, body=orjson.dumps(body)))


async def patch(client: Client, namespace: str, change: dict[str, Any], *, subresource: str = "") -> Any:
    body = orjson.dumps(change)
    return orjson.loads(await client.patch(RESOURCE, namespace, "job", body, subresource=subresource))


def test_definitions_are_established_and_structural(control_plane: ControlPlane, crds: list[Path]) -> None:
    for definition in all_crds():
        name = definition["metadata"]["name"]

        def conditions(name: str = name) -> dict[str, str]:
            status = control_plane.request("GET", f"{CRDS}/{name}")["status"]
            return {condition["type"]: condition["status"] for condition in status["conditions"]}

        # Objects are served a moment before the definition says so.
        control_plane.wait(
            f"{name} established", lambda: conditions().get("Established") == "True", seconds=30
        )
        assert conditions() == {"NamesAccepted": "True", "Established": "True"}


def test_kubectl_remembers_a_definition_as_its_size_is_measured(control_plane: ControlPlane) -> None:
    """tests/controller/crds/test_definition.py measures what client-side ``kubectl apply`` stores of each definition."""
    for path in sorted((ROOT / "manifests/base/crds").glob("kubeflow.org_*.yaml")):
        made = run(control_plane, f"kubectl create --save-config --dry-run=client -o json -f {path}")

        annotations = json.loads(made)["metadata"]["annotations"]
        definition = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        assert annotations[LAST_APPLIED] == last_applied(definition)
        size = sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
        assert size == annotations_bytes(definition)


@pytest.mark.parametrize(("kind", "case"), RECORDED)
async def test_recorded_jobs_are_accepted(
    client: Client, namespace: str, kind: JobKind[Any], case: str
) -> None:
    manifests = yaml.safe_load(case)["job"]
    manifest = next(
        document
        for document in (manifests if isinstance(manifests, list) else [manifests])
        if document["kind"] == kind.resource.kind
    )
    manifest["metadata"]["namespace"] = namespace

    resource = replace(kind.resource, version=manifest["apiVersion"].rpartition("/")[2])

    for role in manifest["spec"].get("mxReplicaSpecs", {}).values():
        role.pop("label", None)  # neither definition knows it, and the recorded API server dropped it

    made = await create(client, namespace, manifest, resource, fieldValidation="Strict", dryRun="All")

    field = replica_field(kind.model).wire_name
    assert made["spec"][field].keys() == manifest["spec"][field].keys()


def test_there_are_recorded_jobs_of_every_kind_of_the_go_operators() -> None:
    kinds = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob", "mxjob")

    assert [kind for kind in kinds if not any(GOLDEN.glob(f"{kind}*/*/case.yaml"))] == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param(
            ("metadata", "name"), "my.job", "must have at most 63 lower-case letters", id="a name with a dot"
        ),
        pytest.param(
            ("metadata", "name"), "j" * 64, "must have at most 63 lower-case letters", id="a name of 64 letters"
        ),
        pytest.param(
            ("metadata", "annotations"), {"notes": "n" * 300_000}, "metadata.annotations: Too long", id="more annotations than an object may have"
        ),
        pytest.param(("spec",), {}, "spec.pytorchReplicaSpecs: Required value", id="no replica specs"),
        pytest.param(
            (*WORKER, "replicas"), "2", "spec.pytorchReplicaSpecs.Worker.replicas in body must be of type integer",
            id="replicas as text",
        ),
        pytest.param(
            (*WORKER, "replicas"), -1, "replicas must not be negative",
            id="replicas below zero",
        ),
        pytest.param(
            (*WORKER, "replicas"), 10**10, "spec.pytorchReplicaSpecs.Worker.replicas: Invalid value: 10000000000",
            id="replicas beyond 32 bits",
        ),
        pytest.param(
            ("spec", "nprocPerNode"), 4, "spec.nprocPerNode in body must be of type string", id="nprocPerNode as number"
        ),
        pytest.param(
            ("spec", "runPolicy"), {"managedBy": "somebody"},
            'spec.runPolicy.managedBy: Unsupported value: "somebody": supported values: '
            '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"',
            id="managedBy of an unknown controller",
        ),
        pytest.param(
            (*WORKER, "template", "spec"), {"nodeName": "node-0"},
            "spec.pytorchReplicaSpecs.Worker.template.spec.containers: Required value", id="no containers",
        ),
        pytest.param(
            (*CONTAINER, "env"), [{"name": "SEED", "value": 1}],
            "containers[0].env[0].value in body must be of type string", id="an environment variable as number",
        ),
        pytest.param(
            (*CONTAINER, "env"), [{"name": "SEED", "value": "1"}, {"name": "SEED", "value": "2"}],
            "containers[0].env[1]: Duplicate value: ", id="an environment variable twice",
        ),
        pytest.param(
            (*CONTAINER, "resources"), {"limits": {"memory": "10x"}},
            "containers[0].resources.limits.memory in body should match", id="no quantity",
        ),
        pytest.param(
            ("spec", "elasticPolicy"), {"metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]},
            "spec.elasticPolicy.metrics[0].resource.target: Required value", id="a metric without target",
        ),
    ],
)  # fmt: skip
async def test_an_invalid_job_is_rejected_with_its_field(
    client: Client, namespace: str, path: tuple[str | int, ...], value: Any, message: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await create(client, namespace, job((path, value)), dryRun="All")

    assert message in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(("spec", "runPolcy"), id="in the spec"),
        pytest.param((*WORKER, "replica"), id="in a replica spec"),
        pytest.param((*CONTAINER, "comand"), id="in a container"),
        pytest.param((*WORKER, "template", "metadata", "generation"), id="in the metadata of a template"),
    ],
)
async def test_unknown_fields_are_named_or_pruned(
    client: Client, namespace: str, path: tuple[str | int, ...]
) -> None:
    name = str(path[-1])
    with pytest.raises(ApiError, match=f'unknown field "spec.*{name}"'):
        await create(client, namespace, job((path, 1)), fieldValidation="Strict", dryRun="All")

    made = await create(client, namespace, job((path, 1)), fieldValidation="Ignore", dryRun="All")
    assert f'"{name}"' not in orjson.dumps(made["spec"]).decode()


async def test_defaults(client: Client, namespace: str) -> None:
    """Of all defaults only these two are persisted; the others are applied in memory."""
    made = await create(
        client,
        namespace,
        job((("spec", "runPolicy"), {"backoffLimit": 1}), ((*CONTAINER, "ports"), [{"containerPort": 80}])),
        dryRun="All",
    )

    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert made["spec"]["runPolicy"] == {"backoffLimit": 1, "suspend": False}
    assert worker["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert "restartPolicy" not in worker


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue", id="changed"),
        pytest.param(None, "kueue.x-k8s.io/multikueue", id="added"),
        pytest.param("kueue.x-k8s.io/multikueue", None, id="taken away"),
    ],
)
async def test_managed_by_is_immutable(
    client: Client, namespace: str, before: str | None, after: str | None
) -> None:
    given = [] if before is None else [(("spec", "runPolicy", "managedBy"), before)]
    await create(client, namespace, job(*given))

    with pytest.raises(Invalid, match=r"spec\.runPolicy\.managedBy: Invalid value: .*field is immutable"):
        await patch(client, namespace, {"spec": {"runPolicy": {"managedBy": after}}})
    suspended = await patch(client, namespace, {"spec": {"runPolicy": {"suspend": True}}})
    assert suspended["spec"]["runPolicy"].get("managedBy") == before


async def test_the_queue_is_immutable_once_it_is_set(client: Client, namespace: str) -> None:
    def queue(name: str | None) -> dict[str, Any]:
        return {"spec": {"runPolicy": {"schedulingPolicy": {"queue": name}}}}

    await create(client, namespace, job())
    await patch(client, namespace, queue("blue"))

    with pytest.raises(Invalid, match=r"spec\.runPolicy\.schedulingPolicy\.queue is immutable"):
        await patch(client, namespace, queue("green"))
    taken_away = await patch(client, namespace, queue(None))
    assert taken_away["spec"]["runPolicy"]["schedulingPolicy"] == {}


async def test_only_the_status_subresource_writes_the_status(client: Client, namespace: str) -> None:
    condition = {"type": "Created", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    await create(client, namespace, job((("status",), {"conditions": [condition]})))

    written = await patch(client, namespace, {"status": {"conditions": [condition]}}, subresource="status")
    unmoved = await patch(client, namespace, {"status": {"conditions": []}})

    assert written["status"] == {"conditions": [condition]}
    assert unmoved["status"] == {"conditions": [condition]}


async def test_a_single_json_patch_writes_a_status(client: Client, namespace: str) -> None:
    """The controller writes the status in this form and tests that the UID is unchanged."""
    made = await create(client, namespace, job())
    status = {"replicaStatuses": {"Worker": {}}, "startTime": "2026-01-02T03:04:05Z"}
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "add", "path": "/status", "value": status},
    ]

    answer = await client.patch(
        RESOURCE, namespace, "job", orjson.dumps(operations), content_type=JSON_PATCH, subresource="status"
    )

    assert orjson.loads(answer)["status"] == status


async def test_workers_are_scaled(client: Client, namespace: str) -> None:
    await create(client, namespace, job())
    selector = "training.kubeflow.org/job-name=job"
    worker = {"active": 1, "selector": selector}
    await patch(client, namespace, {"status": {"replicaStatuses": {"Worker": worker}}}, subresource="status")

    scale = await patch(client, namespace, {"spec": {"replicas": 3}}, subresource="scale")

    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 1, "selector": selector}
    stored = orjson.loads(await client.get(RESOURCE, namespace, "job"))
    assert stored["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3


async def test_a_table_shows_the_last_condition(client: Client, namespace: str) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("Created", "Running")]
    await create(client, namespace, job())
    await patch(client, namespace, {"status": {"conditions": conditions}}, subresource="status")

    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = orjson.loads(await client.list(RESOURCE, namespace, accept=accept))

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    assert table["rows"][0]["cells"][:2] == ["job", "Running"]


@pytest.mark.newest_only
async def test_the_shipped_template_matches_the_server(client: Client) -> None:
    """The newest Kubernetes is the release whose types ship; if this fails, one of the two has moved."""
    shipped = Release.from_json((ROOT / "controller" / "crds" / FILE).read_bytes())

    assert await ask(client) == shipped


@pytest.mark.newest_only
def test_definitions_from_a_cluster_s_own_types(
    control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from-cluster", "--kubeconfig", str(control_plane.kubeconfig())]) == 0
    assert list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader)) == all_crds(kinds=DEFAULT)


def _definition(group: str, schemas: PodSchemas) -> dict[str, Any]:
    """The definition of PyTorchJob in another group, so that a change concerns no other test."""
    (definition,) = all_crds(schemas, [PYTORCH])
    metadata = {**definition["metadata"], "name": f"{RESOURCE.plural}.{group}"}
    return {**definition, "metadata": metadata, "spec": {**definition["spec"], "group": group}}


async def test_the_lists_of_templates_become_atomic_and_keyed_again_under_jobs(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """Two managers share a list of variables; the definition changes; statuses are written and the job stays as it was."""
    resource = replace(RESOURCE, group="lists.example")
    path = resource.path(namespace, "job")
    keyed, atomic = (
        _definition(resource.group, schemas) for schemas in (shipped(), shipped().with_atomic_templates())
    )

    async def apply(manager: str, *variables: str) -> Any:
        env = [{"name": name, "value": manager} for name in variables]
        body = job(((*CONTAINER, "env"), env), (("apiVersion",), resource.api_version))
        params = {"fieldManager": manager, "force": "false"}
        answer = await client.request(
            "PATCH", path, params=params, body=orjson.dumps(body), content_type="application/apply-patch+yaml"
        )
        return orjson.loads(answer)

    async def write_status(condition: str) -> Any:
        status = {"conditions": [{"type": condition, "status": "True", "reason": "Test"}]}
        body = orjson.dumps({"status": status})
        answer = orjson.loads(await client.patch(resource, namespace, "job", body, subresource="status"))
        assert [found["type"] for found in answer["status"]["conditions"]] == [condition]
        return answer["spec"]

    control_plane.apply(keyed)
    await apply("one", "A")
    spec = (await apply("two", "B"))["spec"]
    assert _variables(spec) == ["A", "B"], "each manager has its own element"

    control_plane.apply(atomic)
    control_plane.wait("atomic lists", lambda: _may_repeat(control_plane, resource, namespace))
    assert await write_status("Created") == spec
    with pytest.raises(Conflict, match=r"\.template\.spec\.containers$"):
        await apply("one", "A", "C")

    control_plane.apply(keyed)
    assert await write_status("Running") == spec


def _variables(spec: Any) -> list[str]:
    (container,) = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    return [variable["name"] for variable in container["env"]]


def _may_repeat(control_plane: ControlPlane, resource: Resource, namespace: str) -> bool:
    """Return whether a name may occur twice in a list of templates, which tells that the API server uses atomic lists."""
    twice = [{"name": "A"}, {"name": "A"}]
    body = job(((*CONTAINER, "env"), twice), (("apiVersion",), resource.api_version))
    body["metadata"]["name"] = "other"
    try:
        control_plane.request("POST", f"{resource.path(namespace)}?dryRun=All", body)
    except Refused:
        return False
    return True
