"""``bench overhead``: the same ranks by hand and through the operator, in turn, on this machine."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from bench import record
from bench.nccl import cluster, exit_status, manual_baseline, measurement, run_config
from bench.nccl.cluster import Cluster
from bench.nccl.log_parser import LogParser
from bench.nccl.schema import VERSION, Overhead, RunConfig, Start


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "overhead",
        help="what the operator costs a job: its start, and its bandwidth",
        description="Run the same collectives by torchrun or mpirun by hand, and as a job in local mode, in turn.",
        epilog="Exit status: 0; 1 it could not be measured; 2 flags; 130 interrupted.",
    )
    run_config.add_flags(parser)
    run_config.add_sweep(parser)
    parser.add_argument("--runs", type=run_config.positive, default=5, metavar="N", help="of each; default 5")
    measurement.add_flags(parser)
    cluster.add_isolation(parser)
    exit_status.add_flags(parser)
    # One machine is what both have; pairs and programs of others say nothing of the operator.
    parser.set_defaults(execute=execute, kubeconfig="", in_cluster=False, namespace="")


def execute(args: argparse.Namespace) -> int:
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        config = run_config.from_flags(args)
        if args.nccl_tests or args.fault or args.pairs or args.nodes > 1:
            raise ValueError("it is measured on one node, without --pairs, --inject-fault and --nccl-tests")
    except ValueError as error:
        errors.print(f"rallypoint-bench: {error}", markup=False)
        return exit_status.USAGE_ERROR
    return exit_status.run(args, lambda: _measure(args, config, errors), errors)


async def _measure(args: argparse.Namespace, config: RunConfig, errors: Console) -> int:
    began, starts = datetime.now(UTC), list[Start]()
    async with cluster.connect(args) as target:
        why = await _in_turn(target, args, config, starts, errors)
        status = exit_status.INTERRUPTED if target.stop.is_set() else int(bool(why))
    document = Overhead(
        schema_version=VERSION,
        state="partial" if why else "complete",
        why=why,
        started=began.isoformat(timespec="seconds"),
        commit=record.commit(),
        environment=record.environment(),
        config=config,
        starts=starts,
    )
    exit_status.show(args, "overhead", document, errors)
    if why:
        errors.print(f"the run is partial: {why}", style="red", markup=False)
    return status


async def _in_turn(
    target: Cluster, args: argparse.Namespace, config: RunConfig, starts: list[Start], errors: Console
) -> str:
    """Fill in the starts. Why they are not all; empty when they are."""
    task = run_config.worker_task(config)
    for number in range(args.runs):
        # In turn, so that what the machine does beside it meets both; and each as often first as second.
        for manual in (True, False) if number % 2 == 0 else (False, True):
            way = "by hand" if manual else "through the operator"
            log_parser, why = (
                await manual_baseline.measure(args.python, config, task, args.timeout, target.stop)
                if manual
                else await measurement.measure(target, args, config, task, lambda _: None)
            )
            if why:
                return f"run {number + 1} {way}: {why}"
            starts.append(start(log_parser, manual=manual))
            errors.print(
                f"{number + 1} of {args.runs} {way}: first collective after {starts[-1].timestamps['first']:.2f} s"
            )
    return ""


def start(log_parser: LogParser, *, manual: bool) -> Start:
    timestamps = log_parser.world.timestamps if log_parser.world else {}
    since = {name: round(at - log_parser.submitted, 4) for name, at in timestamps.items()}
    return Start(manual=manual, timestamps=since, points=log_parser.points)
