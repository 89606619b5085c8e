"""What the commands share that are a site themselves, ``run`` and ``up``."""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from controller.local.node.choice import Wanted
from controller.local.site import Site
from controller.runtime import clock
from controller.settings import Settings

SETTINGS = Settings(metrics_bind_address="0", health_probe_bind_address="0")
"""The controller's own defaults, but no ports."""


def add_isolation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolation",
        choices=get_args(Wanted),
        default="auto",
        help="what separates pods: Linux namespaces, or nothing but addresses on loopback "
        "(default: auto, namespaces where they can be had)",
    )
    parser.add_argument(
        "--egress",
        action="store_true",
        help="give pods in namespaces a way out of the machine: an HTTP proxy, in the usual variables",
    )


def run_folder(wanted: Path | None) -> Path:
    """The folder of this run, made now: in the working directory, or in the person's state where that is read-only.

    Absolute: processes of pods work elsewhere, and get paths in it.

    Raises:
        OSError: it cannot be made.
    """
    name = f"{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    choices = (
        [wanted] if wanted else [Path(".rallypoint") / "runs" / name, state / "rallypoint" / "runs" / name]
    )
    for choice in choices[:-1]:
        with contextlib.suppress(OSError):
            choice.mkdir(parents=True, exist_ok=True)
            return choice.resolve()
    choices[-1].mkdir(parents=True, exist_ok=True)
    return choices[-1].resolve()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: a thread less for each process."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def end_by_signal(here: Site, stop: asyncio.Event) -> None:
    """From now on the first signal asks for the end, and a second one kills."""

    def interrupt() -> None:
        if stop.is_set():
            here.node.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


def greeting(here: Site) -> str:
    return (
        f"local node with {here.isolation}; images are not pulled: commands run on this "
        f"machine, in this environment (python is {sys.executable})"
    )
