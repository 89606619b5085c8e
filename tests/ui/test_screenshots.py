"""The pictures of the docs, of jobs that ran here."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FloatRect, Page, expect

from rallypoint.testing.http_trace import MERGE, Step
from rallypoint.testing.up import has
from tests.ui.conftest import LocalUp, opened
from tests.ui.jobs import JOBS_PATH, PHONE, create, job, open_job

TRAIN = """i=0
while true; do
  i=$((i+1)); j=0
  while [ $j -lt 10000 ]; do j=$((j+1)); done
  echo "epoch $((i/20)) step $i loss 0.$((90000/(i+100)))"
  if [ $i = 60 ] && [ "$HOSTNAME" = digits-worker-1 ] && mkdir {marker} 2>/dev/null; then exit 137; fi
  sleep 0.2
done"""
"""Trains until the end of the test. The worker 1 ends once as if it was killed, and the operator replaces it."""
MAX_BYTES = 150_000


def digits(marker: Path) -> dict[str, Any]:
    """A job that is suspended at first, then waits for CPUs, and loses a worker."""
    script = TRAIN.replace("{marker}", str(marker))
    found = job("digits", script, workers=2, resources={"requests": {"cpu": "250m"}})
    found["spec"]["runPolicy"]["suspend"] = True
    roles = found["spec"]["pytorchReplicaSpecs"]
    for role in roles.values():
        role["restartPolicy"] = "ExitCode"
    ports = [{"name": "tensorboard", "containerPort": 6006}]
    roles["Master"]["template"]["spec"]["containers"][0]["ports"] = ports
    return found


async def resume(local: LocalUp, name: str) -> None:
    body = {"spec": {"runPolicy": {"suspend": False}}}
    reply = await local.up.client.send(Step("PATCH", f"{JOBS_PATH}/{name}", body, type=MERGE))
    assert reply.code == 200, reply.text


async def draw(page: Page, file: Path, last: str) -> int:
    """Write a picture of the page down to the end of that element; return its size in bytes."""
    box = await page.locator(last).bounding_box()
    assert box is not None
    assert page.viewport_size is not None
    height = box["y"] + box["height"] + await page.evaluate("scrollY") + 12
    clip: FloatRect = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height}
    return len(await page.screenshot(path=file, full_page=True, clip=clip))


async def test_screenshots(
    local: LocalUp, browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = Path(request.config.getoption("screenshots") or tmp_path)
    most = f"{1000 * (os.cpu_count() or 1) - 200}m"
    await create(local, job("features", "sleep 15", resources={"requests": {"cpu": most}}))
    await local.up.until(f"{JOBS_PATH}/features", has("Running"))
    await create(
        local,
        digits(tmp_path / "marker"),
        job("large", workers=3, resources={"limits": {"nvidia.com/gpu": "8"}}),
        job("broken", "echo loading; echo 'ValueError: no such file' >&2; exit 1", workers=1),
    )
    await asyncio.sleep(6)
    await resume(local, "digits")
    async with opened(browser, local.url, viewport={"width": 940, "height": 130}) as page:
        await open_job(page, "digits")
        await page.get_by_text("1 restart").click(timeout=60_000)
        await expect(page.locator("h1")).to_contain_text("Running")
        await expect(page.locator("#section-usage")).to_contain_text("digits-worker-1", timeout=30_000)
        await asyncio.sleep(11)
        sizes = [await draw(page, folder / "ui-job.png", "#section-usage")]
    async with opened(browser, local.url) as page:
        await expect(page.locator("tr", has_text="large")).to_contain_text("Insufficient")
        sizes.append(await draw(page, folder / "ui-jobs.png", "table.jobs"))
    async with opened(browser, local.url, color_scheme="dark", **PHONE) as page:
        await open_job(page, "large")
        await expect(page.locator("#section-why")).to_contain_text("Insufficient")
        sizes.append(len(await page.screenshot(path=folder / "ui-phone.png")))
    assert max(sizes) < MAX_BYTES, sizes
