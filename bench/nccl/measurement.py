"""One run as a job: from what is asked for to what was gathered."""

import argparse
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.nccl import manifest
from bench.nccl.cluster import Cluster
from bench.nccl.log_parser import LogParser
from bench.nccl.manifest import JobOptions
from bench.nccl.run_config import positive
from bench.nccl.schema import RunConfig
from bench.nccl.submission import Submission, Timeouts


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Of the job itself."""
    parser.add_argument("--image", default="", help="with torch in it; default: the manifest's")
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="what the job is made from: a file, or one of bench/manifests, such as h200-ib",
    )
    parser.add_argument(
        "--python", default="python", metavar="PATH", help="interpreter in the pods that has torch"
    )
    parser.add_argument(
        "--gpu-resource",
        default=manifest.GPU,
        metavar="NAME",
        help=f"that pods ask for; may be empty; default {manifest.GPU}",
    )
    parser.add_argument("--name", default="", help="of the job; default: a new one")
    parser.add_argument(
        "--start-timeout",
        type=positive,
        default=600,
        metavar="S",
        help="until the first rank runs; default 600",
    )
    parser.add_argument(
        "--timeout", type=positive, default=3600, metavar="S", help="from then on; default 3600"
    )


async def measure(
    target: Cluster,
    args: argparse.Namespace,
    config: RunConfig,
    task: dict[str, Any],
    progress: Callable[[str], None],
) -> tuple[LogParser, str]:
    """What was gathered, and why it is not all; empty when it is.

    Raises:
        InvalidManifest: the manifest cannot be used.
        ApiError: the cluster refuses the job.
    """
    base = manifest.read(args.manifest, config.via) if args.manifest else None
    options = JobOptions(
        args.name or f"nccl-{secrets.token_hex(3)}",
        args.python,
        args.start_timeout + args.timeout,
        args.gpu_resource,
    )
    job, log_parser = manifest.job(config, options, task, base), LogParser(config)
    submission = Submission(target, log_parser, Timeouts(args.start_timeout, args.timeout), progress)
    return log_parser, await submission.run(job, task)
