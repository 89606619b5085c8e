"""``bench nccl``: sweep, show, record, and check against requirements."""

import argparse

from rich.console import Console

from bench.nccl import cluster, exit_status, gate, measurement, run_config
from bench.nccl.references import REFERENCES
from bench.nccl.schema import Record, RunConfig
from bench.subparsers import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "nccl",
        help="measure the bandwidth of collectives between GPUs, in a job",
        description="Run collectives of all sizes in a PyTorchJob or an MPIJob, and show their bandwidth.",
        epilog="Exit status: 0; 1 measurement failed, wrong elements or too slow; 2 invalid flags; 130 interrupted.",
    )
    run_config.add_flags(parser)
    run_config.add_sweep(parser)
    measurement.add_flags(parser)
    cluster.add_flags(parser)
    exit_status.add_flags(parser)
    parser.add_argument(
        "--min-busbw", type=float, metavar="GB/S", help="exit 1 if the best bus bandwidth is below this value"
    )
    parser.add_argument(
        "--reference", choices=tuple(REFERENCES), help="exit 1 if all_reduce is slower than on this hardware"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=gate.DEFAULT_SHARE,
        metavar="SHARE",
        help="share of the reference that all_reduce must reach; default 0.9",
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
