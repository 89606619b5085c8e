"""A site without a controller, for ``bench local``: ``python -m bench.site --isolation auto``, until SIGTERM."""

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

import yaml

from rallypoint.cli import here
from rallypoint.local import private
from rallypoint.local.site import Door


def main() -> None:
    parser = argparse.ArgumentParser()
    here.add_flags(parser)
    with asyncio.Runner(loop_factory=here.loop_factory()) as runner:
        runner.run(_stay(parser.parse_args()))


async def _stay(args: argparse.Namespace) -> None:
    stop, folder = asyncio.Event(), Path.cwd()
    async with here.opened(args, folder, Door(tls=True)) as site:
        here.end_by_signal(site, stop)
        kubeconfig = folder / "kubeconfig"
        private.file(kubeconfig).write_text(yaml.safe_dump(dict(site.kubeconfig)))
        sys.stdout.write(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
