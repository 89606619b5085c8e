"""Which isolations this machine has, and what processes a test has left on it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rallypoint.local.node.sandbox.selection import IsolationMode

MARK = "RALLYPOINT_TEST"
"""Every process that a test starts inherits it: helpers, and pods as part of the user's environment."""


def allowed() -> bool:
    """Return whether the kernel allows namespaces, without our own code."""
    ask = shutil.which("unshare")
    kinds = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc")
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return (
        ask is not None and subprocess.run([ask, *user, *kinds, "true"], capture_output=True).returncode == 0
    )


ALLOWED = allowed()
ISOLATIONS: list[IsolationMode] = ["loopback", "namespaces"] if ALLOWED else ["loopback"]
"""Where namespaces are forbidden, ``test_choice`` sees to it that this is noticed and said."""


@pytest.fixture
def isolations() -> list[IsolationMode]:
    """Those that this machine has, the best one last."""
    return ISOLATIONS


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> IsolationMode:
    wanted: IsolationMode = request.param
    return wanted


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The command lines of processes that the test has started, at any remove, and that run."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield lambda: [line for _, line in _marked(str(tmp_path))]
    for process, _ in _marked(str(tmp_path)):
        process.kill()


def _marked(mark: str) -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process, " ".join(process.cmdline())
        except psutil.Error:
            continue
