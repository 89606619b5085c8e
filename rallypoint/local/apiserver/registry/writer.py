"""Creates, updates and patches objects, independent of HTTP.

Each call reads, validates and stores in one step without awaiting. ``deletion`` deletes objects.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery import errors, field_errors, metadata
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth import authorization
from rallypoint.local.apiserver.auth.authorization import Authorizer
from rallypoint.local.apiserver.registry import admission
from rallypoint.local.apiserver.registry.requests import Target, WriteOptions, WriteResult
from rallypoint.local.apiserver.resources import customresources
from rallypoint.local.apiserver.resources.catalog import Catalog
from rallypoint.local.apiserver.resources.pods import priority
from rallypoint.local.apiserver.resources.resource import Resource
from rallypoint.local.apiserver.storage.store import Collection, Entry, Store

PODS = "/pods"

Edit = Callable[[Json], Json]
"""Returns the new object for the current one."""

Decode = Callable[[Resource, Any, WriteOptions, list[str]], Json]


class Writer:
    """Writes objects of the resources in one catalog to one store."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Callable[[], datetime],
        rng: random.Random,
        *,
        auto_namespaces: bool,
        notices: Mapping[str, str],
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.clock = clock
        self._rng = rng
        self.authorizer = Authorizer(store)
        self._auto_namespaces = auto_namespaces
        self._notices = notices

    def collection(self, resource: Resource) -> Collection:
        return self.store.collection(resource.collection)

    def find(self, target: Target) -> Entry:
        """Return the entry of a target.

        Raises:
            StatusError: 404.
        """
        found = self.collection(target.resource).entries.get((target.namespace, target.name))
        if found is None:
            raise target.not_found
        return found

    def create(
        self, target: Target, body: Any, options: WriteOptions, managed_fields: Sequence[Json] = ()
    ) -> WriteResult:
        resource = target.resource
        warnings = [self._notices[resource.collection]] if resource.collection in self._notices else []
        obj = admission.decode(resource, body, options, warnings)
        new_metadata = obj["metadata"]
        self._check_namespace_match(target, new_metadata)
        if new_metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_namespace(target, new_metadata.get("name", ""))
        obj["metadata"] = metadata.create_metadata(
            new_metadata,
            target.namespace,
            self.clock(),
            self._rng,
            generation=resource.strategy.counts_generation,
        )
        if managed_fields:
            obj["metadata"]["managedFields"] = list(managed_fields)
        if resource.custom and "status" in resource.subresources:
            obj.pop("status", None)
        obj = resource.strategy.prepare_create(obj)
        if resource.collection == PODS:
            classes = self.store.collection(priority.COLLECTION).entries.values()
            obj = priority.with_priority(obj, (entry.object for entry in classes))
        admission.validate(resource, obj)
        name = obj["metadata"]["name"]
        existing = self.collection(resource).entries.get((target.namespace, name))
        if existing is not None:
            deleting = bool(existing.metadata.get("deletionTimestamp"))
            raise errors.already_exists(resource.group, resource.plural, name, deleting=deleting)
        return WriteResult(self._commit(resource, obj, options), 201, warnings)

    def update(self, target: Target, body: Any, options: WriteOptions) -> WriteResult:
        """Replace an object, or create it if its resource allows that."""
        resource = target.resource
        existing = self.collection(resource).entries.get((target.namespace, target.name))
        if existing is None:
            if resource.strategy.allows_create_on_update and not target.subresource:
                return self.create(target, body, options)
            self._check_name(target, body)
            raise target.not_found
        self._check_name(target, body, required=True)
        new_metadata = body.get("metadata") or {} if isinstance(body, dict) else {}
        uid = existing.metadata["uid"]
        if new_metadata.get("uid") and new_metadata["uid"] != uid:
            why = (
                f"Precondition failed: UID in precondition: {new_metadata['uid']}, UID in object meta: {uid}"
            )
            raise errors.conflict(resource.group, resource.plural, target.name, why)
        if resource.strategy.requires_version and not new_metadata.get("resourceVersion"):
            wrong = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource.group, resource.plural, target.name, [wrong])
        return self._replace(target, lambda old: body, options, admission.decode)

    def patch(
        self, target: Target, edit: Edit, options: WriteOptions, managed_fields: list[Json] | None = None
    ) -> WriteResult:
        return self._replace(target, edit, options, admission.decode_patched, managed_fields)

    def _replace(
        self,
        target: Target,
        edit: Edit,
        options: WriteOptions,
        decode: Decode,
        managed_fields: list[Json] | None = None,
    ) -> WriteResult:
        """Store the result of ``edit``; an edit that changes nothing is not stored."""
        resource, entry = target.resource, self.find(target)
        old = entry.object
        warnings: list[str] = []
        new = decode(resource, edit(_in_version(old, resource.api_version)), options, warnings)
        new_metadata = new["metadata"]
        self._check_name(target, new)
        self._check_namespace_match(target, new_metadata)
        if (
            new_metadata.get("resourceVersion")
            and new_metadata["resourceVersion"] != old["metadata"]["resourceVersion"]
        ):
            raise errors.modified(resource.group, resource.plural, target.name)
        if new_metadata.get("uid") and new_metadata["uid"] != old["metadata"]["uid"]:
            wrong = [admission.immutable("metadata.uid", new_metadata["uid"])] * 2
            raise errors.invalid(resource.group, resource.kind, target.name, wrong)
        new = _restrict_update(target, new, old)
        if not target.subresource:
            new = resource.strategy.prepare_update(new)
        if managed_fields is not None:
            new = _with_managed_fields(new, old, managed_fields)
        if new == old and not entry.stale:
            return WriteResult(entry, 200, warnings)
        new = _count_generation(resource, new, old)
        admission.validate(resource, new, old, target.subresource)
        return WriteResult(self._commit(resource, new, options), 200, warnings)

    def put(self, resource: Resource, obj: Json) -> Entry:
        """Store a validated object, or remove it if its deletion is complete."""
        if is_deletable(resource, obj):
            return self.remove(resource, obj)
        if resource.group == customresources.GROUP:
            return self._define(resource, obj)
        obj = _in_version(obj, resource.storage_api_version)
        read = resource.read_back(obj)
        entry = self.store.put(self.collection(resource), read)
        entry.stale = read is not obj
        return entry

    def remove(self, resource: Resource, obj: Json) -> Entry:
        entry = self.store.remove(self.collection(resource), obj)
        if resource.group == customresources.GROUP:
            self._undefine(entry)
        return entry

    def _commit(self, resource: Resource, obj: Json, options: WriteOptions) -> Entry | Json:
        if resource.group == authorization.GROUP:
            self.authorizer.require_no_escalation(options.user, resource.plural, obj)
        return resource.read_back(obj) if options.dry_run else self.put(resource, obj)

    def _define(self, resource: Resource, definition: Json) -> Entry:
        """Store a definition and serve its resources; a changed spec converts the existing objects."""
        definitions = self.collection(resource)
        before = definitions.entries.get(("", definition["metadata"]["name"]))
        entry = self.store.put(definitions, definition)
        self.catalog.define(entry.object)
        if before is not None and before.object["spec"] != entry.object["spec"]:
            self.reread(entry.object)
        return entry

    def reread(self, definition: Json) -> None:
        """Convert the existing objects of a definition to its current schemas."""
        resource = self.catalog.of_collection(customresources.collection(definition))
        if resource is not None:
            self.store.reread(self.collection(resource), resource.read, resource.storage_api_version)

    def _undefine(self, entry: Entry) -> None:
        """Remove the objects and resources of a removed definition."""
        instances = self.store.collection(customresources.collection(entry.object))
        for instance in list(instances.entries.values()):
            self.store.remove(instances, instance.object)
        instances.close_watchers()
        self.catalog.undefine(entry.object)

    def _check_name(self, target: Target, body: Any, *, required: bool = False) -> None:
        name = (body.get("metadata") or {}).get("name") if isinstance(body, dict) else None
        if required and not name:
            why = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
            raise errors.bad_request(why)
        if name and name != target.name:
            message = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            raise errors.bad_request(message)

    def _check_namespace_match(self, target: Target, new_metadata: Json) -> None:
        if new_metadata.get("namespace") and new_metadata["namespace"] != target.namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(message)

    def _check_namespace(self, target: Target, name: str) -> None:
        if not target.namespace:
            return
        found = self.store.collection("/namespaces").entries.get(("", target.namespace))
        if found is None:
            if not self._auto_namespaces:
                raise errors.not_found("", "namespaces", target.namespace)
            self.add("", "namespaces", {"metadata": {"name": target.namespace}})
        elif found.metadata.get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {target.namespace} because it is being terminated"
            )
            message = f"namespace {target.namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise errors.forbidden(target.resource.group, target.resource.plural, name, why, [cause])

    def add(self, group: str, plural: str, obj: Json) -> None:
        """Create a cluster-scoped object of a built-in resource."""
        resource = self.catalog.find(group, "v1", plural)
        assert resource is not None
        self.create(Target(resource), obj, WriteOptions())


