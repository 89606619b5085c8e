"""HTTP in, HTTP out: who asks, for what, in which form; the work is done by the modules this one names."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

import orjson
import yaml
from aiohttp import web

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.selectors import terms
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth.authorization import Attributes
from rallypoint.local.apiserver.auth.serviceaccounts import ADMINISTRATOR, PodTokens, User
from rallypoint.local.apiserver.patches import jsonpatch, strategic
from rallypoint.local.apiserver.registry import fieldmanager, subresources
from rallypoint.local.apiserver.registry.deletion import delete
from rallypoint.local.apiserver.registry.lists import ListOptions, listed
from rallypoint.local.apiserver.registry.requests import (
    Answer,
    DeleteOptions,
    PathNotFound,
    Target,
    WriteOptions,
    target,
)
from rallypoint.local.apiserver.registry.writer import Edit, Writer
from rallypoint.local.apiserver.schema.validation import json_type
from rallypoint.local.apiserver.serving import discovery, openapi, protobuf, views
from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect, Front
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
"""How long a client may take to send the body of a request."""

Audit = Callable[[Json], None]

PodRequest = Callable[[web.Request, Json], Awaitable[web.StreamResponse]]
"""Answers a request about a running pod: its log, a command in it."""


class Sender:
    """Sends the frames of one watch, and hangs up on a client that does not take them."""

    def __init__(self, request: web.Request, store: Store, front: Front | None, call: Call) -> None:
        self._request = request
        self._store = store
        self._front = front
        self._call = call
        self._sending = False

    async def send(self, response: web.StreamResponse, frames: list[bytes]) -> None:
        front = self._front
        passed = frames if front is None else [frame for frame in frames if front.passes(self._call, frame)]
        if not passed:
            return
        await self._store.settled()
        self._sending = True
        await response.write(b"".join(passed))
        self._sending = False

    def give_up(self) -> None:
        """Only a write that waits for the client has to be broken off; else the watch just ends."""
        if self._sending and self._request.transport is not None:
            self._request.transport.abort()


class Handlers:
    """Answers the requests of one server."""

    def __init__(
        self,
        writer: Writer,
        token: str,
        pod_tokens: PodTokens,
        clock: Callable[[], datetime],
        front: Front | None,
    ) -> None:
        self._writer = writer
        self._token = token
        self._pod_tokens = pod_tokens
        self._clock = clock
        self._front = front
        self.audit: Audit | None = None
        self.pods: dict[str, PodRequest] = {}
        """Subresources of pods that whoever runs them answers: ``log``, ``exec``, ``attach``."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except StatusError as error:
            return _json(error.status, error.code)
        except PathNotFound as unserved:
            if unserved.plain:
                return web.Response(status=404, text="404 page not found\n")
            return _json(errors.no_such_resource().status, 404)
        except Disconnect:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._authenticated(request)
        path = request.path
        if not (path.startswith("/api/v1/") or (path.startswith("/apis/") and path.count("/") > 3)):
            self._writer.authorizer.require(user, Attributes(request.method.lower(), path=path))
            return self._unspecific(request)
        found = target(self._writer.catalog, path)
        self._authorize(request, user, found)
        body = await self._body(request)
        call = _call(request, found, body)
        if self._front is not None and (instead := await self._front.before(call)) is not None:
            return instead
        try:
            response = await self._serve(request, user, found, call)
        except StatusError as error:
            response = _json(error.status, error.code)
        await self._writer.store.settled()
        if self._front is not None:
            await self._front.after(call)
        if self.audit is not None and not response.prepared:
            self.audit({"method": call.method, "path": request.path_qs, "userAgent": call.user_agent,
                        "verb": call.verb, "code": response.status, "body": body})  # fmt: skip
        return response

    def _authenticated(self, request: web.Request) -> User:
        """Raises:
        StatusError: 401, whoever asks is not known.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if hmac.compare_digest(token.encode(errors="surrogateescape"), self._token.encode()):
                return ADMINISTRATOR
            if (user := self._pod_tokens.user(token)) is not None:
                return user
        raise StatusError(401, "Unauthorized", "Unauthorized")

    def _authorize(self, request: web.Request, user: User, found: Target) -> None:
        """Raises:
        StatusError: 403, the user may not do this.
        """
        attributes = _attributes(request, found)
        self._writer.authorizer.require(user, attributes)
        is_apply = request.method == "PATCH" and request.content_type == APPLY_PATCH
        creates = is_apply or (request.method == "PUT" and found.resource.strategy.allows_create_on_update)
        there = self._writer.collection(found.resource).entries.get((found.namespace, found.name))
        if creates and there is None and not found.subresource:
            self._writer.authorizer.require(user, replace(attributes, verb="create"))

    async def _body(self, request: web.Request) -> bytes:
        if not request.body_exists:
            return b""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except TimeoutError as error:
            raise StatusError(
                408, "Timeout", f"no complete request body within {BODY_SECONDS:g} s"
            ) from error
        if len(body) > BODY_LIMIT:
            message = f"Request entity too large: limit is {BODY_LIMIT}"
            raise StatusError(413, "RequestEntityTooLarge", message)
        return body

    async def _serve(self, request: web.Request, user: User, found: Target, call: Call) -> web.StreamResponse:
        match call.verb if found.subresource or call.verb in found.resource.verbs else "":
            case "list":
                return self._list(request, found)
            case "watch":
                return await self._watch(request, found, call)
            case "get":
                return await self._get(request, found)
            case "create":
                return await self._create(request, user, found, call.body)
            case "update":
                return self._update(request, user, found, call.body)
            case "patch":
                return self._patch(request, user, found, call.body)
            case "delete":
                return self._delete(request, found, call.body)
            case "deletecollection":
                return self._delete_many(request, found, call.body)
            case _:
                raise errors.method_not_supported()

    def _view(self, request: web.Request, found: Target) -> views.View:
        accept = request.headers.get("Accept", "")
        return views.choose(accept, found.resource, self._clock, request.query.get("includeObject", ""))

    def _list(self, request: web.Request, found: Target) -> web.Response:
        options = ListOptions.read(found, request.query)
        view = self._view(request, found)
        collection = self._writer.collection(found.resource)
        entries, metadata = listed(self._writer.store, collection, found.namespace, options)
        return web.Response(body=view.many(entries, metadata), content_type=JSON)

    async def _watch(self, request: web.Request, found: Target, call: Call) -> web.StreamResponse:
        options = ListOptions.read(found, request.query)
        collection = self._writer.collection(found.resource)
        watch = Watch(self._writer.store, collection, found.namespace, options, self._view(request, found))
        sender = Sender(request, self._writer.store, self._front, call)
        first = watch.open(sender.give_up)
        try:
            response = web.StreamResponse(headers={"Content-Type": JSON})
            response.enable_chunked_encoding()
            await response.prepare(request)
            await sender.send(response, first)
            async for frames in watch.frames():
                await sender.send(response, frames)
        except ConnectionResetError:
            return web.Response(status=499)  # the client has gone; nobody hears this
        finally:
            watch.close()
        return response

    async def _get(self, request: web.Request, found: Target) -> web.StreamResponse:
        entry = self._writer.find(found)
        match found.subresource:
            case "" | "status":
                return self._show(request, found, Answer(entry))
            case "scale" if found.resource.scale is not None:
                return _json(subresources.scale_of(entry.object, found.resource.scale))
            case "log" | "exec" | "attach":
                return await self._of_pod(request, found, entry)
            case _:
                raise errors.method_not_supported()

    async def _of_pod(self, request: web.Request, found: Target, entry: Entry) -> web.StreamResponse:
        answer = self.pods.get(found.subresource)
        if answer is None:
            message = f"no node offers {found.subresource} here"
            raise StatusError(501, "NotImplemented", message)
        return await answer(request, entry.object)

    async def _create(
        self, request: web.Request, user: User, found: Target, body: bytes
    ) -> web.StreamResponse:
        if found.subresource in ("exec", "attach"):
            return await self._of_pod(request, found, self._writer.find(found))
        options = WriteOptions.read(request.query, "CreateOptions", user)
        given = _decoded(request, found, body)
        match (bool(found.name), found.subresource):
            case (False, _):
                answer = self._writer.create(found, given, options)
            case (True, "binding"):
                answer = subresources.bind(self._writer, found, given, options)
            case (True, "eviction"):
                answer = subresources.evict(self._writer, found, given)
            case _:
                raise errors.method_not_supported()
        return self._show(request, found, answer)

    def _update(self, request: web.Request, user: User, found: Target, body: bytes) -> web.Response:
        options = WriteOptions.read(request.query, "UpdateOptions", user)
        given = _decoded(request, found, body)
        if found.subresource == "scale" and found.resource.scale is not None:
            answer = subresources.write_scale(
                self._writer, found, found.resource.scale, lambda old: given, options
            )
            return self._show(request, found, answer)
        return self._show(request, found, self._writer.update(found, given, options))

    def _patch(self, request: web.Request, user: User, found: Target, body: bytes) -> web.Response:
        options = WriteOptions.read(request.query, "PatchOptions", user)
        if request.content_type == APPLY_PATCH:
            return self._show(request, found, fieldmanager.apply(self._writer, found, _parsed(body), options))
        edit = _edit(request.content_type, found, body)
        if found.subresource == "scale" and found.resource.scale is not None:
            answer = subresources.write_scale(self._writer, found, found.resource.scale, edit, options)
        else:
            answer = self._writer.patch(found, edit, options)
        return self._show(request, found, answer)

    def _delete(self, request: web.Request, found: Target, body: bytes) -> web.Response:
        given = _decoded(request, found, body) if body else None
        options = DeleteOptions.read(request.query, given)
        return self._show(request, found, delete(self._writer, found, options))

    def _delete_many(self, request: web.Request, found: Target, body: bytes) -> web.Response:
        options = DeleteOptions.read(request.query, _decoded(request, found, body) if body else None)
        collection = self._writer.collection(found.resource)
        asked = ListOptions.read(found, request.query)
        entries, metadata = listed(self._writer.store, collection, found.namespace, asked)
        for entry in entries:
            delete(self._writer, Target(found.resource, *entry.key), options)
        metadata["resourceVersion"] = str(self._writer.store.revision)
        return web.Response(body=self._view(request, found).many(entries, metadata), content_type=JSON)

    def _show(self, request: web.Request, found: Target, answer: Answer) -> web.Response:
        headers = [("Warning", f"299 - {json.dumps(text, ensure_ascii=False)}") for text in answer.warnings]
        stored = answer.object.get("kind") == found.resource.kind
        if stored:
            entry = answer.body if isinstance(answer.body, Entry) else Entry(_unversioned(answer.body), 0)
            body = self._view(request, found).one(entry)
        else:
            body = orjson.dumps(answer.object)
        return web.Response(body=body, status=answer.code, content_type=JSON, headers=headers)

    def _unspecific(self, request: web.Request) -> web.Response:
        """What is not about objects: health, version, discovery."""
        catalog, parts = self._writer.catalog, request.path.strip("/").split("/")
        together = "as=APIGroupDiscoveryList" in request.headers.get("Accept", "")
        document: Json | None = None
        match parts:
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["version"]:
                document = discovery.VERSION
            case ["api" | "apis" as root] if together:
                shown = discovery.aggregated(catalog, core=root == "api")
                form = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                return web.Response(body=orjson.dumps(shown), headers={"Content-Type": form})
            case ["api"]:
                document = discovery.versions(request.host)
            case ["api", "v1"]:
                document = discovery.resources(catalog, "", "v1")
            case ["openapi", "v3"]:
                document = openapi.index(catalog)
            case ["openapi", "v3", "api", version]:
                document = openapi.document(catalog, "", version)
            case ["openapi", "v3", "apis", name, version]:
                document = openapi.document(catalog, name, version)
            case ["apis"]:
                document = discovery.groups(catalog)
            case ["apis", name]:
                document = discovery.one_group(catalog, name)
            case ["apis", name, version]:
                document = discovery.resources(catalog, name, version)
            case _:
                pass
        if document is None:
            raise PathNotFound(plain=True)
        return _json(document)


def _unversioned(obj: Json) -> Json:
    """An object that is not stored has no version to show."""
    given = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion" or value}
    return {**obj, "metadata": given}


def _json(body: Json, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type=JSON)


READS = {True: "get", False: "list"}
WRITES = {"PUT": "update", "PATCH": "patch"}


def _verb(request: web.Request, found: Target) -> str:
    """What is to be done, in the API's words; empty where the method means nothing there."""
    named = bool(found.name)
    match request.method:
        case "GET":
            watching = request.query.get("watch", "false") not in ("false", "0") and not found.subresource
            return "watch" if watching else READS[named]
        case "POST":
            in_place = found.namespace or not found.resource.namespaced
            return "create" if in_place and (not named or found.subresource) else ""
        case "PUT" | "PATCH":
            return WRITES[request.method] if named else ""
        case "DELETE":
            return "" if found.subresource else ("delete" if named else "deletecollection")
        case _:
            return ""


