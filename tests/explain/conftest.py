"""A cluster with the broken jobs, and the page that shows what was said about each."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.broken_jobs import BROKEN_JOBS
from tests.support.broken_jobs_page import Page
from tests.support.explaining_cluster import ExplainingCluster

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "broken-jobs.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-page", action="store_true", help=f"write {PAGE.name}")


@pytest.fixture(scope="session")
def page(request: pytest.FixtureRequest) -> Generator[Page]:
    page = Page(BROKEN_JOBS)
    yield page
    if request.config.getoption("write_page"):
        PAGE.write_text(page.text())


@pytest.fixture(scope="session")
def cluster() -> Generator[ExplainingCluster]:
    with ExplainingCluster(BROKEN_JOBS) as cluster:
        yield cluster
