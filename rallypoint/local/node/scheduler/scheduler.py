"""The scheduler: runs scheduling cycles (``cycle``), binds pods that fit and reports the others.

It acts as kube-scheduler and, if configured, as a gang scheduler.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import aiohttp
import msgspec
import orjson
import structlog

from api.meta import PODS, Resource
from controller.kube.client import Client
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.runtime.informer import Informer
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.event_recorder import EventRecorder
from rallypoint.local.node.pods.status import with_condition
from rallypoint.local.node.resources import Amounts, requests
from rallypoint.local.node.scheduler.coscheduling import COSCHEDULING
from rallypoint.local.node.scheduler.cycle import DEFAULT, Schedule, Snapshot, decide
from rallypoint.local.node.scheduler.fit import (
    Unschedulable,
    VolumeConflictCheck,
    nothing,
    unschedulable_condition,
)
from rallypoint.local.node.scheduler.gangs import GroupStatus, Rules
from rallypoint.local.node.scheduler.volcano import VOLCANO

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
REPORT_DELAY_SECONDS = 0.5
"""The delay of reports about unschedulable pods, because a gang's pods appear one by one."""
RETRY_SECONDS = 1.0

log = structlog.get_logger()


def rules_of(gang_scheduler: str) -> Rules | None:
    """Return the rules of a gang scheduler by its name, as in the controller's flag; None for no name."""
    if not gang_scheduler:
        return None
    return VOLCANO if gang_scheduler == "volcano" else COSCHEDULING


