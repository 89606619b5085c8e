"""A site without a controller, for ``bench local``: ``python -m bench.site --isolation auto``, until SIGTERM."""

import argparse
import asyncio
import sys
from pathlib import Path

import yaml

from controller.cli.here import add_isolation, end_by_signal, loop_factory
from controller.crds import all_crds
from controller.local.site import Door, site


def main() -> None:
    parser = argparse.ArgumentParser()
    add_isolation(parser)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_stay(parser.parse_args()))


async def _stay(args: argparse.Namespace) -> None:
    stop, folder = asyncio.Event(), Path.cwd()
    async with site(all_crds(), folder, isolation=args.isolation, door=Door(tls=True)) as here:
        end_by_signal(here, stop)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(dict(here.kubeconfig)))
        sys.stdout.write(f"export KUBECONFIG={kubeconfig}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
