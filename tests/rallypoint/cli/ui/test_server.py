"""Who may read what the page serves, and what it serves of a cluster."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import pytest
from aiohttp import web
from typing_extensions import override

from api.meta import EVENTS, Resource
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import Connection
from rallypoint.cli import cluster as clusters
from rallypoint.cli import main
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui import job_list
from rallypoint.cli.ui import server as ui
from rallypoint.cli.ui.history import History
from rallypoint.cli.ui.job_list import JobList
from rallypoint.local.apiserver.server import ApiServer
from rallypoint.local.apiserver.serving.interceptor import Call, Interceptor

pytestmark = pytest.mark.looptime(False)

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
CRDS = [crd for crd in all_crds() if crd["metadata"]["name"] == "pytorchjobs.kubeflow.org"]


def job(name: str) -> dict[str, Any]:
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "none", "resources": {"limits": {"cpu": "2"}}}]}
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }


class Browser:
    """Requests to a page."""

    def __init__(self, session: aiohttp.ClientSession, url: str, client: Client, server: ApiServer) -> None:
        self.session = session
        self.server = server
        self.url, _, self.token = url.partition("#token=")
        self.client = client

    async def create(self, name: str, namespace: str = "default") -> dict[str, Any]:
        made: dict[str, Any] = orjson.loads(
            await self.client.create(JOBS, namespace, orjson.dumps(job(name)))
        )
        return made

    async def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        """Return status, body and headers of an answer."""
        given = {"Authorization": f"Bearer {self.token}", **headers}
        async with self.session.get(self.url + path, headers=given) as answer:
            return answer.status, await answer.text(), answer.headers

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncGenerator[AsyncIterator[tuple[str, Any]]]:
        """Yield the events of a stream."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.get(self.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    while name := (await answer.content.readline()).decode():
        data = (await answer.content.readline()).decode()
        await answer.content.readline()
        yield name.removeprefix("event: ").strip(), orjson.loads(data.removeprefix("data: "))


class Breaks:
    """Answers lists of pods itself while ``is_broken``."""

    def __init__(self, answer: Any = None, status: int = 500) -> None:
        self.is_broken = True
        self._answer = answer or {"kind": "Status", "message": "etcd is gone", "code": status}
        self._status = status

    async def before(self, call: Call) -> web.Response | None:
        if call.plural == "pods" and self.is_broken:
            return web.json_response(self._answer, status=self._status)
        return None

    async def after(self, call: Call) -> None: ...

    async def passes(self, call: Call, frame: bytes) -> bool:
        return True


@asynccontextmanager
async def served(
    namespace: str = "",
    interceptor: Interceptor | None = None,
    **options: Any,
) -> AsyncGenerator[Browser]:
    server = ApiServer(crds=CRDS, auto_namespaces=True, interceptor=interceptor)
    await server.start()
    try:
        connection = Connection(server=server.url, token=lambda: server.token)
        async with (
            Client(connection, user_agent="test") as client,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
        ):
            cluster = Cluster(client, server.url, namespace, await clusters.discover(client))
            async with ui.page(cluster, **options) as url:
                yield Browser(session, url, client, server)
    finally:
        await server.stop()


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with served() as found:
        yield found


async def test_the_page_itself_needs_no_token(browser: Browser) -> None:
    for path in ("", "main.js", "style.css", "icon.svg"):
        status, _, headers = await browser.get(path, Authorization="")

        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_data_need_the_token(browser: Browser) -> None:
    job_path = "api/jobs/PyTorchJob/default/j"
    for path in ("api/cluster", "api/jobs", "api/history", job_path, f"{job_path}/logs"):
        for given in ("", "Bearer ", "Bearer wrong", "Bearer é"):
            status, body, _ = await browser.get(path, Authorization=given)

            assert (status, orjson.loads(body)) == (401, {"message": "the token is missing or wrong"})


async def test_a_token_that_is_no_text_is_wrong(browser: Browser) -> None:
    address = urlsplit(browser.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = b"GET /api/cluster HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
    writer.write(head)
    answer = await reader.readline()
    writer.close()

    assert answer == b"HTTP/1.1 401 Unauthorized\r\n"


async def test_requests_of_other_sites_are_refused_even_with_the_token(browser: Browser) -> None:
    for headers in (
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ):
        status, _, _ = await browser.get("api/cluster", **headers)

        assert status == 403, headers


async def test_a_link_from_another_site_may_open_the_page(browser: Browser) -> None:
    status, _, _ = await browser.get("", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})

    assert status == 200


