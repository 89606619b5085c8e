"""Runs pytest, and the tests that failed once more by themselves, after all others.

    .venv/bin/python tools/run_tests.py -n 2 --dist loadfile

Tests in real time share two cores in ``make test``; a few of them miss a time limit when the machine is busy with something else. A test
that passes alone is reported as flaky and does not fail the run. More than ``MAX_RETRIED`` failures are a defect, not a busy machine: they are
not tried again. Neither are errors that stop pytest from collecting tests.

All arguments are pytest's. The exit status is pytest's.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

MAX_RETRIED = 5
"""Maximum number of failed tests that run again."""
FAILED = 1
"""Exit status of pytest if tests ran and some failed. Source: pytest, ExitCode.TESTS_FAILED."""
_FIRST_RUN_ONLY = re.compile(r"-n\d*|--dist|--numprocesses|--cov")
"""Options of pytest-xdist, and those of pytest-cov, which would replace the coverage of all tests by that of a few."""


def main(arguments: Sequence[str]) -> int:
    with TemporaryDirectory() as folder:
        cache = Path(folder)
        status = _pytest(arguments, cache)
        failed = failed_tests(cache)
        if status != FAILED or not 0 < len(failed) <= MAX_RETRIED:
            return status
        print(f"again, each alone: {len(failed)} failed", flush=True)
        status = _pytest([*failed, *options(arguments)], cache)
        failed_again = set(failed_tests(cache))
        for test in failed:
            print(f"{'failed twice' if test in failed_again else 'flaky'}: {test}", flush=True)
        return status


def options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the tests to run and without those of pytest-xdist and pytest-cov.

    An option with a value is kept only if both are one argument, such as ``--ignore=tests/x.py``.
    """
    return [word for word in arguments if word.startswith("--") and not _FIRST_RUN_ONLY.match(word)]


def failed_tests(cache: Path) -> list[str]:
    """Return the ids of the tests that failed, from the folder that pytest's cache plugin wrote."""
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_bytes()))
    except FileNotFoundError:
        return []


def _pytest(arguments: Sequence[str], cache: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, check=False, env=dict(os.environ)).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
