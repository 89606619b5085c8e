"""Findings as text, as JSON and as an exit status, and the flags of the command."""

import json

import pytest

from rallypoint.cli import main
from rallypoint.cli.check import document, text
from rallypoint.cli.check.facts import Options
from rallypoint.cli.check.findings import Before, Finding, blocker, exit_status, names, ok, unknown, warning

FINE, ODD, BAD, OPEN = ok("a", "fine"), warning("b", "odd", "do"), blocker("c", "bad"), unknown("d", "open")


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([FINE], 0),
        ([FINE, ODD], 0),
        ([ODD, OPEN], 2),
        ([OPEN, BAD], 1),
    ],
)
def test_the_exit_status(findings: list[Finding], status: int) -> None:
    assert exit_status(findings) == status


def test_text_has_a_line_for_each_finding_and_its_remedy() -> None:
    assert text([FINE, ODD, ODD, OPEN]).splitlines() == [
        "LEVEL     CHECK   FINDING",
        "ok        a       fine",
        "warning   b       odd",
        "                  Remedy: do",
        "warning   b       odd",
        "                  Remedy: do",
        "unknown   d       open",
        "",
        "2 warnings, 1 unknown.",
    ]
    assert text([FINE]).splitlines()[-1] == "Everything is ok."
    assert text([BAD, ODD]).splitlines()[-1] == "1 blocker, 1 warning."


def test_json_has_all_findings_and_their_number() -> None:
    found = json.loads(document([FINE, ODD, BAD], Options(before=Before.SWITCH)))

    assert found["before"] == "switch"
    assert found["counts"] == {"ok": 1, "warning": 1, "blocker": 1, "unknown": 0}
    assert found["findings"][1] == {"check": "b", "level": "warning", "text": "odd", "remedy": "do"}


def test_a_finding_is_one_line_without_terminal_control() -> None:
    found = Finding("a", ok("", "").level, "one\ntwo\x1b[2J\x07", "\rdo").cleaned()

    assert (found.text, found.remedy) == ("one two", "do")


def test_many_names_are_counted() -> None:
    assert names(["a", "b", "c"]) == "a, b, c"
    assert names(f"{n}" for n in range(5)) == "0, 1, 2 and 2 more"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "mpi-operator"], "--to needs --before back"),
        (["--before", "back", "--release", "1.8"], "--release needs --before back and one --to"),
        (["--before", "tomorrow"], "argument --before: invalid"),
    ],
)
def test_flags_that_do_not_fit_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", *arguments])

    assert says in capsys.readouterr().err