async def test_names_of_loopback_are_allowed(browser: Browser) -> None:
    port = urlsplit(browser.url).port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert (await browser.get("api/cluster", Host=host))[0] == 200


async def test_another_name_of_loopback_refuses_the_same() -> None:
    async with served(address="127.1") as browser:
        assert (await browser.get("api/cluster"))[0] == 200
        assert (await browser.get("api/cluster", Host="evil.example"))[0] == 403


async def test_the_url_of_all_addresses_has_the_name_of_this_machine() -> None:
    async with served(address="0.0.0.0") as browser:
        address = urlsplit(browser.url)
        browser.url = f"http://127.0.0.1:{address.port}/"
        status, _, _ = await browser.get("api/cluster", Host=address.netloc)

    assert (address.hostname, status) == (socket.gethostname().lower(), 200)


async def test_nothing_can_be_changed(browser: Browser) -> None:
    headers = {"Authorization": f"Bearer {browser.token}"}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        async with browser.session.request(method, f"{browser.url}api/jobs", headers=headers) as answer:
            assert answer.status == 405


async def test_no_other_file_is_served(browser: Browser) -> None:
    for path in ("%2e%2e%2fserver.py", "server.py", "static/main.js", "api/history/..%2fx"):
        assert (await browser.get(path))[0] == 404


async def test_jobs_are_listed_and_followed(browser: Browser) -> None:
    await browser.create("first")
    async with browser.stream("api/jobs") as events:
        name, change = await anext(events)
        await browser.create("second", "team")
        _, following = await anext(events)
        await browser.client.delete(JOBS, "default", "first")
        _, gone = await anext(events)

    assert name == "jobs"
    (row,) = change["all"]
    assert (row["id"], row["state"], row["replicas"]["desired"]) == ("PyTorchJob/default/first", "Waiting", 1)
    assert row["requests"] == {"cpu": 2.0}
    assert [row["id"] for row in following["changed"]] == ["PyTorchJob/team/second"]
    assert gone["gone"] == ["PyTorchJob/default/first"]


async def test_one_job_is_followed_until_it_is_gone(browser: Browser) -> None:
    await browser.create("j")
    body = orjson.dumps(
        {
            "status": {
                "conditions": [
                    {"type": "Running", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ]
            }
        }
    )
    async with browser.stream("api/jobs/PyTorchJob/default/j") as events:
        _, first = await anext(events)
        await browser.client.patch(JOBS, "default", "j", body, subresource="status")
        states = [first["state"]]
        while states[-1] != "Running":
            states.append((await anext(events))[1]["state"])
        await browser.client.delete(JOBS, "default", "j")
        names = [name async for name, _ in events]

    assert states[0] == "Waiting"
    assert first["why"]["timeline"]["spans"][0]["name"] == "creating"
    assert names[-2:] == ["gone", "end"]


async def test_a_cluster_that_fails_is_reported_and_asked_again() -> None:
    breaks = Breaks()
    async with served(interceptor=breaks) as browser:
        await browser.create("j")
        async with browser.stream("api/jobs/PyTorchJob/default/j") as events:
            failed = [event async for event in events]
        breaks.is_broken = False
        async with browser.stream("api/jobs/PyTorchJob/default/j") as events:
            name, _ = await anext(events)

    assert failed == [("failed", {"message": "the cluster does not answer: etcd is gone"})]
    assert name == "job"


async def test_the_list_of_a_cluster_that_has_ended_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "CHECK_SECONDS", 0.05)
    async with served() as browser:
        await browser.create("j")
        async with browser.stream("api/jobs") as events:
            assert (await anext(events))[0] == "jobs"
            await browser.server.stop()
            name, failure = await anext(events)
            ended = [event async for event in events]
        async with browser.stream("api/jobs") as events:
            again = await anext(events)

    assert (name, ended) == ("failed", [])
    assert failure["message"].startswith("the cluster does not answer: ")
    assert again[0] == "failed"


