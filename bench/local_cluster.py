"""A local cluster without a controller, for ``bench local``.

python -m bench.local_cluster --isolation auto    # until SIGTERM
"""

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

import yaml

from rallypoint.cli import local_flags
from rallypoint.local import private
from rallypoint.local.cluster import ServerConfig


def main() -> None:
    parser = argparse.ArgumentParser()
    local_flags.add_flags(parser)
    with asyncio.Runner(loop_factory=local_flags.loop_factory()) as runner:
        runner.run(_stay(parser.parse_args()))


async def _stay(args: argparse.Namespace) -> None:
    stop, folder = asyncio.Event(), Path.cwd()
    async with local_flags.open_cluster(args, folder, ServerConfig(tls=True)) as cluster:
        local_flags.stop_on_signal(cluster, stop)
        kubeconfig = folder / "kubeconfig"
        private.file(kubeconfig).write_text(yaml.safe_dump(dict(cluster.kubeconfig)))
        sys.stdout.write(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
