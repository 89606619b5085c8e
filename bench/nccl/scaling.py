"""``bench scaling``: the same training on 1, 2, 4, ... nodes."""

import argparse
from datetime import UTC, datetime
from statistics import median
from typing import Any, get_args

import msgspec
from rich.console import Console

from bench import record
from bench.nccl import cluster, exit_status, measurement, run_config
from bench.nccl.cluster import Cluster
from bench.nccl.schema import VERSION, Scaling, ScalingRun, Via
from bench.subparsers import Subparsers

MODELS = ("resnet50", "small")
KINDS = get_args(Via)[:2]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "scaling",
        help="measure images per second of a fixed model over nodes",
        description="Train a fixed model with DistributedDataParallel on generated images on 1, 2, 4, ... nodes.",
        epilog="Exit status: 0; 1 measurement failed or is incomplete; 2 invalid flags; 130 interrupted.",
    )
    run_config.add_flags(parser)
    parser.add_argument("--also-mpijob", action="store_true", help="run an MPIJob as well as a PyTorchJob")
    parser.add_argument(
        "--model", choices=MODELS, default="resnet50", help="model to train; default resnet50"
    )
    parser.add_argument(
        "--batch",
        type=run_config.positive,
        default=64,
        metavar="N",
        help="images per rank and step; default 64",
    )
    measurement.add_flags(parser)
    cluster.add_flags(parser)
    exit_status.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    return exit_status.run(args, lambda: _measure(args, errors), errors)


def numbers(most: int) -> list[int]:
    """Return 1, 2, 4, ... and ``most``."""
    found = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*found, most]


async def _measure(args: argparse.Namespace, errors: Console) -> int:
    began, runs, why = datetime.now(UTC), list[ScalingRun](), ""
    async with cluster.connect(args) as target:
        for via in KINDS if args.also_mpijob else (args.via,):
            for nodes in numbers(args.nodes):
                if not why:
                    run, why = await _run(target, args, via, nodes, errors)
                    runs += [run] if run else []
        status = exit_status.INTERRUPTED if target.stop.is_set() else int(bool(why))
    document = Scaling(
        schema_version=VERSION,
        state="partial" if why else "complete",
        why=why,
        started=began.isoformat(timespec="seconds"),
        commit=record.commit(),
        environment=record.environment(),
        backend=args.backend,
        gpus=args.gpus,
        model=args.model,
        batch=args.batch,
        share_gpu=args.share_gpu,
        runs=runs,
    )
    exit_status.show(args, "scaling", document, errors)
    if why:
        errors.print(f"the run is partial: {why}", style="red", markup=False)
    return status


async def _run(
    target: Cluster, args: argparse.Namespace, via: Via, nodes: int, errors: Console
) -> tuple[ScalingRun | None, str]:
    def progress(line: str) -> None:
        errors.print(line, markup=False)

    config = msgspec.structs.replace(run_config.common_from_flags(args), via=via, nodes=nodes)
    task: dict[str, Any] = msgspec.to_builtins(run_config.worker_task(config)) | {
        "model": args.model,
        "batch": args.batch,
    }
    log_parser, why = await measurement.measure(target, args, config, task, progress)
    if why or log_parser.world is None:
        return None, why
    rates = log_parser.trained["images_per_second"]
    progress(f"{via}, {nodes} nodes: {median(rates):,.1f} images/s")
    return ScalingRun(via, nodes, log_parser.world.ranks, rates, log_parser.world.values("device")), ""