async def test_an_object_that_nothing_expects_is_reported() -> None:
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "odd"}}]}
    async with served(interceptor=Breaks(pods, 200)) as browser:
        await browser.create("j")
        async with browser.stream("api/jobs/PyTorchJob/default/j") as events:
            failed = [event async for event in events]

    assert failed == [("failed", {"message": "unexpected error: KeyError: 'uid'"})]


class BrokenList(JobList):
    """A list that fails after it was filled."""

    @override
    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(super().run())
            await self.filled()
            running.cancel()
            raise OverflowError("too large")


async def test_an_unexpected_error_ends_the_page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block around the page is ``rallypoint up``, with its cluster."""
    monkeypatch.setattr(ui, "JobList", BrokenList)
    async with served() as browser:
        async with asyncio.timeout(20):
            while (answer := await browser.get("api/jobs"))[0] == 200:
                pass

    why = "the page no longer follows the cluster, start it again: unexpected error: OverflowError: too large"
    assert answer[0] == 503
    assert orjson.loads(answer[1]) == {"message": why}


async def test_a_job_that_does_not_exist(browser: Browser) -> None:
    for path in (
        "PyTorchJob/default/none",
        "Secret/default/none",
        "PyTorchJob/default/none/logs",
        "PyTorchJob/..%2Fx/j/logs?uid=u",
    ):
        assert (await browser.get(f"api/jobs/{path}"))[0] == 404


async def test_a_page_of_one_namespace_shows_no_other() -> None:
    async with served(namespace="team") as browser:
        await browser.create("ours", "team")
        await browser.create("theirs", "other")
        async with browser.stream("api/jobs") as events:
            _, change = await anext(events)
        other = await browser.get("api/jobs/PyTorchJob/other/theirs")

    assert [row["name"] for row in change["all"]] == ["ours"]
    assert other[0] == 404


async def test_ended_jobs_are_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")
    ended = {
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "message": "it broke",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }
    async with served(history=history, records=True) as browser:
        uid = (await browser.create("j"))["metadata"]["uid"]
        unfinished = (await browser.create("unfinished"))["metadata"]["uid"]
        await browser.client.patch(
            JOBS, "default", "j", orjson.dumps({"status": ended}), subresource="status"
        )
        async with asyncio.timeout(20):
            while not history.has(uid):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
        await browser.client.delete(JOBS, "default", "j")
        await browser.client.delete(JOBS, "default", "unfinished")
        async with asyncio.timeout(20):
            while not history.has(unfinished):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
        _, rows, _ = await browser.get("api/history")
        _, found, _ = await browser.get(f"api/history/{uid}")

    assert {row["name"]: row["message"] for row in orjson.loads(rows)} == {
        "j": "it broke",
        "unfinished": "deleted before it had finished",
    }
    (cause,) = orjson.loads(found)["why"]["causes"]
    assert cause["text"] == "it broke"
    assert cause["nextStep"] == "fix the cause and create the job again", "people find it deleted"


async def test_a_job_that_is_deleted_early_is_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")
    running = [{"type": "Running", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"conditions": running, "replicaStatuses": {"Master": {"failed": 0}}}
    async with served(history=history, records=True) as browser:
        made = await browser.create("j")
        uid = made["metadata"]["uid"]
        about = {"kind": "PyTorchJob", "namespace": "default", "name": "j", "uid": uid}
        event = {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "reason": "Seen",
            "message": "it was there",
        }
        await browser.client.create(EVENTS, "default", orjson.dumps(event))
        await browser.client.patch(
            JOBS, "default", "j", orjson.dumps({"status": status}), subresource="status"
        )
        async with browser.stream("api/jobs") as events:
            async for _, change in events:
                if any(row["waits"] for row in change.get("all", change.get("changed", ()))):
                    break
        await asyncio.sleep(0.5)
        await browser.client.delete(JOBS, "default", "j")
        async with asyncio.timeout(20):
            while not history.has(uid):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
    found = history.read(uid)

    assert found is not None
    assert (found["state"], found["why"]["state"]) == ("Deleted", "Deleted")
    assert [event["reason"] for event in found["events"]] == ["Seen"]
    assert [cause["text"] for cause in found["why"]["causes"]] == ["1 of 1 pods waits"]
    assert found["ended"] == found["since"]
    assert all(span["end"] for span in found["why"]["timeline"]["spans"])


def test_an_invalid_port(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["ui", "--port", "x"])

    assert "must be from 0 to 65535" in capsys.readouterr().err
