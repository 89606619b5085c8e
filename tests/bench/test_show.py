"""``bench show`` with recorded runs."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.__main__ import main
from bench.nccl.schema import VERSION
from bench.show import BEGIN, END

RECORDED: dict[str, Any] = {
    "commit": {"id": "0123456789abcdef", "changed": True},
    "environment": {
        "cores": 2,
        "cpu": "EPYC",
        "python": "CPython 3.11.7",
        "versions": {"kube-apiserver": "v1.36.3"},
    },
    "load_average": {"before": 0.5, "after": 2.5},
    "took_seconds": 600,
    "cases": [
        {
            "case": "1x8 compact",
            "runs": [{"calls": 22, "calls_per_job": 22, "calls_by_kind": {"create pods": 8}, "refused": {}}],
            "baseline": [],
        }
    ],
}


def recorded(folder: Path, content: dict[str, Any]) -> str:
    file = folder / "result.json"
    file.write_bytes(orjson.dumps(content))
    return str(file)


def test_tables_go_between_the_marker_lines_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}old\n{END}\nthe rest\n")

    assert main(["show", recorded(tmp_path, RECORDED), "--into", str(page)]) == 0

    text = page.read_text()
    lines = text.splitlines()
    assert text.startswith(f"# Title\n\n{BEGIN}\nresult: commit 0123456, changed since; 2 cores (EPYC), ")
    assert text.endswith(f"\n\n{END}\nthe rest\n")
    assert "old" not in text
    assert "| 1x8 compact | – | – | 22 | – | – | – | – | – | – | – |" in lines
    assert "| 1x8 compact | API calls, whole life | 22 | 22 | met |" in lines
    assert "| --- | --- | --- |" in lines


def test_a_page_without_marker_lines_is_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n")

    assert main(["show", recorded(tmp_path, RECORDED), "--into", str(page)]) == 1

    assert page.read_text() == "# Title\n"
    assert "lacks the line <!-- figures" in capsys.readouterr().err


def test_tables_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", recorded(tmp_path, RECORDED)]) == 0

    assert "│ 1x8 compact" in capsys.readouterr().out


def test_a_comparison_has_tables_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}{END}")
    runs = {"working tree": [{"create_to_running_ms": 60.0}], "go": [{"create_to_running_ms": 100.0}]}
    cases = [{"case": "1x8", "operators": runs, "loader": [{"create_to_pods_running_ms": 50.0}]}]

    assert main(["show", recorded(tmp_path, {**RECORDED, "cases": cases}), "--into", str(page)]) == 0

    lines = page.read_text().splitlines()
    assert "| 1x8 | create → Running in status, ms | 60 | 100 | 50 |" in lines
    assert "| 1x8 | create → Running in status, ms | 0.60 (0.60 to 0.60) | 1.20 (1.20 to 1.20) |" in lines


@pytest.mark.parametrize("content", [{}, {"scenarios": []}])
def test_a_file_without_cases_is_rejected(
    tmp_path: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", recorded(tmp_path, content)]) == 1

    assert "'cases'" in capsys.readouterr().err


def test_a_record_of_collectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "via": "mpijob",
        "backend": "gloo",
        "nodes": 1,
        "gpus": 2,
        "warmup": 1,
        "iterations": 1,
        "rounds": 1,
    }
    skipped = {"collective": "all_reduce", "dtype": "int8", "in_place": False, "why": "torch has none"}
    record: dict[str, Any] = {
        "record": "nccl", "schema_version": VERSION, "state": "complete", "why": "", "started": "", "seconds": 1.0,
        "submitted": 0.0, "commit": {}, "environment": {}, "config": config, "skipped": [skipped],
    }  # fmt: skip

    assert main(["show", recorded(tmp_path, record)]) == 0
    assert "not measured: all_reduce of int8, out of place: torch has none" in capsys.readouterr().out

    assert main(["show", recorded(tmp_path, record | {"schema_version": 1})]) == 1
    assert "version 1; known are 2, 3" in capsys.readouterr().err
