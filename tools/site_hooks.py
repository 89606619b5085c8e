"""Hooks of mkdocs: what ``make site`` adds to the pages of ``docs``.

The navigation is the index, ``docs/README.md``: its headings are the sections, its links the pages. The pages of the repository's root are
pages of the site, too. Links to other files of the repository lead to its forge. Each page is published as Markdown as well, listed in
``llms.txt``; ``llms-full.txt`` contains all of them. ``external-links.txt`` lists the links to other sites, which nothing follows.
"""

import re
import tomllib
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages of the repository's root, and their paths on the site."""

_ITEM = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\)(.*)$")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(```.*?^ *```|``[^`]+``|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^ *<!--.*?-->\n", re.DOTALL | re.MULTILINE)


def navigation(index: str) -> list[dict[str, Any]]:
    """Return mkdocs' ``nav`` for an index of pages: ``##`` and ``###`` are sections, links in lists are pages."""
    nav: list[dict[str, Any]] = [{"Home": "README.md"}]
    section: list[dict[str, Any]] = nav
    parent: list[dict[str, Any]] = nav
    for line in index.splitlines():
        if heading := re.match(r"(##|###) (.+)", line):
            outer = nav if heading[1] == "##" else parent
            section = []
            outer.append({heading[2]: section})
            if heading[1] == "##":
                parent = section
        elif item := _ITEM.match(line):
            section.append({item[1]: item[2]})
    nav.append({"Project": [{path.removesuffix(".md").capitalize(): path} for path in ROOT_PAGES.values()]})
    return nav


def repository() -> str:
    """Return the URL of the repository, as the package's metadata has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"]).rstrip("/")


def with_site_links(markdown: str, source: str) -> str:
    """Return a page with links that lead somewhere on the site, or to the forge.

    Args:
        markdown: the page as it is in the repository.
        source: its path in the repository.
    """
    site_source = _site_path(source)
    parts = _CODE.split(markdown)
    for index in range(0, len(parts), 2):
        parts[index] = _LINK.sub(
            lambda link: f"{link[1]}{_target(link[2], source, site_source)}{link[3]}", parts[index]
        )
    return "".join(parts)


def _site_path(path: str) -> str:
    return ROOT_PAGES.get(path, path.removeprefix("docs/"))


def _target(link: str, source: str, site_source: str) -> str:
    if re.match(r"[a-z]+:|#", link):
        return link
    path, hash_, fragment = link.partition("#")
    target = normpath(f"{dirname(source)}/{path}").lstrip("/")
    if target in ROOT_PAGES or target.startswith("docs/"):
        return relpath(_site_path(target), dirname(site_source) or ".") + hash_ + fragment
    kind = "tree" if (ROOT / target).is_dir() else "blob"
    return f"{repository()}/{kind}/main/{target}{hash_}{fragment}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, site_path in ROOT_PAGES.items():
        files.append(File.generated(config, site_path, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = page.file.src_uri
    source = next((name for name, site_path in ROOT_PAGES.items() if site_path == path), f"docs/{path}")
    return with_site_links(_COMMENT.sub("", markdown), source)


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    pages = [
        f"docs/{path.relative_to(ROOT / 'docs').as_posix()}" for path in sorted((ROOT / "docs").rglob("*.md"))
    ]
    texts = {
        source: _COMMENT.sub("", (ROOT / source).read_text(encoding="utf-8"))
        for source in (*pages, *ROOT_PAGES)
    }
    for source, text in texts.items():
        target = site / _site_path(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_site_links(text, source), encoding="utf-8")
    (site / "llms.txt").write_text(
        short_list(texts["docs/README.md"], config.site_description or ""), encoding="utf-8"
    )
    published = [with_site_links(text, source) for source, text in texts.items()]
    external = {
        link[2] for text in published for link in _LINK.finditer(_CODE.sub("", text)) if "://" in link[2]
    }
    (site / "external-links.txt").write_text(
        "".join(f"{link}\n" for link in sorted(external)), encoding="utf-8"
    )
    everything = (
        f"<!-- {_site_path(source)} -->\n\n{with_site_links(text, source)}" for source, text in texts.items()
    )
    (site / "llms-full.txt").write_text("\n".join(everything), encoding="utf-8")


def short_list(index: str, description: str) -> str:
    """Return the text of ``llms.txt``: a title, a summary, and for each section of the index its pages. See llmstxt.org."""
    lines = ["# Rallypoint", "", f"> {description}"]
    for line in index.splitlines():
        if heading := re.match(r"##+ (.+)", line):
            lines += ["", f"## {heading[1]}", ""]
        elif _ITEM.match(line):
            lines.append(line)
    project = (f"- [{path.removesuffix('.md').capitalize()}]({path})" for path in ROOT_PAGES.values())
    return "\n".join([*lines, "", "## Project", "", *project, ""])
