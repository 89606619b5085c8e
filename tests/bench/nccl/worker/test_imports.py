"""The worker runs in images that have torch, and no other package of this repository."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.nccl import worker

MODULES = sorted(Path(worker.__file__).parent.glob("*.py"))


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_only_torch_and_the_standard_library(module: Path) -> None:
    roots = {name if name.startswith("bench.") else name.partition(".")[0] for name in imported(module)}

    strangers = {
        root
        for root in roots
        if root not in sys.stdlib_module_names
        and root != "torch"
        and not root.startswith("bench.nccl.worker")
    }
    assert strangers == set()


def test_the_rank_is_known_before_torch_is_imported() -> None:
    """Importing torch takes seconds, which is a step of its own."""
    for name in (
        "main.py",
        "rank_info.py",
        "messages.py",
        "round_robin.py",
        "patterns.py",
        "machine.py",
        "fault_injection.py",
    ):
        (module,) = [module for module in MODULES if module.name == name]
        top = [
            node
            for node in ast.parse(module.read_text()).body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert not any("torch" in ast.unparse(node) for node in top)
