"""Jobs for the page, and what the tests of it share."""

from datetime import UTC, datetime
from typing import Any

import orjson
from playwright.async_api import Page, expect

from api.meta import Resource
from rallypoint.testing.http_trace import Step
from tests.ui.conftest import LocalUp

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
JOBS_PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
TICK = 'i=0; while true; do i=$((i+1)); echo "step $i"; sleep 0.05; done'


def job(
    name: str, script: str = "true", *, workers: int = 0, kept: str = "None", **container: Any
) -> dict[str, Any]:
    def role(replicas: int) -> dict[str, Any]:
        spec = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script], **container}
        return {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {"containers": [spec]}}}

    roles = {"Master": role(1), **({"Worker": role(workers)} if workers else {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": kept}, "pytorchReplicaSpecs": roles},
    }


def status(state: str, message: str = "") -> bytes:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    condition = {
        "type": state,
        "status": "True",
        "reason": "Test",
        "message": message,
        "lastTransitionTime": now,
        "lastUpdateTime": now,
    }
    return orjson.dumps(
        {"status": {"conditions": [condition] if state else [], "replicaStatuses": {"Master": {"active": 1}}}}
    )


async def create(local: LocalUp, *jobs: dict[str, Any]) -> None:
    for found in jobs:
        reply = await local.up.client.send(Step("POST", JOBS_PATH, found, code=201))
        assert reply.code == 201, reply.text


async def open_job(page: Page, name: str) -> None:
    await page.locator("table.jobs a", has_text=name).first.click()
    await expect(page.locator("h1")).to_contain_text(name)
