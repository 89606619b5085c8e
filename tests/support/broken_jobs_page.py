"""``docs/reference/broken-jobs.md``: what is said about each broken job, as the tests saw it."""

import re
from collections import defaultdict
from collections.abc import Sequence

from tests.support.broken_jobs import BrokenJob

HEAD = """\
# Broken jobs

<!-- Made by `make explain WRITE=1` from tests/support/broken_jobs.py; edit that instead. -->

What users read about jobs that do not run: {count} of them, with the output of one test run. Each job is submitted with `kubectl apply` to
a cluster (a real control plane with simulated nodes), and, where the defect exists there, to [`rallypoint run`](../how-to/local-mode.md).
For a job that the API server accepts, the table shows the newest condition of the job, the warnings among its events, and the causes of
[`rallypoint why`](../how-to/why.md). `make explain` checks that each row names the cause and the next step.

| what is broken | in a cluster | `rallypoint run` |
|---|---|---|
"""
_RUN = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLUSTER, LOCAL = "in a cluster", "in local mode"


class Page:
    """Collects the lines that each place says about each job."""

    def __init__(self, jobs: Sequence[BrokenJob]) -> None:
        self._jobs = jobs
        self._lines: dict[tuple[str, str], list[str]] = defaultdict(list)

    def add(self, what: str, place: str, label: str, *texts: str) -> None:
        self._lines[what, place] += [f"{label}: {_code(text)}" for text in texts if text]

    def text(self) -> str:
        rows = (
            f"| {job.what} | {'<br>'.join(self._lines[job.what, CLUSTER])} | {'<br>'.join(self._lines[job.what, LOCAL])} |\n"
            for job in self._jobs
        )
        return HEAD.format(count=len(self._jobs)) + "".join(rows)


def _code(text: str) -> str:
    """Return the text as code in a cell of a table."""
    text = _RUN.sub("RUN", _UID.sub("UID", text))
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}".replace("|", "\\|")
