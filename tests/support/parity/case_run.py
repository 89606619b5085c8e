"""Runs the steps of one case, as the user, the cluster and the kubelets around the operator."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import orjson

from api.meta import EVENTS, PODS, Resource
from controller.kube import errors
from controller.kube.client import Client
from controller.shadow.defaults import Object
from tests.support.parity.audit import AuditLog
from tests.support.parity.case import Case, Record
from tests.support.parity.kubelet import pod_status, state
from tests.support.parity.observer import ObservedJob
from tests.support.parity.record import record
from tests.support.parity.resources import NAMESPACE, NODE, child, resource_of

UNCHANGED_SECONDS = 1.5
"""A job has settled when no write about it and no change of its children has happened for so long."""
NOTICE_SECONDS = 5.0
"""How long a new job may have no status before the run stops waiting for one."""
SETTLE_SECONDS = 20.0
"""When a case that never settles continues, unless the case sets its own limit."""
POD_SECONDS = 15.0
"""How long a step waits for the pods that it names."""
POLL_SECONDS = 0.1
BACKGROUND = "Background"


class CaseFailed(Exception):
    """A step failed; the message says which one and why."""


class CaseRun:
    """One case, played once. Its records are in ``records``, as far as it went.

    ``now`` is the clock that the scene and the API server go by: seconds since 1970.
    """

    def __init__(
        self,
        case: Case,
        client: Client,
        observed_job: ObservedJob,
        audit: AuditLog,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.case = case
        self.records: dict[str, Record] = {}
        self._client = client
        self._observed_job = observed_job
        self._audit = audit
        self._now = now
        self._uid = ""
        self._noticed = False
        self._recorded_calls = 0
        self._live: dict[str, list[str]] = {}

    async def run(self) -> None:
        """Raises ``CaseFailed``."""
        for number, step in enumerate(self.case.steps, 1):
            try:
                await self.VERBS[step.verb](self, step.argument)
            except (errors.ApiError, TimeoutError) as error:
                where = f"step {number}, {step.verb} {step.argument or ''}".rstrip()
                raise CaseFailed(f"{where}: {error!r}") from error

    async def _create(self, _: None) -> None:
        for manifest in self.case.manifests:
            if manifest is self.case.job:
                await self._until_priorities_are_known()
            made = await self._client.create(resource_of(manifest), NAMESPACE, orjson.dumps(manifest))
            if manifest is self.case.job:
                self._uid = orjson.loads(made)["metadata"]["uid"]

    async def _until_priorities_are_known(self) -> None:
        """Wait until the API server accepts pods of a new PriorityClass, which takes some milliseconds."""
        names = [
            manifest["metadata"]["name"]
            for manifest in self.case.manifests
            if manifest["kind"] == "PriorityClass"
        ]
        async with asyncio.timeout(POD_SECONDS):
            for name in names:
                while True:
                    if await self._is_known(name):
                        break
                    await asyncio.sleep(POLL_SECONDS)

    async def _is_known(self, priority_class: str) -> bool:
        container = {"name": "probe", "image": "none"}
        body = {
            "metadata": {"name": "probe"},
            "spec": {"containers": [container], "priorityClassName": priority_class},
        }
        try:
            await self._client.request(
                "POST", PODS.path(NAMESPACE), params={"dryRun": "All"}, body=orjson.dumps(body)
            )
        except errors.Forbidden:
            return False
        return True

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _settle(self, options: Mapping[str, float] | None) -> None:
        began = self._now()
        longest = began + (options or {}).get("max", SETTLE_SECONDS)
        while True:
            now = self._now()
            if now >= min(longest, self._busy_until(began, now) + UNCHANGED_SECONDS):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _busy_until(self, began: float, now: float) -> float:
        """Return when something last happened, as far as is known."""
        job = self._observed_job.job
        self._noticed |= job is None or bool(job.get("status")) or now > began + NOTICE_SECONDS
        if not self._noticed or self._observed_job.is_being_cleared:
            return now
        return max(began, self._observed_job.changed_at, self._audit.last_write(self.case.name))

    async def _record(self, name: str) -> None:
        calls = self._audit.calls(self.case.name)
        new = calls[self._recorded_calls :]
        self._recorded_calls = len(calls)
        self.records[name] = record(
            before=self._live,
            calls=new,
            children=self._observed_job.children,
            job=await self._job(),
            events=await self._events(),
            name=self.case.name,
            jobs=self.case.resource,
            words={self._uid: "<job uid>", **self._observed_job.generated},
        )
        self._live = self.records[name]["live"]

    async def _job(self) -> Object | None:
        try:
            return _object(await self._client.get(self.case.resource, NAMESPACE, self.case.name))
        except errors.NotFound:
            return None

    async def _events(self) -> list[Object]:
        selector = f"involvedObject.uid={self._uid}"
        listed = await self._client.list(EVENTS, NAMESPACE, field_selector=selector)
        return list(_object(listed)["items"])

    async def _pods(self, states: Mapping[str, str | dict[str, Any]]) -> None:
        """Change pods of one pattern in reverse order of their names, so that the decisive one changes last."""
        for pattern, said in states.items():
            for name, pod in sorted((await self._appear(pattern)).items(), reverse=True):
                status = pod_status(pod["spec"], state(said), datetime.now(UTC))
                await self._patch(PODS, name, {"status": status}, "status")

    async def _appear(self, pattern: str) -> dict[str, Object]:
        """Wait for pods of that name and return them."""
        await self._observed_job.until(lambda: bool(self._matching(pattern)), POD_SECONDS)
        return self._matching(pattern)

    def _matching(self, pattern: str) -> dict[str, Object]:
        """Return the pods of that name; a wildcard skips finished ones."""
        pods = self._observed_job.children[PODS]
        if pattern in pods:
            return {pattern: pods[pattern]}
        return {
            name: pod
            for name, pod in pods.items()
            if fnmatchcase(name, pattern)
            and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        }

    async def _bind(self, names: list[str]) -> None:
        for name in names:
            await self._appear(name)
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            await self._client.create(
                PODS, NAMESPACE, orjson.dumps(binding), name=name, subresource="binding"
            )

    async def _finish_delete(self, names: list[str]) -> None:
        for name in names:
            with suppress(errors.NotFound):
                await self._client.delete(PODS, NAMESPACE, name, grace_period_seconds=0)

    async def _patch_job(self, patch: dict[str, Any]) -> None:
        await self._patch(self.case.resource, self.case.name, patch)

    async def _scale(self, counts: Mapping[str, int]) -> None:
        if "subresource" in counts:
            patch = {"spec": {"replicas": counts["subresource"]}}
            await self._patch(self.case.resource, self.case.name, patch, "scale")
            return
        (roles,) = (field for field in self.case.job["spec"] if field.endswith("ReplicaSpecs"))
        replicas = {role: {"replicas": count} for role, count in counts.items()}
        await self._patch_job({"spec": {roles: replicas}})

    async def _pod_group(self, status: dict[str, Any]) -> None:
        for resource, objects in self._observed_job.children.items():
            for name in list(objects) if resource.kind == "PodGroup" else ():
                await self._patch(resource, name, {"status": status}, "status")

    async def _delete(self, target: Mapping[str, str]) -> None:
        for kind, name in target.items():
            await self._client.delete(child(kind), NAMESPACE, name, propagation=BACKGROUND)

    async def _delete_pod(self, name: str) -> None:
        await self._delete({PODS.kind: name})

    async def _delete_job(self, _: None) -> None:
        await self._client.delete(self.case.resource, NAMESPACE, self.case.name, propagation=BACKGROUND)

    async def _patch(
        self, resource: Resource, name: str, patch: dict[str, Any], subresource: str = ""
    ) -> None:
        await self._client.patch(resource, NAMESPACE, name, orjson.dumps(patch), subresource=subresource)

    VERBS: ClassVar[Mapping[str, Callable[..., Awaitable[None]]]] = {
        "bind": _bind,
        "create": _create,
        "delete": _delete,
        "delete-job": _delete_job,
        "delete-pod": _delete_pod,
        "finish-delete": _finish_delete,
        "patch-job": _patch_job,
        "podgroup": _pod_group,
        "pods": _pods,
        "record": _record,
        "scale": _scale,
        "settle": _settle,
        "wait": _wait,
    }
    """The verbs of steps. Each takes the step's argument, which the README of the recordings describes."""


def _object(answer: bytes) -> Object:
    return dict(orjson.loads(answer))
