"""The controller of batch/v1 Jobs: each change of a job or its pods triggers a reconcile of the job."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

import orjson

from api.batch import BATCH_JOBS
from api.meta import PODS
from controller.kube.client import Client
from controller.kube.errors import Conflict, Invalid, NotFound
from controller.runtime import clock
from controller.runtime.informer import Informer
from controller.runtime.queue import Queue
from controller.runtime.workers import ReconcileResult, Workers
from rallypoint.local.batch.plan import FINALIZER, Plan, plan
from rallypoint.local.manifest import (
    Manifest,
    Row,
    controller_reference,
    controller_uid,
    decode,
    from_template,
)
from rallypoint.local.node.event_recorder import EventRecorder

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
WORKERS = 2

Key = tuple[str, str]


class Jobs:
    """Runs the Jobs of one server while ``run`` runs."""

    def __init__(self, client: Client, *, now: Callable[[], datetime] = clock.now) -> None:
        self._client = client
        self._now = now
        self._queue: Queue[Key] = Queue(group=lambda key: key[0])
        self._events = EventRecorder(client, "job-controller", "", now)
        self._jobs = Informer(client, BATCH_JOBS, decode, self._job_changed)
        self._pods = Informer(client, PODS, decode, self._pod_changed, label_selector=UID_LABEL)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs.run())
            tasks.create_task(self._pods.run())
            tasks.create_task(self._events.run())
            tasks.create_task(Workers(self._queue, self._reconcile, count=WORKERS, name="job").run())

    def _job_changed(self, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is not None:
            self._queue.add((row.namespace, row.name))

    def _pod_changed(self, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is not None and (name := (row.manifest["metadata"].get("labels") or {}).get(NAME_LABEL)):
            self._queue.add((row.namespace, name))

    async def _reconcile(self, key: Key) -> ReconcileResult:
        """Reconcile a job. Read job and pods from the server to see the writes of the previous reconcile."""
        namespace, name = key
        selector = f"{NAME_LABEL}={name}"
        try:
            job = orjson.loads(await self._client.get(BATCH_JOBS, namespace, name))
        except NotFound:
            job = None
        found = orjson.loads(await self._client.list(PODS, namespace, label_selector=selector))["items"] or []
        pods = [{"kind": "Pod", "apiVersion": "v1", **pod} for pod in found]
        uid = job["metadata"]["uid"] if job is not None else ""
        await self._release([pod for pod in pods if controller_uid(pod) != uid and _has_finalizer(pod)])
        if job is None or job["metadata"].get("deletionTimestamp"):
            await self._release([pod for pod in pods if controller_uid(pod) == uid and _has_finalizer(pod)])
            return ReconcileResult()
        if job["spec"].get("completionMode") == "Indexed" or job["spec"].get("managedBy"):
            return ReconcileResult()
        now = self._now()
        step = plan(job, [pod for pod in pods if controller_uid(pod) == uid], now)
        try:
            await self._act(job, step)
        except Conflict:
            return ReconcileResult(0)  # The job has changed since it was read.
        return ReconcileResult(
            None if step.reconcile_at is None else (step.reconcile_at - now).total_seconds()
        )

    async def _act(self, job: Manifest, step: Plan) -> None:
        """
        Raises:
            Conflict: the job has changed since it was read.
        """
        meta = job["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        if step.expired:
            with suppress(NotFound, Conflict):
                await self._client.delete(
                    BATCH_JOBS, namespace, name, uid=meta["uid"], propagation="Foreground"
                )
            return
        await self._release([pod for pod in step.discard if _has_finalizer(pod)])
        for pod in (*step.discard, *step.delete):
            await self._delete(pod)
            self._events.record(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        status = step.status
        for made in range(step.make):
            try:
                await self._make(job)
            except Invalid as error:
                self._events.record(job, "FailedCreate", f"Error creating: {error}", warning=True)
                status = {**status, "active": status.get("active", 0) - (step.make - made)}
                break
        if status != (job.get("status") or {}):
            body = orjson.dumps({**job, "status": status})
            await self._client.update(BATCH_JOBS, namespace, name, body, subresource="status")
        await self._release(step.release)
        for event in step.events:
            self._events.record(job, event.reason, event.message, warning=event.warning)

    async def _make(self, job: Manifest) -> None:
        meta = job["metadata"]
        pod = from_template(
            PODS,
            job["spec"]["template"],
            controller_reference(BATCH_JOBS, meta),
            generateName=f"{meta['name']}-",
            finalizers=[FINALIZER],
        )
        answer = orjson.loads(await self._client.create(PODS, meta["namespace"], orjson.dumps(pod)))
        self._events.record(job, "SuccessfulCreate", f"Created pod: {answer['metadata']['name']}")

    async def _delete(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        with suppress(NotFound, Conflict):
            await self._client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"])

    async def _release(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            meta = pod["metadata"]
            finalizers = [finalizer for finalizer in meta["finalizers"] if finalizer != FINALIZER]
            body = orjson.dumps(
                {
                    "metadata": {
                        "uid": meta["uid"],
                        "finalizers": finalizers,
                        "resourceVersion": meta["resourceVersion"],
                    }
                }
            )
            with suppress(NotFound, Conflict):
                await self._client.patch(PODS, meta["namespace"], meta["name"], body)


def _has_finalizer(pod: Manifest) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())
