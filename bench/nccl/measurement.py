"""One run as a job, from the configuration to the results."""

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
    """Add the flags of the job."""
    parser.add_argument("--image", default="", help="image with torch; default: the manifest's")
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="manifest to derive the job from: a file, or a name from bench/manifests such as h200-ib",
    )
    parser.add_argument(
        "--python", default="python", metavar="PATH", help="interpreter with torch in the pods"
    )
    parser.add_argument(
        "--gpu-resource",
        default=manifest.GPU,
        metavar="NAME",
        help=f"resource that pods request for their GPUs, or empty; default {manifest.GPU}",
    )
    parser.add_argument("--name", default="", help="name of the job; default: generated")
    parser.add_argument(
        "--start-timeout",
        type=positive,
        default=600,
        metavar="S",
        help="seconds until the first rank runs; default 600",
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=3600,
        metavar="S",
        help="seconds from the start of the first rank to the end of the job; default 3600",
    )


async def measure(
    target: Cluster,
    args: argparse.Namespace,
    config: RunConfig,
    task: dict[str, Any],
    progress: Callable[[str], None],
) -> tuple[LogParser, str]:
    """Return the results, and why they are incomplete (empty if complete).

    Raises:
        InvalidManifest: the manifest cannot be used.
        ApiError: the API server rejects the job.
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
