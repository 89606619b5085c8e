"""The docs as a site: complete, self-contained, every link with a target, and readable on a phone."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright
from typing_extensions import override

from tools import site_hooks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome", "chrome")
PHONE_WIDTH_PIXELS = 390
ORIGIN = "http://site"
"""Stands for the address of the site in links."""

MEASURE = """() => [
  document.documentElement.scrollWidth,
  [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
]"""
"""The width that a page takes, and its pictures that are not shown."""


class Parsed(HTMLParser):
    """What a page links to, loads, and can be linked to by fragments."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(html)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in {"prev", "next", "canonical"}:
            self.loads.append(values["href"])
        elif tag in {"img", "script", "iframe", "source"} and values.get("src"):
            self.loads.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in mkdocs' strict mode, in which each warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Parsed]:
    """The pages by their paths."""
    return {
        path.relative_to(site).as_posix(): Parsed(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }


@pytest.fixture(scope="module")
def server(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    handler = partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


def address(page: str) -> str:
    return f"{ORIGIN}/{page.removesuffix('index.html')}"


def resolved(page: str, link: str) -> str:
    """The absolute URL of a link, as a browser makes it."""
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return link
    if not parts.path:
        return address(page) + link
    path = parts.path if parts.path.startswith("/") else f"/{Path(page).parent.as_posix()}/{parts.path}"
    normal = os.path.normpath(path).replace("//", "/")
    slash = "/" if path.endswith(("/", "/.", "/..")) and normal != "/" else ""
    return f"{ORIGIN}{normal}{slash}" + (f"#{parts.fragment}" if parts.fragment else "")


def dangling(pages: dict[str, Parsed], site: Path) -> list[str]:
    """The links and assets of pages that lead nowhere on the site."""
    wrong: list[str] = []
    for page, parsed in pages.items():
        for link in (*parsed.links, *parsed.loads):
            parts = urlsplit(resolved(page, link))
            if f"{parts.scheme}://{parts.netloc}" != ORIGIN:
                continue
            path = unquote(parts.path).lstrip("/")
            target = path + "index.html" if path.endswith("/") or not path else path
            missing_anchor = (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids
            )
            if not (site / target).is_file() or missing_anchor:
                wrong.append(f"{page}: {link}")
    return wrong


def test_each_page_of_the_docs_is_on_the_site_and_in_its_navigation(pages: dict[str, Parsed]) -> None:
    sources = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | set(
        site_hooks.ROOT_PAGES.values()
    )
    expected = {
        re.sub(r"(^|/)README/index.html$", r"\1index.html", f"{name.removesuffix('.md')}/index.html")
        for name in sources
    }

    assert pages.keys() - {"404.html"} == expected
    home = {resolved("index.html", link) for link in pages["index.html"].links}
    assert {address(page) for page in expected - {"index.html"}} - home == set()


def test_each_link_inside_the_site_has_a_target(pages: dict[str, Parsed], site: Path) -> None:
    assert dangling(pages, site) == []


def test_a_link_without_a_target_is_found(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text("")
    links = "".join(
        f'<a href="{link}"></a>'
        for link in ("there/", "there/#a", "gone/", "there/#b", "#c", "https://example.org/x")
    )
    pages = {
        "index.html": Parsed(links),
        "there/index.html": Parsed('<p id="a"><a href="../there/#a"></a><a href=".."></a>'),
    }
    (tmp_path / "index.html").write_text("")

    assert dangling(pages, tmp_path) == ["index.html: gone/", "index.html: there/#b", "index.html: #c"]


def test_the_site_loads_nothing_from_other_hosts(pages: dict[str, Parsed], site: Path) -> None:
    loads = {resolved(page, asset) for page, parsed in pages.items() for asset in parsed.loads}
    styles = {
        url
        for sheet in site.rglob("*.css")
        for url in re.findall(r"url\(\s*[\"']?(\w+:[^)\"']+)", sheet.read_text(encoding="utf-8"))
    }

    assert loads
    assert {url for url in loads if not url.startswith((f"{ORIGIN}/", "data:"))} == set()
    assert {url for url in styles if not url.startswith("data:")} == set()


def test_no_page_needs_a_library_that_the_theme_loads_on_demand(site: Path) -> None:
    """The theme fetches Mermaid and MathJax from other hosts when a page contains diagrams or formulas in their languages."""
    assert [
        path for path in site.rglob("*.html") if re.search(r'class="(mermaid|arithmatex)', path.read_text())
    ] == []


def test_links_to_other_sites_are_listed_and_encrypted(pages: dict[str, Parsed], site: Path) -> None:
    """Nothing follows them: the tests need no network."""
    links = {link for parsed in pages.values() for link in parsed.links if urlsplit(link).netloc}
    listed = (site / "external-links.txt").read_text(encoding="utf-8").split()

    assert links <= set(listed)
    assert {link for link in listed if not link.startswith("https://")} == set()


def test_the_list_for_language_models_names_each_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)

    assert re.match(r"# Rallypoint\n\n> .+\n\n## ", text)
    assert sorted(listed) == sorted(
        path.relative_to(site).as_posix() for path in site.rglob("*.md") if path.name != "README.md"
    )
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert [page for page in listed if (site / page).read_text(encoding="utf-8") not in whole] == []


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """A browser of this machine."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, (
        f"no browser: one of {', '.join(BROWSERS)} is needed; on Debian: apt-get install chromium-headless-shell"
    )
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


def test_each_page_fits_a_phone_and_shows_its_pictures_and_requests_nothing_of_other_hosts(
    pages: dict[str, Parsed], browser: Browser, server: str
) -> None:
    view = browser.new_page(viewport={"width": PHONE_WIDTH_PIXELS, "height": 844})
    requested: list[str] = []
    view.on("request", lambda request: requested.append(request.url))
    wrong: list[str] = []
    for page in sorted(pages):
        view.goto(f"{server}/{page}", wait_until="load")
        width, broken = view.evaluate(MEASURE)
        wrong += [f"{page}: {width} pixels wide"] if width > PHONE_WIDTH_PIXELS else []
        wrong += [f"{page}: {url} is not shown" for url in broken]

    assert wrong == []
    assert {url for url in requested if not url.startswith((f"{server}/", "data:"))} == set()


def test_pages_follow_the_color_scheme_of_the_reader(browser: Browser, server: str) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    colors: dict[str, str] = {}
    for scheme in schemes:
        view = browser.new_page(color_scheme=scheme)
        view.goto(server)
        colors[scheme] = view.evaluate("getComputedStyle(document.body).backgroundColor")

    assert colors["light"] == "rgb(255, 255, 255)"
    assert colors["dark"] != colors["light"]


def test_sections_and_subsections_of_the_index_are_the_navigation() -> None:
    index = "# Title\n\n## Guides\n\nText.\n\n- [One](a/one.md): first.\n\n### More\n\n- [Two](b.md)\n\n## Reference\n\n- [Three](c.md)\n"

    home, *sections, project = site_hooks.navigation(index)

    assert home == {"Home": "README.md"}
    assert sections == [
        {"Guides": [{"One": "a/one.md"}, {"More": [{"Two": "b.md"}]}]},
        {"Reference": [{"Three": "c.md"}]},
    ]
    assert project == {
        "Project": [
            {"Changelog": "changelog.md"},
            {"Contributing": "contributing.md"},
            {"Security": "security.md"},
        ]
    }


@pytest.mark.parametrize(
    ("source", "link", "target"),
    [
        ("docs/how-to/install.md", "../../SECURITY.md#what", "../security.md#what"),
        ("docs/how-to/install.md", "../reference/flags.md", "../reference/flags.md"),
        ("docs/how-to/install.md", "#components", "#components"),
        ("docs/how-to/install.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("SECURITY.md", "docs/how-to/install.md#a", "how-to/install.md#a"),
        ("docs/how-to/install.md", "../../tests/parity", "REPOSITORY/tree/main/tests/parity"),
        ("docs/how-to/install.md", "../../Makefile", "REPOSITORY/blob/main/Makefile"),
    ],
)
def test_a_link_leads_to_the_site_or_to_the_forge(source: str, link: str, target: str) -> None:
    target = target.replace("REPOSITORY", site_hooks.repository())

    changed = site_hooks.with_site_links(
        f"See [it]({link}), `[it]({link})`.\n\n```text\n[it]({link})\n```\n", source
    )

    assert changed == f"See [it]({target}), `[it]({link})`.\n\n```text\n[it]({link})\n```\n"
