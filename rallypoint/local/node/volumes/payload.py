"""The files of volumes that objects and the pod itself fill: configMap, secret, downwardAPI and projected. Pure.

Source: Kubernetes, pkg/volume/{configmap,secret,downwardapi,projected}.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from rallypoint.local.node.volumes import downward
from rallypoint.local.node.volumes.downward import Place
from rallypoint.local.node.volumes.objects import KINDS, Contents, Reference, Unresolved

FILLED = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes that hold nothing of their own: no container may write to them, and they follow what they are made of."""
DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class File:
    data: bytes = field(repr=False)
    mode: int


Files: TypeAlias = dict[str, File]
"""By their path in the volume."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a pod's volumes are filled with."""

    pod: Mapping[str, Any]
    place: Place
    contents: Contents
    token: Callable[[str], str] = field(repr=False)
    """What the pod shows to an audience; an empty one is the API server."""
    rewrite: Callable[[str], str]
    """Applied to the texts of ConfigMaps."""


def is_filled(volume: Mapping[str, Any]) -> bool:
    return any(volume.get(kind) is not None for kind in FILLED)


def references(volume: Mapping[str, Any]) -> Iterator[Reference]:
    """The objects that a volume is filled with."""
    for source in _sources(volume):
        for kind, short in KINDS.items():
            if (chosen := source.get(kind)) is not None:
                yield Reference(short, _name(chosen))


def files(volume: Mapping[str, Any], given: Given) -> Files:
    """What belongs into a filled volume now.

    Raises:
        Unresolved: an object, a key or a field that is needed does not exist.
    """
    inner = next(volume[kind] for kind in FILLED if volume.get(kind) is not None)
    mode = int(inner.get("defaultMode") or DEFAULT_MODE)
    found: Files = {}
    try:
        for source in _sources(volume):
            found |= {_inside(path): file for path, file in _of(source, mode, given).items()}
    except Unresolved as error:
        raise Unresolved(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
    return found


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if (projected := volume.get("projected")) is not None:
        return list(projected.get("sources") or ())
    return [volume]


def _of(source: Mapping[str, Any], mode: int, given: Given) -> Files:
    for kind, short in KINDS.items():
        if (chosen := source.get(kind)) is not None:
            return _of_object(short, chosen, mode, given)
    if (chosen := source.get("downwardAPI")) is not None:
        return {item["path"]: _of_pod(item, mode, given) for item in chosen.get("items") or ()}
    if (chosen := source.get("serviceAccountToken")) is not None:
        return {chosen["path"]: File(given.token(chosen.get("audience") or "").encode(), mode)}
    raise Unresolved(f"a projected {' '.join(source)} is not provided by local mode")


def _of_object(short: str, chosen: Mapping[str, Any], mode: int, given: Given) -> Files:
    reference, optional = Reference(short, _name(chosen)), bool(chosen.get("optional"))
    held = given.contents.get(reference)
    if held is None and not optional:
        raise Unresolved(f'{short} "{reference.name}" not found')
    found: Files = {}
    for item in chosen.get("items") or [{"key": key, "path": key} for key in held or ()]:
        data = (held or {}).get(item["key"])
        if data is not None:
            text = _rewritten(data, given.rewrite) if short == "configmap" else data
            found[item["path"]] = File(text, int(item.get("mode") or mode))
        elif not optional:
            what = "config" if short == "configmap" else short
            raise Unresolved(f"references non-existent {what} key: {item['key']}")
    return found


def _of_pod(item: Mapping[str, Any], mode: int, given: Given) -> File:
    if chosen := item.get("fieldRef"):
        text = downward.field(given.pod, given.place, chosen["fieldPath"])
    else:
        text = downward.resource(given.pod, {}, given.place, item["resourceFieldRef"])
    return File(text.encode(), int(item.get("mode") or mode))


def _name(chosen: Mapping[str, Any]) -> str:
    """A secret volume spells the field differently from all the others."""
    return str(chosen.get("secretName") or chosen.get("name") or "")


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise Unresolved(f"path {path} leaves its volume")
    return path


def _rewritten(data: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(data.decode()).encode()
    except UnicodeDecodeError:
        return data
