"""``rallypoint shadow report``: show where the decisions of an operator in shadow mode differ from those of the running one."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from api.meta import PODS
from controller.kube.errors import unreachable
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError
from rallypoint.cli.columns import Columns, indented
from rallypoint.cli.port_forward import choose, forwarding
from rallypoint.cli.terminal import write, write_error
from rallypoint.documentation import DOCS_URL, REPOSITORY_URL

EQUAL, DIFFERENT, UNREAD = 0, 1, 2
"""The exit statuses. ``UNREAD`` also means that there is no report."""
NAMESPACE: Final = "rallypoint-shadow"
SELECTOR: Final = "app=rallypoint-shadow"
PORT: Final = 6060
PATH: Final = "/debug/pprof/shadow"
TIMEOUT_SECONDS: Final = 30.0
OK: Final = 200
SHOWN: Final = 10
"""The most differences of a rule, and the most unread jobs, in text; the others are counted."""

Report = Mapping[str, Any]


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "shadow", help="show where an operator in shadow mode would decide differently from the running one"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="show the differences by rule",
        description="Show the differences by rule. Exit status 0: none, or only those that are declared in the "
        "documentation; 1: undeclared differences; 2: not everything has been compared yet, or there is no report.",
    )
    report.add_argument("--output", "-o", choices=("text", "json"), default="text")
    report.add_argument(
        "--address",
        type=_address,
        metavar="URL",
        help="address of a shadow outside of the cluster, as its --pprof-bind-address, such as http://127.0.0.1:6060",
    )
    clusters.add_flags(report, namespace_help=f"namespace of the shadow; default: {NAMESPACE}")
    report.set_defaults(execute=execute, namespace=NAMESPACE)


def _address(text: str) -> str:
    url = urlsplit(text)
    if url.scheme != "http" or not url.netloc or url.path not in {"", "/"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:{PORT}")
    return text.rstrip("/")


def execute(args: argparse.Namespace) -> int:
    """Return the exit status of the report, or ``UNREAD`` with the reason on stderr."""
    if args.address:
        try:
            return _show(args, asyncio.run(_read(args.address)))
        except CommandError as error:
            write_error(f"error: {error}\n")
            return UNREAD
    done: list[int] = []

    async def show(cluster: Cluster) -> int:
        done.append(_show(args, await _read_from(cluster)))
        return done[0]

    status = clusters.execute(args, show)
    return status if done else UNREAD


async def _read_from(cluster: Cluster) -> Report:
    """Read the report of the shadow in the cluster, through a port that is forwarded to its pod."""
    pods = await cluster.list_objects(PODS, labelSelector=SELECTOR)
    if not pods:
        raise CommandError(
            f"no shadow runs in the namespace {cluster.namespace}: no pod has the label {SELECTOR}; -n names another namespace"
        )
    async with forwarding(cluster.client, choose("the shadow", pods, "", []), PORT) as port:
        return await _read(f"http://127.0.0.1:{port}")


async def _read(address: str) -> Report:
    """Raises:
    CommandError: no shadow answers there.
    """
    timeout = aiohttp.ClientTimeout(TIMEOUT_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(address + PATH) as response:
            answer = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CommandError(f"the shadow does not answer: {unreachable(error)}") from error
    if response.status != OK:
        raise CommandError(
            f"{address} has no report ({response.status}): does that operator run with --shadow?"
        )
    report: Report = orjson.loads(answer)
    return report


def _show(args: argparse.Namespace, report: Report) -> int:
    if args.output == "json":
        write(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        write("".join(text(report)))
    return exit_status(report)


def exit_status(report: Report) -> int:
    """Return the exit status for a report: undeclared differences count more than what is unread."""
    if any(not rule["declared"] for rule in report["rules"]):
        return DIFFERENT
    return UNREAD if report["unread"] else EQUAL


def text(report: Report) -> Iterator[str]:
    """Yield the parts of the report for people."""
    results: Mapping[str, int] = next(iter(report["kinds"].values()), {})
    rows = [[kind, *map(str, counts.values())] for kind, counts in report["kinds"].items()]
    yield Columns(["KIND", *map(str.upper, results)]).text(rows)
    for title, is_declared in (("Undeclared differences", False), ("Declared differences", True)):
        rules = [rule for rule in report["rules"] if rule["declared"] is is_declared]
        if rules:
            yield f"\n{title}:\n"
        for rule in rules:
            yield from _rule(report, rule)
    if report["unread"]:
        yield "\nNot compared yet:\n"
        yield indented([[_subject(entry), entry["why"]] for entry in report["unread"][:SHOWN]])
        yield from _more(len(report["unread"]) + report["unreadLeftOut"])
    yield f"\n{_conclusion(report)}\n"


def _rule(report: Report, rule: Mapping[str, Any]) -> Iterator[str]:
    count = f"{rule['differences']} in {rule['jobs']} jobs"
    if rule["declared"]:
        yield f"  {rule['rule']}: {count}. {rule['reason']} ({REPOSITORY_URL}/{rule['page']})\n"
        return
    yield f"  {rule['rule']}: {count}\n"
    found = [entry for entry in report["differences"] if entry["rule"] == rule["rule"]]
    yield indented(
        [
            [
                f"  {_subject(entry)}",
                f"{entry['subject']} {entry['field']}".rstrip(),
                f"here: {entry['ours']}",
                f"there: {entry['theirs']}",
            ]
            for entry in found[:SHOWN]
        ]
    )
    yield from _more(rule["differences"])


def _subject(entry: Mapping[str, Any]) -> str:
    return f"{entry['kind']} {entry['namespace']}/{entry['name']}" if "kind" in entry else "all jobs"


def _more(count: int) -> Iterator[str]:
    if count > SHOWN:
        yield f"    … and {count - SHOWN} more; -o json lists them\n"


def _conclusion(report: Report) -> str:
    match exit_status(report):
        case 0:
            return "This operator decides as the other one does, except for the declared differences."
        case 1:
            return f"This operator decides differently. See {DOCS_URL}/how-to/shadow.md before you switch."
        case _:
            return "Not everything has been compared yet. Read the report again later."