def _in_version(obj: Json, api_version: str) -> Json:
    return obj if obj["apiVersion"] == api_version else {**obj, "apiVersion": api_version}


def is_deletable(resource: Resource, obj: Json) -> bool:
    """Return whether an object that is being deleted can be removed now."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if resource.strategy.emptied_first:
        return not (obj.get("spec") or {}).get("finalizers")
    return not meta.get("deletionGracePeriodSeconds")


def _restrict_update(target: Target, new: Json, old: Json) -> Json:
    """Return the old object with only the changes that this kind of write allows."""
    updated_metadata = metadata.carry_over(new["metadata"], old["metadata"])
    if target.subresource == "status":
        if target.resource.strategy.status_owns_metadata:
            merged = metadata.carry_over(
                {**updated_metadata, "ownerReferences": old["metadata"].get("ownerReferences")},
                old["metadata"],
            )
        else:
            merged = old["metadata"]
        result = {**old, "metadata": merged}
        return _with_status(result, new)
    result = {**new, "metadata": updated_metadata}
    if "status" in target.resource.subresources:
        return _with_status(result, old)
    return result


def _with_managed_fields(new: Json, old: Json, managed_fields: list[Json]) -> Json:
    """Return the object with its managed fields; unchanged managers keep their time."""
    before = {_manager_key(entry): entry for entry in old["metadata"].get("managedFields", [])}
    merged = [before.get(_manager_key(entry), entry) for entry in managed_fields]
    return {**new, "metadata": {**new["metadata"], "managedFields": merged}}


def _manager_key(entry: Json) -> str:
    return orjson.dumps({**entry, "time": ""}, option=orjson.OPT_SORT_KEYS).decode()


def _with_status(obj: Json, source: Json) -> Json:
    rest = {name: part for name, part in obj.items() if name != "status"}
    return {**rest, "status": source["status"]} if "status" in source else rest


def _count_generation(resource: Resource, new: Json, old: Json) -> Json:
    """Return the object, its generation incremented if anything but metadata and status changed."""
    if not resource.strategy.counts_generation:
        return new
    ignored = {"apiVersion", "metadata", *({"status"} & {*resource.subresources})}
    desired = {name: part for name, part in new.items() if name not in ignored}
    if desired == {name: part for name, part in old.items() if name not in ignored}:
        return new
    meta = new["metadata"]
    return {**new, "metadata": {**meta, "generation": meta.get("generation", 0) + 1}}