INTERACTIVE = ("exec", "attach")


def _attributes(request: web.Request, found: Target) -> Attributes:
    """What is asked for, as it is granted.

    Source: Kubernetes, apiserver/pkg/endpoints/request/requestinfo.go.

    Differs: commands in pods are granted by ``create`` whichever method opens the stream. With WebSockets that is GET,
    for which a cluster asks ``get`` as well, and kubectl goes on with a POST over SPDY, which is not served here.
    """
    resource, name = found.resource, found.name
    verb = "create" if found.subresource in INTERACTIVE else _verb(request, found)
    if not name and verb in ("list", "watch", "deletecollection"):
        chosen = dict(terms(request.query.get("fieldSelector", "")))
        name = chosen.get("metadata.name", "")
    qualified = f"{resource.plural}/{found.subresource}" if found.subresource else resource.plural
    is_namespace = (resource.group, resource.plural) == ("", "namespaces")
    namespace = found.name if is_namespace else found.namespace
    return Attributes(verb or request.method.lower(), resource.group, qualified, namespace, name)


def _call(request: web.Request, found: Target, body: bytes) -> Call:
    agent = request.headers.get("User-Agent", "")
    resource = found.resource
    return Call(
        _verb(request, found),
        request.method,
        request.path,
        resource.plural,
        found.subresource,
        found.namespace,
        found.name,
        agent,
        body,
    )


