"""``rallypoint check``: check an installation, or whether a switch, a rollback, an upgrade or an uninstall is safe. It changes nothing."""

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TypeAlias

import orjson

from rallypoint.cli import cluster as clusters
from rallypoint.cli.check import admission, definitions, jobs, rights, schedulers, server, upgrade
from rallypoint.cli.check.facts import (
    ERRORS,
    MAX_CONCURRENT_REQUESTS,
    Facts,
    Options,
    Reader,
    ServerDates,
    fact,
    read_facts,
    unreadable,
)
from rallypoint.cli.check.findings import Before, Finding, Level, exit_status, unknown
from rallypoint.cli.check.go_operators import GO_OPERATORS
from rallypoint.cli.check.operators import lease_findings, operator_findings
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.columns import Columns
from rallypoint.cli.terminal import write

EXIT_UNREADABLE = 2
"""The status if the check could not be made."""
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")

Check: TypeAlias = Callable[[Facts], AsyncIterator[Finding]]


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "check",
        help="check an installation, or whether a switch, upgrade or uninstall is safe",
        description="Check the cluster and the operators in it. Each line is ok, a warning, a blocker, or unknown if you may not "
        "read what it needs, with the remedy. This changes nothing. Exit status 1: a blocker; 2: no blocker, but something is unknown.",
    )
    parser.add_argument(
        "--before",
        type=Before,
        choices=list(Before),
        metavar="{" + ",".join(Before) + "}",
        help="what you are about to do: switch from a Go operator, go back to one, uninstall, or upgrade to the version of this command",
    )
    parser.add_argument(
        "--to",
        action="append",
        choices=list(GO_OPERATORS),
        default=[],
        help="with --before back: the Go operator to start; repeatable; default: both",
    )
    parser.add_argument(
        "--release",
        type=_release,
        metavar="X.Y",
        help="with a single --to: its release, if it is older than training-operator 1.9 or mpi-operator 0.6, which ignore managedBy",
    )
    parser.add_argument(
        "--gang-scheduler-name",
        default="",
        metavar="NAME",
        help="gang scheduler to look for; default: that of the operator's flags",
    )
    parser.add_argument(
        "--image", default="", help="image of the operator to check; default: that of the installed operator"
    )
    parser.add_argument(
        "--pull",
        action="store_true",
        help="start a pod with the operator's image for a moment, to see whether it can be pulled; the only change that this makes",
    )
    parser.add_argument(
        "--field-manager",
        default="kubectl",
        metavar="NAME",
        help="with --before upgrade: field manager that applies the new version; default: kubectl",
    )
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="json: an object with all findings"
    )
    clusters.add_flags(
        parser,
        namespace_help="namespace of the installation; default: where the operator is found, else that of the shipped manifests",
    )
    parser.set_defaults(execute=partial(execute, parser), all_namespaces=True)


def _release(text: str) -> tuple[int, int]:
    found = _RELEASE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a release such as 1.9 or v1.9.4")
    return int(found[1]), int(found[2])


def execute(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Return 0, 1 if there is a blocker, or 2 if the cluster or a part of it cannot be read."""
    if args.to and args.before is not Before.BACK:
        parser.error("--to needs --before back")
    if args.release and len(args.to) != 1:
        parser.error("--release needs --before back and one --to")
    options = Options(
        before=args.before,
        go_operators=tuple(args.to or GO_OPERATORS) if args.before is Before.BACK else (),
        release=args.release,
        namespace=args.namespace,
        gang_scheduler=args.gang_scheduler_name,
        image=args.image,
        pull=args.pull,
        field_manager=args.field_manager,
    )
    dates = ServerDates()
    return clusters.execute(
        args,
        partial(_check, options, dates, args.output),
        failure=EXIT_UNREADABLE,
        on_date=dates.observe,
        in_flight=MAX_CONCURRENT_REQUESTS,
    )


async def _check(options: Options, dates: ServerDates, output: str, cluster: Cluster) -> int:
    facts = await read_facts(cluster, options, dates)
    try:
        findings = await all_findings(facts)
    finally:
        facts.worker.shutdown()
    write(document(findings, options) if output == "json" else text(findings))
    return exit_status(findings)


async def all_findings(facts: Facts) -> list[Finding]:
    """Make all checks for what the user is about to do, in parallel, and return what they report in a fixed order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_guarded(name, check, facts)) for name, check in checks(facts)]
    found = [finding for task in tasks for finding in task.result()]
    return list(dict.fromkeys(finding.cleaned() for finding in (*scope_findings(facts.reader), *found)))


def scope_findings(reader: Reader) -> Iterable[Finding]:
    """Yield that only one namespace was read, if the rights for the others are missing."""
    if reader.forbidden:
        yield unknown(
            "scope",
            f"only namespace {reader.namespace} was read: you have no right to list {', '.join(sorted(reader.forbidden))} in all namespaces",
            "ask someone with these rights to run this check, if operators or jobs of other namespaces matter",
        )


