"""Removes from texts and objects what no two runs share: times, identifiers, generated names, defaults, secrets."""

import re
from collections.abc import Mapping
from typing import Any

from controller.shadow.defaults import SHAPES, Object, Shape, bare

_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: \+0000 UTC)?")
"""As in JSON, and as Go prints times into messages."""

_SERVER_METADATA = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
)
_JOB_LABELS = frozenset(
    prefix + name for prefix in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")
)
"""Set by the API server on the template of each Job."""

Words = Mapping[str, str]
"""Replacements of words that differ from run to run, such as the UID of the job."""


def text(value: str, words: Words) -> str:
    for word, name in words.items():
        value = value.replace(word, name)
    return _UID.sub("<uid>", _TIME.sub("<time>", value))


def normalized(value: Any, words: Words) -> Any:
    """Return a JSON value with normalized texts and without nulls in its objects."""
    if isinstance(value, dict):
        return {name: normalized(item, words) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [normalized(item, words) for item in value]
    return text(value, words) if isinstance(value, str) else value


def sent(kind: str, body: Object, words: Words) -> Object:
    """Return the compared part of a created object: all that its sender chooses."""
    compared = {"kind": kind, **{name: item for name, item in body.items() if name != "status"}}
    normal = bare(normalized(compared, words), SHAPES.get(kind, Shape()))
    normal["metadata"] = _metadata(normal.get("metadata", {}))
    return _hidden(normal) if kind == "Secret" else normal


def current(kind: str, obj: Object, words: Words) -> Object | None:
    """Return the part of an object that may have changed since its creation; None if nothing may."""
    spec = obj.get("spec") or {}
    match kind:
        case "ConfigMap":
            part = {"data": obj.get("data") or {}}
        case "Role":
            part = {"rules": obj.get("rules") or []}
        case "PodGroup" | "HorizontalPodAutoscaler":
            part = {"spec": spec}
        case "Service":
            ready = spec.get("publishNotReadyAddresses", False)
            part = {"selector": spec.get("selector"), "publishNotReadyAddresses": ready}
        case "Job":
            part = {"suspend": spec.get("suspend", False), **_template(spec.get("template", {}))}
        case _:
            return None
    return dict(normalized(part, words))


def _metadata(metadata: Object) -> Object:
    return {
        name: item
        for name, item in metadata.items()
        if name not in _SERVER_METADATA and not (name in {"labels", "annotations"} and item == {})
    }


def _hidden(secret: Object) -> Object:
    """Keep the keys of a Secret and hide its random values."""
    keys = {*(secret.get("data") or {}), *(secret.get("stringData") or {})}
    rest = {name: item for name, item in secret.items() if name not in {"data", "stringData"}}
    return {**rest, "data": dict.fromkeys(sorted(keys), "<data>")}


def _template(template: Object) -> Object:
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    labels = metadata.get("labels") or {}
    return {
        "labels": {name: value for name, value in labels.items() if name not in _JOB_LABELS},
        "annotations": metadata.get("annotations"),
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
    }
