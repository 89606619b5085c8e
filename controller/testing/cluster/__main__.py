"""``python -m controller.testing.cluster``: ``check`` looks at the machine, ``build`` gets the programs, ``up`` runs a cluster, ``down`` ends it."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from controller.testing.cluster import system
from controller.testing.cluster.cluster import Cluster, cache, check, sweep
from controller.testing.cluster.installation import install
from controller.testing.controlplane import ProcessFailed, Unavailable, binaries
from controller.testing.controlplane.programs import NODE, USUAL

_DOWN_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 when something is missing or does not come up."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (Unavailable, ProcessFailed, subprocess.CalledProcessError) as error:
        binaries.say_on_stderr(f"error: {error}\n{getattr(error, 'stderr', None) or ''}")
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controller.testing.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("build", help="find, download or compile the programs").set_defaults(command=_build)
    commands.add_parser("check", help="say whether this machine lets a cluster run").set_defaults(
        command=_check
    )
    up = commands.add_parser("up", help="run a cluster with the operator, until Ctrl-C or `down`")
    up.add_argument("--nodes", type=int, default=2)
    up.add_argument("--detach", action="store_true", help="return when it is up")
    up.set_defaults(command=_up)
    commands.add_parser("down", help="end the cluster and remove what it left").set_defaults(command=_down)
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
        state = {"pid": os.getpid(), "kubeconfig": str(cluster.kubeconfig)}
        _state().write_text(json.dumps(state))
        try:
            sys.stdout.write(
                f"export KUBECONFIG={cluster.kubeconfig}\nkubectl is {cluster.kubectl_program}\n"
            )
            sys.stdout.flush()
            while True:
                cluster.check()
                time.sleep(1)
        finally:
            _state().unlink()


def _detached(options: argparse.Namespace) -> int:
    """Runs the same in a session of its own, and returns when that has written where the cluster is, or has ended."""
    binaries.ensure([*USUAL, *NODE])  # here, where its progress is seen
    _state().unlink(missing_ok=True)
    log = cache() / "cluster.log"
    command = [sys.executable, "-m", "controller.testing.cluster", "up", f"--nodes={options.nodes}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while process.poll() is None and not _state().exists():
        time.sleep(0.2)
    sys.stdout.write(log.read_text())
    return process.returncode or 0


def _down(options: argparse.Namespace) -> int:
    if _state().exists():
        pid = int(json.loads(_state().read_text())["pid"])
        _end(pid)
    sweep(wait_seconds=_DOWN_SECONDS)
    return 0


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        _state().unlink(missing_ok=True)


def _state() -> Path:
    return cache() / "cluster.json"


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
