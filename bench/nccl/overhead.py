"""``bench overhead``: the same ranks by hand and through the operator, in turn, on this machine."""

import argparse
from datetime import UTC, datetime

from rich.console import Console

from bench import record
from bench.nccl import cluster, exit_status, manual_baseline, measurement, run_config
from bench.nccl.cluster import Cluster
from bench.nccl.log_parser import Gathering
from bench.nccl.schema import VERSION, Asked, Overhead, Start


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
        asked = run_config.asked(args)
        if args.nccl_tests or args.drill or args.pairs or args.nodes > 1:
            raise ValueError("it is measured on one node, without --pairs, --drill and --nccl-tests")
    except ValueError as error:
        errors.print(f"rallypoint-bench: {error}", markup=False)
        return exit_status.REFUSED
    return exit_status.run(args, lambda: _measure(args, asked, errors), errors)


async def _measure(args: argparse.Namespace, asked: Asked, errors: Console) -> int:
    began, starts = datetime.now(UTC), list[Start]()
    async with cluster.cluster(args) as here:
        why = await _in_turn(here, args, asked, starts, errors)
        status = exit_status.INTERRUPTED if here.stop.is_set() else int(bool(why))
    made = Overhead(
        schema_version=VERSION,
        state="partial" if why else "complete",
        why=why,
        started=began.isoformat(timespec="seconds"),
        commit=record.commit(),
        environment=record.environment(),
        asked=asked,
        starts=starts,
    )
    exit_status.show(args, "overhead", made, errors)
    if why:
        errors.print(f"the run is partial: {why}", style="red", markup=False)
    return status


async def _in_turn(
    here: Cluster, args: argparse.Namespace, asked: Asked, starts: list[Start], errors: Console
) -> str:
    """Fill in the starts. Why they are not all; empty when they are."""
    task = run_config.task(asked)
    for number in range(args.runs):
        # In turn, so that what the machine does beside it meets both; and each as often first as second.
        for by_hand in (True, False) if number % 2 == 0 else (False, True):
            way = "by hand" if by_hand else "through the operator"
            gathering, why = (
                await manual_baseline.measure(args.python, asked, task, args.timeout, here.stop)
                if by_hand
                else await measurement.measure(here, args, asked, task, lambda _: None)
            )
            if why:
                return f"run {number + 1} {way}: {why}"
            starts.append(start(gathering, by_hand=by_hand))
            errors.print(
                f"{number + 1} of {args.runs} {way}: first collective after {starts[-1].stamps['first']:.2f} s"
            )
    return ""


def start(gathering: Gathering, *, by_hand: bool) -> Start:
    stamps = gathering.world.stamps if gathering.world else {}
    since = {name: round(at - gathering.submitted, 4) for name, at in stamps.items()}
    return Start(by_hand=by_hand, stamps=since, points=gathering.points)
