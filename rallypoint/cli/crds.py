"""``rallypoint crds``: print the CustomResourceDefinitions, as ``python -m controller.crds`` does."""

from collections.abc import Sequence

from controller.crds import command

HELP = "print the CustomResourceDefinitions"


def main(arguments: Sequence[str]) -> int:
    """Print or write the definitions and return the exit status."""
    return command.main(arguments, prog="rallypoint crds")
