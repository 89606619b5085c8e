"""The page on a real API server, for a user who may read jobs and little else."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.kube.client import Client
from controller.kube.static_kubeconfig import static_kubeconfig
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui.server import page
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig

READS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "watch-jobs-and-events"},
    "rules": [
        {"apiGroups": ["kubeflow.org"], "resources": ["jaxjobs"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
    ],
}


@pytest.fixture
async def cluster(
    control_plane: ControlPlane, crds: list[Path], tmp_path: Path
) -> AsyncIterator[tuple[str, Cluster]]:
    """A new namespace with the job ``j`` and a warning about it, and the cluster as a viewer of it sees it."""
    namespace = f"ui-{secrets.token_hex(3)}"
    path = f"/api/v1/namespaces/{namespace}"
    control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    control_plane.request("POST", f"{path}/serviceaccounts", {"metadata": {"name": "viewer"}})
    control_plane.apply(READS)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watch-jobs-and-events"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    control_plane.request(
        "POST", bindings, {"metadata": {"name": "viewer"}, "roleRef": role, "subjects": [subject]}
    )
    container = {"name": "jax", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "j"},
        "spec": {
            "jaxReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
        },
    }
    job = control_plane.request("POST", f"/apis/kubeflow.org/v1/namespaces/{namespace}/jaxjobs", body)
    about = {"kind": "JAXJob", "namespace": namespace, "name": "j", "uid": job["metadata"]["uid"]}
    event = {"metadata": {"name": "j.1"}, "involvedObject": about, "type": "Warning"}
    fields = {
        "reason": "FailedCreatePod",
        "message": "exceeded quota",
        "lastTimestamp": "2999-01-01T00:00:00Z",
    }
    control_plane.request("POST", f"{path}/events", {**event, **fields})
    token = (control_plane.service_account_folder(namespace, "viewer") / "token").read_text()
    file = tmp_path / "kubeconfig"
    file.write_text(
        kubeconfig(
            control_plane.server, control_plane.authority.pem, token, user="viewer", namespace=namespace
        )
    )
    connection = static_kubeconfig(str(file), "")
    assert connection is not None
    async with Client(connection, user_agent="test") as client:
        yield namespace, Cluster(client, connection.server, namespace, await clusters.discover(client))


async def first(session: aiohttp.ClientSession, url: str, path: str) -> dict[str, Any]:
    """Return the data of the first event of a stream."""
    address, _, token = url.partition("#token=")
    async with session.get(f"{address}{path}", headers={"Authorization": f"Bearer {token}"}) as answer:
        await answer.content.readline()
        found: dict[str, Any] = json.loads((await answer.content.readline()).removeprefix(b"data: "))
        return found


async def test_a_viewer_sees_jobs_and_what_is_hidden(cluster: tuple[str, Cluster]) -> None:
    namespace, seen = cluster
    async with page(seen) as url, aiohttp.ClientSession() as session:
        jobs = await first(session, url, "api/jobs")
        job = await first(session, url, f"api/jobs/JAXJob/{namespace}/j")

    assert [(row["name"], row["message"]) for row in jobs["all"]] == [
        ("j", "FailedCreatePod: exceeded quota")
    ]
    assert jobs["all"][0]["requests"] == {"nvidia.com/gpu": 16.0}
    assert "pytorchjobs" in jobs["unread"]
    assert "jaxjobs" not in jobs["unread"]
    assert "pods" in job["why"]["notRead"]
    assert [event["message"] for event in job["events"]] == ["exceeded quota"]
