"""``python -m rallypoint.testing.cluster``: ``check`` looks at the machine, ``build`` gets the programs, ``up`` runs a cluster,
``down`` ends it; ``example`` prints a manifest of ``examples`` for it.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import psutil
import yaml

from rallypoint.testing.cluster import roots, system
from rallypoint.testing.cluster.cluster import Cluster, cache, check, holder, sweep
from rallypoint.testing.cluster.installation import install
from rallypoint.testing.cluster.machine import Unsuitable
from rallypoint.testing.cluster.workloads import example
from rallypoint.testing.controlplane import ProcessFailed, Unavailable, binaries
from rallypoint.testing.controlplane.programs import NODE, USUAL

_DOWN_SECONDS = 60.0
_MODULE = "rallypoint.testing.cluster"
_UP = "export KUBECONFIG="
"""The start of the line that says that the cluster is up."""
_UNSUITABLE = 3
"""The exit status if this machine allows no cluster."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if something is missing or does not start, 3 if this machine allows no cluster."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (Unavailable, ProcessFailed, subprocess.CalledProcessError) as error:
        binaries.say_on_stderr(f"error: {error}\n{getattr(error, 'stderr', None) or ''}")
        return _UNSUITABLE if isinstance(error, Unsuitable) else 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rallypoint.testing.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("build", help="find, download or compile the programs").set_defaults(command=_build)
    commands.add_parser("check", help="check whether this machine can run a cluster").set_defaults(
        command=_check
    )
    up = commands.add_parser("up", help="run a cluster with the operator, until Ctrl-C or `down`")
    up.add_argument("--nodes", type=int, default=2, help="number of nodes; default: 2")
    up.add_argument("--detach", action="store_true", help="return when the cluster is up")
    up.set_defaults(command=_up)
    shown = commands.add_parser(
        "example", help="print the manifest of an example as the cluster runs it, with its framework mounted"
    )
    folder = roots.REPOSITORY / "examples"
    known = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.yaml"))
    shown.add_argument("manifest", choices=known, metavar="MANIFEST", help=", ".join(known))
    shown.set_defaults(command=_example)
    commands.add_parser("down", help="stop the cluster and remove its remains").set_defaults(command=_down)
    return parser


def _build(options: argparse.Namespace) -> int:
    for name, path in {**binaries.ensure([*USUAL, *NODE]), **system.ensure()}.items():
        sys.stdout.write(f"{name}: {path}\n")
    return 0


def _check(options: argparse.Namespace) -> int:
    check()
    return 0


def _up(options: argparse.Namespace) -> int:
    return _detached(options) if options.detach else _attached(options)


def _attached(options: argparse.Namespace) -> int:
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, _interrupt)
    with Cluster(options.nodes) as cluster:
        install(cluster)
        sys.stdout.write(
            f"{_UP}{shlex.quote(str(cluster.kubeconfig))}\nkubectl is {cluster.kubectl_program}\n"
        )
        sys.stdout.flush()
        while True:
            cluster.check()
            time.sleep(1)


def _detached(options: argparse.Namespace) -> int:
    """Run ``up`` in a session of its own; return when it has printed where the cluster is, or has ended."""
    sweep(wait_seconds=0)
    binaries.ensure([*USUAL, *NODE])  # here, where its progress is seen
    log = cache() / "cluster.log"
    command = [sys.executable, "-m", _MODULE, "up", f"--nodes={options.nodes}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        while process.poll() is None and _UP not in log.read_text():
            time.sleep(0.2)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    sys.stdout.write(log.read_text())
    return process.returncode or 0


def _down(options: argparse.Namespace) -> int:
    """End what ``up`` runs. Report a cluster of tests or of a measurement, and do not end it."""
    running = holder()
    with suppress(psutil.NoSuchProcess):
        if running is not None and running.cmdline()[2:4] == [_MODULE, "up"]:
            running.terminate()
            running.wait(_DOWN_SECONDS)
    sweep(wait_seconds=0)
    return 0


def _example(options: argparse.Namespace) -> int:
    yaml.safe_dump_all(example(options.manifest), sys.stdout, sort_keys=False)
    return 0


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
