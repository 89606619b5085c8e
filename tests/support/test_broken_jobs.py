"""The table of broken jobs and its page."""

from pathlib import Path

from tests.support.broken_jobs import BROKEN_JOBS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "broken-jobs.md"


def test_each_job_has_a_namespace_of_its_own() -> None:
    assert len({job.slug for job in BROKEN_JOBS}) == len(BROKEN_JOBS)


def test_the_page_has_a_row_for_each_job() -> None:
    rows = [line.split(" | ")[0][2:] for line in PAGE.read_text().splitlines() if line.startswith("| ")]

    assert rows[1:] == [job.what for job in BROKEN_JOBS]
