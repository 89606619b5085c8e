"""Recorded runs shown again."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.__main__ import main

RECORDED: dict[str, Any] = {
    "commit": {"id": "0123456789abcdef", "changed": True},
    "environment": {
        "cores": 2,
        "cpu": "EPYC",
        "python": "CPython 3.11.7",
        "versions": {"kube-apiserver": "v1.36.3"},
    },
    "load_average": {"before": 0.5, "after": 2.5},
    "cases": [
        {
            "case": "1x8 compact",
            "runs": [{"calls": 22, "calls_per_job": 22, "calls_by_kind": {"create pods": 8}, "refused": {}}],
            "floor": [],
        }
    ],
}


def recorded(folder: Path, content: dict[str, Any]) -> str:
    file = folder / "result.json"
    file.write_bytes(orjson.dumps(content))
    return str(file)


def test_a_page_gets_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", recorded(tmp_path, RECORDED), "--markdown"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Commit 0123456, changed since; 2 cores (EPYC), CPython 3.11.7")
    assert "| 1x8 compact | – | – | 22 | – | – | – | – | – | – | – |" in lines
    assert "| 1x8 compact | API calls, whole life | 22 | 22 | met |" in lines
    assert "| --- | --- | --- |" in lines


def test_a_person_gets_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", recorded(tmp_path, RECORDED)]) == 0

    assert "│ 1x8 compact" in capsys.readouterr().out


@pytest.mark.parametrize("content", [{}, {"scenarios": []}])
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", recorded(tmp_path, content)]) == 1

    assert "'cases'" in capsys.readouterr().err
