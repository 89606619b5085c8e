"""The files of configMap, secret, downwardAPI and projected volumes. Pure.

Source: Kubernetes, pkg/volume/{configmap,secret,downwardapi,projected}.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from rallypoint.local.node.volumes import downward_api
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.references import KINDS, Contents, Reference, Unresolved

PROJECTED_KINDS = ("configMap", "secret", "downwardAPI", "projected")
"""Read-only volumes whose files follow their sources."""
DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class File:
    data: bytes = field(repr=False)
    mode: int


Files: TypeAlias = dict[str, File]
"""By their path in the volume."""


@dataclass(frozen=True, slots=True)
class ProjectionSources:
    pod: Mapping[str, Any]
    placement: Placement
    contents: Contents
    token: Callable[[str], str] = field(repr=False)
    """Returns the pod's token for an audience; an empty audience is the API server."""
    rewrite: Callable[[str], str]
    """Applied to the texts of ConfigMaps."""


def is_projected(volume: Mapping[str, Any]) -> bool:
    return any(volume.get(kind) is not None for kind in PROJECTED_KINDS)


def references(volume: Mapping[str, Any]) -> Iterator[Reference]:
    """Yield the objects that a volume projects."""
    for source in _sources(volume):
        for kind in KINDS:
            if (chosen := source.get(kind)) is not None:
                yield Reference(kind, _name(chosen))


def files(volume: Mapping[str, Any], sources: ProjectionSources) -> Files:
    """Return the current files of a projected volume.

    Raises:
        Unresolved: a required object, key or field does not exist.
    """
    inner = next(volume[kind] for kind in PROJECTED_KINDS if volume.get(kind) is not None)
    mode = int(inner.get("defaultMode") or DEFAULT_MODE)
    found: Files = {}
    try:
        for source in _sources(volume):
            found |= {_require_inside(path): file for path, file in _files_of(source, mode, sources).items()}
    except Unresolved as error:
        raise Unresolved(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
    return found


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if (projected := volume.get("projected")) is not None:
        return list(projected.get("sources") or ())
    return [volume]


def _files_of(source: Mapping[str, Any], mode: int, sources: ProjectionSources) -> Files:
    for kind in KINDS:
        if (chosen := source.get(kind)) is not None:
            return _object_files(kind, chosen, mode, sources)
    if (chosen := source.get("downwardAPI")) is not None:
        return {item["path"]: _downward_file(item, mode, sources) for item in chosen.get("items") or ()}
    if (chosen := source.get("serviceAccountToken")) is not None:
        return {chosen["path"]: File(sources.token(chosen.get("audience") or "").encode(), mode)}
    raise Unresolved(f"a projected {' '.join(source)} is not provided by local mode")


def _object_files(kind: str, chosen: Mapping[str, Any], mode: int, sources: ProjectionSources) -> Files:
    reference, optional = Reference(kind, _name(chosen)), bool(chosen.get("optional"))
    stored = sources.contents.get(reference)
    if stored is None and not optional:
        raise Unresolved(f'{kind.lower()} "{reference.name}" not found')
    found: Files = {}
    for item in chosen.get("items") or [{"key": key, "path": key} for key in stored or ()]:
        data = (stored or {}).get(item["key"])
        if data is not None:
            text = _rewritten(data, sources.rewrite) if kind == "configMap" else data
            found[item["path"]] = File(text, int(item.get("mode") or mode))
        elif not optional:
            what = "config" if kind == "configMap" else kind
            raise Unresolved(f"references non-existent {what} key: {item['key']}")
    return found


def _downward_file(item: Mapping[str, Any], mode: int, sources: ProjectionSources) -> File:
    if chosen := item.get("fieldRef"):
        text = downward_api.field(sources.pod, sources.placement, chosen["fieldPath"])
    else:
        text = downward_api.resource(sources.pod, {}, sources.placement, item["resourceFieldRef"])
    return File(text.encode(), int(item.get("mode") or mode))


def _name(chosen: Mapping[str, Any]) -> str:
    """A secret volume names its object in ``secretName``, all others in ``name``."""
    return str(chosen.get("secretName") or chosen.get("name") or "")


def _require_inside(path: str) -> str:
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise Unresolved(f"path {path} leaves its volume")
    return path


def _rewritten(data: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(data.decode()).encode()
    except UnicodeDecodeError:
        return data
