"""Every relative link and every path of a page in the repository leads somewhere, and the index of ``docs`` is complete."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import PAGES_TO_RUN, SHELLS, blocks, commands_to_run, comment_of_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = (
    "api",
    "bench",
    "controller",
    "deploy",
    "docs",
    "examples",
    "manifests",
    "rallypoint",
    "tests",
    "tools",
)

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"``[^`]+``|`[^`\n]+`")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_PAGE = re.compile(r"\bdocs/[\w/.-]+\.md\b")


def _files(*patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return sorted(
        found
        + [path for folder in FOLDERS for pattern in patterns for path in (ROOT / folder).rglob(pattern)]
    )


PAGES = _files("*.md")
SOURCES = _files("*.py", "*.yaml", "*.toml", "Makefile", "Dockerfile")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _prose(page: Path) -> str:
    """Return the text of a page without its fenced blocks, whose ``#`` starts no heading and whose brackets are no link."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """Return the fragments that a forge makes from a page's headings: lower case, no punctuation, hyphens for spaces."""
    slug_counts: Counter[str] = Counter()
    anchors: set[str] = set()
    for heading in _HEADING.findall(_prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{slug_counts[slug]}" if slug_counts[slug] else slug)
        slug_counts[slug] += 1
    return anchors


def _links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_SPAN.sub("", _prose(page))):
        if not re.match(r"[a-z]+:", link):
            yield link


def _broken(page: Path) -> Iterator[str]:
    for link in _links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_each_relative_link_of_a_page_has_a_target(page: Path) -> None:
    assert list(_broken(page)) == []


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *ROOT.glob("*.md")], ids=_name)
def test_each_block_of_a_page_is_fenced_and_names_its_language(page: Path) -> None:
    is_in_list, indented = False, list[str]()
    for line in _prose(page).splitlines():
        is_in_list = bool(re.match(r"[-*] |\d+\. ", line)) or (is_in_list and not re.match(r"\S", line))
        indented += [line] if line.startswith("    ") and line.strip() and not is_in_list else []

    assert indented == []
    # Python-Markdown, which makes the site, ends a list at a block that is indented less.
    assert re.findall(r"\n\n( {1,3}\S.*)", page.read_text(encoding="utf-8")) == []
    assert [block.line for block in blocks(page) if not block.language] == []


def test_a_link_without_a_target_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `heading`, and [more](x)\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-and-more) [c](there.md#twice-1) [d](https://example.org/x.md) `[e](e.md)`\n"
        "[f](gone.md) [g](there.md#twice-2) [h](#gone)\n"
    )

    assert list(_broken(page)) == ["gone.md", "there.md#twice-2", "#gone"]


def test_each_page_that_a_file_names_exists() -> None:
    named = {
        (_name(file), page)
        for file in (*PAGES, *SOURCES)
        if file != Path(__file__)
        for page in _PAGE.findall(file.read_text(encoding="utf-8"))
    }

    assert named
    assert {(file, page) for file, page in named if not (ROOT / page).exists()} == set()


def test_each_module_that_a_page_names_exists() -> None:
    modules = {_name(path) for path in SOURCES if path.suffix == ".py"}
    named = {
        (_name(page), module)
        for page in DOCS.rglob("*.md")
        for module in re.findall(r"`([\w./]+\.py)`", page.read_text(encoding="utf-8"))
    }

    assert named
    assert {
        pair for pair in named if not any(f"/{name}".endswith(f"/{pair[1]}") for name in modules)
    } == set()


def test_each_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (_name(page), target)
        for page in (*DOCS.rglob("*.md"), *ROOT.glob("*.md"))
        for target in re.findall(r"(?:`|^ *)make ([a-z][a-z0-9-]*)", page.read_text(), re.MULTILINE)
    }

    assert named
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_the_contributing_guide_lists_each_make_target() -> None:
    listed = re.findall(r"`make ([a-z][a-z0-9-]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert phony is not None
    assert set(phony[1].split()) - set(listed) == set()


def test_each_log_message_that_the_runbook_quotes_is_logged() -> None:
    commands = ("kubectl ", "rallypoint ", "restartPolicy: ", "training.kubeflow.org/")
    quoted = re.findall(r"`([a-z][^`…]* [^`…]*)`", _prose(DOCS / "how-to" / "runbook.md"))
    messages = {text for text in quoted if not text.startswith(commands)}
    logged = "\n".join(path.read_text() for path in SOURCES if _name(path).startswith("controller/"))

    assert messages
    assert {message for message in messages if f'"{message}' not in logged} == set()


PURPOSES = ("tutorial", "how-to", "reference", "explanation", "decisions")


def _pages() -> list[str]:
    return sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path != DOCS / "README.md"
    )


def test_the_index_lists_each_page_once() -> None:
    assert sorted(_links(DOCS / "README.md")) == _pages()


def test_each_page_is_in_the_folder_of_its_purpose() -> None:
    assert {page.split("/")[0] for page in _pages()} == set(PURPOSES)


COMMENT = re.compile(r"not run: \S.*|run by (tests/\S+\.py)")
"""Before a block of commands: why nobody runs it, or which test does."""


def _undecided(page: Path) -> Iterator[str]:
    """Yield what is wrong with the comments before the blocks of commands of a page."""
    for block in blocks(page, *SHELLS):
        comment = comment_of_page(page) or block.comment
        found = COMMENT.fullmatch(comment)
        if not found and (comment or page.stem not in PAGES_TO_RUN):
            yield f"{page.name}:{block.line}: {comment or 'no comment'}"
        elif found and found[1] and not (ROOT / found[1]).is_file():
            yield f"{page.name}:{block.line}: {found[1]} does not exist"
        elif found and found[1] and page.name not in (ROOT / found[1]).read_text(encoding="utf-8"):
            yield f"{page.name}:{block.line}: {found[1]} does not name the page"


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *ROOT.glob("*.md")], ids=_name)
def test_a_test_runs_each_block_of_commands_or_a_comment_says_why_not(page: Path) -> None:
    """tests/integration/test_pages.py runs those without a comment, of the pages in ``PAGES_TO_RUN``."""
    assert list(_undecided(page)) == []


def test_each_page_whose_commands_are_run_has_such_commands() -> None:
    assert [name for name in PAGES_TO_RUN if not any(commands_to_run(DOCS / "how-to" / f"{name}.md"))] == []


def test_a_block_of_commands_without_a_test_or_a_reason_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    comments = (
        "<!-- not run: needs a GPU -->",
        "<!-- not run: -->",
        "<!-- run by tests/test_gone.py -->",
        "<!-- run by tests/test_packaging.py -->",
        "text",
    )
    page.write_text("# Page\n" + "".join(f"\n{comment}\n```sh\nls\n```\n" for comment in comments))

    assert list(_undecided(page)) == [
        "page.md:9: not run:",
        "page.md:14: tests/test_gone.py does not exist",
        "page.md:19: tests/test_packaging.py does not name the page",
        "page.md:24: no comment",
    ]
