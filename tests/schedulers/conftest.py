"""Fixtures for all schedulers, and the operator of these tests, which ``--without-operator`` takes away to show that each scenario needs it."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.schedulers.gang_cluster import GangCluster, cleared
from tests.support.schedulers.operator import Operator, expected_failure

_FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def operator(pytestconfig: pytest.Config) -> Operator:
    return Operator(is_absent=bool(pytestconfig.getoption("without_operator")))


@pytest.fixture
def cluster(running_cluster: GangCluster) -> Iterator[GangCluster]:
    """The cluster of a module, which its fixture ``running_cluster`` starts, for one test."""
    yield from cleared(running_cluster)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("without_operator"):
        unsuitable = [item for item in items if _is_here(item) and item.get_closest_marker("other_programs")]
        config.hook.pytest_deselected(items=unsuitable)
        items[:] = [item for item in items if item not in unsuitable]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    if not (item.config.getoption("without_operator") and _is_here(item)):
        return (yield)
    with expected_failure():
        return (yield)


def _is_here(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_FOLDER)
