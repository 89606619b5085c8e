"""JSON patches (RFC 6902) and merge patches (RFC 7386).

Both return a new document that shares unchanged parts with the original. The original never changes.
"""

import re
from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request
from rallypoint.local.apiserver.apimachinery.unstructured import Json

LIMIT = 10_000
"""Maximum operations in one JSON patch, as in kube-apiserver."""
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Maximum bytes of JSON that the copy operations of one patch add together: each can double the document.

Source: kube-apiserver 1.36, JSONPatchMaxCopyBytes.
"""
INDEX = re.compile(r"-?[0-9]+")


def unprocessable() -> StatusError:
    """Return the error for an operation that does not apply: its test fails, or its path does not exist."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, {})


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch; a null removes its field."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def apply(document: Any, operations: list[Any]) -> Any:
    """Apply the operations of a JSON patch in order.

    Raises:
        StatusError: 422, an operation does not apply; 413, there are too many operations.
    """
    if len(operations) > LIMIT:
        message = f"The allowed maximum operations in a JSON patch is {LIMIT}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    root = {"": document}  # The first token of every pointer is "".
    copied_bytes = 0
    for operation in operations:
        match operation:
            case {"op": "add", "path": str(path), "value": value}:
                _add(root, path, value)
            case {"op": "replace", "path": str(path), "value": value}:
                container, token = _open(root, path)
                # evanphx/json-patch adds a missing member here.
                container[_key(container, token, adds=isinstance(container, dict))] = value
            case {"op": "remove", "path": str(path)}:
                _remove(root, path)
            case {"op": "test", "path": str(path)}:
                container, token = _open(root, path)
                is_missing = isinstance(container, dict) and token not in container
                found = None if is_missing else container[_key(container, token)]
                if not _equal(found, operation.get("value")):
                    raise unprocessable()
            case {"op": "move", "from": str(source), "path": str(path)}:
                _add(root, path, _remove(root, source))
            case {"op": "copy", "from": str(source), "path": str(path)}:
                container, token = _open(root, source)
                value = container[_key(container, token)]
                copied_bytes += len(orjson.dumps(value))
                if copied_bytes > MAX_COPIED_BYTES:
                    raise unprocessable()
                _add(root, path, value)
            case _:
                raise unprocessable()
    return root[""]


def _open(root: Json, pointer: str) -> tuple[Any, str]:
    """Copy the containers on the path of a pointer; return the innermost one and the last token."""
    if pointer and not pointer.startswith("/"):
        raise unprocessable()
    *parents, last = (token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/"))
    container: Any = root
    for token in parents:
        key = _key(container, token)
        if not isinstance(container[key], dict | list):
            raise unprocessable()
        copied = container[key].copy()
        container[key] = copied
        container = copied
    return container, last


def _key(container: Any, token: str, *, adds: bool = False) -> Any:
    """Return the key or index of an existing member, or of a new one if ``adds``."""
    if isinstance(container, dict):
        if adds or token in container:
            return token
    elif token == "-" and adds:
        return len(container)
    elif INDEX.fullmatch(token):
        index = int(token) + (len(container) if token.startswith("-") else 0)
        if 0 <= index < len(container) + adds:
            return index
    raise unprocessable()


def _add(root: Json, pointer: str, value: Any) -> None:
    container, token = _open(root, pointer)
    key = _key(container, token, adds=True)
    if isinstance(container, dict):
        container[key] = value
    else:
        container.insert(key, value)


def _remove(root: Json, pointer: str) -> Any:
    """Remove a member and return it. The document itself cannot be removed."""
    container, token = _open(root, pointer)
    if container is root:
        raise unprocessable()
    return container.pop(_key(container, token))


def _equal(left: Any, right: Any) -> bool:
    """Compare as JSON: ``1`` differs from ``true``."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def wrong_form(kind: str, expected: str) -> StatusError:
    """Return the error for a patch that is JSON of the wrong type for its media type."""
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {expected}"
    )
