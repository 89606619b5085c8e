"""The objects of the shipped installation, from ``installation.json``, which ``make deploy`` writes from ``manifests``."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import orjson

FILE = Path(__file__).with_name("installation.json")
Rules: TypeAlias = Sequence[Mapping[str, Any]]


@cache
def installation() -> Mapping[str, Any]:
    """Return ``objects``, those of the default installation without the CRDs, and ``roles``: rules by name of a role or component."""
    found: Mapping[str, Any] = orjson.loads(FILE.read_bytes())
    return found


def objects() -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = installation()["objects"]
    return found


def roles() -> Mapping[str, Rules]:
    found: Mapping[str, Rules] = installation()["roles"]
    return found


def deployment() -> dict[str, Any]:
    return next(document for document in objects() if document["kind"] == "Deployment")


def default_namespace() -> str:
    """Return the namespace of the default installation."""
    return str(deployment()["metadata"]["namespace"])
