"""``rallypoint delete``: delete objects and wait until they are gone."""

import argparse
import asyncio
from dataclasses import dataclass, replace
from functools import partial

from controller.kube.errors import NotFound
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, ServedResource, is_gone
from rallypoint.cli.terminal import write
from rallypoint.local import documents
from rallypoint.local.documents import Refused

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


@dataclass(frozen=True, slots=True)
class _Target:
    """One object to delete."""

    cluster: Cluster
    """With the namespace of the object."""
    served: ServedResource
    name: str

    async def delete(self, grace: int | None) -> str:
        """Request the deletion of the object and return its UID."""
        namespace = self.cluster.namespace_of(self.served)
        uid = str((await self.cluster.get(self.served, self.name))["metadata"]["uid"])
        await self.cluster.client.delete(
            self.served.resource, namespace, self.name, uid=uid, grace_period_seconds=grace
        )
        suffix = f" from {namespace} namespace" if namespace else ""
        write(f'{self.served.full_name} "{self.name}" deleted{suffix}\n')
        return uid


async def _delete(args: argparse.Namespace, cluster: Cluster) -> int:
    grace = 1 if args.now else args.grace_period
    deleted: list[tuple[_Target, str]] = []
    status = 0
    for target in await _targets(args, cluster):
        try:
            deleted.append((target, await target.delete(grace)))
        except NotFound as error:
            if not args.ignore_not_found:
                status = clusters.report_missing([error])
    if not deleted and status == 0 and not args.ignore_not_found:
        write("No resources found\n")
    for target, uid in deleted:
        is_deleted = args.wait == "false"
        while not is_deleted:
            is_deleted = await is_gone(target.cluster, target.served, target.name, uid)
            await asyncio.sleep(0 if is_deleted else POLL_SECONDS)
    return status


async def _targets(args: argparse.Namespace, cluster: Cluster) -> list[_Target]:
    if args.all and args.selector:
        raise CommandError("cannot set --all and --selector at the same time")
    if args.filename and args.selector:
        # kubectl deletes those documents whose own labels match.
        raise CommandError("cannot set --filename and --selector at the same time")
    found = _targets_of_files(args, cluster)
    if not args.what:
        if not args.filename:
            raise CommandError("You must provide one or more resources by argument or filename.")
        return found
    for kinds, name in clusters.targets(args.what, has_selector=args.all or bool(args.selector)):
        for served in cluster.find_all(kinds):
            if name:
                found.append(_Target(cluster, served, name))
            elif args.all or args.selector:
                listed = await cluster.list_objects(served.resource, labelSelector=args.selector)
                found += [_Target(cluster, served, obj["metadata"]["name"]) for obj in listed]
            else:
                raise CommandError("resource(s) were provided, but no name was specified")
    return found


def _targets_of_files(args: argparse.Namespace, cluster: Cluster) -> list[_Target]:
    """Return the objects of the manifests, each in the namespace of its document.

    Raises:
        CommandError: a file cannot be read; the server does not serve a kind; a document has no name, or another
            namespace than the flag.
    """
    found: list[_Target] = []
    try:
        for document in documents.read(args.filename, cluster.namespace):
            group = document.group
            served = cluster.find(f"{document.kind}.{group}" if group else document.kind)
            if not document.meta.get("name"):
                raise Refused([document.problem("Required value", "metadata.name")])
            namespace = document.namespace(cluster.namespace)
            if args.namespace and served.resource.namespaced and namespace != args.namespace:
                raise CommandError(
                    f'the namespace from the provided object "{namespace}" does not match the namespace "{args.namespace}". '
                    f"You must pass '--namespace={namespace}' to perform this operation."
                )
            found.append(_Target(replace(cluster, namespace=namespace), served, document.name))
    except Refused as refused:
        raise CommandError(str(refused)) from refused
    return found
