"""The baseline: create the objects of a run again without a controller, ``IN_FLIGHT`` requests at a time.

Jobs are sent as submitted. All other objects are those that the API server stored for the controller, without the fields
that the server adds. The order is that of their arrival; unwatched objects come with their job. There are no events and no
job statuses, so that only fewer objects could be faster.
"""

import asyncio
import time
from typing import Any

import orjson

from api.batch import BATCH_JOBS
from api.meta import PODS, SERVICES, Resource
from bench.controlplane.processes import cpu_ms
from bench.controlplane.scenario import Jobs, manifest
from bench.controlplane.testbed import EXTRA_RESOURCES, IN_FLIGHT, NAMESPACE, Testbed

Body = tuple[Resource, bytes]
BATCH_JOB_LABELS = {"controller-uid", "job-name"}
"""Labels that the API server adds to the template of a batch Job; each has a second form with a prefix."""


async def object_bodies(testbed: Testbed, scenario: Jobs) -> list[Body]:
    """Return the objects that exist now as create requests, in the order of their arrival."""
    observer = testbed.observer
    found = [
        (at, (scenario.job_kind(name).resource, orjson.dumps(manifest(scenario, name))))
        for name, at in observer.jobs.items()
    ]
    for resource, when in ((PODS, observer.pods), (SERVICES, observer.services)):
        listed = orjson.loads(await testbed.client.list(resource, NAMESPACE))
        found += [
            (when[item["metadata"]["name"]], (resource, as_created(item)))
            for item in listed["items"]
            if not _is_made_by_a_batch_job(item)
        ]
    for resource in EXTRA_RESOURCES if scenario.mpi else ():
        listed = orjson.loads(await testbed.client.list(resource, NAMESPACE))
        for item in listed["items"]:
            (owner,) = item["metadata"]["ownerReferences"]
            found.append((observer.jobs[owner["name"]], (resource, as_created(item))))
    return [body for _, body in sorted(found, key=lambda entry: entry[0])]


def renamed(body: bytes, before: str, after: str) -> bytes:
    """Return the object for jobs with another name prefix. Raises ValueError if the length of the names differs."""
    if len(before) != len(after):
        raise ValueError(f"{before} and {after} have different lengths")
    return body.replace(before.encode(), after.encode())


async def measure(testbed: Testbed, scenario: Jobs, objects: list[Body]) -> dict[str, float]:
    """Create the objects, ``IN_FLIGHT`` at a time, and return the figures that ``job_run`` has, too."""
    observer = testbed.observer
    await _connect(testbed)
    own_cpu, server_cpu = time.process_time(), cpu_ms(testbed.server_pid)
    async with asyncio.timeout(60 + scenario.pods):
        started = time.monotonic()
        await create(testbed, NAMESPACE, objects)
        await observer.wait_until(
            lambda: (
                len(observer.pods_running) == scenario.pods and len(observer.services) == scenario.services
            )
        )
    own_cpu = (time.process_time() - own_cpu) * 1000
    return {
        "create_to_first_pod_ms": (min(observer.pods.values()) - started) * 1000,
        "create_to_last_pod_ms": (max(observer.pods.values()) - started) * 1000,
        "create_to_last_service_ms": (max(observer.services.values()) - started) * 1000,
        "create_to_pods_running_ms": (max(observer.pods_running.values()) - started) * 1000,
        "calls": len(objects) - scenario.jobs,
        "calls_per_job": len(objects) / scenario.jobs - 1,
        "controller_cpu_ms": own_cpu,
        "controller_cpu_per_pod_ms": own_cpu / scenario.pods,
        "server_cpu_ms": cpu_ms(testbed.server_pid) - server_cpu,
    }


async def create(testbed: Testbed, namespace: str, objects: list[Body]) -> None:
    """Create the objects in order. Workers share one iterator, because tasks per object would send in any order."""
    remaining = iter(objects)

    async def work() -> None:
        for resource, body in remaining:
            await testbed.client.create(resource, namespace, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


async def _connect(testbed: Testbed) -> None:
    """Open the connections before the measurement, as the controller's are."""
    await asyncio.gather(*(testbed.client.request("GET", "/version") for _ in range(IN_FLIGHT)))


def as_created(item: dict[str, Any]) -> bytes:
    """Return a stored object without the fields that the server sets; its defaults stay."""
    metadata = {
        key: item["metadata"][key]
        for key in ("name", "labels", "annotations", "ownerReferences")
        if key in item["metadata"]
    }
    body = {key: item[key] for key in ("spec", "data", "type") if key in item}
    body.get("spec", {}).pop("clusterIPs", None)
    if "template" in body.get("spec", {}):
        del body["spec"]["selector"]
        labels = body["spec"]["template"]["metadata"]["labels"]
        for label in [
            label for label in labels if label.removeprefix("batch.kubernetes.io/") in BATCH_JOB_LABELS
        ]:
            del labels[label]
    return orjson.dumps({"metadata": metadata, **body})


def _is_made_by_a_batch_job(item: dict[str, Any]) -> bool:
    owners = item["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == BATCH_JOBS.kind for owner in owners)
