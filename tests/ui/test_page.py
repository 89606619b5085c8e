"""The page of one job in a real headless browser, its colors, its texts that try to be HTML, and the page on a phone."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.async_api import Browser, Page, expect

from api.labels import JOB_NAME
from api.meta import EVENTS, PODS
from controller.kube.client import Client
from controller.kube.connect import Connection
from rallypoint.cli.ui.history import LATER_SECONDS
from rallypoint.local.apiserver.server import ApiServer
from rallypoint.testing.http_trace import Step
from rallypoint.testing.up import has
from tests.ui.conftest import LocalUp, opened, ui_of
from tests.ui.jobs import JOBS, JOBS_PATH, PHONE, TICK, create, job, open_job, status

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script>"
CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return parse(getComputedStyle(document.documentElement).backgroundColor);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim()).map((n) => n.textContent).join("");
    const style = getComputedStyle(element);
    if (!text || !element.getClientRects().length || element.closest(".hidden, noscript")) continue;
    const [a, b] = [light(parse(style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${text.slice(0, 20)}: ${style.color}, ${ratio.toFixed(2)}`);
  }
  return found;
}"""
UNNAMED = """() => [...document.querySelectorAll("button, a, input, select, [tabindex]")]
  .filter((e) => e.getClientRects().length && !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length) && e.id !== "main")
  .map((e) => e.outerHTML)"""
MORE_LINES = """async (count) => {
  while (document.querySelectorAll(".log > div").length <= count) await new Promise(requestAnimationFrame);
}"""
MORE_POINTS = """async () => {
  const count = () => document.querySelector("#section-usage polyline").points.numberOfItems;
  const before = count();
  while (count() !== before + 1) await new Promise(requestAnimationFrame);
}"""
"""Returns when the first line of a chart has got one more point."""
WIDE = """() => {
  const screen = document.documentElement.clientWidth;
  const outside = (e) => e.getBoundingClientRect().right > screen + 1;
  return document.documentElement.scrollWidth <= screen ? [] : ["too wide", ...[...document.querySelectorAll("body *")].filter(outside).map((e) => e.outerHTML.slice(0, 120))];
}"""
"""Returns the elements that make the page wider than the screen."""


def pod_of(job: dict[str, Any], **port: Any) -> dict[str, Any]:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {
        "metadata": {"name": f"{name}-master-0", "labels": {JOB_NAME: name}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "pytorch", "image": "none", "ports": [port]}]},
    }


async def test_a_log_is_followed_live(local: LocalUp, browser: Browser) -> None:
    await create(local, job("ticks", TICK, workers=1))
    await local.up.until(f"{JOBS_PATH}/ticks", has("Running"))
    async with opened(browser, local.url) as page:
        await open_job(page, "ticks")
        log = page.get_by_role("log")
        await expect(log).to_contain_text("master-0")
        await expect(log).to_contain_text("worker-0")
        await expect(page.locator("#section-why")).to_contain_text("show no problem")
        last_line = page.locator("#section-replicas td[data-pod=ticks-worker-0]")
        await expect(last_line).to_have_text(re.compile(r"^\d+s ago$"))
        before = await log.locator("> div").count()
        await page.evaluate(MORE_LINES, before + 5)
        assert await log.evaluate("e => e.scrollTop + e.clientHeight >= e.scrollHeight - 40")

        await page.get_by_role("button", name="Show the logs of ticks-worker-0").click()
        await expect(log).to_contain_text("step")
        await expect(log).not_to_contain_text("master-0")
        assert await page.get_by_label("Replica", exact=True).input_value() == "/ticks-worker-0"

        await page.evaluate(MORE_LINES, 60)
        await log.evaluate("e => e.scrollTo(0, 0)")
        await expect(page.get_by_label("Follow")).not_to_be_checked()

        usage = page.locator("#section-usage")
        await expect(usage).to_contain_text("Memory", timeout=30_000)
        await expect(usage).to_contain_text("one pod used at most")
        await page.evaluate(MORE_POINTS)


