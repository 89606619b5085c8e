"""JSON patches (RFC 6902) and merge patches (RFC 7386).

Both return a new document that shares unchanged parts with the original. The original never changes.
"""

from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request

LIMIT = 10_000
"""Maximum operations in one JSON patch, as in kube-apiserver."""
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Maximum bytes of JSON that the copy operations of one patch add together: each can double the document.

Source: kube-apiserver 1.36, JSONPatchMaxCopyBytes.
"""


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
    copied = 0
    for operation in operations:
        if isinstance(operation, dict) and operation.get("op") == "copy":
            copied += _copied_bytes(document, operation)
            if copied > MAX_COPIED_BYTES:
                raise unprocessable()
        document = _apply_operation(document, operation)
    return document


def _copied_bytes(document: Any, operation: Any) -> int:
    return len(orjson.dumps(_read(document, _tokens(operation.get("from", "")))))


def _apply_operation(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise unprocessable()
    path = _tokens(operation["path"])
    match operation.get("op"):
        case "add":
            return _change(document, path, _add(_value(operation)))
        case "replace":
            return _change(document, path, _replace(_value(operation)))
        case "remove":
            return _change(document, path, _remove)
        case "test":
            if not _equal(_read(document, path, missing_is_null=True), operation.get("value")):
                raise unprocessable()
            return document
        case "move":
            source = _tokens(operation.get("from", ""))
            value = _read(document, source)
            return _change(_change(document, source, _remove), path, _add(value))
        case "copy":
            return _change(document, path, _add(_read(document, _tokens(operation.get("from", "")))))
        case _:
            raise unprocessable()


def _value(operation: Any) -> Any:
    if "value" not in operation:
        raise unprocessable()
    return operation["value"]


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise unprocessable()
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _index(items: list[Any], token: str, *, end: bool = False) -> int:
    if token == "-" and end:
        return len(items)
    if not token.lstrip("-").isdigit():
        raise unprocessable()
    index = int(token)
    if index < 0:
        index += len(items)
    if not 0 <= index < len(items) + end:
        raise unprocessable()
    return index


def _read(document: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    for depth, token in enumerate(path):
        if isinstance(document, dict):
            if token not in document:
                if missing_is_null and depth == len(path) - 1:
                    return None
                raise unprocessable()
            document = document[token]
        elif isinstance(document, list):
            document = document[_index(document, token)]
        else:
            raise unprocessable()
    return document


def _change(document: Any, path: list[str], edit: Any) -> Any:
    """Copy the containers on the path and call ``edit(container, token)`` on the last one."""
    if not path:
        return edit(None, "")
    token = path[0]
    if isinstance(document, dict):
        copied: Any = dict(document)
        if len(path) == 1:
            edit(copied, token)
        elif token in copied:
            copied[token] = _change(copied[token], path[1:], edit)
        else:
            raise unprocessable()
        return copied
    if isinstance(document, list):
        copied = list(document)
        if len(path) == 1:
            edit(copied, token)
        else:
            index = _index(copied, token)
            copied[index] = _change(copied[index], path[1:], edit)
        return copied
    raise unprocessable()


def _add(value: Any) -> Any:
    def edit(container: Any, token: str) -> Any:
        if container is None:
            return value
        if isinstance(container, dict):
            container[token] = value
        else:
            container.insert(_index(container, token, end=True), value)
        return None

    return edit


def _replace(value: Any) -> Any:
    def edit(container: Any, token: str) -> Any:
        if container is None:
            return value
        if isinstance(container, dict):
            container[token] = value  # a missing member is added, as evanphx/json-patch does here
        else:
            container[_index(container, token)] = value
        return None

    return edit


def _remove(container: Any, token: str) -> Any:
    if isinstance(container, dict) and token in container:
        del container[token]
    elif isinstance(container, list):
        del container[_index(container, token)]
    else:
        raise unprocessable()


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
