"""``rallypoint delete``: delete objects and wait until they are gone."""

import argparse
import asyncio
from functools import partial

from controller.kube.errors import NotFound
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, ServedResource, is_gone
from rallypoint.cli.terminal import write, write_error
from rallypoint.local import documents

POLL_SECONDS = 0.2


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("delete", help="delete objects of a cluster, local or real")
    parser.add_argument("what", nargs="*", metavar="KIND[/NAME]", help="KIND NAME... or KIND/NAME...")
    parser.add_argument(
        "--filename",
        "-f",
        action="append",
        default=[],
        metavar="FILE",
        help="delete the objects of this manifest; - is standard input",
    )
    parser.add_argument("--selector", "-l", default="", help="delete objects with these labels")
    parser.add_argument("--all", action="store_true", help="delete all objects of the kind in the namespace")
    parser.add_argument("--ignore-not-found", action="store_true", help="ignore objects that do not exist")
    parser.add_argument(
        "--grace-period", type=int, default=None, metavar="SECONDS", help="time for pods to terminate"
    )
    parser.add_argument("--now", action="store_true", help="use a grace period of 1 s")
    parser.add_argument(
        "--wait",
        choices=("true", "false"),
        default="true",
        help="wait until the objects are gone; default: true",
    )
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_delete, args))


async def _delete(args: argparse.Namespace, cluster: Cluster) -> int:
    grace = 1 if args.now else args.grace_period
    deleted: list[tuple[ServedResource, str, str]] = []
    status = 0
    for served, name in await _selected_objects(args, cluster):
        try:
            deleted.append((served, name, await _delete_object(cluster, served, name, grace)))
        except NotFound as error:
            if not args.ignore_not_found:
                status = 1
                write_error(f"Error from server (NotFound): {error.message}\n")
    if not deleted and status == 0 and not args.ignore_not_found:
        write("No resources found\n")
    for served, name, uid in deleted:
        is_deleted = args.wait == "false"
        while not is_deleted:
            is_deleted = await is_gone(cluster, served, name, uid)
            await asyncio.sleep(0 if is_deleted else POLL_SECONDS)
    return status


async def _delete_object(cluster: Cluster, served: ServedResource, name: str, grace: int | None) -> str:
    """Request the deletion of one object and return its UID."""
    namespace = cluster.namespace_of(served)
    uid = str((await cluster.get(served, name))["metadata"]["uid"])
    await cluster.client.delete(served.resource, namespace, name, uid=uid, grace_period_seconds=grace)
    suffix = f" from {namespace} namespace" if namespace else ""
    write(f'{served.full_name} "{name}" deleted{suffix}\n')
    return uid


async def _selected_objects(args: argparse.Namespace, cluster: Cluster) -> list[tuple[ServedResource, str]]:
    found: list[tuple[ServedResource, str]] = []
    for document in documents.read(args.filename, cluster.namespace):
        group = document.group
        found.append((cluster.find(f"{document.kind}.{group}" if group else document.kind), document.name))
    if not args.what:
        if not found:
            raise CommandError("You must provide one or more resources by argument or filename.")
        return found
    for kinds, name in clusters.targets(args.what):
        for served in cluster.find_all(kinds):
            if name:
                found.append((served, name))
            elif args.selector or args.all:
                listed = await cluster.list_objects(served.resource, labelSelector=args.selector)
                found += [(served, obj["metadata"]["name"]) for obj in listed]
            else:
                raise CommandError("resource(s) were provided, but no name was specified")
    return found
