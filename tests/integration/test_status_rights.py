"""The roles for users do not allow writing the status of a job. See docs/decisions/0023-status-writers.md."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.job import replica_field
from controller.kind import JobKind
from controller.kinds import ALL
from controller.kube.client import JSON_PATCH, MERGE_PATCH, Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import Forbidden
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig
from rallypoint.testing.manifests import build

COMPONENTS = Path(__file__).parents[2] / "manifests" / "components"
ROLES, MXJOB = COMPONENTS / "user-roles", COMPONENTS / "mxjob"
SPOOFED = {"conditions": [{"type": "Succeeded", "status": "True"}]}


@pytest.fixture
async def editor(
    control_plane: ControlPlane, crds: list[Path], namespace: str, tmp_path: Path
) -> AsyncIterator[Client]:
    """A client of a user who can edit jobs in that namespace, by the shipped roles."""
    control_plane.apply(
        *build(ROLES), *(document for document in build(MXJOB) if document["kind"] == "ClusterRole")
    )
    account = {"kind": "ServiceAccount", "name": "editor", "namespace": namespace}
    control_plane.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "editor"}}
    )
    for name in ("kubeflow-training-edit", "kubeflow-training-mxjob-edit"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
        control_plane.request(
            "POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding
        )
    token = (control_plane.service_account_folder(namespace, "editor") / "token").read_text()
    file = tmp_path / "kubeconfig"
    file.write_text(
        kubeconfig(
            control_plane.server, control_plane.authority.pem, token, user="editor", namespace=namespace
        )
    )
    async with Client(await from_kubeconfig(str(file))) as client:
        yield client


def job_of(kind: JobKind[Any]) -> dict[str, Any]:
    field = replica_field(kind.model).wire_name
    leaders = {"MPIJob": "Launcher", "XGBoostJob": "Master"}
    roles = (*filter(None, [leaders.get(kind.resource.kind)]), "Worker")
    template = {"spec": {"containers": [{"name": kind.framework, "image": "train:1"}]}}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": "job"},
        "spec": {field: {role: {"template": template} for role in roles}},
        "status": SPOOFED,
    }


def by_kind(kind: JobKind[Any]) -> str:
    return kind.resource.kind


@pytest.mark.parametrize("kind", ALL, ids=by_kind)
async def test_a_user_cannot_finish_a_job_by_writing_its_status(
    editor: Client, namespace: str, kind: JobKind[Any]
) -> None:
    resource = kind.resource
    path = resource.path(namespace, "job", "status")
    change = orjson.dumps({"status": SPOOFED})
    operations = orjson.dumps([{"op": "add", "path": "/status", "value": SPOOFED}])

    made = orjson.loads(await editor.create(resource, namespace, orjson.dumps(job_of(kind))))
    changed = orjson.loads(await editor.patch(resource, namespace, "job", change))
    replaced = orjson.loads(
        await editor.update(resource, namespace, "job", orjson.dumps(changed | {"status": SPOOFED}))
    )
    attempts: list[Callable[[], Any]] = [
        lambda: editor.patch(
            resource, namespace, "job", change, content_type=MERGE_PATCH, subresource="status"
        ),
        lambda: editor.patch(
            resource, namespace, "job", operations, content_type=JSON_PATCH, subresource="status"
        ),
        lambda: editor.request("PUT", path, body=orjson.dumps(made | {"status": SPOOFED})),
    ]

    assert [stored.get("status") for stored in (made, changed, replaced)] == [None, None, None]
    for attempt in attempts:
        with pytest.raises(Forbidden, match=f"{resource.plural}/status"):
            await attempt()