class Scheduler:
    """Binds pods to the node named ``node`` while ``run`` runs.

    Args:
        pods: all pods; call ``wake`` when they change.
        report: writes a pod's status.
        volume_conflict: returns why a pod fits on no node; empty if nothing does.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        pods: Mapping[Any, Manifest],
        report: Callable[[Manifest, dict[str, Any]], Awaitable[None]],
        *,
        volume_conflict: VolumeConflictCheck = nothing,
        gang_scheduler: str = "",
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._node = node
        self._pods = pods
        self._report = report
        self._volume_conflict = volume_conflict
        self._now = now
        self._gang_scheduler = gang_scheduler
        self._rules = rules_of(gang_scheduler)
        self._events = {
            name: EventRecorder(client, name, node, now) for name in {DEFAULT, gang_scheduler} if name
        }
        self._nodes = Informer(client, NODES, decode, self._changed)
        self._classes = Informer(client, PRIORITY_CLASSES, decode, self._changed)
        self._groups = (
            None if self._rules is None else Informer(client, self._rules.resource, decode, self._changed)
        )
        self._bound: set[str] = set()
        """UIDs of assumed pods, whose binding has been requested."""
        self._reported: dict[str, tuple[str, str]] = {}
        """The last reported reason and message of each unschedulable pod, by UID."""
        self._requests: dict[str, Amounts] = {}
        self._woken = asyncio.Event()
        self._is_stopped = False

    def wake(self) -> None:
        """Run a cycle, because something has changed."""
        self._woken.set()

    def discard(self, uid: str) -> None:
        """Discard everything about a deleted pod."""
        self._bound.discard(uid)
        self._reported.pop(uid, None)
        self._requests.pop(uid, None)

    def has_bound(self, pod: Manifest) -> bool:
        return _uid(pod) in self._bound

    def stop(self) -> None:
        """Stop binding pods."""
        self._is_stopped = True

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for events in self._events.values():
                tasks.create_task(events.run())
            informers = [self._nodes] if self._groups is None else [self._nodes, self._classes, self._groups]
            for informer in informers:
                tasks.create_task(informer.run())
                await informer.synced.wait()
            await self._schedule()

    def _changed(self, before: Row | None, after: Row | None) -> None:
        self.wake()

    async def _schedule(self) -> None:
        time, report_at = asyncio.get_running_loop().time, None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(report_at):
                    await self._woken.wait()
            self._woken.clear()
            snapshot = self._snapshot()
            if snapshot is None:
                report_at = None
                continue
            plan = decide(snapshot)
            deferred = await self._act(plan)
            if report_at is not None and time() >= report_at:
                for report in deferred:
                    await report()
                report_at = None
            else:
                report_at = (report_at or time() + REPORT_DELAY_SECONDS) if deferred else None

    def _snapshot(self) -> Snapshot | None:
        """Return the input of a cycle; None without a node and after ``stop``."""
        node = self._nodes.store.get("", self._node)
        if node is None or self._is_stopped:
            return None
        groups = () if self._groups is None else [row.manifest for row in self._groups.store]
        return Snapshot(
            node.manifest,
            [self._as_bound(pod) for pod in self._pods.values()],
            self._gang_scheduler,
            self._rules,
            groups,
            {row.name: int(row.manifest.get("value") or 0) for row in self._classes.store},
            self._volume_conflict,
            self._requests_of,
        )

    def _requests_of(self, pod: Manifest) -> Amounts:
        """Return the cached requests of a pod."""
        return self._requests.get(_uid(pod)) or self._requests.setdefault(_uid(pod), requests(pod))

    def _as_bound(self, pod: Manifest) -> Manifest:
        if pod["spec"].get("nodeName") or _uid(pod) not in self._bound:
            return pod
        return {**pod, "spec": {**pod["spec"], "nodeName": self._node}}

    async def _act(self, plan: Schedule) -> list[Callable[[], Awaitable[None]]]:
        """Bind pods and update phases; return the deferred reports."""
        for pod in plan.bind:
            await self._bind(pod)
        deferred: list[Callable[[], Awaitable[None]]] = [
            partial(self._report_unschedulable, unschedulable)
            for unschedulable in plan.unschedulable
            if self._reported.get(_uid(unschedulable.pod)) != _report_key(unschedulable)
        ]
        for group_status in plan.group_statuses:
            status = self._with_transition_times(group_status)
            if group_status.gang.phase != status["phase"]:
                await self._update_group(group_status, status)
            elif _differs(group_status.gang.group, status):
                deferred.append(partial(self._update_group, group_status, status))
        return deferred

    async def _bind(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node},
        }
        self._bound.add(meta["uid"])
        try:
            await self._client.create(
                PODS, meta["namespace"], orjson.dumps(binding), name=meta["name"], subresource="binding"
            )
        except (NotFound, Conflict):
            self._bound.discard(meta["uid"])  # It is deleted or bound; its watch event follows.
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            self._bound.discard(meta["uid"])
            log.warning("binding a pod failed; retrying", name=meta["name"], error=str(error))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)
        else:
            self._reported.pop(meta["uid"], None)
            text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {self._node}"
            self._events[pod["spec"]["schedulerName"]].record(pod, "Scheduled", text)

    async def _report_unschedulable(self, unschedulable: Unschedulable) -> None:
        self._reported[_uid(unschedulable.pod)] = _report_key(unschedulable)
        events = self._events[unschedulable.pod["spec"]["schedulerName"]]
        events.record(unschedulable.pod, "FailedScheduling", unschedulable.message, warning=True)
        condition = unschedulable_condition(unschedulable, self._now())
        await self._report(unschedulable.pod, {"phase": "Pending", "conditions": [condition]})

    def _with_transition_times(self, group_status: GroupStatus) -> dict[str, Any]:
        """Return the status with transition times of its conditions."""
        group, conditions = group_status.gang.group, group_status.status.get("conditions")
        if not conditions:
            return group_status.status
        dated = [with_condition(group, condition, self._now()) for condition in conditions]
        return {**group_status.status, "conditions": dated}

    async def _update_group(self, group_status: GroupStatus, status: dict[str, Any]) -> None:
        """Write a PodGroup's status and record its event."""
        assert self._groups is not None
        group = group_status.gang.group
        meta, event = group["metadata"], group_status.event
        body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": status})
        try:
            written = await self._client.patch(
                self._groups.resource, meta["namespace"], meta["name"], body, subresource="status"
            )
        except (NotFound, Conflict):
            return  # It is deleted or replaced; the next cycle sees that.
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning(
                "writing the status of a PodGroup failed; retrying", name=meta["name"], error=str(error)
            )
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)
            return
        self._groups.store.put(decode(msgspec.Raw(written)))
        if event is not None:
            self._events[self._gang_scheduler].record(
                group, event.reason, event.message, warning=event.warning
            )


def _report_key(unschedulable: Unschedulable) -> tuple[str, str]:
    return unschedulable.reason, unschedulable.message


def _differs(group: Manifest, status: Mapping[str, Any]) -> bool:
    before = group.get("status") or {}
    return any((before.get(field) or None) != (value or None) for field, value in status.items())


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])
