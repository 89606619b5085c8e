"""The fenced blocks of Markdown pages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

_BLOCK = re.compile(r"(?:^ *<!-- ([^\n]*?) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text without the indentation of a list, and the comment on the line before it."""

    page: Path
    line: int
    language: str
    text: str
    comment: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The blocks of a page in their order, of these languages or of all."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        comment, _, language, body = found.groups()
        if not languages or language in languages:
            yield Block(page, text.count("\n", 0, found.start(4)), language, dedent(body), comment or "")
