"""Nothing that a tenant writes into an object controls the terminal of who looks at it."""

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.messages import escape_control
from api.meta import Resource
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli import describe, get, why
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.columns import Columns
from rallypoint.cli.terminal import write, write_error
from tests.support.harness import NAMESPACE, start_harness

CLI = Path(clusters.__file__).parent
HOSTILE = "clean\x1b[2J\x1b]0;title\x07\r\x9b31mred \u202egnp.exe\nJob: Succeeded"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\x1b[31mred", "\\u001b[31mred", id="an escape sequence"),
        pytest.param("\x9b31mred\x85", "\\u009b31mred\\u0085", id="C1 control characters"),
        pytest.param("Failed\rRunning\x08", "Failed\\u000dRunning\\u0008", id="overwriting"),
        pytest.param("a\u202eb\u2066c", "a\\u202eb\\u2066c", id="the direction of text"),
        pytest.param("one\ttwo\nthree", "one\ttwo\nthree", id="tab and newline stay"),
        pytest.param("größer 漢字 🙂 שלום", "größer 漢字 🙂 שלום", id="other characters stay"),
    ],
)
def test_control_characters_are_escaped(text: str, expected: str) -> None:
    assert escape_control(text) == expected


def test_both_streams_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    write("\x1b[2J")
    write_error("\x1b[3J")

    assert capsys.readouterr() == ("\\u001b[2J", "\\u001b[3J")


def test_a_cell_stays_in_its_line_and_its_width_counts_the_escapes() -> None:
    text = Columns(["A", "B"]).text([["x\x1b\ny", "1"], ["", "2"]])

    assert text.splitlines() == ["A            B", "x\\u001b\\ny   1", "             2"]


Command = Callable[[argparse.Namespace, Cluster], Awaitable[int]]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(get._get, "", id="get"),
        pytest.param(get._get, "wide", id="get -o wide"),
        pytest.param(get._get, "json", id="get -o json"),
        pytest.param(get._get, "yaml", id="get -o yaml"),
        pytest.param(describe._describe, "", id="describe"),
        pytest.param(why._why, "text", id="why"),
        pytest.param(why._why, "json", id="why -o json"),
    ],
)
async def test_a_hostile_object_is_shown_without_control(
    command: Command, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(
        what=["pytorchjobs/train"],
        output=output,
        selector="",
        watch=False,
        no_headers=False,
        ignore_not_found=False,
    )
    async with start_harness() as harness:
        job = await harness.submit()
        async with Client(harness.connection, user_agent="rallypoint-cli") as client:
            cluster = Cluster(client, "", NAMESPACE, await clusters.discover(client))
            (served,) = cluster.find_all("pytorchjobs")
            await _make_hostile(client, served.resource, job["metadata"]["name"])
            await command(args, cluster)

    shown = capsys.readouterr().out
    assert "clean" in shown
    assert shown.replace("\n", "").isprintable()
    assert not any(line.startswith("Job: Succeeded") for line in shown.splitlines())
    if command is get._get and output in ("json", "yaml"):
        assert HOSTILE in _texts(json.loads(shown) if output == "json" else yaml.safe_load(shown))


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, (dict, list)):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _texts(value)
    elif isinstance(document, str):
        yield document


async def _make_hostile(client: Client, resource: Resource, name: str) -> None:
    time = "2026-01-01T00:00:00Z"
    texts = {"status": "True", "reason": HOSTILE, "message": HOSTILE}
    times = {"lastTransitionTime": time, "lastUpdateTime": time}
    conditions = [{"type": type_, **texts, **times} for type_ in ("Failed", HOSTILE)]
    annotated = json.dumps({"metadata": {"annotations": {"note": HOSTILE}}}).encode()
    await client.patch(resource, NAMESPACE, name, annotated)
    status = json.dumps({"status": {"conditions": conditions}}).encode()
    await client.patch(resource, NAMESPACE, name, status, subresource="status")


@pytest.mark.parametrize("file", sorted(CLI.rglob("*.py")), ids=lambda file: str(file.relative_to(CLI)))
def test_commands_write_only_through_the_terminal_module(file: Path) -> None:
    found = [
        node.lineno
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout.write", "sys.stderr.write"))
        or (isinstance(node, ast.Name) and node.id == "print")
    ]

    assert not found


def test_characters_that_a_terminal_cannot_show_are_escaped() -> None:
    """Training programs print progress bars, whatever the locale is."""
    program = "from rallypoint import cli; cli._main = lambda given: print('done \u2588') or 0; raise SystemExit(cli.main([]))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )

    assert (done.returncode, done.stdout) == (0, b"done \\u2588\n")
