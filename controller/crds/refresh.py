"""Update the shipped pod template to the Kubernetes release of an API server. A step of each release of this project.

``python -m controller.crds.refresh --kubeconfig FILE`` rewrites ``kubernetes.json``; ``make crds`` then regenerates the manifests.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.crds.kubernetes import FILE, Release, ask
from controller.kube.client import Client
from controller.kube.connect import connect


async def release_of(kubeconfig: str) -> Release:
    """Return the release of the cluster that ``kubeconfig``, $KUBECONFIG or the pod's ServiceAccount names."""
    async with Client(await connect(kubeconfig)) as client:
        return await ask(client)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m controller.crds.refresh", description=__doc__)
    parser.add_argument("--kubeconfig", default="", help="kubeconfig file; default: $KUBECONFIG")
    parser.add_argument(
        "--file",
        type=Path,
        default=Path(__file__).with_name(FILE),
        help="file to write; default: the shipped one",
    )
    args = parser.parse_args(argv)
    release = asyncio.run(release_of(args.kubeconfig))
    args.file.write_bytes(release.to_json())
    sys.stdout.write(f"{args.file}: {len(release.definitions)} definitions of {release.version}\n")


if __name__ == "__main__":
    main()
