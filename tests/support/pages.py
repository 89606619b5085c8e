"""The fenced blocks of Markdown pages, and which of their commands a test runs.

A comment on the line before a block of commands says why nobody runs it, or which test does:

    <!-- not run: needs Argo CD -->
    <!-- run by tests/integration/test_upgrade.py -->

A comment before the first heading of second level, ``<!-- all run by ... -->``, holds for the whole page. tests/integration/test_pages.py
runs blocks without a comment, of the pages in ``PAGES_TO_RUN``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

SHELLS = ("sh", "console")
"""Languages of blocks of commands: without their output, and with it."""

PAGES_TO_RUN = (
    "install",
    "install-namespaced",
    "uninstall",
    "shadow",
    "gitops",
    "air-gapped",
    "backup",
    "tenants",
    "rotate-credentials",
    "upgrade",
    "troubleshoot-install",
)
"""Pages of docs/how-to with blocks that run, in the order in which they do: a page finds what the ones before it left."""

_BLOCK = re.compile(r"(?:^ *<!-- ([^\n]*?) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"# ([\w./-]+\.yaml)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text without the indentation of a list, and the comment on the line before it."""

    page: Path
    line: int
    language: str
    text: str
    comment: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order, of these languages or of all."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        comment, _, language, body = found.groups()
        if not languages or language in languages:
            yield Block(page, text.count("\n", 0, found.start(4)), language, dedent(body), comment or "")


def comment_of_page(page: Path) -> str:
    """Return what holds for all blocks of a page, empty if each has to say it."""
    head = page.read_text(encoding="utf-8").partition("\n## ")[0]
    found = re.search(r"^<!-- all (.*) -->$", head, re.MULTILINE)
    return found[1] if found else ""


def commands_to_run(page: Path) -> Iterator[Block]:
    """Yield the blocks of commands that no comment excludes."""
    if not comment_of_page(page):
        yield from (block for block in blocks(page, *SHELLS) if not block.comment)


def files(page: Path) -> Iterator[tuple[str, str]]:
    """Yield paths and texts of the files that a page shows: YAML whose first line is a comment with its path."""
    for block in blocks(page, "yaml"):
        if path := _PATH.match(block.text):
            yield path[1], block.text
