"""Uncached children: children that planning does not read. They are created without a read, kept equal to the desired object, and
read as rarely as possible.

For some resources the metadata is watched: such a child is checked when it was deleted or changed. All others are
checked periodically while the job has pods, and more often while pods do not start, which may be caused by a missing child.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol
from zlib import crc32

import orjson

from api.children import Owned
from api.labels import JOB_NAME
from api.meta import ROLES, Resource
from controller.domain import Child, Deletion, WriteMode
from controller.kube import errors
from controller.reconcile.memory import UncachedChild
from controller.reconcile.parent import Parent, Pods
from controller.reconcile.writes import Occupied, Writer, controller_of
from controller.runtime.recorder import Subject
from controller.runtime.store import Store

CHECK_SECONDS: Final = 600.0
"""An unwatched child is checked at intervals of half to all of this time, depending on the job's UID."""
FIRST_CHECK_SECONDS: Final = 30.0
"""The first check while pods do not start; each further interval is twice as long."""

SLACK_SECONDS: Final = 1.0
"""A check that is due within this time happens now, because a timer may fire slightly early."""

NEVER: Final = float("inf")

BAD_GATEWAY: Final = 502
"""Reported for answers that are not JSON."""


class Rows(Protocol):
    """The watched metadata of a resource whose objects carry a job's name."""

    @property
    def store(self) -> Store[Any]: ...
    @property
    def decode(self) -> Callable[[bytes], Owned]: ...


