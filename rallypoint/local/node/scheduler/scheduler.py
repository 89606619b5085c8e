"""The site's scheduler: looks at pods, the node and PodGroups (``session``), binds what fits and tells of the rest.

It is two schedulers in one, as far as pods can see: kube-scheduler, and one for gangs if the site has it.
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
from rallypoint.local.node.capacity import Amounts, requests
from rallypoint.local.node.events import Events
from rallypoint.local.node.pods.status import with_condition
from rallypoint.local.node.scheduler.coscheduling import COSCHEDULING
from rallypoint.local.node.scheduler.gangs import Rules, Standing
from rallypoint.local.node.scheduler.scheduling import Held, Hindrance, nothing, unschedulable
from rallypoint.local.node.scheduler.session import DEFAULT, Schedule, View, decide
from rallypoint.local.node.scheduler.volcano import VOLCANO

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
TELLING_SECONDS = 0.5
"""How long what is said of waiting pods may change unsaid: a gang's pods appear one by one."""
RETRY_SECONDS = 1.0

log = structlog.get_logger()


def rules_of(gang_scheduler: str) -> Rules | None:
    """The rules of a gang scheduler by its name, as the controller takes it; None for no name."""
    if not gang_scheduler:
        return None
    return VOLCANO if gang_scheduler == "volcano" else COSCHEDULING


