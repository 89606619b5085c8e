"""Replaces names of the pod network in texts by addresses, and mount paths by real paths. Pure.

Without namespaces, a process cannot resolve ``job-master-0``, so the loopback isolation replaces the name in the
manifest by the address. Only whole names match: ``job-master-01``, ``my-job-master-0`` and the path
``/ckpt/job-master-0`` do not contain the name ``job-master-0``.
"""

import re
from collections.abc import Callable, Iterable, Mapping

CLUSTER_DOMAIN = "cluster.local"

_WORD = re.compile(
    r"(?<![A-Za-z0-9_.\-])(?<!(?<!/)/)"  # The start of a word that no single slash precedes: then it is part of a path.
    r"(?P<name>[a-z0-9](?:[a-z0-9.\-]*[a-z0-9])?)"
    r"(?![A-Za-z0-9_\-])"
    r"(?::(?P<port>[0-9]{1,5})(?![0-9]))?"
)

Find = Callable[[str, int | None], tuple[str, int | None] | None]
"""(name, port or None) → (address, port); None for a word that is no name."""


def replace(text: str, find: Find) -> str:
    """Replace each word that ``find`` knows, and the port after it."""

    def found(match: re.Match[str]) -> str:
        port = match.group("port")
        answer = find(match.group("name"), None if port is None else int(port))
        if answer is None:
            return match.group()
        address, moved = answer
        return address if moved is None else f"{address}:{moved}"

    return _WORD.sub(found, text)


def split(word: str, namespace: str, namespaces: Iterable[str]) -> tuple[str, str]:
    """Return the (namespace, name) that ``word`` means in a pod of ``namespace``: the inverse of the DNS search path.

    ``name``, ``name.ns``, ``name.ns.svc`` and ``name.ns.svc.cluster.local`` are the same; the name of a pod with a
    subdomain (``launcher.job``) keeps its dot.
    """
    for suffix in (f".svc.{CLUSTER_DOMAIN}", ".svc"):
        if word.endswith(suffix):
            name, _, owner = word.removesuffix(suffix).rpartition(".")
            return (owner, name) if name else (namespace, owner)
    name, _, last = word.rpartition(".")
    if name and last in {namespace, *namespaces}:
        return last, name
    return namespace, word


def replace_paths(text: str, moved: Mapping[str, str]) -> str:
    """Replace each mount path by the path of its files. ``/data`` does not match in ``/database`` and ``/x/data``."""
    if not moved:
        return text
    targets = {path.rstrip("/"): target for path, target in moved.items()}
    longest_first = sorted(targets, key=len, reverse=True)
    return _path(longest_first).sub(lambda match: targets[match.group()], text)


def mentions_path(text: str, path: str) -> bool:
    return _path([path.rstrip("/")]).search(text) is not None


def _path(paths: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_.\-/])(?:{'|'.join(map(re.escape, paths))})(?![A-Za-z0-9_.\-])")