async def test_a_replica_that_prints_nothing(local: LocalUp, browser: Browser) -> None:
    """Its pane is empty, and says whether a line can still come."""
    script = f"case $(hostname) in *master-0) {TICK};; *worker-1) exec sleep 1000;; esac"
    await create(local, job("silent", script, workers=2))
    await local.up.until(f"{JOBS_PATH}/silent", has("Running"))
    async with opened(browser, local.url) as page:
        await open_job(page, "silent")
        log, state = page.get_by_role("log"), page.locator("#section-logs").get_by_role("status")
        replica = page.get_by_label("Replica", exact=True)
        for pod, text in (("silent-worker-1", "no output yet"), ("silent-worker-0", "no output")):
            await replica.select_option("silent-master-0")
            await expect(log).to_contain_text("step")
            await replica.select_option(pod)
            await expect(log).to_have_attribute("data-empty", text)
            assert await log.evaluate("e => getComputedStyle(e, '::before').content") == f'"{text}"'
            await expect(log).to_be_empty()
            await expect(state).to_have_text("following")


async def test_the_page_says_why_a_job_waits(local: LocalUp, browser: Browser) -> None:
    await create(
        local,
        job("large", workers=1, resources={"limits": {"nvidia.com/gpu": "99"}}),
        job("fine", "sleep 1000"),
    )
    await local.up.until(f"{JOBS_PATH}/fine", has("Running"))
    async with opened(browser, local.url) as page:
        await expect(page.locator("tr", has_text="large")).to_contain_text("Insufficient nvidia.com/gpu")
        await open_job(page, "large")
        why = page.locator("#section-why")
        await expect(why).to_contain_text(
            "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        )
        await expect(why).to_contain_text("Next: ")
        await expect(why).to_be_in_viewport()
        label = await page.locator("svg.timeline").get_attribute("aria-label")
        assert label is not None
        assert "waiting for nodes" in label


async def test_a_port_without_a_clipboard(server: ApiServer, browser: Browser, tmp_path: Path) -> None:
    """Browsers have a clipboard only on loopback and over TLS; without it the command is shown."""
    async with Client(Connection(server=server.url, token=lambda: server.token), user_agent="test") as client:
        made = orjson.loads(await client.create(JOBS, "default", orjson.dumps(job("j"))))
        await client.create(PODS, "default", orjson.dumps(pod_of(made, containerPort=6006)))
        async with ui_of(server, tmp_path) as url, opened(browser, "about:blank") as page:
            await page.add_init_script("delete Navigator.prototype.clipboard")
            await page.goto(url)
            await open_job(page, "j")
            await page.get_by_role("button", name="6006").click()
            command = page.locator("#section-replicas code")
            await expect(command).to_have_text("rallypoint port-forward j-master-0 6006 -n default")


async def test_what_a_reader_opened_stays_open(server: ApiServer, browser: Browser, tmp_path: Path) -> None:
    async with Client(Connection(server=server.url, token=lambda: server.token), user_agent="test") as client:
        await client.create(JOBS, "default", orjson.dumps(job("j")))
        await client.patch(JOBS, "default", "j", status("Running"), subresource="status")
        async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
            await open_job(page, "j")
            phases = page.locator("#section-timeline table")
            await page.get_by_text("Phases").click()
            await expect(phases).to_be_visible()
            await client.patch(JOBS, "default", "j", status("Failed"), subresource="status")
            await expect(phases).to_contain_text("Failed")
            await expect(phases).to_be_visible()


async def test_deleted_jobs_and_their_logs(local: LocalUp, browser: Browser) -> None:
    await create(local, job("short", "echo its last words; exit 3"))
    await local.up.until(f"{JOBS_PATH}/short", has("Failed"))
    async with opened(browser, local.url) as page:
        await open_job(page, "short")
        why = page.locator("#section-why")
        await expect(why).to_contain_text("exit code 3")
        await expect(why).to_contain_text("Next: fix the cause, delete the job")
        await local.up.client.send(Step("DELETE", f"{JOBS_PATH}/short"))
        await expect(page.get_by_role("alert")).to_contain_text("has been deleted")
        await expect(why).not_to_contain_text("Next")

        await page.keyboard.press("Escape")
        await expect(page.get_by_text("No jobs.")).to_be_visible()
        await page.get_by_label("Deleted jobs").check()
        await open_job(page, "short")
        await expect(why).to_contain_text("exit code 3")
        await expect(why).to_contain_text("Next: fix the cause and create the job again")
        await expect(why).not_to_contain_text("delete the job")
        await expect(page.get_by_role("log")).to_contain_text("its last words")


async def test_replicas_of_a_deleted_job_that_never_started(local: LocalUp, browser: Browser) -> None:
    large = job("large", "exec sleep 1000", workers=1)
    containers = large["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    containers[0]["resources"] = {"limits": {"nvidia.com/gpu": "99"}}
    await create(local, large)
    await local.up.until(f"{JOBS_PATH}/large", has("Running"))
    async with opened(browser, local.url) as page:
        await expect(page.locator("tr", has_text="large")).to_contain_text("Insufficient nvidia.com/gpu")
        await local.up.client.send(Step("DELETE", f"{JOBS_PATH}/large"))
        await expect(page.get_by_text("No jobs.")).to_be_visible()
        await asyncio.sleep(LATER_SECONDS + 1)
        await page.get_by_label("Deleted jobs").check()
        await open_job(page, "large")
        replicas = page.locator("#section-replicas tr")
        await expect(replicas.filter(has_text="large-master-0")).to_contain_text("deleted")
        await expect(replicas.filter(has_text="large-worker-0")).to_contain_text("never started")


async def test_the_logs_of_a_deleted_job(local: LocalUp, browser: Browser) -> None:
    """The pod that failed comes first; all replicas and each one can be chosen."""
    fails = job("broken", "echo said by $(hostname); exit 3", workers=1, kept="All")
    fails["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"][2] = (
        "echo said by the master; exec sleep 1000"
    )
    await create(local, fails)
    await local.up.until(f"{JOBS_PATH}/broken", has("Failed"))
    async with opened(browser, local.url) as page:
        await open_job(page, "broken")
        await expect(page.locator("#section-why")).to_contain_text("exit code 3")
        await asyncio.sleep(LATER_SECONDS + 1)
        await local.up.client.send(Step("DELETE", f"{JOBS_PATH}/broken"))
        await expect(page.get_by_role("alert")).to_contain_text("has been deleted")
        await page.keyboard.press("Escape")
        await page.get_by_label("Deleted jobs").check()
        await open_job(page, "broken")
        log, replica = page.get_by_role("log"), page.get_by_label("Replica", exact=True)
        chosen = replica.locator("option:checked")
        await expect(chosen).to_have_text("broken-worker-0 (deleted)")
        await expect(log).to_contain_text("said by")
        await page.get_by_role("button", name="Show the logs of broken-master-0").click()
        await expect(chosen).to_have_text("broken-master-0 (deleted)")
        await expect(log).to_have_text("said by the master")
        await replica.select_option("All replicas")
        await expect(log.locator("> div")).to_have_count(2)


FAILED: dict[str, Any] = {
    "id": "PyTorchJob/default/j",
    "kind": "PyTorchJob",
    "namespace": "default",
    "name": "j",
    "uid": "job",
    "state": "Failed",
    "created": "2026-01-01T00:00:00Z",
    "since": "2026-01-01T00:01:00Z",
    "ended": "2026-01-01T00:01:00Z",
    "replicas": {"desired": 3, "active": 0, "succeeded": 0, "failed": 1},
    "message": "it broke",
    "why": {
        "state": "Failed",
        "causes": [{"about": ["j-worker-0"], "text": "it broke", "blocks": True, "nextStep": ""}],
        "blocked": True,
        "notRead": [],
        "phases": [],
        "timeline": {"spans": [], "restarts": []},
    },
    "pods": [],
    "deletedPods": [
        {"name": name, "uid": name, "created": "2026-01-01T00:00:00Z", "containers": ["pytorch"], "started": name != "j-worker-1"}
        for name in ("j-master-0", "j-worker-0", "j-worker-1")
    ],
}  # fmt: skip
"""The record of a deleted job."""
SAMPLE = {
    "at": "2026-01-01T00:00:30Z",
    "cpu": 0,
    "memory_bytes": 8 * 2**20,
    "gpu": 0,
    "gpu_memory_bytes": 0,
}
"""What a pod used."""


async def follow_failed_job(page: Page, url: str, *events: tuple[str, Any]) -> None:
    """Open the page of a job that the server says these events of."""
    body = "".join(
        f"event: {name}\ndata: {orjson.dumps(data).decode()}\n\n" for name, data in (*events, ("end", {}))
    )
    await page.route(
        "**/api/jobs/PyTorchJob/default/j",
        lambda route: route.fulfill(content_type="text/event-stream", body=body),
    )
    await page.goto(f"{url.partition('#')[0]}#/jobs/PyTorchJob/default/j")


@pytest.mark.parametrize(
    ("running", "text"),
    [
        (["j-master-0"], "Memory: 8.0 MiB now; one pod used at most 8.0 MiB"),
        ([], "Memory: one pod used at most 8.0 MiB"),
    ],
    ids=["runs", "has ended"],
)
async def test_pods_that_have_ended_use_nothing_now(
    server: ApiServer, browser: Browser, tmp_path: Path, running: list[str], text: str
) -> None:
    usage = {"pods": {"j-master-0": [SAMPLE]}, "others": 0, "running": running}
    async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
        await follow_failed_job(page, url, ("job", FAILED), ("usage", usage))
        await expect(page.locator("#section-usage figcaption")).to_have_text(text)


async def test_a_deleted_job_uses_nothing_now(server: ApiServer, browser: Browser, tmp_path: Path) -> None:
    usage = {"pods": {"j-master-0": [SAMPLE]}, "others": 0}
    async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
        await follow_failed_job(page, url, ("job", FAILED), ("usage", usage), ("gone", {}))
        await expect(page.get_by_role("alert")).to_contain_text("has been deleted")
        await expect(page.locator("#section-usage")).not_to_contain_text("now")


async def test_what_is_known_of_a_job_without_a_cause(
    server: ApiServer, browser: Browser, tmp_path: Path
) -> None:
    why = {**FAILED["why"], "causes": [], "blocked": False, "summary": "worker 1 has printed nothing"}
    async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
        await follow_failed_job(page, url, ("job", {**FAILED, "why": why}))
        await expect(page.locator("#section-why")).to_contain_text("worker 1 has printed nothing")


@pytest.mark.parametrize(
    ("runs", "chosen"),
    [({}, "j-worker-0 (deleted)"), ({"pytorch": 3}, "All replicas")],
    ids=["once", "thrice"],
)
async def test_which_log_of_a_deleted_job_comes_first(
    server: ApiServer, browser: Browser, tmp_path: Path, runs: dict[str, int], chosen: str
) -> None:
    """That of the pod that failed if it started once. The last start of several may be one that was killed."""
    pods = [{**pod, "runs": runs if pod["name"] == "j-worker-0" else {}} for pod in FAILED["deletedPods"]]
    async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
        await page.route(
            "**/api/history/job", lambda route: route.fulfill(json={**FAILED, "deletedPods": pods})
        )
        await page.goto(f"{url.partition('#')[0]}#/history/job")
        option = page.get_by_label("Replica", exact=True).locator("option:checked")
        await expect(option).to_have_text(chosen)
        await expect(page.locator("tr.past", has_text="j-worker-0")).not_to_contain_text("never started")
        await expect(page.locator("tr.past", has_text="j-worker-1")).to_contain_text("never started")


async def test_logs_of_earlier_starts(local: LocalUp, browser: Browser) -> None:
    """Of a container that restarts, and of pods that others have replaced."""
    restarts, replaced = (
        job(name, "echo start $(date +%s%N); exit 137") for name in ("restarts", "replaced")
    )
    for found, policy in ((restarts, "OnFailure"), (replaced, "ExitCode")):
        found["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = policy
    await create(local, restarts, replaced)
    async with opened(browser, local.url) as page:
        await open_job(page, "restarts")
        log, start = page.get_by_role("log"), page.get_by_label("Start", exact=True)
        await expect(start).to_be_visible(timeout=60_000)
        await start.select_option(index=1)
        await expect(log.locator("> div")).to_have_count(1)
        first = await log.inner_text()
        await start.select_option("last start")
        await expect(log).not_to_contain_text(first)

        await page.keyboard.press("Escape")
        await page.keyboard.press("Escape")
        await open_job(page, "replaced")
        gone = page.locator("#section-replicas tr.past", has_text="replaced-master-0")
        await expect(gone.first).to_be_visible(timeout=60_000)
        await gone.first.get_by_role("button").click()
        await expect(log.locator("> div")).to_have_count(1)
        first = await log.inner_text()
        assert first.startswith("start ")
        await page.get_by_label("Replica", exact=True).select_option("All replicas")
        await expect(log).to_contain_text(first)
        await page.evaluate(MORE_LINES, 1)


async def test_texts_are_never_html(server: ApiServer, browser: Browser, tmp_path: Path) -> None:
    """Names cannot hold HTML, so messages, events and labels try."""
    async with Client(Connection(server=server.url, token=lambda: server.token), user_agent="test") as client:
        evil = job("evil")
        evil["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        made = orjson.loads(await client.create(JOBS, "default", orjson.dumps(evil)))
        await client.patch(JOBS, "default", "evil", status("Failed", HTML), subresource="status")
        about = {"kind": "PyTorchJob", "namespace": "default", "name": "evil", "uid": made["metadata"]["uid"]}
        event = {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "type": "Warning",
            "reason": HTML,
            "message": HTML,
        }
        await client.create(
            EVENTS, "default", orjson.dumps(event | {"lastTimestamp": datetime.now(UTC).isoformat()})
        )
        async with ui_of(server, tmp_path) as url, opened(browser, url) as page:
            await expect(page.locator("tr", has_text="evil")).to_contain_text(HTML)
            await open_job(page, "evil")
            for section in ("why", "conditions", "events"):
                await expect(page.locator(f"#section-{section}")).to_contain_text(HTML)
            assert await page.locator("main img, main script").count() == 0
            second = await page.context.new_page()
            await second.goto(url)
            assert "refused" in await second.evaluate(
                "(() => { try { document.body.innerHTML = '<b>'; return 'done' } catch (error) { return 'refused' } })()"
            )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_colors_and_names_for_everybody(local: LocalUp, browser: Browser, scheme: str) -> None:
    """All texts have the contrast of WCAG AA, and all controls have a name."""
    await create(
        local,
        job("runs", TICK, workers=1),
        job("fails", "sleep 2; echo no; exit 1"),
        job("large", resources={"limits": {"nvidia.com/gpu": "99"}}),
    )
    await local.up.until(f"{JOBS_PATH}/fails", has("Failed"))
    await local.up.until(f"{JOBS_PATH}/runs", has("Running"))
    async with opened(browser, local.url, color_scheme=scheme) as page:
        await expect(page.locator("tr", has_text="runs")).to_be_visible()
        assert await page.evaluate(CONTRAST) == []
        assert await page.evaluate(UNNAMED) == []
        for name in ("runs", "fails", "large"):
            await page.goto(f"{local.url.partition('#')[0]}#/")
            await open_job(page, name)
            await expect(page.locator("svg.timeline")).to_be_visible()
            assert await page.evaluate(CONTRAST) == []
            assert await page.evaluate(UNNAMED) == []


async def test_a_phone(local: LocalUp, browser: Browser) -> None:
    await create(
        local,
        job("a-name-longer-than-the-screen-of-a-phone", TICK, workers=2),
        job("short", TICK),
    )
    await local.up.until(f"{JOBS_PATH}/short", has("Running"))
    async with opened(browser, local.url, **PHONE) as page:
        row = page.locator("tr", has_text="short")
        await expect(row).to_be_visible()
        assert await page.evaluate(WIDE) == []
        box = await row.locator("a").bounding_box()
        assert box is not None
        assert box["height"] >= 24
        await row.locator("a").tap()
        await expect(page.get_by_role("log")).to_contain_text("step")
        assert await page.evaluate(WIDE) == []


async def test_the_token(local: LocalUp, browser: Browser) -> None:
    address = local.url.partition("#")[0]
    async with opened(browser, address) as page:
        await expect(page.get_by_role("alert")).to_contain_text("Open the URL with the token")
        await page.goto(local.url)
        await expect(page.get_by_text("No jobs.")).to_be_visible()
        assert "token" not in page.url
        await page.reload()
        await expect(page.get_by_text("No jobs.")).to_be_visible()
        second = await page.context.new_page()
        await second.goto(address)
        await expect(second.get_by_text("No jobs.")).to_be_visible()

        third = await page.context.new_page()
        await third.goto(f"{address}#token=wrong")
        await expect(third.get_by_role("alert")).to_contain_text("The token in the URL is wrong")
        await third.reload()
        await expect(third.get_by_text("No jobs.")).to_be_visible()
        await third.evaluate("localStorage.setItem('rallypoint-token', 'old')")
        await third.reload()
        await expect(third.get_by_role("alert")).to_contain_text("wrong or old")


async def test_the_page_says_that_the_server_has_ended(local: LocalUp, browser: Browser) -> None:
    async with opened(browser, local.url) as page:
        await expect(page.locator("#connection")).to_have_text("live")
        await local.up.stop()
        await expect(page.locator("#connection")).to_have_text("reconnecting")
        await page.context.close()
