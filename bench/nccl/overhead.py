"""``bench overhead``: alternate the same ranks by hand and through the operator on this machine."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from bench import record
from bench.nccl import cluster, exit_status, manual_baseline, measurement, run_config
from bench.nccl.cluster import Cluster
from bench.nccl.log_parser import LogParser
from bench.nccl.schema import VERSION, Overhead, RunConfig, Start
from bench.subparsers import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "overhead",
        help="measure the operator's overhead for a job: start time and bandwidth",
        description="Run the same collectives in turn by torchrun or mpirun by hand, and as a job in local mode.",
        epilog="Exit status: 0; 1 measurement failed; 2 invalid flags; 130 interrupted.",
    )
    run_config.add_flags(parser)
    run_config.add_sweep(parser)
    parser.add_argument(
        "--runs",
        type=run_config.positive,
        default=5,
        metavar="N",
        help="runs of each way to start the ranks; default 5",
    )
    measurement.add_flags(parser)
    cluster.add_isolation(parser)
    exit_status.add_flags(parser)
    # Both ways need one machine; pairs, faults and nccl-tests measure nothing of the operator.
    parser.set_defaults(execute=execute, kubeconfig="", in_cluster=False, namespace="")


def execute(args: argparse.Namespace) -> int:
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        config = run_config.from_flags(args)
        if args.nccl_tests or args.fault or args.pairs or args.nodes > 1:
            raise ValueError("overhead needs one node, and no --pairs, --inject-fault or --nccl-tests")
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
    """Fill ``starts``. Return why they are incomplete (empty if complete)."""
    task = run_config.worker_task(config)
    for number in range(args.runs):
        # Alternate, so that other load on the machine affects both; each is first equally often.
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
