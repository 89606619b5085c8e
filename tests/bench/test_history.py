"""The page of the recorded runs by commit."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest

from bench import history, record
from bench.__main__ import main
from bench.history import CASES, DRAWN, PAGE, commits, files, records

SVG = "{http://www.w3.org/2000/svg}"


def run(running_ms: float, writes: int = 4) -> dict[str, Any]:
    return {
        "create_to_running_ms": running_ms,
        "controller_cpu_per_pod_ms": running_ms / 10,
        "calls_by_kind": {"create pods": 8, "patch pytorchjobs/status": writes},
    }


def controller(commit_id: str, *running_ms: float, case: str = "1x64 full", **changes: Any) -> dict[str, Any]:
    """A record of the controller and its baseline, which takes 10 ms."""
    baseline = [{"create_to_pods_running_ms": 10.0}] * len(running_ms)
    return {
        "commit": {"id": commit_id, "changed": False},
        "controller_flags": [],
        "cases": [{"case": case, "runs": [run(value) for value in running_ms], "baseline": baseline}],
        **changes,
    }


def comparison(commit: str, *, changed: bool = False) -> dict[str, Any]:
    """A record of a working tree (20 ms), another commit (30 ms), flags, the Go operators (40 ms) and the loader (10 ms)."""

    def facts(commit: str, *flags: str, changed: bool = False) -> dict[str, Any]:
        return {"commit": {"id": commit, "changed": changed}, "flags": list(flags)}

    return {
        "commit": {"id": commit, "changed": changed},
        "operators": {
            "working tree": facts(commit, changed=changed),
            "main~9": facts("oldoldoldold"),
            "main --events=off": facts(commit, "--events=off"),
            "go": {"training-operator": {"version": "1.9.4", "flags": []}},
        },
        "cases": [
            {
                "case": "1x64",
                "operators": {
                    "working tree": [run(20.0)],
                    "main~9": [run(30.0)],
                    "main --events=off": [run(5.0)],
                    "go": [run(40.0)],
                },
                "loader": [{"create_to_pods_running_ms": 10.0}],
            }
        ],
    }


def test_the_page_and_its_charts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, run ``python -m bench history``."""
    assert main(["history", "--check"]) == 0, capsys.readouterr().err


def test_a_stale_file_and_a_chart_too_many_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(history, "IMAGES", tmp_path)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    (tmp_path / "history-old.svg").touch()

    assert main(["history", "--check"]) == 1
    named = {line.split()[0] for line in capsys.readouterr().err.splitlines()}
    assert {"page.md", "history-loader.svg", "history-old.svg"} <= named
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history-old.svg"]

    assert main(["history"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == named - {"history-old.svg"}
    assert main(["history", "--check"]) == 0


def test_records_of_one_commit_are_pooled_and_commits_keep_their_order() -> None:
    measured = commits(
        [
            ("2026-11-21", controller("bbbb", 10.0, 20.0)),
            ("2026-11-22", controller("aaaa", 10.0)),
            ("2026-11-23", controller("bbbb", 30.0)),
        ]
    )

    assert [(commit.id, commit.day) for commit in measured] == [
        ("bbbb", "2026-11-21"),
        ("aaaa", "2026-11-22"),
    ]
    point = measured[0].cases["1x64"]
    assert point.over_loader == point.cpu_per_pod_ms == [1.0, 2.0, 3.0]
    assert point.status_writes_per_job == [4, 4, 4]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(controller("a", 1.0, commit={"id": "a", "changed": True}), id="a changed working tree"),
        pytest.param(controller("a", 1.0, controller_flags=["--events=off"]), id="flags"),
        pytest.param(controller("a", 1.0, case="1x64 compact"), id="other events"),
        pytest.param(controller("a", 1.0, case="10000-own full"), id="a start"),
    ],
)
def test_a_record_of_something_else_is_left_out(content: dict[str, Any]) -> None:
    assert commits([("2026-11-21", content)]) == []


def test_a_comparison_measures_each_commit_without_flags() -> None:
    ours, other = commits([("2026-11-28", comparison("newnewnewnew"))])

    assert (ours.name, ours.cases["1x64"].over_loader, ours.cases["1x64"].over_go) == (
        "newnewn",
        [2.0],
        [0.5],
    )
    assert (other.name, other.cases["1x64"].over_loader, other.cases["1x64"].over_go) == (
        "oldoldo",
        [3.0],
        [0.75],
    )


def test_a_changed_working_tree_of_a_comparison_is_left_out() -> None:
    assert [commit.name for commit in commits([("2026-11-28", comparison("n", changed=True))])] == ["oldoldo"]


def test_the_page_has_a_row_for_each_commit_and_case_newest_first() -> None:
    measured = commits(
        [("2026-11-21", controller("aaaaaaaaaa", 10.0, 20.0, 15.0)), ("2026-11-28", comparison("bbbbbbbbbb"))]
    )

    written = files(measured)

    rows = [line for line in written[PAGE].splitlines() if line.startswith("| `")]
    assert rows == [
        "| `oldoldo` | 2026-11-28 | 1x64 | 1 | 3 | 0.75 | 3 | 4 |",
        "| `bbbbbbb` | 2026-11-28 | 1x64 | 1 | 2 | 0.5 | 2 | 4 |",
        "| `aaaaaaa` | 2026-11-21 | 1x64 | 3 | 1.5 (1 to 2) |  | 1.5 (1 to 2) | 4 |",
    ]


def test_each_chart_is_an_image_of_the_page_and_draws_the_spread() -> None:
    written = files(
        commits([("2026-11-21", controller("aaaa", 10.0, 20.0)), ("2026-11-22", controller("bbbb", 5.0))])
    )

    images = {path.name: ET.fromstring(content) for path, content in written.items() if path != PAGE}
    assert sorted(images) == ["history-cpu.svg", "history-loader.svg", "history-writes.svg"], (
        "no Go operators"
    )
    assert all(f"(../images/{name})" in written[PAGE] for name in images)
    drawn = images["history-loader.svg"]
    assert drawn[0].tag == f"{SVG}title"
    assert [circle.findtext(f"{SVG}title") for circle in drawn.iter(f"{SVG}circle")] == [
        "1x64, aaaa: 1.5 × loader (1 to 2)",
        "1x64, bbbb: 0.5 × loader (0.5 to 0.5)",
    ]
    assert len(list(drawn.iter(f"{SVG}polygon"))) == 1


def test_without_records_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="no records"):
        files([])


def test_records_are_read_in_the_order_of_their_day_and_number(tmp_path: Path) -> None:
    for name in (
        "2026-11-22-controlplane",
        "2026-11-21-controlplane-10",
        "2026-11-21-controlplane-2",
        "2026-11-21-comparison",
    ):
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps({"cases": [], "name": name}))
    (tmp_path / "2026-11-21-events.json").write_bytes(orjson.dumps({"cases": []}))
    (tmp_path / "2026-11-20-controlplane.json").write_bytes(orjson.dumps({"scenarios": []}))

    assert [content["name"] for _, content in records(tmp_path)] == [
        "2026-11-21-controlplane-2",
        "2026-11-21-controlplane-10",
        "2026-11-21-comparison",
        "2026-11-22-controlplane",
    ]


def test_the_drawn_cases_are_cases_of_the_page() -> None:
    assert set(DRAWN) < set(CASES)
