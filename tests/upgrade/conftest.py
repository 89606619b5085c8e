"""The commit that an upgrade starts from."""

import pytest

from rallypoint.testing.checkout import Checkout, check_out


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--upgrade-from", metavar="COMMIT", default="", help="the version that runs first")


@pytest.fixture(scope="session")
def previous(pytestconfig: pytest.Config) -> Checkout:
    revision = pytestconfig.getoption("upgrade_from")
    if not revision:
        raise pytest.UsageError("name the version to upgrade from: make upgrade FROM=COMMIT")
    return check_out(revision)
