"""``python -m rallypoint.testing.controlplane``: ``build``, ``oldest`` and ``newest`` get the programs, ``up`` runs a control plane."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rallypoint.testing.controlplane import binaries, flags
from rallypoint.testing.controlplane.access import User
from rallypoint.testing.controlplane.plane import ControlPlane
from rallypoint.testing.controlplane.process import ProcessFailed
from rallypoint.testing.controlplane.programs import (
    NEWEST_KUBERNETES,
    OLDEST_KUBERNETES,
    PROGRAMS,
    USUAL,
    Unavailable,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a program is missing or does not start."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (Unavailable, ProcessFailed) as error:
        binaries.say_on_stderr(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rallypoint.testing.controlplane", description=__doc__)
    commands = parser.add_subparsers(required=True)

    build = commands.add_parser("build", help="find, download or compile the programs")
    build.add_argument(
        "programs", nargs="*", default=USUAL, help=f"default: {' '.join(USUAL)}; also: {_others()}"
    )
    build.set_defaults(command=_build)
    for name, version, which in (
        ("oldest", OLDEST_KUBERNETES, "the oldest Kubernetes supported"),
        ("newest", NEWEST_KUBERNETES, "a Kubernetes newer than that of the tests"),
    ):
        servers = commands.add_parser(name, help=f"download or compile the servers of v{version}, {which}")
        servers.set_defaults(command=_servers, version=version)

    up = commands.add_parser("up", help="run a control plane until Ctrl-C")
    up.add_argument(
        "--user",
        action="append",
        default=[],
        help="create a user without rights, and its kubeconfig; repeatable",
    )
    up.add_argument(
        "--controllers",
        default=",".join(flags.TEST_CONTROLLERS),
        help="controllers of kube-controller-manager; empty for none",
    )
    up.add_argument(
        "--no-service-account-admission",
        action="store_true",
        help="admit pods whose ServiceAccount does not exist",
    )
    up.add_argument("--audit-policy", type=Path, help="file with an audit policy")
    up.add_argument("--audit-log", type=Path, help="file of the audit log")
    up.add_argument("--nodes", type=int, default=0, help="number of simulated nodes")
    up.add_argument("--stages", type=Path, help="file with kwok's Stages for pods and nodes")
    up.add_argument("--scheduler", action="store_true", help="run kube-scheduler")
    up.set_defaults(command=_up)
    return parser


def _others() -> str:
    return " ".join(name for name in PROGRAMS if name not in USUAL)


def _build(options: argparse.Namespace) -> int:
    started = time.monotonic()
    for name, path in binaries.ensure(options.programs).items():
        sys.stdout.write(f"{name}: {path}\n")
    binaries.say_on_stderr(f"Control plane ready after {time.monotonic() - started:.0f} s")
    return 0


def _servers(options: argparse.Namespace) -> int:
    sys.stdout.write(f"export KUBEBUILDER_ASSETS={binaries.servers_of(options.version)}\n")
    return 0


def _up(options: argparse.Namespace) -> int:
    # SIGINT as well: a shell lets its background jobs ignore it, and Python would then leave it so.
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, _interrupt)
    plane = ControlPlane(
        users=[User(name) for name in options.user],
        controllers=[name for name in options.controllers.split(",") if name],
        service_account_admission=not options.no_service_account_admission,
        audit_policy=options.audit_policy.read_text() if options.audit_policy else "",
        audit_log=options.audit_log,
        nodes=options.nodes,
        stages=options.stages,
        scheduler=options.scheduler,
    )
    with plane:
        for user in plane.users:
            sys.stdout.write(f"kubeconfig of {user}: {plane.kubeconfig(user)}\n")
        if plane.audit_log:
            sys.stdout.write(f"audit log: {plane.audit_log}\n")
        sys.stdout.write(f"server: {plane.server}\nlogs: {plane.directory / 'logs'}\nCtrl-C ends it.\n")
        sys.stdout.flush()
        while True:
            for process in plane.processes.values():
                process.check()
            time.sleep(1)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
