"""``rallypoint get``: show objects as the server's table or as documents."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import yaml

from api.messages import escape_control
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource
from rallypoint.cli.columns import Columns, table_rows, table_titles
from rallypoint.cli.terminal import write, write_error

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("get", help="show objects of a cluster, local or real")
    parser.add_argument(
        "what", nargs="+", metavar="KIND[/NAME]", help="KIND [NAME...], KIND,KIND or KIND/NAME..."
    )
    parser.add_argument("--selector", "-l", default="", help="only objects with these labels")
    parser.add_argument("--output", "-o", choices=("wide", "yaml", "json", "name"), default="")
    parser.add_argument("--watch", "-w", action="store_true", help="print each change after the list")
    parser.add_argument("--no-headers", action="store_true", help="print no column titles")
    parser.add_argument("--ignore-not-found", action="store_true", help="ignore objects that do not exist")
    clusters.add_flags(parser, all_namespaces=True)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_get, args))


async def _get(args: argparse.Namespace, cluster: Cluster) -> int:
    requested = [
        (served, name)
        for kinds, name in clusters.targets(args.what, has_selector=bool(args.selector))
        for served in cluster.find_all(kinds)
    ]
    if args.watch and len(requested) > 1:
        raise CommandError("you may only specify a single resource type with --watch")
    if args.output in ("", "wide"):
        return await _show_tables(args, cluster, requested)
    found = await _objects(args, cluster, requested)
    single = found[0] if len(found) == 1 and requested[0][1] else None
    _print_objects(args.output, found, single)
    return 0


async def _objects(
    args: argparse.Namespace, cluster: Cluster, requested: Sequence[tuple[ServedResource, str]]
) -> list[Object]:
    found: list[Object] = []
    for served, name in requested:
        if name:
            found.append(await cluster.get(served, name))
        else:
            found += await cluster.list_objects(served.resource, labelSelector=args.selector)
    return found


def _print_objects(form: str, found: Sequence[Object], single: Object | None) -> None:
    if form == "name":
        write("".join(f"{_name(obj)}\n" for obj in found))
        return
    shown = [_without_managed_fields(obj) for obj in found]
    document = (
        shown[0]
        if single is not None
        else {"apiVersion": "v1", "items": shown, "kind": "List", "metadata": {"resourceVersion": ""}}
    )
    if form == "yaml":
        write(_yaml(document))
    else:
        write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")


def _yaml(document: Object) -> str:
    """Return the document as YAML that a terminal can show unchanged: with a control character, all that is not ASCII is escaped."""
    text = _dump(document, allow_unicode=True)
    return text if escape_control(text) == text else _dump(document, allow_unicode=False)


def _dump(document: Object, *, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump(document, default_flow_style=False, allow_unicode=allow_unicode, width=2**20)
    return text


def _name(obj: Mapping[str, Any]) -> str:
    group = obj["apiVersion"].rpartition("/")[0]
    kind = obj["kind"].lower()
    return f"{kind}.{group}/{obj['metadata']['name']}" if group else f"{kind}/{obj['metadata']['name']}"


def _without_managed_fields(obj: Object) -> Object:
    """Return the object without ``managedFields``."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


async def _show_tables(
    args: argparse.Namespace, cluster: Cluster, requested: Sequence[tuple[ServedResource, str]]
) -> int:
    kinds = list(dict.fromkeys(served for served, _ in requested))
    shown = False
    for served in kinds:
        names = [name for resource, name in requested if resource == served]
        shown = await _show_kind(args, cluster, served, names, several=len(kinds) > 1, again=shown) or shown
    if not shown and not args.watch and not args.ignore_not_found:
        suffix = f" in {cluster.namespace} namespace" if cluster.namespace and _any_namespaced(kinds) else ""
        write_error(f"No resources found{suffix}\n" if not suffix else f"No resources found{suffix}.\n")
    return 0


def _any_namespaced(kinds: Sequence[ServedResource]) -> bool:
    return any(served.resource.namespaced for served in kinds)


async def _show_kind(
    args: argparse.Namespace,
    cluster: Cluster,
    served: ServedResource,
    names: Sequence[str],
    *,
    several: bool,
    again: bool,
) -> bool:
    """Print the objects of one kind and return whether there are any."""
    wide, with_namespace = args.output == "wide", not cluster.namespace and served.resource.namespaced
    prefix = f"{served.full_name}/" if several else ""
    columns: Columns | None = None
    first: Object = {}
    for name in names:
        path = served.resource.path(cluster.namespace_of(served), name)
        query = {} if name else {"labelSelector": args.selector}
        table = orjson.loads(await cluster.client.request("GET", path, params=query, accept=TABLE))
        found = table_rows(table, table, wide=wide, with_namespace=with_namespace, prefix=prefix)
        if columns is None:
            first = table
            columns = Columns(
                () if args.no_headers else table_titles(table, wide=wide, with_namespace=with_namespace)
            )
            write("\n" if again and found else "")
        write(columns.text(found) if found else "")
    if args.watch and columns is not None:
        await _watch(args, cluster, served, names[0], columns, first)
    return bool(first.get("rows"))


async def _watch(
    args: argparse.Namespace,
    cluster: Cluster,
    served: ServedResource,
    name: str,
    columns: Columns,
    first: Object,
) -> None:
    """Print the row of each changed object until interrupted."""
    wide, with_namespace = args.output == "wide", not cluster.namespace and served.resource.namespaced
    version = first["metadata"]["resourceVersion"]
    while True:
        query = {"watch": "1", "resourceVersion": version, "labelSelector": args.selector}
        query["allowWatchBookmarks"] = "true"  # Bookmarks show that a silent watch is alive.
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        path = served.resource.path(cluster.namespace_of(served))
        async with cluster.client.stream(path, query, accept=TABLE) as lines:
            async for line in lines:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise CommandError(event["object"].get("message", "the watch has ended"))
                write(
                    columns.text(table_rows(event["object"], first, wide=wide, with_namespace=with_namespace))
                )
                version = _resource_version(event["object"]) or version


def _resource_version(table: Mapping[str, Any]) -> str:
    found = table["rows"] or []
    metadata = found[-1]["object"]["metadata"] if found else table.get("metadata") or {}
    return str(metadata.get("resourceVersion", ""))
