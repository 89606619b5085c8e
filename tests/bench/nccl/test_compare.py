"""``bench compare`` from files to the exit status."""

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bench.nccl import compare
from bench.nccl.schema import Record


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., int]:
    def execute(first: Record, second: Record, allow: float | None = None) -> int:
        files = tmp_path / "a.json", tmp_path / "b.json"
        for file, record in zip(files, (first, second), strict=True):
            file.write_bytes(msgspec.json.encode(record))
        return compare.execute(argparse.Namespace(first=files[0], second=files[1], allow=allow))

    return execute


def test_a_slower_run(
    run: Callable[..., int], make_record: Callable[..., Record], capsys: pytest.CaptureFixture[str]
) -> None:
    slower = make_record(busbw={1024: 1.0, 1 << 20: 50.0}, config={"image": "new"})

    assert run(make_record(), slower) == 0
    shown = capsys.readouterr().out
    assert "B has 0.707 times the bandwidth of A on average; of 2 points 1 same, 0 faster, 1 slower" in shown
    assert "differs: image:  / new" in shown
    assert run(make_record(), slower, allow=0.05) == 1
    assert run(make_record(), slower, allow=0.6) == 0


def test_nothing_in_common(
    run: Callable[..., int], make_record: Callable[..., Record], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(make_record(busbw={8: 1.0}), make_record(busbw={16: 1.0})) == 1
    assert "not compared" in capsys.readouterr().err


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.json"

    assert compare.execute(argparse.Namespace(first=missing, second=missing, allow=None)) == 1
    assert "No such file" in capsys.readouterr().err
