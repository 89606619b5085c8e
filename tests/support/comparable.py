"""The parts of replies that two API servers must share."""

import re
from collections.abc import Sequence
from typing import Any

import orjson

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ADDRESS = re.compile(r"10\.0\.\d+\.\d+")
DIFF = re.compile(r"\n@@.*", re.DOTALL)
DROPPED = ("managedFields", "selfLink", "serviceAccountName", "serviceAccount")
VERSIONS = ("resourceVersion", "continue")
TOKEN_VOLUME = "kube-api-access-"
CHOICES = re.compile(r'supported values: ("[^"]*"(?:, "[^"]*")*)')
COUNTED = re.compile(r"(version: |current: |\()\d+")


def comparable(value: Any, ignore: Sequence[str] = (), path: str = "") -> Any:
    """Return a reply with placeholders for times, identifiers, versions and addresses, so that the rest can be compared whole."""
    if isinstance(value, dict):
        if len(_causes(value)) > 1:  # the message lists them in any order
            ignore = (*ignore, f"{path}.message".strip("."))
        return {
            key: _version(item) if key in VERSIONS else comparable(item, ignore, f"{path}.{key}".strip("."))
            for key, item in value.items()
            if key not in DROPPED and f"{path}.{key}".strip(".") not in ignore and not _empty_token(key, item)
        }
    if isinstance(value, list):
        items = [item for item in value if not _is_token(item)]
        if path.endswith("details.causes"):  # a real server finds some of them several times
            items = sorted((item for i, item in enumerate(items) if item not in items[:i]), key=orjson.dumps)
        return [comparable(item, ignore, f"{path}.{i}".strip(".")) for i, item in enumerate(items)]
    if isinstance(value, str):
        for pattern, name in ((TIME, "<time>"), (UID, "<uid>"), (ADDRESS, "<address>"), (DIFF, "")):
            value = pattern.sub(name, value)
        value = CHOICES.sub(
            lambda found: "supported values: " + ", ".join(sorted(found[1].split(", "))), value
        )
        return COUNTED.sub(r"\1<version>", value)
    if isinstance(value, float) and value.is_integer():  # 1.0 and 1 are the same number in JSON
        return int(value)
    return value


def _version(value: Any) -> Any:
    return "<version>" if value else value


def _is_token(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("name", "")).startswith(TOKEN_VOLUME)


def _empty_token(key: str, item: Any) -> bool:
    """Return whether a list holds nothing but the token that ServiceAccount admission mounts."""
    return key in ("volumes", "volumeMounts") and bool(item) and all(_is_token(entry) for entry in item)


def _causes(status: dict[str, Any]) -> set[bytes]:
    details = status.get("details")
    return (
        {orjson.dumps(cause) for cause in details.get("causes") or ()} if isinstance(details, dict) else set()
    )
