"""Many running jobs as copies of one: its objects, written straight into etcd.

To create as many through the API server would take an hour.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from api.meta import PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE as PYTORCH_JOBS
from bench.controlplane.job_run import submit
from bench.controlplane.processes import rss_mib, wait_until_idle
from bench.controlplane.scenario import Jobs, container_status
from bench.controlplane.testbed import NAMESPACE, Testbed, clear, controller, count, open_testbed
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.etcd import REGISTRY, Entry, put

ORIGINAL = "copied-000000"
NAMESPACE_PREFIX = "many-"
"""Namespaces of copies begin so, and no others."""
PREFIXES = {
    PYTORCH_JOBS: f"{REGISTRY}/kubeflow.org/pytorchjobs",
    PODS: f"{REGISTRY}/pods",
    SERVICES: f"{REGISTRY}/services/specs",
}
"""Where the API server keeps objects in etcd."""
TIMEOUT_SECONDS = 900.0
CONTAINER = {
    **container_status("pytorch", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
    "ready": True,
    "started": True,
}
RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "podIP": "10.128.0.1",
    "podIPs": [{"ip": "10.128.0.1"}],
    "containerStatuses": [CONTAINER],
}
"""The status of a pod as a kubelet writes it."""


class Original(NamedTuple):
    """One object of the job that is copied, as etcd stores it."""

    prefix: str
    name: str
    uid: str
    text: bytes


async def create_copies(
    plane: ControlPlane, jobs: int, replicas: int, namespaces: int, flags: Sequence[str]
) -> dict[str, float]:
    """Return when the API server has all copies, with the time that took and the size of everything."""
    plane.apply(
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in namespace_names(namespaces)
        )
    )
    async with open_testbed(plane) as testbed, asyncio.timeout(TIMEOUT_SECONDS):
        originals = await _originals(testbed, replicas, flags)
        present = {resource: await count(testbed.client, resource) for resource in PREFIXES}
        began = time.monotonic()
        await put(plane.etcd_server, plane.etcd_context(), copies(originals, jobs, namespaces))
        for resource, number in present.items():
            expected = number + jobs * sum(original.prefix == PREFIXES[resource] for original in originals)
            while await count(testbed.client, resource) < expected:  # noqa: ASYNC110 - it is the server that is asked
                await asyncio.sleep(0.5)
        await wait_until_idle(testbed.server_pid)
        return {
            "objects": jobs * len(originals),
            "object_mib": jobs * sum(len(original.text) for original in originals) / 2**20,
            "copying_seconds": time.monotonic() - began,
            "server_rss_mib": rss_mib(testbed.server_pid),
        }


async def _originals(testbed: Testbed, replicas: int, flags: Sequence[str]) -> list[Original]:
    """Let the controller run one job, return its objects, the job first, and delete them."""
    scenario, observer = Jobs(1, replicas), testbed.observer
    async with controller(testbed, flags):
        await submit(testbed, scenario, [ORIGINAL])
        await observer.wait_until(lambda: len(observer.pods) == replicas)
        body = orjson.dumps({"status": RUNNING})
        for pod in list(observer.pods):
            await testbed.client.patch(PODS, NAMESPACE, pod, body, subresource="status")
        await observer.wait_until(lambda: ORIGINAL in observer.with_condition("Running"))
        await testbed.audit.wait_until_idle()
    originals = [
        original(resource, item)
        for resource in PREFIXES
        for item in orjson.loads(await testbed.client.list(resource, NAMESPACE))["items"]
    ]
    await clear(testbed)
    return originals


def original(resource: Resource, item: dict[str, Any]) -> Original:
    """Return an item of a list as etcd stores it: with its kind, and without the resourceVersion."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    stored = {"kind": resource.kind, "apiVersion": resource.api_version, **item, "metadata": metadata}
    return Original(PREFIXES[resource], metadata["name"], metadata["uid"], orjson.dumps(stored))


def copies(originals: Sequence[Original], jobs: int, namespaces: int) -> Iterator[Entry]:
    """Return the objects of each job with its own name, namespace and UIDs; the job comes first."""
    job, *children = originals
    names = namespace_names(namespaces)
    for index in range(jobs):
        name, namespace = f"{ORIGINAL[:-6]}{index:06}", names[index % namespaces]
        replacements = {
            ORIGINAL: name,
            job.uid: str(uuid4()),
            f'"namespace":"{NAMESPACE}"': f'"namespace":"{namespace}"',
        }
        for copied in (job, *children):
            text = copied.text
            for before, after in {copied.uid: str(uuid4()), **replacements}.items():
                text = text.replace(before.encode(), after.encode())
            key = f"{copied.prefix}/{namespace}/{copied.name.replace(ORIGINAL, name)}"
            yield key.encode(), text


def namespace_names(number: int) -> list[str]:
    return [f"{NAMESPACE_PREFIX}{index:03}" for index in range(number)]
