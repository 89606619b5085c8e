"""``python -m bench`` and ``rallypoint-bench``: one subcommand for each benchmark, and ``show`` for recorded runs."""

import argparse
import sys
from collections.abc import Sequence

try:
    from bench import (
        checkpoints,
        cluster,
        events,
        handover,
        history,
        in_place,
        kubelet_restarts,
        local,
        lost_nodes,
        many,
        metrics,
        recovery,
        relist,
        show,
        templates,
        tracing,
    )
    from bench.controlplane import command as controlplane
    from bench.nccl import command as nccl
    from bench.nccl import compare, overhead, scaling
except ModuleNotFoundError as missing:
    sys.exit(
        f"{missing}: benchmarks need the extra testing; in a checkout: pip install ./deploy/operator '.[testing]'"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand and return its exit status: 0, or 1 if the measurement failed."""
    parser = argparse.ArgumentParser(
        prog="rallypoint-bench", description="Run a benchmark. bench/README.md defines the figures."
    )
    subparsers = parser.add_subparsers(required=True, metavar="SUBJECT")
    checkpoints.add_parser(subparsers)
    cluster.add_parser(subparsers)
    controlplane.add_parser(subparsers)
    events.add_parser(subparsers)
    handover.add_parser(subparsers)
    history.add_parser(subparsers)
    in_place.add_parser(subparsers)
    kubelet_restarts.add_parser(subparsers)
    local.add_parser(subparsers)
    lost_nodes.add_parser(subparsers)
    many.add_parser(subparsers)
    metrics.add_parser(subparsers)
    recovery.add_parser(subparsers)
    relist.add_parser(subparsers)
    show.add_parser(subparsers)
    templates.add_parser(subparsers)
    tracing.add_parser(subparsers)
    for command in (nccl, scaling, overhead, compare):
        command.add_parser(subparsers)
    args = parser.parse_args(argv)
    status: int = args.execute(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
