"""Fixtures for all tests: the event loop of pytest and a shared control plane.

A folder says what its tests need: in ``integration``, ``contract`` and ``parity`` time is real, elsewhere async tests
run on fake loop time.
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from aiohttp import web_app
from hypothesis import HealthCheck, settings

from rallypoint.testing.controlplane import ControlPlane, User, binaries
from rallypoint.testing.controlplane.programs import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from tests.support.fake_time import NOOP_CYCLES

_TESTS = Path(__file__).parent
_REAL_TIME = frozenset(
    {
        "chart",
        "contract",
        "explain",
        "integration",
        "monitoring",
        "parity",
        "schedulers",
        "shadow",
        "site",
        "takeover",
        "ui",
        "upgrade",
    }
)
_ORDER = ("controller", "contract", "integration", "parity")
"""Which folders come first. The control plane takes a quarter of a core also while it is idle, so those that have no use for it come
before, and a few of short tests after, with which two processes end at about the same time."""

# How long an example takes is the machine's matter, and no test's.
settings.register_profile("rallypoint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rallypoint")

LONG_TIMEOUT_SECONDS = 1800
"""How long a test marked ``full`` may take; ``make`` limits others to five minutes."""

UNPRIVILEGED = "nobody"
"""A user of the shared control plane to whom nothing is granted."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oldest", action="store_true", help="control planes of the oldest Kubernetes that is supported"
    )
    parser.addoption(
        "--newest", action="store_true", help="control planes of a Kubernetes newer than that of all tests"
    )
    parser.addoption(
        "--without-operator",
        action="store_true",
        help="start no operator in tests/schedulers, and require that each scenario fails",
    )
    parser.addoption(
        "--screenshots", metavar="DIR", help="folder for the pictures of the page, drawn by tests/ui"
    )


def pytest_configure(config: pytest.Config) -> None:
    for option, version in (("oldest", OLDEST_KUBERNETES), ("newest", NEWEST_KUBERNETES)):
        if config.getoption(option):
            os.environ["KUBEBUILDER_ASSETS"] = str(binaries.servers_of(version))
    # Without this, looptime 0.9 makes asyncio create a loop for plain tests, and does not close it.
    asyncio.set_event_loop(None)
    # A shell lets its background jobs ignore interruptions, and every process that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests with the name of their folder where that means real sockets and processes, limits long ones, and puts folders in order."""
    for item in items:
        if (folder := _folder(item)) in _REAL_TIME:
            item.add_marker(folder)
            item.add_marker(pytest.mark.looptime(False))
        else:
            item.add_marker(pytest.mark.looptime(noop_cycles=NOOP_CYCLES))
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_SECONDS))
    items.sort(key=_rank)
    left_out = {"newest", "shipped"} if config.getoption("oldest") else set[str]()
    left_out |= {"shipped"} if config.getoption("newest") else {"newest_only"}
    if unsuitable := [item for item in items if any(map(item.get_closest_marker, left_out))]:
        config.hook.pytest_deselected(items=unsuitable)
        items[:] = [item for item in items if item not in unsuitable]


def _rank(item: pytest.Item) -> int:
    folder = _folder(item)
    return _ORDER.index(folder) if folder in _ORDER else len(_ORDER)


def _folder(item: pytest.Item) -> str:
    """The folder below this one that the test is in, empty for tests of elsewhere."""
    return item.path.relative_to(_TESTS).parts[0] if item.path.is_relative_to(_TESTS) else ""


@pytest.fixture(autouse=True)
def _logging_as_it_comes() -> Iterator[None]:
    """Logging is set up for a whole process; what one test, or a command in it, has set up is not for the next."""
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _applications_are_freed() -> Iterator[None]:
    """Empty the cache of aiohttp that would keep 1,024 embedded API servers with their schemas alive: 2 GB in a whole run."""
    yield
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real kube-apiserver for the whole session, with simulated nodes ``node-0`` and ``node-1`` and no scheduler.

    Nothing of ours is installed in it; ``apply`` does that. Tests share it: each works in a ``namespace`` of its own.
    """
    with ControlPlane(users=[User(UNPRIVILEGED)], nodes=2) as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Yield a new namespace with its default ServiceAccount; it is deleted after the test without a wait."""
    name = f"test-{secrets.token_hex(4)}"
    path = f"/api/v1/namespaces/{name}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    control_plane.wait(f"{name} ready", lambda: control_plane.has(f"{path}/serviceaccounts/default"))
    yield name
    control_plane.request("DELETE", path)
