"""Jobs whose containers have no command, on a running local cluster: the image's config has one, or the job fails."""

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.crds import all_crds
from rallypoint.cli.local_flags import SETTINGS
from rallypoint.local.cluster import local_cluster
from rallypoint.local.node.containers.images import Image, Images

pytestmark = pytest.mark.looptime(False)

TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1


async def conditions(folder: Path, images: dict[str, Image]) -> dict[str, str]:
    """Run a job of one pod without a command until it ends; return its conditions that are true, with their messages."""
    container = {"name": "pytorch", "image": "example.com/train:1"}
    master = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    body: dict[str, Any] = {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }
    async with local_cluster(all_crds(), folder, isolation="loopback", images=Images(images)) as cluster:
        service = asyncio.create_task(app.run(SETTINGS, cluster.connection))
        await cluster.client.create(RESOURCE, "default", orjson.dumps(body))
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    job = orjson.loads(await cluster.client.get(RESOURCE, "default", "job"))
                    found = (job.get("status") or {}).get("conditions") or ()
                    messages = {
                        condition["type"]: condition["message"]
                        for condition in found
                        if condition["status"] == "True"
                    }
                    if messages.keys() & {"Succeeded", "Failed"}:
                        return messages
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            service.cancel()
            await asyncio.wait([service])


async def test_a_job_without_a_command_fails(tmp_path: Path) -> None:
    assert "Failed" in await conditions(tmp_path, {})


async def test_a_job_without_a_command_runs_the_command_of_its_image(tmp_path: Path) -> None:
    config = tmp_path / "train.json"
    written = tmp_path / "written"
    config.write_text(
        json.dumps({"Entrypoint": ["sh", "-c"], "Cmd": [f"echo $A > {written}"], "Env": ["A=1"]})
    )

    conditions_of_job = await conditions(tmp_path / "run", {"example.com/train:1": Image.read(config)})

    assert "Succeeded" in conditions_of_job
    assert written.read_text() == "1\n"
