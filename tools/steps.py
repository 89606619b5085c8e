"""Runs named commands one after the other, says how long each took, and ends with what went wrong.

    python3 tools/steps.py "make lint" "environment! python3 tools/venv.py .venv requirements/dev.txt" "lint: ruff check"

A step whose name ends with ``!`` is needed by those after it: if it fails, they are not run. All others run whatever
the ones before them did. In parentheses after the name stands what a failure costs, ``"mpi (tests of MPI fail): ..."``;
failed steps are named again at the end, with that. The exit status is that of the first step that failed.

Standard library only, and nothing that a Python too old for the project could not read.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from typing import NamedTuple


class Step(NamedTuple):
    """One command; ``needed`` tells whether the following ones make sense without it, ``cost`` what its failure means."""

    name: str
    needed: bool
    command: list[str]
    cost: str = ""


def parse(text: str) -> Step:
    """Raises ``ValueError`` for a step without name or command."""
    match = re.match(r"\s*([^:!(]*[^:!(\s])\s*(?:\(([^)]*)\))?([:!])\s*(\S.*)$", text, re.DOTALL)
    if match is None:
        raise ValueError(f"not a step: {text!r}")
    name, cost, mark, command = match.groups()
    return Step(name, mark == "!", shlex.split(command), cost or "")


def run(step: Step) -> int:
    """Return the command's exit status; 127 if there is no such command.

    An interrupt from the terminal reaches the command, too. It has the time that it needs to end; a second interrupt ends the wait.

    Raises:
        KeyboardInterrupt: the command was interrupted and has ended.
    """
    print(f"==> {step.name}: {' '.join(map(shlex.quote, step.command))}", flush=True)
    started = time.monotonic()
    try:
        with subprocess.Popen(step.command) as process:
            try:
                status = process.wait()
            except KeyboardInterrupt:
                process.wait()
                raise
    except OSError as error:
        print(error)
        status = 127
    outcome = "" if status == 0 else f"FAILED ({status}) after "
    print(f"<== {step.name}: {outcome}{time.monotonic() - started:.1f} s", flush=True)
    return status


def main(title: str, steps: list[Step]) -> int:
    started = time.monotonic()
    failed: list[tuple[Step, int]] = []
    for step in steps:
        status = run(step)
        if status:
            failed.append((step, status))
            if step.needed:
                break
    for step, status in failed:
        if step.needed and step is not steps[-1]:
            print(f"{step.name} FAILED ({status}): no later step was run")
        elif step.cost:
            print(f"{step.name} FAILED ({status}): {step.cost}")
    outcome = f"FAILED in {', '.join(step.name for step, _ in failed)}" if failed else "ok"
    print(f"{title}: {outcome} after {time.monotonic() - started:.0f} s", flush=True)
    return failed[0][1] if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], [parse(text) for text in sys.argv[2:]]))
    except KeyboardInterrupt:
        sys.exit(130)
