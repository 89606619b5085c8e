"""``python -m tests.support.schedulers``: compiles the schedulers that ``make schedulers`` tests with."""

import sys

from rallypoint.testing.controlplane.binaries import say_on_stderr
from rallypoint.testing.controlplane.programs import Unavailable
from tests.support.schedulers import programs


def main() -> int:
    """Returns the exit status: 1 when a program cannot be compiled."""
    try:
        for module in programs.ALL:
            sys.stdout.write(f"{module.path} v{module.version}: {programs.ensure(module)}\n")
    except Unavailable as error:
        say_on_stderr(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