class UncachedChildren:
    """The uncached children of all jobs of one kind. ``JobMemory.uncached_children`` contains their last state."""

    def __init__(self, writer: Writer, caches: Mapping[Resource, Rows] | None = None) -> None:
        self._writer = writer
        self._caches = caches or {}

    def is_up_to_date(self, parent: Parent, child: Child) -> bool:
        """Return whether a child equals the desired object as far as known; never for a child that planning reads."""
        job, only_if_there = parent.subject, child.write_mode is WriteMode.UPDATE_IF_PRESENT
        last = parent.memory.uncached_children.get(_key(child))
        if last is None:
            return only_if_there and parent.memory.is_new
        if last.version != _version(parent, child) or not last.uid:
            return last.version == _version(parent, child) and only_if_there
        if child.write_mode is not WriteMode.APPLY:
            return True
        return self._is_as_left(job, child, last) and self._next_check_in(parent, child, last) > SLACK_SECONDS

    def restores(self, parent: Parent, children: Iterable[Child]) -> bool:
        """Return whether any of these children was created, and has been deleted or changed by somebody else."""
        job, of_job = parent.subject, parent.memory.uncached_children
        known = (
            (child, of_job.get(_key(child))) for child in children if child.write_mode is WriteMode.APPLY
        )
        return any(last and last.uid and not self._is_as_left(job, child, last) for child, last in known)

    def next_check_in(self, parent: Parent, children: Iterable[Child]) -> float:
        """Return the seconds until the first of these children must be checked even without a watch event; infinite if none must."""
        of_job = parent.memory.uncached_children
        known = ((child, of_job.get(_key(child))) for child in children)
        due = [
            self._next_check_in(parent, child, last)
            for child, last in known
            if last and last.uid and child.write_mode is WriteMode.APPLY
        ]
        return min(due, default=NEVER)

    async def ensure(self, parent: Parent, child: Child) -> None:
        """Create an uncached child, or update it, once for each of its versions."""
        if self.is_up_to_date(parent, child):
            return
        known, key, version = parent.memory.uncached_children, _key(child), _version(parent, child)
        last = known.get(key)
        is_unheard_of = last is None and parent.memory.is_new
        is_same = last is not None and last.version == version
        answer = b""
        if last and last.uid and child.version and not (child.flaw or is_same):
            answer = await self._write_over(parent, child, last.uid)
        elif child.write_mode is WriteMode.CREATE_IF_ABSENT or is_unheard_of:
            try:
                answer = await self._writer.create(parent, child)
            except errors.AlreadyExists:
                if child.write_mode is WriteMode.CREATE_IF_ABSENT:
                    known[key] = UncachedChild(version, "anybody's")
                    return
        known[key] = self._left(parent, child, answer or await self._read_or_create(parent, child), last)

    def _left(self, parent: Parent, child: Child, answer: bytes, last: UncachedChild | None) -> UncachedChild:
        """Return the state of a child after this answer of the server."""
        version, now = _version(parent, child), asyncio.get_running_loop().time()
        if not answer:
            return UncachedChild(version)
        metadata = _parsed(child, answer)["metadata"]
        uid, resource_version = str(metadata["uid"]), int(metadata["resourceVersion"])
        if cache := self._caches.get(child.resource):
            cache.store.put(cache.decode(answer))
        is_unchanged = last is not None and (last.uid, last.resource_version) == (uid, resource_version)
        unchanged = last.unchanged_checks + 1 if last and is_unchanged and parent.pods is Pods.WAITING else 0
        return UncachedChild(version, uid, resource_version, now, unchanged, child.grants)

    def _is_as_left(self, job: Subject, child: Child, last: UncachedChild) -> bool:
        """Return whether no watch event has shown a change of the child; always True if its resource is not watched."""
        cache = self._caches.get(child.resource)
        if cache is None:
            return True
        row = cache.store.get(job.namespace, child.name)
        return row is not None and (row.uid, row.resource_version) == (last.uid, last.resource_version)

    def _next_check_in(self, parent: Parent, child: Child, last: UncachedChild) -> float:
        if child.resource in self._caches or parent.pods is Pods.NONE:
            return NEVER
        longest = CHECK_SECONDS * (0.5 + crc32(parent.subject.uid.encode()) / 2**33)
        soon = FIRST_CHECK_SECONDS * 2.0**last.unchanged_checks
        pause = min(soon, longest) if parent.pods is Pods.WAITING else longest
        return last.checked_at + pause - asyncio.get_running_loop().time()

    def _watch_label(self, child: Child, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the label that the watch selects, as a part of a patch; empty if the resource is not watched."""
        name = (body["metadata"].get("labels") or {}).get(JOB_NAME)
        return {"labels": {JOB_NAME: name}} if name and child.resource in self._caches else {}

    async def _write_over(self, parent: Parent, child: Child, uid: str) -> bytes:
        """Update the object that this process created, without reading it. Return empty if it was replaced or deleted."""
        body = child.body()
        change = {"metadata": {"uid": uid, **self._watch_label(child, body)}, **_content(body)}
        another = (errors.NotFound, errors.Conflict, errors.Invalid)
        try:
            return await self._writer.patch(parent, child, change, another)
        except another:
            return b""

    async def _read_or_create(self, parent: Parent, child: Child) -> bytes:
        """Create a missing child, or update a different one that belongs to the job. Return the object.

        Returns empty for a child of mode UPDATE_IF_PRESENT that does not exist, or that the operator is not allowed to read.
        """
        only_if_there = child.write_mode is WriteMode.UPDATE_IF_PRESENT
        try:
            answer = await self._writer.get(parent, child)
        except errors.NotFound:
            return b"" if only_if_there else await self._writer.create(parent, child)
        except errors.Forbidden:
            if only_if_there:
                return b""
            raise
        found = _parsed(child, answer)
        if only_if_there and controller_of(answer).get("uid") != parent.subject.uid:
            return b""
        self._writer.check_owner(parent, child, answer)
        if child.flaw:
            if flaw := child.flaw(found):
                raise Occupied(child, flaw, is_foreign=False)
            return answer
        body = child.body()
        label, wanted = self._watch_label(child, body), _content(body)
        change = {} if _covers(found, wanted) else _exactly(found, wanted)
        if not _covers(found["metadata"], label):
            change = {**change, "metadata": label}
        return await self._writer.patch(parent, child, change) if change else answer

    async def delete(self, parent: Parent, deletion: Deletion) -> None:
        """Delete the job's object of that name, once per generation of the job."""
        known, key = parent.memory.uncached_children, _key(deletion)
        removed = UncachedChild(str(parent.generation))
        if known.get(key) == removed:
            return
        try:
            answer = await self._writer.get(parent, deletion)
        except errors.NotFound:
            answer = b""
        if answer and controller_of(answer).get("uid") == parent.subject.uid:
            await self._writer.delete(parent, deletion, _uid(answer))
        known[key] = removed

    async def revoke(self, parent: Parent) -> None:
        """Remove the rules from the job's Roles that have any: by UID, because their owner may be deleted already.

        A job that is deleted without its children leaves its Roles forever, and pods of others may get the names that they grant rights on.
        """
        children = parent.memory.uncached_children
        granting = {name: child.uid for (_, name), child in children.items() if child.grants}
        gone = (errors.NotFound, errors.Conflict, errors.Invalid)
        for name, uid in granting.items():
            role = Child(ROLES, name, partial(dict, metadata={"uid": uid}, rules=[]), WriteMode.PATCH)
            with contextlib.suppress(*gone):
                await self._writer.patch(parent, role, role.body(), gone)


def _key(child: Child | Deletion) -> tuple[str, str]:
    return child.resource.kind, child.name


def _parsed(child: Child, answer: bytes) -> dict[str, Any]:
    """Return the object in an answer.

    Raises:
        ServerError: the answer is not JSON. A proxy may have sent it; the call may have had an effect.
    """
    try:
        parsed: dict[str, Any] = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        text = f'the answer about {child.resource.plural} "{child.name}" is not JSON: {error}'
        raise errors.ServerError(BAD_GATEWAY, "", text) from error
    return parsed


def _version(parent: Parent, child: Child) -> str:
    return child.version or str(parent.generation)


def _uid(answer: bytes) -> str:
    return str(orjson.loads(answer)["metadata"]["uid"]) if answer else ""


def _content(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its identity."""
    return {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata"}}


EXACT: Final = frozenset({"data", "selector"})
"""Maps in which the operator owns all keys: an extra key in a selector would exclude pods. The server adds none to them."""


def _covers(live: Any, wanted: Any) -> bool:
    """Return whether ``live`` contains everything in ``wanted``; the server adds defaults."""
    match wanted, live:
        case dict(), dict():
            return all(
                key in live and (live[key] == value if key in EXACT else _covers(live[key], value))
                for key, value in wanted.items()
            )
        case [], None:
            return True  # the server may drop an empty list
        case list(), list():
            return len(live) == len(wanted) and all(map(_covers, live, wanted))
        case _:
            return bool(live == wanted)


def _exactly(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that gives ``live`` the values of ``wanted``, and removes extra keys from the maps in ``EXACT``."""
    change: dict[str, Any] = {}
    for key, value in wanted.items():
        before: Any = live.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            change[key] = {**dict.fromkeys(before), **value} if key in EXACT else _exactly(before, value)
        else:
            change[key] = value
    return change
