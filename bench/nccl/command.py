"""``bench nccl``: sweep, show, record, and judge."""

import argparse

from rich.console import Console

from bench.nccl import cluster, exit_status, gate, measurement, run_config
from bench.nccl.references import REFERENCES
from bench.nccl.schema import Record, RunConfig


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "nccl",
        help="bandwidth of collectives between GPUs, by a job",
        description="Run collectives over all sizes in a PyTorchJob or an MPIJob, and show what they reach.",
        epilog="Exit status: 0; 1 it could not be measured, something is wrong or too slow; 2 flags; 130 interrupted.",
    )
    run_config.add_flags(parser)
    run_config.add_sweep(parser)
    measurement.add_flags(parser)
    cluster.add_flags(parser)
    exit_status.add_flags(parser)
    parser.add_argument(
        "--min-busbw", type=float, metavar="GB/S", help="exit 1 when the best size reaches less"
    )
    parser.add_argument(
        "--reference", choices=tuple(REFERENCES), help="exit 1 when it is slower than such hardware"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=gate.DEFAULT_SHARE,
        metavar="SHARE",
        help="of the reference; default 0.9",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        config = run_config.from_flags(args)
    except ValueError as error:
        errors.print(f"rallypoint-bench: {error}", markup=False)
        return exit_status.USAGE_ERROR
    return exit_status.run(args, lambda: _measure(args, config, errors), errors)


async def _measure(args: argparse.Namespace, config: RunConfig, errors: Console) -> int:
    def progress(line: str) -> None:
        errors.print(line, markup=False)

    async with cluster.connect(args) as target:
        log_parser, why = await measurement.measure(
            target, args, config, run_config.worker_task(config), progress
        )
        record = log_parser.record(why)
        ended = exit_status.INTERRUPTED if target.stop.is_set() else 0
    exit_status.show(args, "nccl", record, errors)
    problems = find_problems(args, record)
    for problem in problems:
        errors.print(problem, style="red", markup=False)
    return ended or int(bool(problems))


def find_problems(args: argparse.Namespace, record: Record) -> list[str]:
    reference = REFERENCES[args.reference] if args.reference else None
    return gate.find_problems(record, min_busbw=args.min_busbw, reference=reference, within=args.within)
