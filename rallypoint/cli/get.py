"""``rallypoint get``: show objects as the server's table or as documents."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import yaml

from api.messages import escape_control
from controller.kube.errors import NotFound
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource
from rallypoint.cli.columns import Columns, table_rows, table_titles
from rallypoint.cli.terminal import write

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
    missing: list[NotFound] = []
    if args.output in ("", "wide"):
        await _show_tables(args, cluster, requested, missing)
    else:
        found = await _objects(args, cluster, requested, missing)
        is_single = len(requested) == 1 and bool(requested[0][1])
        if found or not (is_single or args.ignore_not_found):
            _print_objects(args.output, found, found[0] if is_single else None)
    return 0 if args.ignore_not_found else clusters.report_missing(missing)


async def _objects(
    args: argparse.Namespace,
    cluster: Cluster,
    requested: Sequence[tuple[ServedResource, str]],
    missing: list[NotFound],
) -> list[Object]:
    """Return the objects that exist; add an error to ``missing`` for each name without one."""
    found: list[Object] = []
    for served, name in requested:
        if not name:
            found += await cluster.list_objects(served.resource, labelSelector=args.selector)
        elif obj := await clusters.found_or_missing(cluster.get(served, name), missing):
            found.append(obj)
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
    args: argparse.Namespace,
    cluster: Cluster,
    requested: Sequence[tuple[ServedResource, str]],
    missing: list[NotFound],
) -> None:
    """Print the objects that exist; add an error to ``missing`` for each name without one."""
    kinds = list(dict.fromkeys(served for served, _ in requested))
    shown = False
    for served in kinds:
        names = [name for resource, name in requested if resource == served]
        tables = await _tables(args, cluster, served, names, missing)
        if not tables:
            continue
        wide, with_namespace = args.output == "wide", not cluster.namespace and served.resource.namespaced
        prefix = f"{served.full_name}/" if len(kinds) > 1 else ""
        titles = [] if args.no_headers else table_titles(tables[0], wide=wide, with_namespace=with_namespace)
        columns = Columns(titles)
        rows = [
            row
            for table in tables
            for row in table_rows(table, table, wide=wide, with_namespace=with_namespace, prefix=prefix)
        ]
        if rows:
            write(("\n" if shown else "") + columns.text(rows))
            shown = True
        if args.watch:
            await _watch(args, cluster, served, names[0], columns, tables[0])
    if not shown and not missing and not args.watch and not args.ignore_not_found:
        clusters.report_none_found(cluster, kinds)


async def _tables(
    args: argparse.Namespace,
    cluster: Cluster,
    served: ServedResource,
    names: Iterable[str],
    missing: list[NotFound],
) -> list[Object]:
    """Return the Table of each named object that exists, or of all objects for an empty name."""
    found: list[Object] = []
    for name in names:
        if not name:
            found.append(await cluster.table(served, accept=TABLE, labelSelector=args.selector))
        elif table := await clusters.found_or_missing(cluster.get(served, name, accept=TABLE), missing):
            found.append(table)
    return found


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
