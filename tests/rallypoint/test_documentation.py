"""Links to the documentation in messages."""

import re
from pathlib import Path

import pytest

from rallypoint.documentation import REPOSITORY_URL

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\{DOCS_URL\}/([\w./-]+\.md)(?:#([\w-]+))?")
LINKS = sorted(
    {
        match.groups()
        for file in (ROOT / "rallypoint").rglob("*.py")
        for match in LINK.finditer(file.read_text())
    },
    key=str,
)


def test_messages_link_to_the_repository_of_the_package() -> None:
    assert f'Documentation = "{REPOSITORY_URL}/docs/README.md"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(("page", "anchor"), LINKS)
def test_linked_pages_and_headings_exist(page: str, anchor: str | None) -> None:
    text = (ROOT / "docs" / page).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]

    assert anchor is None or anchor in anchors
