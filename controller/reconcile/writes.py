"""Single writes of children, and the meaning of the server's answers for the job."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from api.children import Owned
from controller.domain import Child, Deletion, Problem, WriteMode
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.events import EventRecorder
from controller.reconcile.parent import Parent


class Refused(Exception):
    """The API server will never accept a child: the job cannot run."""

    def __init__(self, problem: Problem, error: errors.InvalidFields) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.error = error


class Occupied(errors.ApiError):
    """An object with a child's name cannot be the child: it has another owner, or is unusable and must not be overwritten."""

    def __init__(self, child: Child, text: str, *, is_foreign: bool = True) -> None:
        super().__init__(409, "Conflict", text)
        self.resource = child.resource
        self.name = child.name
        self.is_foreign = is_foreign
        self.beside: tuple[Occupied, ...] = ()
        """Other conflicts found at the same time."""


class Remains(Occupied):
    """A remainder of an earlier job has the name, and will be deleted soon.

    If the object ``is_watched``, its deletion triggers a reconcile.
    """

    is_watched = False


class Writer:
    """Sends single writes, and records an event for each that the server refuses."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events

    async def create(self, parent: Parent, child: Child) -> bytes:
        """Create an object and return it.

        Raises:
            AlreadyExists: the name is taken; no event is recorded.
            NamespaceTerminating: the namespace accepts no new objects; no event is recorded, because it would be refused, too.
            Refused: the API server's own validation names fields of it.
            Forbidden, Invalid: quota, RBAC or a policy refuses it now and may accept it later.
        """
        job = parent.subject
        body = orjson.dumps(child.body())
        try:
            return await self._client.create(child.resource, job.namespace, body)
        except (errors.AlreadyExists, errors.NamespaceTerminating):
            raise
        except errors.InvalidFields as error:
            self._events.record_failure(parent, "Create", child.resource, error.message)
            raise Refused(_problem(child, error), error) from error
        except errors.ApiError as error:
            self._events.record_failure(parent, "Create", child.resource, error.message)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError):
            parent.memory.has_unknown_write = True
            raise

    async def get(self, parent: Parent, child: Child | Deletion) -> bytes:
        return await self._client.get(child.resource, parent.subject.namespace, child.name)

    async def patch(
        self,
        parent: Parent,
        child: Child,
        change: Mapping[str, Any],
        unrecorded: tuple[type[errors.ApiError], ...] = (errors.NotFound,),
    ) -> bytes:
        """Apply a merge patch. If it contains a UID, only to that object (else Conflict or Invalid).

        Raises:
            ApiError: the server refused it. An event reports that, unless the caller handles the error.
        """
        namespace, body = parent.subject.namespace, orjson.dumps(change)
        try:
            return await self._client.patch(
                child.resource, namespace, child.name, body, subresource=child.subresource
            )
        except errors.ApiError as error:
            if not isinstance(error, unrecorded):
                self._events.record_failure(parent, "Update", child.resource, error.message)
            raise

    async def delete(self, parent: Parent, deletion: Deletion, uid: str) -> bool:
        """Delete one object by UID, and its dependents, such as the pods of a batch Job. Return whether it existed."""
        namespace = parent.subject.namespace
        try:
            await self._client.delete(
                deletion.resource,
                namespace,
                deletion.name,
                uid=uid,
                grace_period_seconds=0 if deletion.is_forced else None,
                propagation="Foreground" if deletion.is_foreground else "Background",
            )
        except (errors.NotFound, errors.Conflict):
            return False  # deleted, or replaced by another object
        except errors.ApiError as error:
            self._events.record_failure(parent, "Delete", deletion.resource, error.message)
            raise
        return True

    def check_owner(
        self, parent: Parent, child: Child, answer: bytes, error: errors.AlreadyExists | None = None
    ) -> None:
        """Raise Occupied or Remains unless the object of that name belongs to the job."""
        owner = controller_of(answer)
        if owner.get("uid") != parent.subject.uid:
            raise self._conflict(parent, child, owner, error.message if error else "") from error

    def conflict_with(self, parent: Parent, child: Child, row: Owned) -> Occupied:
        """Return the conflict with an object in the store that does not belong to the job, without a request."""
        owner = {"kind": row.owner_kind, "name": row.owner_name} if row.owner_uid else {}
        # The message of the API server.
        resource = ".".join(filter(None, (child.resource.plural, child.resource.group)))
        prefix = "object is being deleted: " if row.deleting else ""
        text = f'{prefix}{resource} "{child.name}" already exists'
        conflict = self._conflict(parent, child, owner, text if child.write_mode is WriteMode.CREATE else "")
        if isinstance(conflict, Remains):
            conflict.is_watched = True
        return conflict

    def _conflict(self, parent: Parent, child: Child, owner: Mapping[str, Any], answer: str) -> Occupied:
        """Return the error for an existing object. ``answer`` is the server's answer to a create, empty if none was sent."""
        job = parent.subject
        # The garbage collector deletes the remainders of an earlier job.
        same = owner.get("kind") == job.kind and owner.get("name") == job.name
        text = answer or f'{child.resource.plural} "{child.name}" already exists'
        longer = f"{text}, and belongs to {_described(owner)}"
        if not same and parent.event_messages.taken is None:
            self._events.record_failure(parent, "Create", child.resource, answer or longer)
        return (Remains if same else Occupied)(child, longer)


def controller_of(answer: bytes) -> Mapping[str, Any]:
    """Return the owner reference of an object's controller, empty if it has none."""
    owners: list[dict[str, Any]] = orjson.loads(answer)["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def _described(owner: Mapping[str, Any]) -> str:
    return f"{owner.get('kind')} {owner.get('name')}" if owner else "nobody"


def _problem(child: Child, error: errors.ApiError) -> Problem:
    fields = "; ".join(f"{path}: {text}" for path, text in error.causes if path) or error.message
    return Problem(f"{child.resource.kind} {child.name}", fields)
