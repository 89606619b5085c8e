"""A real headless browser, and the clusters whose page it opens."""

import asyncio
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from controller.crds import all_crds
from rallypoint.local.apiserver.server import ApiServer
from rallypoint.testing.up import RALLYPOINT, Up, up

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")
TIMEOUT_SECONDS = 30.0


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    """A browser of this machine."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser: one of {', '.join(BROWSERS)} is needed; on Debian: apt-get install chromium"
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        await launched.close()


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncGenerator[Page]:
    """Open the page as a new visitor. Its end fails if the page raised an error or broke its content security policy."""
    context: BrowserContext = await browser.new_context(
        **{"viewport": {"width": 1280, "height": 800}, **options}
    )
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
    page.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    await page.goto(url)
    yield page
    await context.close()
    assert problems == []


@dataclass(frozen=True, slots=True)
class LocalUp:
    """A process of ``rallypoint up`` and the URL of its page."""

    up: Up
    url: str


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[LocalUp]:
    async with up("--run-dir", str(tmp_path / "run"), folder=tmp_path) as found:
        yield LocalUp(found, found.page)


@asynccontextmanager
async def ui_of(server: ApiServer, folder: Path) -> AsyncGenerator[str]:
    """Run ``rallypoint ui`` on an API server, in a process of its own, and yield the URL of its page."""
    kubeconfig = folder / "kubeconfig"
    await asyncio.to_thread(kubeconfig.write_text, yaml.safe_dump(server.kubeconfig()))
    command = [*RALLYPOINT, "ui", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            url = (await process.stdout.readline()).decode().strip()
        yield url
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer]:
    """An API server with the definitions of all jobs, and no controller."""
    found = ApiServer(crds=all_crds(), auto_namespaces=True)
    await found.start()
    yield found
    await found.stop()
