"""Lists of objects by selectors, resource version and page."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from rallypoint.local.apiserver.apimachinery import errors, field_errors, selectors
from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request, invalid_options
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.selectors import Predicate
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.requests import Target, parse_bool, parse_int
from rallypoint.local.apiserver.storage.store import Collection, Entry, Gone, Key, Store

TOKEN_VERSION = "meta.k8s.io/v1"

TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list or a watch."""

    predicate: Predicate | None = None
    version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_seconds: int | None = None

    @classmethod
    def read(cls, target: Target, query: Mapping[str, str]) -> "ListOptions":
        """Read the options from a query.

        Raises:
            StatusError: an option is not valid, or options conflict.
        """
        predicate = selectors.all_of(
            selectors.parse_label_selector(query.get("labelSelector", "")),
            selectors.parse_field_selector(query.get("fieldSelector", ""), target.resource.selectable_fields),
        )
        if target.name:
            name = target.name
            predicate = selectors.all_of(predicate, lambda obj: obj["metadata"]["name"] == name)
        initial = query.get("sendInitialEvents")
        timeout = query.get("timeoutSeconds")
        options = cls(
            predicate=predicate,
            version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
            limit=max(parse_int(query.get("limit") or "0"), 0),
            token=query.get("continue", ""),
            watch=parse_bool(query.get("watch", "false")),
            bookmarks=parse_bool(query.get("allowWatchBookmarks", "false")),
            initial_events=None if initial is None else parse_bool(initial),
            timeout_seconds=parse_int(timeout) if timeout else None,
        )
        options.check()
        return options

    def check(self) -> None:
        """Reject conflicting options, as ValidateListOptions of apimachinery does."""
        wrong = self._watch_problem() if self.watch else self._list_problem()
        if wrong is not None:
            raise invalid_options("ListOptions", wrong)

    def _watch_problem(self) -> FieldError | None:
        if self.initial_events is not None and self.match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            return field_errors.forbidden("resourceVersionMatch", detail)
        if self.match and self.initial_events is None:
            detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            return field_errors.forbidden("resourceVersionMatch", detail)
        return None

    def _list_problem(self) -> FieldError | None:
        if self.initial_events is not None:
            return field_errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        if not self.match:
            return None
        if self.token:
            detail = "resourceVersionMatch is forbidden when continue is provided"
            return field_errors.forbidden("resourceVersionMatch", detail)
        if not self.version:
            detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            return field_errors.forbidden("resourceVersionMatch", detail)
        if self.match not in ("Exact", "NotOlderThan"):
            return field_errors.not_supported(
                "resourceVersionMatch", self.match, ("Exact", "NotOlderThan", "")
            )
        if self.match == "Exact" and self.version == "0":
            detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            return field_errors.forbidden("resourceVersionMatch", detail)
        return None


def parse_resource_version(text: str) -> int:
    """Parse a resource version; "" is 0.

    Raises:
        StatusError: 400, it is not a number.
    """
    if text and not (text.isascii() and text.isdigit()):
        wrong = (
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
        raise bad_request(f"invalid resource version: {wrong}")
    return int(text or 0)


def too_large_resource_version(requested: int, current: int) -> StatusError:
    """Return the error for a resource version that does not exist yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(
        504, "Timeout", f"Timeout: Too large resource version: {requested}, current: {current}", details
    )


def list_entries(
    store: Store, collection: Collection, namespace: str, options: ListOptions
) -> tuple[list[Entry], Json]:
    """Return the entries of a list and the metadata of the list.

    Raises:
        StatusError: 410, the resource version is compacted; 504, it does not exist yet.
    """
    at, after = store.revision, None
    if options.token:
        at, after = _read_token(options.token)
        at = store.revision if at < 0 else at
    requested = parse_resource_version(options.version)
    if requested > store.revision:
        raise too_large_resource_version(requested, store.revision)
    exact = options.match == "Exact" or (options.limit and requested > 0 and not options.match)
    if exact and not options.token:
        at = requested
    entries = _entries(collection, namespace, at, options, store.revision)
    if after is not None:
        entries = [entry for entry in entries if entry.key > after]
    if options.predicate is not None:
        entries = [entry for entry in entries if options.predicate(entry.object)]
    return _page(entries, at, options)


def _entries(collection: Collection, namespace: str, at: int, options: ListOptions, now: int) -> list[Entry]:
    if at == now:
        return collection.select(namespace)
    try:
        return collection.at(at, namespace)
    except Gone as gone:
        if not options.token:
            raise errors.expired(str(gone)) from gone
        _, after = _read_token(options.token)
        error = errors.expired(TOO_OLD)
        error.list_metadata = {"continue": _token(-1, after)}
        raise error from gone


def _page(entries: list[Entry], at: int, options: ListOptions) -> tuple[list[Entry], Json]:
    metadata: Json = {"resourceVersion": str(at)}
    if options.limit and len(entries) > options.limit and options.version != "0":
        remaining = len(entries) - options.limit
        entries = entries[: options.limit]
        metadata["continue"] = _token(at, entries[-1].key)
        if options.predicate is None:
            metadata["remainingItemCount"] = remaining
    return entries, metadata


def _token(at: int, after: Key) -> str:
    body = orjson.dumps({"v": TOKEN_VERSION, "rv": at, "start": "/".join(after)})
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, Key]:
    try:
        body = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = body["start"].rpartition("/")
        return int(body["rv"]), (namespace, name)
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(message) from error
