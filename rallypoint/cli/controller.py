"""``rallypoint controller``: run the controller against a cluster, as ``python -m controller`` does."""

from collections.abc import Sequence

from controller import command

HELP = "run the controller against a cluster"


def main(arguments: Sequence[str]) -> int:
    """Run the controller and return its exit status."""
    return command.main(arguments, prog="rallypoint controller")