class Scheduler:
    """Binds pods to the node named ``node`` while ``run`` runs.

    Args:
        pods: all there are; ``wake`` says that something about them has changed.
        report: writes a pod's status.
        hindrance: what stands in a pod's way whatever the node; empty when nothing does.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        pods: Mapping[Any, Manifest],
        report: Callable[[Manifest, dict[str, Any]], Awaitable[None]],
        *,
        hindrance: Hindrance = nothing,
        gang_scheduler: str = "",
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._node = node
        self._pods = pods
        self._report = report
        self._hindrance = hindrance
        self._now = now
        self._gang_scheduler = gang_scheduler
        self._rules = rules_of(gang_scheduler)
        self._events = {name: Events(client, name, node, now) for name in {DEFAULT, gang_scheduler} if name}
        self._nodes = Informer(client, NODES, decode, self._changed)
        self._classes = Informer(client, PRIORITY_CLASSES, decode, self._changed)
        self._groups = (
            None if self._rules is None else Informer(client, self._rules.resource, decode, self._changed)
        )
        self._bound: set[str] = set()
        """UIDs of pods whose binding we have asked for: until they come back bound, they are as good as that."""
        self._told: dict[str, tuple[str, str]] = {}
        """Reason and message that each pod that is held was given last, by UID."""
        self._asked: dict[str, Amounts] = {}
        self._woken = asyncio.Event()
        self._resting = False

    def wake(self) -> None:
        """Something has changed that may make room."""
        self._woken.set()

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._bound.discard(uid)
        self._told.pop(uid, None)
        self._asked.pop(uid, None)

    def has_bound(self, pod: Manifest) -> bool:
        """Whether it was us who have bound the pod, and so have asked whether it fits."""
        return _uid(pod) in self._bound

    def rest(self) -> None:
        """Bind nothing any more."""
        self._resting = True

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for events in self._events.values():
                tasks.create_task(events.run())
            for informer in self._informers():
                tasks.create_task(informer.run())
                await informer.synced.wait()
            await self._schedule()

    def _informers(self) -> list[Informer[Row]]:
        return [self._nodes] if self._groups is None else [self._nodes, self._classes, self._groups]

    def _changed(self, before: Row | None, after: Row | None) -> None:
        self.wake()

    async def _schedule(self) -> None:
        time, tell_at = asyncio.get_running_loop().time, None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(tell_at):
                    await self._woken.wait()
            self._woken.clear()
            view = self._view()
            if view is None:
                tell_at = None
                continue
            plan = decide(view)
            unsaid = await self._act(plan)
            if tell_at is not None and time() >= tell_at:
                for say in unsaid:
                    await say()
                tell_at = None
            else:
                tell_at = (tell_at or time() + TELLING_SECONDS) if unsaid else None

    def _view(self) -> View | None:
        """What there is to decide by; None while there is no node, and at the end."""
        node = self._nodes.store.get("", self._node)
        if node is None or self._resting:
            return None
        groups = () if self._groups is None else [row.manifest for row in self._groups.store]
        return View(
            node.manifest,
            [self._as_bound(pod) for pod in self._pods.values()],
            self._gang_scheduler,
            self._rules,
            groups,
            {row.name: int(row.manifest.get("value") or 0) for row in self._classes.store},
            self._hindrance,
            self._ask,
        )

    def _ask(self, pod: Manifest) -> Amounts:
        """What a pod asks for, found out once."""
        return self._asked.get(_uid(pod)) or self._asked.setdefault(_uid(pod), requests(pod))

    def _as_bound(self, pod: Manifest) -> Manifest:
        if pod["spec"].get("nodeName") or _uid(pod) not in self._bound:
            return pod
        return {**pod, "spec": {**pod["spec"], "nodeName": self._node}}

    async def _act(self, plan: Schedule) -> list[Callable[[], Awaitable[None]]]:
        """Do what cannot wait; what is left to be said."""
        for pod in plan.bind:
            await self._bind(pod)
        unsaid: list[Callable[[], Awaitable[None]]] = [
            partial(self._hold, held) for held in plan.held if self._told.get(_uid(held.pod)) != _words(held)
        ]
        for standing in plan.standings:
            status = self._dated(standing)
            if standing.gang.phase != status["phase"]:
                await self._stand(standing, status)
            elif _differs(standing.gang.group, status):
                unsaid.append(partial(self._stand, standing, status))
        return unsaid

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
            self._bound.discard(meta["uid"])  # It is gone or placed; its own event follows.
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            self._bound.discard(meta["uid"])
            log.warning("a pod could not be bound", name=meta["name"], error=str(error))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)
        else:
            self._told.pop(meta["uid"], None)
            text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {self._node}"
            self._events[pod["spec"]["schedulerName"]].tell(pod, "Scheduled", text)

    async def _hold(self, held: Held) -> None:
        self._told[_uid(held.pod)] = _words(held)
        events = self._events[held.pod["spec"]["schedulerName"]]
        events.tell(held.pod, "FailedScheduling", held.message, warning=True)
        condition = unschedulable(held, self._now())
        await self._report(held.pod, {"phase": "Pending", "conditions": [condition]})

    def _dated(self, standing: Standing) -> dict[str, Any]:
        """The status with the times of its conditions."""
        group, conditions = standing.gang.group, standing.status.get("conditions")
        if not conditions:
            return standing.status
        dated = [with_condition(group, condition, self._now()) for condition in conditions]
        return {**standing.status, "conditions": dated}

    async def _stand(self, standing: Standing, status: dict[str, Any]) -> None:
        """Write a PodGroup's status, and tell of it."""
        assert self._groups is not None
        group = standing.gang.group
        meta, said = group["metadata"], standing.said
        body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": status})
        try:
            written = await self._client.patch(
                self._groups.resource, meta["namespace"], meta["name"], body, subresource="status"
            )
        except (NotFound, Conflict):
            return  # It is gone, or another one has its name; the next look sees that.
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("a PodGroup's status could not be written", name=meta["name"], error=str(error))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)
            return
        self._groups.store.put(decode(msgspec.Raw(written)))
        if said is not None:
            self._events[self._gang_scheduler].tell(group, said.reason, said.message, warning=said.warning)


def _words(held: Held) -> tuple[str, str]:
    return held.reason, held.message


def _differs(group: Manifest, status: Mapping[str, Any]) -> bool:
    before = group.get("status") or {}
    return any((before.get(field) or None) != (value or None) for field, value in status.items())


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])
