"""``rallypoint shadow report``: exit statuses, texts, and where it finds the shadow."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from controller.server.debug import debugging
from rallypoint.cli import main
from rallypoint.cli.shadow import DIFFERENT, EQUAL, UNREAD, exit_status, text
from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.local_harness import start_local_harness
from tests.support.port_forward import free_port

COUNTS = {"equal": 1, "declared": 0, "different": 0, "unread": 0, "left": 0}
TRAIN = {
    "kind": "PyTorchJob",
    "namespace": "ml",
    "name": "train",
    "rule": "pod",
    "subject": "Pod train-worker-0",
    "field": "/spec/restartPolicy",
    "ours": "Never",
    "theirs": "Always",
    "page": "",
}
UNDECLARED = {"rule": "pod", "declared": False, "reason": "", "page": "", "jobs": 1, "differences": 1}
DECLARED = {
    "rule": "init-container",
    "declared": True,
    "reason": "the init container also runs elsewhere",
    "page": "docs/decisions/0006-init-container.md",
    "jobs": 3,
    "differences": 6,
}
NOT_QUIET = {"kind": "PyTorchJob", "namespace": "ml", "name": "busy", "why": "it changes"}


def report(**fields: Any) -> dict[str, Any]:
    whole = {
        "kinds": {"PyTorchJob": COUNTS},
        "rules": [],
        "differences": [],
        "differencesLeftOut": 0,
        "unread": [],
        "unreadLeftOut": 0,
    }
    return {**whole, **fields}


@pytest.mark.parametrize(
    ("found", "status"),
    [
        pytest.param(report(), EQUAL, id="no differences"),
        pytest.param(report(rules=[DECLARED]), EQUAL, id="declared differences"),
        pytest.param(report(rules=[UNDECLARED], differences=[TRAIN]), DIFFERENT, id="undeclared differences"),
        pytest.param(report(unread=[NOT_QUIET]), UNREAD, id="a job that was not compared"),
        pytest.param(
            report(unread=[{"why": "the cache of pods is being filled"}]),
            UNREAD,
            id="a cache that is not filled",
        ),
        pytest.param(
            report(rules=[UNDECLARED], unread=[NOT_QUIET]),
            DIFFERENT,
            id="undeclared differences, and more to come",
        ),
    ],
)
def test_the_exit_status_says_whether_the_operators_agree(found: dict[str, Any], status: int) -> None:
    assert exit_status(found) == status


def test_the_text_shows_undeclared_differences_with_both_values() -> None:
    shown = "".join(text(report(rules=[UNDECLARED, DECLARED], differences=[TRAIN])))

    (line,) = (line for line in shown.splitlines() if "ml/train" in line)
    assert line.split("   ")[-2:] == ["here: Never", "there: Always"]
    assert "Pod train-worker-0 /spec/restartPolicy" in line
    assert "init-container: 6 in 3 jobs. the init container also runs elsewhere (https://" in shown
    assert "/docs/decisions/0006-init-container.md)" in shown
    assert shown.rstrip().endswith("before you switch.")


def test_the_text_counts_what_it_does_not_show() -> None:
    many = {**UNDECLARED, "differences": 12}
    shown = "".join(
        text(report(rules=[many], differences=[TRAIN] * 12, unread=[NOT_QUIET] * 11, unreadLeftOut=4))
    )

    assert "… and 2 more; -o json lists them" in shown
    assert "… and 5 more; -o json lists them" in shown


def test_what_concerns_all_jobs_is_unread_for_all() -> None:
    shown = "".join(text(report(unread=[{"why": "jaxjobs are not served"}])))

    assert ["all jobs", "jaxjobs are not served"] in [
        [cell.strip() for cell in line.split("   ")] for line in shown.splitlines()
    ]
    assert "Read the report again later" in shown


@asynccontextmanager
async def served(found: dict[str, Any]) -> AsyncGenerator[str]:
    async with debugging("127.0.0.1:0", {"shadow": ("as JSON", lambda: orjson.dumps(found))}) as (host, port):
        yield f"http://{host}:{port}"


@pytest.mark.looptime(False)
async def test_it_reads_the_report_at_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    async with served(report(rules=[DECLARED])) as address:
        arguments = ["shadow", "report", "-o", "json", "--address", address]
        assert await asyncio.to_thread(main, arguments) == EQUAL
    assert json.loads(capsys.readouterr().out) == report(rules=[DECLARED])


@pytest.mark.looptime(False)
async def test_an_operator_without_shadow_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    async with debugging("127.0.0.1:0") as (host, port):
        arguments = ["shadow", "report", "--address", f"http://{host}:{port}"]
        assert await asyncio.to_thread(main, arguments) == UNREAD
    assert "does that operator run with --shadow?" in capsys.readouterr().err


def test_a_shadow_that_does_not_answer_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shadow", "report", "--address", "http://127.0.0.1:1"]) == UNREAD
    assert "the shadow does not answer" in capsys.readouterr().err


@pytest.fixture
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))


@pytest.mark.usefixtures("_no_cluster")
def test_a_cluster_that_cannot_be_reached_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shadow", "report"]) == UNREAD
    assert "missing" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:6060", "https://shadow", "http://shadow/metrics"])
def test_another_kind_of_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["shadow", "report", "--address", address])
    assert "is not an address such as http://127.0.0.1:6060" in capsys.readouterr().err


POD = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Reports(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/debug/pprof/shadow" else 404)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())
with HTTPServer(("127.0.0.1", int(sys.argv[1])), Reports) as server:
    print("listens", flush=True)
    server.serve_forever()
"""
"""Serves a report on loopback, as a shadow does."""


@pytest.mark.looptime(False)
async def test_it_reads_the_report_of_the_shadow_in_a_cluster(
    tmp_path: Path,
    isolation: IsolationMode,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    monkeypatch.setattr("rallypoint.cli.shadow.PORT", port)
    found = report(rules=[UNDECLARED], differences=[TRAIN])
    async with start_local_harness(tmp_path / "site", isolation) as harness:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(dict(harness.kubeconfig)))
        arguments = ["shadow", "report", "-o", "json", f"--kubeconfig={kubeconfig}", "--namespace=default"]
        assert await asyncio.to_thread(main, arguments) == UNREAD
        assert "no shadow runs in the namespace default" in capsys.readouterr().err

        await harness.pod("rallypoint-shadow", sys.executable, "-c", POD, str(port), json.dumps(found))
        await harness.wait_for_log("rallypoint-shadow", "listens")
        assert await asyncio.to_thread(main, arguments) == DIFFERENT
        assert json.loads(capsys.readouterr().out) == found
