"""The configuration of a run from flags, and the part that the worker gets."""

import argparse
from pathlib import Path
from typing import Any

import msgspec

from bench.nccl.formulas import COLLECTIVES
from bench.nccl.perftable import TYPES
from bench.nccl.schema import Fault, RunConfig
from bench.nccl.sizes import parse, spelled, sweep

DTYPES = tuple(TYPES.values())
IN_PLACE_CHOICES = {"in": [True], "out": [False], "both": [False, True]}
MAX_SIZE_BYTES = {"nccl": 8 << 30, "gloo": 4 << 20}
PAIR_BYTES = {"nccl": 256 << 20, "gloo": 1 << 20}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of job kind, ranks, backend and repetitions."""
    parser.add_argument(
        "--via",
        choices=("pytorchjob", "mpijob"),
        default="pytorchjob",
        help="kind of the job; default pytorchjob",
    )
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="pods with GPUs; default 1")
    parser.add_argument("--gpus", type=positive, default=1, metavar="G", help="ranks per pod; default 1")
    parser.add_argument(
        "--backend",
        choices=("nccl", "gloo"),
        default="nccl",
        help="nccl between GPUs, or gloo between CPUs; default nccl",
    )
    parser.add_argument(
        "--share-gpu", action="store_true", help="let ranks share GPUs and communicate through sockets"
    )
    parser.add_argument(
        "--warmup", type=positive, default=5, metavar="N", help="calls before a size is timed; default 5"
    )
    parser.add_argument(
        "--iterations", type=positive, default=20, metavar="N", help="calls per round; default 20"
    )
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="rounds per size; default 5")


def add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min", type=size, default=8, metavar="SIZE", help="smallest size in bytes; default 8"
    )
    parser.add_argument(
        "--max", type=size, metavar="SIZE", help="largest size in bytes; default 8G, with gloo 4M"
    )
    parser.add_argument(
        "--factor", type=positive, default=2, metavar="N", help="ratio between sizes; default 2"
    )
    parser.add_argument(
        "--collectives",
        type=_listed(COLLECTIVES),
        default=["all_reduce"],
        metavar="LIST",
        help=f"collectives to measure: all, or some of {','.join(COLLECTIVES)}; default all_reduce",
    )
    parser.add_argument(
        "--dtypes",
        type=_listed(DTYPES),
        default=["float32"],
        metavar="LIST",
        help=f"data types to measure: all, or some of {','.join(DTYPES)}; default float32",
    )
    parser.add_argument(
        "--in-place",
        choices=tuple(IN_PLACE_CHOICES),
        default="both",
        help="forms to measure, if torch has them; default both",
    )
    parser.add_argument(
        "--pairs", action="store_true", help="also measure all pairs of ranks, and name slow ones"
    )
    parser.add_argument(
        "--pair-size", type=size, metavar="SIZE", help="size in bytes for --pairs; default 256M, with gloo 1M"
    )
    parser.add_argument(
        "--nccl-tests",
        default="",
        metavar="DIR",
        help="run the programs of nccl-tests from this folder of the image",
    )
    parser.add_argument(
        "--inject-fault",
        type=parse_fault,
        dest="fault",
        metavar="KIND:RANK",
        help="inject a fault: slow:2, die:1 or corrupt:0",
    )


def common_from_flags(args: argparse.Namespace) -> RunConfig:
    """Return the configuration that every command has flags for."""
    names = ("via", "backend", "nodes", "gpus", "warmup", "iterations", "rounds", "share_gpu", "image")
    manifest = Path(args.manifest).name if args.manifest else ""
    return msgspec.convert({name: getattr(args, name) for name in names} | {"manifest": manifest}, RunConfig)


def from_flags(args: argparse.Namespace) -> RunConfig:
    """Return the configuration. Raises ValueError for flags that exclude each other."""
    if args.nccl_tests and args.via != "mpijob":
        raise ValueError("--nccl-tests needs --via mpijob: mpirun starts its programs")
    if args.nccl_tests and (args.pairs or args.fault or args.backend == "gloo" or args.share_gpu):
        raise ValueError("--nccl-tests excludes --pairs, --inject-fault, --share-gpu and --backend gloo")
    if args.fault and args.fault.rank >= args.nodes * args.gpus:
        raise ValueError(f"--inject-fault: there is no rank {args.fault.rank} among {args.nodes * args.gpus}")
    pair_bytes = (args.pair_size or PAIR_BYTES[args.backend]) if args.pairs else 0
    return msgspec.structs.replace(
        common_from_flags(args),
        collectives=args.collectives,
        dtypes=args.dtypes,
        in_place=IN_PLACE_CHOICES[args.in_place],
        sizes=sweep(args.min, args.max or MAX_SIZE_BYTES[args.backend], args.factor),
        pair_bytes=pair_bytes if args.nodes * args.gpus > 1 else 0,
        nccl_tests=args.nccl_tests,
        fault=args.fault,
    )


def worker_task(config: RunConfig) -> dict[str, Any]:
    """Return the worker's part as a JSON object."""
    names = (
        "backend", "share_gpu", "sizes", "collectives", "dtypes", "in_place", "warmup", "iterations", "rounds",
        "pair_bytes", "fault",
    )  # fmt: skip
    task: dict[str, Any] = msgspec.to_builtins({name: getattr(config, name) for name in names})
    return task


def perf_arguments(config: RunConfig, dtype: str) -> list[str]:
    """Return the arguments for a program of nccl-tests, which has one factor and no rounds."""
    factor = config.sizes[1] // config.sizes[0] if len(config.sizes) > 1 else 2
    theirs = next(name for name, ours in TYPES.items() if ours == dtype)
    span = ["-b", spelled(config.sizes[0]), "-e", spelled(config.sizes[-1]), "-f", str(factor)]
    return [*span, "-g", "1", "-d", theirs, "-w", str(config.warmup), "-n", str(config.iterations), "-c", "1"]


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def size(text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_fault(text: str) -> Fault:
    kind, _, rank = text.partition(":")
    try:
        return msgspec.convert({"kind": kind, "rank": int(rank)}, Fault)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not slow:RANK, die:RANK or corrupt:RANK") from None


def _listed(known: tuple[str, ...]) -> Any:
    def parsed(text: str) -> list[str]:
        words = list(known) if text == "all" else text.split(",")
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return words

    return parsed
