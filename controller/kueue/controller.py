"""Keeps the Workloads of one kind's jobs, and suspends and resumes the jobs as Kueue decides.

A reconcile reads the caches and does the next step of ``plan``; each step is harmless if it is repeated.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from api import workloads
from api.children import Pod, pod_from_json
from api.job import ConditionType
from api.labels import JOB_NAME
from api.meta import PODS
from api.workloads import Workload
from controller.domain import Key
from controller.kind import ReplicaKind
from controller.kind.reasons import EventReason
from controller.kube import errors
from controller.kube.client import Client
from controller.kueue import plan, pod_sets
from controller.kueue.builtin import FRESH_SECONDS, BuiltinIntegration
from controller.kueue.plan import Action, Step
from controller.kueue.pod_sets import Object, QueuedJob, Unqueueable
from controller.reconcile.jobs import JobRow, job_from_json
from controller.runtime.informer import Informer
from controller.runtime.listwatch import list_items
from controller.runtime.queue import Queue
from controller.runtime.recorder import EventPriority, Recorder, Subject
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult, Terminal

BUSY_SECONDS: Final = 0.05
"""How soon to look again whether a reconcile of the job has ended."""
UNSEEN_PODS_SECONDS: Final = 1.0
"""How soon to look again for pods that the watch has not reported, or not as ended."""
RUNNING_PODS_SECONDS: Final = 5.0
"""How soon to look again for pods whose end the watch will report."""
BLOCKED_SECONDS: Final = 30.0
"""How soon to try again what somebody must correct, such as a priority class that does not exist; that may be in another object."""
STEPS_AT_ONCE: Final = 4
"""The most steps of one reconcile, none of which waits for others."""

log = structlog.get_logger()


class Admissions:
    """Which jobs of one kind hold quota, from the cached Workloads."""

    def __init__(self, kind: ReplicaKind[Any], cache: Informer[Workload]) -> None:
        self._kind = kind
        self._cache = cache

    def is_held(self, row: JobRow) -> bool:
        """Return whether the job must be treated as suspended although it is not."""
        if row.is_suspended or row.deleting or not pod_sets.queue_of(row):
            return False
        job = QueuedJob(self._kind, row)
        try:
            workload = plan.own_workload(job, self.of(row.namespace, row.name))
            return plan.is_held(job, workload, is_known=self._cache.synced.is_set())
        except Unqueueable:
            return not job.is_finished

    def of(self, namespace: str, name: str) -> tuple[Workload, ...]:
        """Return the Workloads of jobs of that name."""
        index = workloads.index_of(self._kind.resource.kind, namespace, name)
        return self._cache.store.indexed(index)


class KueueController:
    """Reconciles the Workloads of one kind."""

    def __init__(
        self,
        kind: ReplicaKind[Any],
        client: Client,
        jobs: Store[JobRow],
        cache: Informer[Workload],
        pods: Store[Pod],
        job_queue: Queue[Key],
        recorder: Recorder,
        *,
        now: Callable[[], datetime],
    ) -> None:
        """``job_queue`` is the queue of the jobs themselves: a job that is being reconciled may be creating pods."""
        self._kind = kind
        self._client = client
        self._jobs = jobs
        self._admissions = Admissions(kind, cache)
        self._workloads = cache.store
        self._pods = pods
        self._job_queue = job_queue
        self._recorder = recorder
        self._now = now
        self._builtin = BuiltinIntegration(kind, client)
        self._decode = partial(workloads.workload_from_json, frozenset({kind.resource.kind}))

    async def reconcile(self, key: Key) -> ReconcileResult:
        """Do the next steps for one job.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the reconcile must be retried.
        """
        bind_contextvars(kind=self._kind.resource.kind, namespace=key.namespace, name=key.name)
        for _ in range(STEPS_AT_ONCE):
            row = self._jobs.get(key.namespace, key.name)
            job = QueuedJob(self._kind, row) if row and not row.deleting else None
            found = self._admissions.of(key.namespace, key.name)
            if job is not None and (not job.is_ours or not (job.queue or found)):
                return ReconcileResult()
            try:
                step = plan.decide(job, found, self._now())
                if step is None:
                    return ReconcileResult()
                if step.after_pods and job is not None and await self._is_outdated(job.row):
                    continue
                if step.after_pods and (pause := await self._busy_seconds(key, _owner_uid(step, job))):
                    return ReconcileResult(pause)
                if job is not None and await self._builtin.is_on(job.row):
                    return ReconcileResult(FRESH_SECONDS)
                if not await self._perform(step, job):
                    return ReconcileResult()
            except Unqueueable as error:
                return self._blocked(job, str(error))
            except (errors.Invalid, errors.Forbidden) as error:
                return self._blocked(job, error.message, error)
        return ReconcileResult(0)

    async def _is_outdated(self, row: JobRow) -> bool:
        """Read a job from the server, and return whether the cached one is another: the response to its start may have been lost."""
        newest = job_from_json(await self._client.get(self._kind.resource, row.namespace, row.name))
        if newest.resource_version == row.resource_version:
            return False
        if self._jobs.put(newest) is not None:
            self._job_queue.add(Key(row.namespace, row.name))  # the watch will not report this version
        return True

    async def _busy_seconds(self, key: Key, uid: str) -> float:
        """Return 0 if no pod of the job runs or may run, otherwise when to look again.

        Nobody creates one meanwhile: a reconcile of the job would have begun before the job was suspended, and none is in progress. The
        server has the pods of creates whose responses were lost.
        """
        if self._job_queue.is_processing(key):
            return BUSY_SECONDS
        if any(not pod.is_finished for pod in self._pods.indexed(uid)):
            return RUNNING_PODS_SECONDS
        answer = await self._client.list(PODS, key.namespace, label_selector=f"{JOB_NAME}={key.name}")
        pods = (pod_from_json(raw) for raw in list_items(answer))
        is_busy = any(pod.owner_uid == uid and not pod.is_finished for pod in pods)
        return UNSEEN_PODS_SECONDS if is_busy else 0.0

    async def _perform(self, step: Step, job: QueuedJob | None) -> bool:
        """Write one step, and return whether the next one can follow at once; otherwise a watch reports the change.

        Raises:
            Unqueueable: no Workload can be made of the job.
        """
        if step.action is Action.REMOVE_FINALIZER and step.workload is not None:
            await self._remove_finalizer(step.workload)
            return False
        assert job is not None
        if step.action is Action.CREATE:
            return await self._create(job)
        if step.action is Action.SUSPEND:
            await self._patch_job(job, pod_sets.suspend(job, step.workload))
            self._record(job, EventReason.STOPPED, step.text)
            return False
        assert step.workload is not None
        perform: Callable[[QueuedJob, Workload, str], Awaitable[bool]] = {
            Action.START: self._start,
            Action.UPDATE: self._update,
            Action.REPRIORITIZE: self._reprioritize,
            Action.REPORT: self._report,
            Action.RELEASE: self._release,
            Action.FINISH: self._finish,
            Action.DELETE: self._delete,
        }[step.action]
        return await perform(job, step.workload, step.text)

    async def _create(self, job: QueuedJob) -> bool:
        body = pod_sets.workload_body(job, await self._priority(job))
        name, namespace = body["metadata"]["name"], job.row.namespace
        try:
            answer = await self._client.create(workloads.WORKLOADS, namespace, msgspec.json.encode(body))
        except errors.AlreadyExists:
            # By this process if a response was lost, or by Kueue while it managed the kind.
            answer = await self._client.get(workloads.WORKLOADS, namespace, name)
            if self._decode(answer).owner_uid != job.row.uid:
                raise Unqueueable(f"the Workload {name} exists and belongs to another object") from None
        else:
            self._record(job, EventReason.CREATED_WORKLOAD, f"Created Workload: {namespace}/{name}")
        self._store(answer)
        return True

    async def _start(self, job: QueuedJob, workload: Workload, _: str) -> bool:
        flavors = {name: await self._flavor(name) for name in pod_sets.flavors_of(workload)}
        try:
            change = pod_sets.admit(job, workload, flavors)
        except Unqueueable as error:
            # Kueue does the same: a retry would not help, and the quota is of use to others.
            self._record(job, EventReason.WORKLOAD_BLOCKED, str(error), severity="Warning")
            status = plan.finish(workload, plan.FAILED_TO_START, str(error), self._now())
            await self._patch_status(workload, status)
            return True
        await self._patch_job(job, change)
        cluster_queue = msgspec.json.decode(workload.status)["admission"].get("clusterQueue", "")
        self._record(job, EventReason.STARTED, f"Admitted by clusterQueue {cluster_queue}")
        return False

    async def _update(self, job: QueuedJob, workload: Workload, _: str) -> bool:
        change = pod_sets.workload_change(job, workload, await self._priority(job))
        await self._patch_workload(workload, change)
        self._record(job, EventReason.UPDATED_WORKLOAD, f"Updated Workload: {_key_of(workload)}")
        return True

    async def _reprioritize(self, job: QueuedJob, workload: Workload, _: str) -> bool:
        await self._patch_workload(workload, {"spec": await self._priority(job)})
        self._record(job, EventReason.UPDATED_WORKLOAD, f"Updated Workload: {_key_of(workload)}")
        return True

    async def _report(self, job: QueuedJob, workload: Workload, _: str) -> bool:
        await self._patch_status(workload, plan.report(job, workload, self._now()))
        return True

    async def _release(self, _job: QueuedJob, workload: Workload, _: str) -> bool:
        await self._patch_status(workload, plan.release(workload, self._now()))
        return True

    async def _finish(self, job: QueuedJob, workload: Workload, message: str) -> bool:
        reason = "Failed" if job.condition(ConditionType.FAILED) else "Succeeded"
        await self._patch_status(workload, plan.finish(workload, reason, message, self._now()))
        text = f"Workload '{_key_of(workload)}' is declared finished"
        self._record(job, EventReason.FINISHED_WORKLOAD, text)
        return True

    async def _delete(self, job: QueuedJob, workload: Workload, text: str) -> bool:
        if workload.has_finalizer:
            workload = await self._remove_finalizer(workload) or workload
        version = str(workload.resource_version)
        try:
            await self._client.delete(
                workloads.WORKLOADS,
                workload.namespace,
                workload.name,
                uid=workload.uid,
                resource_version=version,
            )
        except errors.NotFound:
            return False
        self._record(job, EventReason.DELETED_WORKLOAD, f"Deleted Workload {_key_of(workload)}: {text}")
        return False

    async def _remove_finalizer(self, workload: Workload) -> Workload | None:
        """Remove the finalizer of a Workload; return the Workload if it was still there."""
        kept = [name for name in workload.finalizers if name != workloads.RESOURCE_IN_USE]
        try:
            return await self._patch_workload(workload, {"metadata": {"finalizers": kept}})
        except errors.NotFound:
            return None

    async def _patch_job(self, job: QueuedJob, change: Object) -> None:
        row = job.row
        await self._client.patch(self._kind.resource, row.namespace, row.name, msgspec.json.encode(change))

    async def _patch_workload(self, workload: Workload, change: Object, subresource: str = "") -> Workload:
        """Patch exactly this version of a Workload."""
        metadata = {
            "uid": workload.uid,
            "resourceVersion": str(workload.resource_version),
            **change.get("metadata", {}),
        }
        answer = await self._client.patch(
            workloads.WORKLOADS,
            workload.namespace,
            workload.name,
            msgspec.json.encode({**change, "metadata": metadata}),
            subresource=subresource,
        )
        return self._store(answer)

    async def _patch_status(self, workload: Workload, status: Object) -> None:
        await self._patch_workload(workload, {"status": status}, "status")

    def _store(self, answer: bytes) -> Workload:
        workload = self._decode(answer)
        self._workloads.put(workload)
        return workload

    async def _flavor(self, name: str) -> Mapping[str, Any]:
        found = msgspec.json.decode(await self._client.get(workloads.RESOURCE_FLAVORS, "", name))
        return found.get("spec") or {}

    async def _priority(self, job: QueuedJob) -> Object:
        """Return the priority of a job, and the reference to its class if it has one.

        Raises:
            Unqueueable: the class does not exist.

        Source: kueue 0.19, pkg/util/priority.
        """
        label, name = job.labels.get(workloads.PRIORITY_CLASS, ""), job.priority_class
        resource = workloads.WORKLOAD_PRIORITY_CLASSES if label else workloads.PRIORITY_CLASSES
        if label or name:
            try:
                found = msgspec.json.decode(await self._client.get(resource, "", label or name))
            except errors.NotFound as error:
                raise Unqueueable(f"{resource.kind} {label or name} does not exist") from error
        else:
            listed = msgspec.json.decode(await self._client.list(resource))["items"]
            default = [item for item in listed if item.get("globalDefault")]
            if not default:
                return {"priority": 0}
            found = min(default, key=lambda item: item["value"])
        reference = {"group": resource.group, "kind": resource.kind, "name": found["metadata"]["name"]}
        return {"priority": found["value"], "priorityClassRef": reference}

    def _blocked(self, job: QueuedJob | None, text: str, error: Exception | None = None) -> ReconcileResult:
        """Report what somebody must change. A refusal of the server is retried, because its policy may change."""
        if job is not None:
            self._record(job, EventReason.WORKLOAD_BLOCKED, text, severity="Warning", similar=text)
        if error is not None:
            raise error
        return ReconcileResult(BLOCKED_SECONDS, failure=Terminal(text))

    def _record(
        self, job: QueuedJob, reason: str, text: str, *, severity: str = "Normal", similar: str = ""
    ) -> None:
        resource, row = job.kind.resource, job.row
        source = job.kind.controller_name
        subject = Subject(resource.api_version, resource.kind, row.namespace, row.name, row.uid, source)
        priority = EventPriority.REPORT if similar else EventPriority.STATE
        self._recorder.record(subject, severity, reason, text, priority=priority, similar=similar)


def _owner_uid(step: Step, job: QueuedJob | None) -> str:
    """Return the UID of the job whose pods a step waits for; its Workload may be that of an earlier job of the name."""
    if step.workload is not None:
        return step.workload.owner_uid
    assert job is not None
    return job.row.uid


def _key_of(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.name}"
