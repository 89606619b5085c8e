"""HTTP handlers: authenticate, authorize, decode the request, call the registry and encode the response."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson
import structlog
import yaml
from aiohttp import web

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.selectors import required_values
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth.authorization import Attributes
from rallypoint.local.apiserver.auth.impersonation import HEADER_PREFIX, acting_user
from rallypoint.local.apiserver.auth.serviceaccounts import ADMINISTRATOR, PodTokens, User
from rallypoint.local.apiserver.patches import jsonpatch, strategic
from rallypoint.local.apiserver.registry import fieldmanager, subresources
from rallypoint.local.apiserver.registry.deletion import delete
from rallypoint.local.apiserver.registry.lists import ListOptions, list_entries
from rallypoint.local.apiserver.registry.requests import (
    DeleteOptions,
    PathNotFound,
    Target,
    WriteOptions,
    WriteResult,
    parse_bool,
    resolve_target,
)
from rallypoint.local.apiserver.registry.writer import Edit, Writer
from rallypoint.local.apiserver.schema.validation import json_type
from rallypoint.local.apiserver.serving import discovery, openapi, protobuf, views
from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect, Interceptor
from rallypoint.local.apiserver.serving.watch import Watch
from rallypoint.local.apiserver.serving.yaml_document import yaml_document
from rallypoint.local.apiserver.storage.store import Entry, Store

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

BODY_LIMIT = 3 * 1024 * 1024
BODY_SECONDS = 60.0
"""Timeout for receiving the body of a request."""

log = structlog.get_logger()

PodRequest = Callable[[web.Request, Json], Awaitable[web.StreamResponse]]
"""Responds to a request for a subresource of a running pod, such as ``log`` or ``exec``."""


class WatchSender:
    """Sends the frames of one watch, and disconnects a client that does not read them."""

    def __init__(
        self, request: web.Request, store: Store, interceptor: Interceptor | None, call: Call
    ) -> None:
        self._request = request
        self._store = store
        self._interceptor = interceptor
        self._call = call
        self._sending = False

    async def send(self, response: web.StreamResponse, frames: list[bytes]) -> None:
        if (interceptor := self._interceptor) is not None:
            frames = [frame for frame in frames if await interceptor.passes(self._call, frame)]
        if not frames:
            return
        await self._store.flush()
        self._sending = True
        await response.write(b"".join(frames))
        self._sending = False

    def abort(self) -> None:
        """Abort the connection if a write is blocked; otherwise the watch ends by itself."""
        if self._sending and self._request.transport is not None:
            self._request.transport.abort()


class Handlers:
    """Handles the requests of one server."""

    def __init__(
        self,
        writer: Writer,
        token: str,
        pod_tokens: PodTokens,
        clock: Callable[[], datetime],
        interceptor: Interceptor | None,
    ) -> None:
        self._writer = writer
        self._token = token
        self._pod_tokens = pod_tokens
        self._clock = clock
        self._interceptor = interceptor
        self.pods: dict[str, PodRequest] = {}
        """Handlers of the pod subresources ``log`` and ``STREAMING_SUBRESOURCES``."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._respond(request)
        except StatusError as error:
            return _json(error.status, error.code)
        except PathNotFound as not_found:
            if not_found.plain_text:
                return web.Response(status=404, text="404 page not found\n")
            return _json(errors.no_such_resource().status, 404)
        except Disconnect:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)
        except (OSError, web.HTTPException, web.RequestPayloadError, aiohttp.ClientError):
            raise  # The client has disconnected, or aiohttp answers.
        except Exception as error:
            if request.writer.output_size:
                raise  # An answer has begun.
            log.exception("request failed", method=request.method, path=request.path)
            return _json(errors.internal(f"{type(error).__name__}: {error}").status, 500)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        headers = {
            name.lower(): request.headers.getall(name)
            for name in request.headers
            if name.lower().startswith(HEADER_PREFIX)
        }
        user = acting_user(self._writer.authorizer, self._authenticate(request), headers)
        path = request.path
        if not (path.startswith("/api/v1/") or (path.startswith("/apis/") and path.count("/") > 3)):
            self._writer.authorizer.require(user, Attributes(request.method.lower(), path=path))
            return self._serve_non_resource(request)
        target = resolve_target(self._writer.catalog, path)
        self._authorize(request, user, target)
        body = await self._body(request)
        call = _make_call(request, target, body)
        if (
            self._interceptor is not None
            and (replacement := await self._interceptor.before(call)) is not None
        ):
            return replacement
        try:
            response = await self._serve(request, user, target, call)
        except StatusError as error:
            response = _json(error.status, error.code)
        await self._writer.store.flush()
        if self._interceptor is not None:
            await self._interceptor.after(call)
        return response

    def _authenticate(self, request: web.Request) -> User:
        """Raises:
        StatusError: 401, the credentials are missing or not valid.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if hmac.compare_digest(token.encode(errors="surrogateescape"), self._token.encode()):
                return ADMINISTRATOR
            if (user := self._pod_tokens.authenticate(token)) is not None:
                return user
        raise StatusError(401, "Unauthorized", "Unauthorized")

    def _authorize(self, request: web.Request, user: User, target: Target) -> None:
        """Raises:
        StatusError: 403, the user is not allowed to do this.
        """
        attributes = _attributes(request, target)
        self._writer.authorizer.require(user, attributes)
        is_apply = request.method == "PATCH" and request.content_type == APPLY_PATCH
        creates = is_apply or (request.method == "PUT" and target.resource.strategy.allows_create_on_update)
        existing = self._writer.collection(target.resource).entries.get((target.namespace, target.name))
        if creates and existing is None and not target.subresource:
            self._writer.authorizer.require(user, replace(attributes, verb="create"))

    async def _body(self, request: web.Request) -> bytes:
        if not request.body_exists:
            return b""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = bytearray()
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > BODY_LIMIT:
                        message = f"Request entity too large: limit is {BODY_LIMIT}"
                        raise StatusError(413, "RequestEntityTooLarge", message)
        except TimeoutError as error:
            raise StatusError(
                408, "Timeout", f"no complete request body within {BODY_SECONDS:g} s"
            ) from error
        return bytes(body)

    async def _serve(
        self, request: web.Request, user: User, target: Target, call: Call
    ) -> web.StreamResponse:
        match call.verb if target.subresource or call.verb in target.resource.verbs else "":
            case "list":
                return self._list(request, target)
            case "watch":
                return await self._watch(request, target, call)
            case "get":
                return await self._get(request, target)
            case "create":
                return await self._create(request, user, target, call.body)
            case "update":
                return self._update(request, user, target, call.body)
            case "patch":
                return self._patch(request, user, target, call.body)
            case "delete":
                return self._delete(request, target, call.body)
            case "deletecollection":
                return self._delete_many(request, target, call.body)
            case _:
                raise errors.method_not_supported()

    def _view(self, request: web.Request, target: Target) -> views.View:
        accept = request.headers.get("Accept", "")
        return views.negotiate(accept, target.resource, self._clock, request.query.get("includeObject", ""))

    def _list(self, request: web.Request, target: Target) -> web.Response:
        options = ListOptions.read(target, request.query)
        view = self._view(request, target)
        collection = self._writer.collection(target.resource)
        entries, metadata = list_entries(self._writer.store, collection, target.namespace, options)
        return web.Response(body=view.encode_list(entries, metadata), content_type=JSON)

    async def _watch(self, request: web.Request, target: Target, call: Call) -> web.StreamResponse:
        options = ListOptions.read(target, request.query)
        collection = self._writer.collection(target.resource)
        watch = Watch(self._writer.store, collection, target.namespace, options, self._view(request, target))
        sender = WatchSender(request, self._writer.store, self._interceptor, call)
        first = watch.open(sender.abort)
        try:
            response = web.StreamResponse(headers={"Content-Type": JSON})
            response.enable_chunked_encoding()
            await response.prepare(request)
            await sender.send(response, first)
            async for frames in watch.frames():
                await sender.send(response, frames)
        except ConnectionResetError:
            return web.Response(status=499)  # the client has disconnected
        finally:
            watch.close()
        return response

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        entry = self._writer.find(target)
        match target.subresource:
            case "" | "status":
                return self._write_response(request, target, WriteResult(entry))
            case "scale" if target.resource.scale is not None:
                return _json(subresources.get_scale(entry.object, target.resource.scale))
            case "log" | "exec" | "attach" | "portforward":
                return await self._serve_pod_subresource(request, target, entry)
            case _:
                raise errors.method_not_supported()

    async def _serve_pod_subresource(
        self, request: web.Request, target: Target, entry: Entry
    ) -> web.StreamResponse:
        serve = self.pods.get(target.subresource)
        if serve is None:
            message = f"no node offers {target.subresource} here"
            raise StatusError(501, "NotImplemented", message)
        return await serve(request, entry.object)

    async def _create(
        self, request: web.Request, user: User, target: Target, body: bytes
    ) -> web.StreamResponse:
        if target.subresource in STREAMING_SUBRESOURCES:
            return await self._serve_pod_subresource(request, target, self._writer.find(target))
        options = WriteOptions.read(request.query, "CreateOptions", user)
        decoded = _decode_body(request, target, body)
        match (bool(target.name), target.subresource):
            case (False, _):
                result = self._writer.create(target, decoded, options)
            case (True, "binding"):
                result = subresources.bind(self._writer, target, decoded, options)
            case (True, "eviction"):
                result = subresources.evict(self._writer, target, decoded)
            case _:
                raise errors.method_not_supported()
        return self._write_response(request, target, result)

    def _update(self, request: web.Request, user: User, target: Target, body: bytes) -> web.Response:
        options = WriteOptions.read(request.query, "UpdateOptions", user)
        decoded = _decode_body(request, target, body)
        if target.subresource == "scale" and target.resource.scale is not None:
            result = subresources.write_scale(
                self._writer, target, target.resource.scale, lambda old: decoded, options
            )
            return self._write_response(request, target, result)
        return self._write_response(request, target, self._writer.update(target, decoded, options))

    def _patch(self, request: web.Request, user: User, target: Target, body: bytes) -> web.Response:
        options = WriteOptions.read(request.query, "PatchOptions", user)
        if request.content_type == APPLY_PATCH:
            return self._write_response(
                request, target, fieldmanager.apply(self._writer, target, _parse_applied(body), options)
            )
        edit = _parse_patch(request.content_type, target, body)
        if target.subresource == "scale" and target.resource.scale is not None:
            result = subresources.write_scale(self._writer, target, target.resource.scale, edit, options)
        else:
            result = self._writer.patch(target, edit, options)
        return self._write_response(request, target, result)

    def _delete(self, request: web.Request, target: Target, body: bytes) -> web.Response:
        options = _read_delete_options(request, target, body)
        return self._write_response(request, target, delete(self._writer, target, options))

    def _delete_many(self, request: web.Request, target: Target, body: bytes) -> web.Response:
        options = _read_delete_options(request, target, body)
        collection = self._writer.collection(target.resource)
        list_options = ListOptions.read(target, request.query)
        entries, metadata = list_entries(self._writer.store, collection, target.namespace, list_options)
        for entry in entries:
            delete(self._writer, Target(target.resource, *entry.key), options)
        metadata["resourceVersion"] = str(self._writer.store.revision)
        return web.Response(
            body=self._view(request, target).encode_list(entries, metadata), content_type=JSON
        )

    def _write_response(self, request: web.Request, target: Target, result: WriteResult) -> web.Response:
        headers = [("Warning", f"299 - {json.dumps(text, ensure_ascii=False)}") for text in result.warnings]
        stored = result.object.get("kind") == target.resource.kind
        if stored:
            found = result.body
            entry = found if isinstance(found, Entry) else Entry(_without_empty_version(found), 0)
            body = self._view(request, target).encode_object(entry)
        else:
            body = orjson.dumps(result.object)
        return web.Response(body=body, status=result.code, content_type=JSON, headers=headers)

    def _serve_non_resource(self, request: web.Request) -> web.Response:
        """Serve a non-resource path: health, version, discovery."""
        catalog, parts = self._writer.catalog, request.path.strip("/").split("/")
        is_aggregated = "as=APIGroupDiscoveryList" in request.headers.get("Accept", "")
        document: Json | None = None
        match parts:
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["version"]:
                document = discovery.VERSION
            case ["api" | "apis" as root] if is_aggregated:
                aggregated = discovery.aggregated(catalog, core=root == "api")
                form = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                return web.Response(body=orjson.dumps(aggregated), headers={"Content-Type": form})
            case ["api"]:
                document = discovery.api_versions(request.host)
            case ["api", "v1"]:
                document = discovery.resources(catalog, "", "v1")
            case ["openapi", "v2"] if "protobuf" in request.headers.get("Accept", ""):
                return web.Response(headers={"Content-Type": openapi.PROTOBUF_V2})
            case ["openapi", "v2"]:
                document = openapi.EMPTY_V2
            case ["openapi", "v3"]:
                document = openapi.index(catalog)
            case ["openapi", "v3", "api", version]:
                document = openapi.document(catalog, "", version)
            case ["openapi", "v3", "apis", name, version]:
                document = openapi.document(catalog, name, version)
            case ["apis"]:
                document = discovery.api_groups(catalog)
            case ["apis", name]:
                document = discovery.api_group(catalog, name)
            case ["apis", name, version]:
                document = discovery.resources(catalog, name, version)
            case _:
                pass
        if document is None:
            raise PathNotFound(plain_text=True)
        return _json(document)


def _without_empty_version(obj: Json) -> Json:
    """Remove the empty resourceVersion of an object that is not stored."""
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion" or value}
    return {**obj, "metadata": meta}


def _json(body: Json, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type=JSON)


GET_VERBS = {True: "get", False: "list"}
WRITE_VERBS = {"PUT": "update", "PATCH": "patch"}


def _verb(request: web.Request, target: Target) -> str:
    """Return the API verb of a request; "" if the method is not supported there."""
    has_name = bool(target.name)
    match request.method:
        case "GET":
            watching = parse_bool(request.query.get("watch", "false")) and not target.subresource
            return "watch" if watching else GET_VERBS[has_name]
        case "POST":
            is_collection = target.namespace or not target.resource.namespaced
            return "create" if is_collection and (not has_name or target.subresource) else ""
        case "PUT" | "PATCH":
            return WRITE_VERBS[request.method] if has_name else ""
        case "DELETE":
            return "" if target.subresource else ("delete" if has_name else "deletecollection")
        case _:
            return ""


STREAMING_SUBRESOURCES = ("exec", "attach", "portforward")


def _attributes(request: web.Request, target: Target) -> Attributes:
    """Return the attributes by which a request is authorized.

    Source: Kubernetes, apiserver/pkg/endpoints/request/requestinfo.go.

    Differs: ``STREAMING_SUBRESOURCES`` require ``create`` with any method. kube-apiserver also requires ``get`` for
    WebSockets, and kubectl then falls back to POST over SPDY, which this server does not support.
    """
    resource, name = target.resource, target.name
    verb = "create" if target.subresource in STREAMING_SUBRESOURCES else _verb(request, target)
    if not name and verb in ("list", "watch", "deletecollection"):
        name = required_values(request.query.get("fieldSelector", "")).get("metadata.name", "")
    qualified = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    is_namespace = (resource.group, resource.plural) == ("", "namespaces")
    namespace = target.name if is_namespace else target.namespace
    return Attributes(verb or request.method.lower(), resource.group, qualified, namespace, name)


def _make_call(request: web.Request, target: Target, body: bytes) -> Call:
    plural, agent = target.resource.plural, request.headers.get("User-Agent", "")
    names = (plural, target.subresource, target.namespace, target.name)
    return Call(_verb(request, target), request.method, request.path, *names, agent, body)


def _decode_body(request: web.Request, target: Target, body: bytes) -> Any:
    """Decode the body.

    Raises:
        StatusError: 415, the media type is not supported; 400, the body is not valid.
    """
    media = request.content_type if "Content-Type" in request.headers else JSON
    if media == PROTOBUF and not target.resource.custom:
        return _decode_protobuf(target, body)
    if media not in (JSON, YAML, "*/*"):
        raise errors.unsupported_media_type((JSON, YAML, PROTOBUF))
    try:
        return yaml_document(body) if media == YAML else orjson.loads(body)
    except (orjson.JSONDecodeError, yaml.YAMLError) as error:
        kind = target.resource.kind
        message = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {error}"
        raise errors.bad_request(message) from error


def _read_delete_options(request: web.Request, target: Target, body: bytes) -> DeleteOptions:
    return DeleteOptions.read(request.query, _decode_body(request, target, body) if body else None)


def _decode_protobuf(target: Target, body: bytes) -> Json:
    try:
        return protobuf.decode(body)
    except protobuf.DecodeError as error:
        kind = target.resource.kind
        message = f"the object provided is unrecognized (must be of type {kind}): {error}"
        raise errors.bad_request(message) from error


def _parse_applied(body: bytes) -> Any:
    """Parse an applied configuration: JSON or YAML."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml_document(body)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error


def _parse_patch(media: str, target: Target, body: bytes) -> Edit:
    """Parse a patch into a function that edits an object."""
    accepted = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
    if media not in accepted and not target.resource.custom:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if media not in accepted or (media == STRATEGIC_PATCH and target.resource.custom):
        raise errors.unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    if media == JSON_PATCH:
        if not isinstance(decoded, list):
            raise jsonpatch.wrong_form(json_type(decoded), "[]handlers.jsonPatchOp")
        return lambda old: jsonpatch.apply(old, decoded)
    if not isinstance(decoded, dict):
        raise jsonpatch.wrong_form(json_type(decoded), "map[string]interface {}")
    if media == MERGE_PATCH:
        return lambda old: jsonpatch.merge(old, decoded)
    return lambda old: strategic.merge(target.resource.schema, old, decoded)