def checks(facts: Facts) -> Sequence[tuple[str, Check]]:
    """Return the checks for what the user is about to do, with the subjects under which they report that they cannot be made."""
    found: list[tuple[str, Check]] = [
        ("server", _of(server.version_findings)),
        ("clock", _of(server.clock_findings)),
        ("operators", _of(_operators)),
        ("leases", _of(_leases)),
        ("CRDs", definitions.definition_findings),
        ("stored versions", _of(definitions.stored_version_findings)),
        ("webhooks", definitions.webhook_findings),
        ("jobs", _jobs),
    ]
    if facts.before in {None, Before.UPGRADE}:
        found += [("rights", rights.right_findings), ("operators", admission.operator_state_findings)]
    if facts.before in {None, Before.UPGRADE, Before.SWITCH}:
        found += [
            ("admission", admission.operator_pod_findings),
            ("schedulers", schedulers.scheduler_findings),
            ("image", admission.pull_findings),
        ]
    if facts.before in {Before.UPGRADE, Before.SWITCH}:
        found += [("installation", rights.install_findings), ("installation", rights.binding_findings)]
    if facts.before is Before.UPGRADE:
        found.append(("conflicts", upgrade.conflict_findings))
    if facts.before in {Before.UPGRADE, Before.UNINSTALL}:
        found.append(("installation", upgrade.tool_findings))
    return found


def _of(check: Callable[[Facts], Iterable[Finding]]) -> Check:
    """Return a check that reads nothing more as one that may."""

    async def findings(facts: Facts) -> AsyncIterator[Finding]:
        for finding in check(facts):
            yield finding

    return findings


def _operators(facts: Facts) -> Iterable[Finding]:
    leases = () if facts.leases.error else facts.leases.get()
    return operator_findings(facts.operators, leases, facts.before, facts.now, version("rallypoint"))


def _leases(facts: Facts) -> Iterable[Finding]:
    return lease_findings(facts.leases.get(), facts.operators, facts.now)


async def _jobs(facts: Facts) -> AsyncIterator[Finding]:
    """Read the jobs, then make all checks that use them. Without the right to read them, Kueue is still checked."""
    scan = await fact(jobs.scan_jobs(facts))
    if scan.error is not None:
        yield unreadable("jobs", scan.error)
        unfinished: Sequence[jobs.JobSummary] = ()
    else:
        unfinished = scan.get().unfinished
        async for finding in _until_refused("jobs", jobs.job_findings(facts, scan.get())):
            yield finding
    kueue_findings = (
        schedulers.queued_job_findings
        if facts.before in {Before.BACK, Before.UNINSTALL}
        else schedulers.kueue_findings
    )
    async for finding in _until_refused("kueue", kueue_findings(facts, unfinished)):
        yield finding
    if facts.before in {None, Before.UPGRADE, Before.SWITCH}:
        async for finding in _until_refused("rights", rights.component_findings(facts, unfinished)):
            yield finding
        async for finding in _until_refused("admission", admission.job_pod_findings(facts, unfinished)):
            yield finding


async def _until_refused(name: str, findings: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """Yield the findings; if the rest cannot be read, yield that."""
    try:
        async for finding in findings:
            yield finding
    except ERRORS as error:
        yield unreadable(name, error)


async def _guarded(name: str, check: Check, facts: Facts) -> list[Finding]:
    return [finding async for finding in _until_refused(name, check(facts))]


_SHOWN = (Level.BLOCKER, Level.WARNING, Level.UNKNOWN)


def text(findings: Sequence[Finding]) -> str:
    """Return one line per finding, its remedy below, and the number of those that need attention."""
    columns = Columns(["LEVEL", "CHECK", "FINDING"])
    rows: list[list[str]] = []
    for finding in findings:
        rows.append([finding.level, finding.check, finding.text])
        if finding.remedy:
            rows.append(["", "", f"Remedy: {finding.remedy}"])
    counts = {level: sum(finding.level is level for finding in findings) for level in _SHOWN}
    summary = ", ".join(
        f"{count} {level if level is Level.UNKNOWN or count == 1 else f'{level}s'}"
        for level, count in counts.items()
        if count
    )
    return f"{columns.text(rows)}\n{summary or 'Everything is ok'}.\n"


def document(findings: Sequence[Finding], options: Options) -> str:
    """Return the findings as JSON."""
    counts = {level.value: sum(finding.level is level for finding in findings) for level in Level}
    found = {
        "before": options.before,
        "version": version("rallypoint"),
        "counts": counts,
        "findings": [
            {"check": finding.check, "level": finding.level, "text": finding.text, "remedy": finding.remedy}
            for finding in findings
        ],
    }
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() + "\n"
