"""The target and the options of a request, read from its path, query and body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rallypoint.local.apiserver.apimachinery import errors, field_errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth.serviceaccounts import ADMINISTRATOR, User
from rallypoint.local.apiserver.resources.catalog import Catalog
from rallypoint.local.apiserver.resources.resource import Resource
from rallypoint.local.apiserver.storage.store import Entry


@dataclass(frozen=True, slots=True)
class Target:
    """A collection (no name), an object, or a subresource of one."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def not_found(self) -> StatusError:
        return errors.not_found(self.resource.group, self.resource.plural, self.name)


@dataclass(slots=True)
class WriteResult:
    """The result of a write: a stored entry, or an object that is not stored."""

    body: Entry | Json
    code: int = 200
    warnings: list[str] = field(default_factory=list[str])

    @property
    def object(self) -> Json:
        return self.body.object if isinstance(self.body, Entry) else self.body


class PathNotFound(Exception):
    """No resource has this path; ``plain_text`` if the response is text instead of a Status."""

    def __init__(self, *, plain_text: bool) -> None:
        super().__init__()
        self.plain_text = plain_text


def resolve_target(catalog: Catalog, path: str) -> Target:
    """Resolve a path below ``/api`` or ``/apis``.

    Raises:
        PathNotFound: no resource has this path.
    """
    parts = path.strip("/").split("/")
    group, version, segments = (
        ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    )
    namespace = ""
    if segments[0] == "namespaces" and len(segments) > 2 and segments[2] not in ("status", "finalize"):
        namespace, segments = segments[1], segments[2:]
    resource = catalog.find(group, version, segments[0])
    is_scope_valid = resource is not None and (
        bool(namespace) == resource.namespaced or (not namespace and len(segments) == 1)
    )
    if resource is None or not is_scope_valid or len(segments) > 3:
        is_unknown = group not in catalog.group_versions() or version not in catalog.group_versions()[group]
        is_custom = any(other.custom for other in catalog if other.group == group)
        raise PathNotFound(plain_text=is_unknown or is_custom)
    found = Target(resource, namespace, *segments[1:])
    if found.subresource and found.subresource not in resource.subresources:
        raise found.not_found if resource.custom else PathNotFound(plain_text=False)
    return found


VALIDATIONS = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a create, update or patch."""

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    force: bool = False
    user: User = ADMINISTRATOR

    @classmethod
    def read(cls, query: Mapping[str, str], kind: str, user: User) -> "WriteOptions":
        """Read the options from a query; ``kind`` is the name of the options object in errors."""
        validation = query.get("fieldValidation", "")
        if validation not in VALIDATIONS:
            raise errors.invalid_options(
                kind, field_errors.not_supported("fieldValidation", validation, VALIDATIONS)
            )
        return cls(
            dry_run=_parse_dry_run([query["dryRun"]] if query.get("dryRun") else [], kind),
            validation=validation or "Warn",
            manager=query.get("fieldManager", ""),
            force=parse_bool(query.get("force", "false")),
            user=user,
        )


def parse_bool(text: str) -> bool:
    """Parse a boolean of a query: everything but "false" in any case and "0" is true, also an empty text.

    Source: apimachinery, pkg/runtime/conversion.go, Convert_Slice_string_To_bool.
    """
    return text.lower() not in ("false", "0")


def _parse_dry_run(values: list[str], kind: str) -> bool:
    if values and values != ["All"]:
        raise errors.invalid_options(kind, field_errors.not_supported("dryRun", values, ("All",)))
    return bool(values)


POLICIES = ("Foreground", "Background", "Orphan", "nil")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a delete."""

    grace_seconds: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str], body: Any) -> "DeleteOptions":
        """Read the options from the body, or from the query without a body."""
        options: Json = body if isinstance(body, dict) and body else _query_options(query)
        policy = options.get("propagationPolicy") or ""
        if policy and policy not in POLICIES[:3]:
            raise errors.invalid_options(
                "DeleteOptions", field_errors.not_supported("propagationPolicy", policy, POLICIES)
            )
        if options.get("orphanDependents") is not None:
            if policy:
                detail = "orphanDependents and deletionPropagation cannot be both set"
                error = FieldError(
                    "FieldValueInvalid", "propagationPolicy", f'Invalid value: "{policy}": {detail}'
                )
                raise errors.invalid_options("DeleteOptions", error)
            policy = "Orphan" if options["orphanDependents"] else "Background"
        preconditions = options.get("preconditions") or {}
        return cls(
            grace_seconds=options.get("gracePeriodSeconds"),
            propagation=policy,
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            dry_run=_parse_dry_run(options.get("dryRun") or [], "DeleteOptions"),
        )


def _query_options(query: Mapping[str, str]) -> Json:
    options: Json = {}
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = parse_int(query["gracePeriodSeconds"])
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("orphanDependents"):
        options["orphanDependents"] = parse_bool(query["orphanDependents"])
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    return options


def parse_int(text: str) -> int:
    """Parse an integer of a query.

    Raises:
        StatusError: 400, it is not an integer.
    """
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error