def _decoded(request: web.Request, found: Target, body: bytes) -> Any:
    """The body as JSON.

    Raises:
        StatusError: 415, it is of another media type; 400, it cannot be parsed.
    """
    media = request.content_type if "Content-Type" in request.headers else JSON
    if media == PROTOBUF and not found.resource.custom:
        return _unpacked(found, body)
    if media not in (JSON, YAML, "*/*"):
        raise errors.unsupported_media_type((JSON, YAML, PROTOBUF))
    try:
        return yaml_document(body) if media == YAML else orjson.loads(body)
    except (orjson.JSONDecodeError, yaml.YAMLError) as error:
        kind = found.resource.kind
        message = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {error}"
        raise errors.bad_request(message) from error


def _unpacked(found: Target, body: bytes) -> Json:
    try:
        return protobuf.decode(body)
    except protobuf.DecodeError as error:
        kind = found.resource.kind
        message = f"the object provided is unrecognized (must be of type {kind}): {error}"
        raise errors.bad_request(message) from error


def _parsed(body: bytes) -> Any:
    """An applied configuration: YAML, of which JSON is a part."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml_document(body)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error


def _edit(media: str, found: Target, body: bytes) -> Edit:
    """What a patch does to an object."""
    accepted = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
    if media not in accepted and not found.resource.custom:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if media not in accepted or (media == STRATEGIC_PATCH and found.resource.custom):
        raise errors.unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    if media == JSON_PATCH:
        if not isinstance(given, list):
            raise jsonpatch.wrong_form(json_type(given), "[]handlers.jsonPatchOp")
        return lambda old: jsonpatch.apply(old, given)
    if not isinstance(given, dict):
        raise jsonpatch.wrong_form(json_type(given), "map[string]interface {}")
    if media == MERGE_PATCH:
        return lambda old: jsonpatch.merge(old, given)
    return lambda old: strategic.merge(found.resource.schema, old, given)
