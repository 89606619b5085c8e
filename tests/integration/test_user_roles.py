"""A tenant with a shipped role, by default ``kubeflow-training-edit``, in one namespace of a real API server."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from api.meta import EVENTS, PODS, Resource
from api.nodes import NODES
from api.v1.pytorchjob import RESOURCE as PYTORCHJOBS
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import ApiError, Forbidden
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig
from rallypoint.testing.manifests import build

ROLES = Path(__file__).parents[2] / "manifests" / "components" / "user-roles"
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIGMAPS = Resource("", "v1", "ConfigMap", "configmaps")
REVIEWS = Resource("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
EDIT, VIEW = "kubeflow-training-edit", "kubeflow-training-view"
EXPLAINING = [
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.volcano.sh", "podgroups"),
    ("scheduling.x-k8s.io", "podgroups"),
    ("kueue.x-k8s.io", "workloads"),
]
"""Resources that ``why`` reads, and that this server does not define."""
TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
JOB = {
    "apiVersion": PYTORCHJOBS.api_version,
    "kind": PYTORCHJOBS.kind,
    "metadata": {"name": "train"},
    "spec": {
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}},
    },
}


class Tenant(NamedTuple):
    """A user of one namespace, who has the shipped role there."""

    namespace: str
    kubeconfig: Path
    client: Client


@pytest.fixture
async def tenant(
    control_plane: ControlPlane, crds: list[Path], tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Tenant]:
    role: str = getattr(request, "param", EDIT)
    namespace = f"tenant-{secrets.token_hex(3)}"
    control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    control_plane.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "tenant"}}
    )
    control_plane.apply(*build(ROLES))
    binding = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    control_plane.request("POST", bindings, binding)
    token = (control_plane.service_account_folder(namespace, "tenant") / "token").read_text()
    file = tmp_path / "kubeconfig"
    file.write_text(
        kubeconfig(
            control_plane.server, control_plane.authority.pem, token, user="tenant", namespace=namespace
        )
    )
    async with Client(await from_kubeconfig(str(file))) as client:
        yield Tenant(namespace, file, client)


def parsed(answer: bytes) -> Any:
    return orjson.loads(answer)


async def test_a_tenant_creates_and_scales_a_job(tenant: Tenant) -> None:
    client, namespace = tenant.client, tenant.namespace
    await client.create(PYTORCHJOBS, namespace, orjson.dumps(JOB))

    change = orjson.dumps({"spec": {"replicas": 3}})
    scaled = parsed(await client.patch(PYTORCHJOBS, namespace, "train", change, subresource="scale"))

    assert scaled["spec"]["replicas"] == 3
    job = parsed(await client.get(PYTORCHJOBS, namespace, "train"))
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3


async def is_forbidden(attempt: Awaitable[bytes]) -> bool:
    """Whether RBAC refuses a call, whatever else becomes of it: the pod may be on a node, where no kubelet answers."""
    try:
        await attempt
    except ApiError as error:
        return isinstance(error, Forbidden)
    return False


@pytest.mark.parametrize("tenant", [EDIT, VIEW], indirect=True)
async def test_a_tenant_reads_what_explains_a_job(
    control_plane: ControlPlane, tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    client, namespace = tenant.client, tenant.namespace
    control_plane.request("POST", PYTORCHJOBS.path(namespace), JOB)
    pod = {
        "metadata": {"name": "train-worker-0"},
        "spec": {**TEMPLATE["spec"], "serviceAccountName": "tenant"},
    }
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    assert [item["metadata"]["name"] for item in parsed(await client.list(PODS, namespace))["items"]] == [
        "train-worker-0"
    ]
    assert "items" in parsed(await client.list(EVENTS, namespace))
    assert not await is_forbidden(client.get(PODS, namespace, "train-worker-0", subresource="log"))
    why = ["why", "pytorchjob/train", "--kubeconfig", str(tenant.kubeconfig), "-o", "json"]
    assert await asyncio.to_thread(main, why) == 0
    assert json.loads(capsys.readouterr().out)[0]["notRead"] == []
    for (group, plural), verb in product(EXPLAINING, ("get", "list")):
        attributes = {"namespace": namespace, "group": group, "resource": plural, "verb": verb}
        review = orjson.dumps({"spec": {"resourceAttributes": attributes}})
        assert parsed(await client.create(REVIEWS, "", review))["status"]["allowed"], (group, plural, verb)


async def test_a_tenant_has_no_rights_beyond_its_namespace(tenant: Tenant) -> None:
    client, own = tenant.client, tenant.namespace
    body = orjson.dumps(JOB)
    attempts = [
        client.create(PYTORCHJOBS, "default", body),
        *(client.list(resource, "default") for resource in (PYTORCHJOBS, PODS, EVENTS)),
        *(client.list(resource) for resource in (PYTORCHJOBS, PODS, NODES)),
        *(client.list(resource, own) for resource in (SECRETS, CONFIGMAPS)),
        client.create(PODS, own, orjson.dumps({"metadata": {"name": "own"}, **TEMPLATE})),
        client.patch(PYTORCHJOBS, own, "train", b"{}", subresource="status"),
        client.create(PODS, own, b"{}", name="train-worker-0", subresource="exec"),
    ]

    for attempt in attempts:
        with pytest.raises(Forbidden):
            await attempt


async def test_port_forward_names_the_missing_right(
    control_plane: ControlPlane, tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**TEMPLATE["spec"], "serviceAccountName": "tenant", "nodeName": "node-0"}
    path = PODS.path(tenant.namespace)
    control_plane.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})
    control_plane.wait(
        "the pod", lambda: control_plane.request("GET", f"{path}/web")["status"]["phase"] == "Running"
    )

    assert (
        await asyncio.to_thread(main, ["port-forward", "web", "80", "--kubeconfig", str(tenant.kubeconfig)])
        == 1
    )
    error = capsys.readouterr().err
    assert error.startswith('Error from server (Forbidden): pods "web" is forbidden: ')
    assert 'cannot get resource "pods/portforward"' in error
