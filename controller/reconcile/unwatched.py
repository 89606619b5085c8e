"""Children that are not watched: made before anybody looks for them, kept equal to what is wanted, and looked up no more than needed."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import ROLE_BINDINGS, ROLES
from controller.domain import Child, Doomed, Upkeep
from controller.kube import errors
from controller.reconcile.writes import Occupied, Parent, Writer, controller_of
from controller.runtime.recorder import Subject

RIGHTS = {one.kind: one for one in (ROLE_BINDINGS, ROLES)}
"""What gives rights, by kind, in the order in which it is taken away."""

_Key = tuple[str, str, str]
"""Of a child: the job's UID, the child's kind and name."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An unwatched child as it was last left; without a UID it was removed."""

    version: str
    uid: str = ""
    grants: bool = False


class Unwatched:
    """The unwatched children of all jobs of one kind, as they were last left."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._kept: defaultdict[tuple[str, str], dict[_Key, _Kept]] = defaultdict(dict)
        """By namespace and job."""
        self._born: set[str] = set()
        """UIDs of the jobs whose first pass was here: what is not remembered of them has not been made."""

    def begins(self, parent: Parent) -> None:
        """A pass of that job begins."""
        if parent.is_new:
            self._born.add(parent.subject.uid)

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """There is no such job any more."""
        self._kept.pop((namespace, name), None)
        self._born.discard(uid)

    def is_kept(self, parent: Parent, child: Child) -> bool:
        """Whether a child was last left as it is wanted, which is no question of watched ones."""
        job, only_if_there = parent.subject, child.upkeep is Upkeep.KEPT
        last = self._of(job).get(_key(job, child))
        if last is None:
            return only_if_there and job.uid in self._born
        return last.version == _version(parent, child) and bool(last.uid or only_if_there)

    async def keep(self, parent: Parent, child: Child) -> None:
        """Make an unwatched child, or make it equal to what is wanted, once for each version of it."""
        if self.is_kept(parent, child):
            return
        job = parent.subject
        kept, key, version = self._of(job), _key(job, child), _version(parent, child)
        last = kept.get(key)
        is_unheard_of = last is None and job.uid in self._born
        answer = b""
        if last and last.uid and child.version and not child.flaw:
            answer = await self._write_over(parent, child, last.uid)
        elif child.upkeep is Upkeep.ANY or is_unheard_of:
            try:
                answer = await self._writer.create(parent, child)
            except errors.AlreadyExists:
                if child.upkeep is Upkeep.ANY:
                    kept[key] = _Kept(version, "anybody's")
                    return
        uid = _uid(answer or await self._look(parent, child))
        kept[key] = _Kept(version, uid, grants=child.grants)

    async def _write_over(self, parent: Parent, child: Child, uid: str) -> bytes:
        """Write what is wanted over the very object that was made, without a look at it; empty if it is another by now, or gone."""
        change = {"metadata": {"uid": uid}, **_content(child.body())}
        another = (errors.NotFound, errors.Conflict, errors.Invalid)
        try:
            return await self._writer.patch(parent, child, change, another)
        except another:
            return b""

    async def _look(self, parent: Parent, child: Child) -> bytes:
        """Make what is missing, and write what differs if the object is the job's own. The object as it was found or made.

        Nothing for what is kept only if it is there, and is not; who may not even look has not made it.
        """
        only_if_there = child.upkeep is Upkeep.KEPT
        try:
            answer = await self._writer.get(parent, child)
        except errors.NotFound:
            return b"" if only_if_there else await self._writer.create(parent, child)
        except errors.Forbidden:
            if only_if_there:
                return b""
            raise
        if only_if_there and controller_of(answer).get("uid") != parent.subject.uid:
            return b""
        self._writer.check_owner(parent, child, answer)
        found = orjson.loads(answer)
        if child.flaw:
            if flaw := child.flaw(found):
                raise Occupied(child, flaw, is_foreign=False)
            return answer
        wanted = _content(child.body())
        if not _covers(found, wanted):
            await self._writer.patch(parent, child, wanted)
        return answer

    async def delete(self, parent: Parent, doomed: Doomed) -> None:
        """Delete what the job has of that name, once in each generation of the job."""
        kept, key = self._of(parent.subject), _key(parent.subject, doomed)
        removed = _Kept(str(parent.generation))
        if kept.get(key) == removed:
            return
        try:
            answer = await self._writer.get(parent, doomed)
        except errors.NotFound:
            answer = b""
        if answer and controller_of(answer).get("uid") == parent.subject.uid:
            await self._writer.delete(parent, doomed, _uid(answer))
        kept[key] = removed

    async def revoke(self, parent: Parent) -> None:
        """Take away the rights that children of that job give, if they give any: by UID, since their owner may be gone already.

        A job that is deleted without its children would leave them for ever, and others' pods may get the names that they give rights on.
        """
        job = parent.subject
        kept = {
            key: one
            for key, one in self._kept.get((job.namespace, job.name), {}).items()
            if key[0] == job.uid
        }
        if not any(one.grants for one in kept.values()):
            return
        for kind, resource in RIGHTS.items():
            for key, one in kept.items():
                if key[1] == kind and one.uid:
                    await self._writer.delete(parent, Doomed(resource, key[2], one.uid), one.uid)

    def _of(self, job: Subject) -> dict[_Key, _Kept]:
        return self._kept[job.namespace, job.name]


def _key(job: Subject, child: Child | Doomed) -> _Key:
    return job.uid, child.resource.kind, child.name


def _version(parent: Parent, child: Child) -> str:
    return child.version or str(parent.generation)


def _uid(answer: bytes) -> str:
    return str(orjson.loads(answer)["metadata"]["uid"]) if answer else ""


def _content(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an object says, without what it is."""
    return {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata"}}


def _covers(live: Any, wanted: Any) -> bool:
    """Whether ``live`` says all that ``wanted`` says; the server adds defaults of its own."""
    match wanted, live:
        case dict(), dict():
            return all(key in live and _covers(live[key], value) for key, value in wanted.items())
        case [], None:
            return True  # an empty list is not always kept as one
        case list(), list():
            return len(live) == len(wanted) and all(map(_covers, live, wanted))
        case _:
            return bool(live == wanted)
