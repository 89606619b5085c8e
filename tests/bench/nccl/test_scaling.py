"""``bench scaling`` and ``bench overhead``, with a script in place of the interpreter."""

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.nccl.scaling import numbers
from bench.nccl.schema import Overhead, Scaling, load
from bench.nccl.worker.messages import PREFIX

pytestmark = pytest.mark.looptime(False)

STAMPS = """'"timestamps":{"process":'$(date +%s.%N)',"torch":'$(date +%s.%N)',"group":'$(date +%s.%N)',"first":'$(date +%s.%N)'}}'"""
WORLD = f"""echo '{PREFIX}{{"type":"world","ranks":2,'{STAMPS}"""
POINT = f"""echo '{PREFIX}{{"type":"point","collective":"all_reduce","dtype":"float32","in_place":true,"size_bytes":8,"elements":2,"times_us":[2.0],"wrong":0}}'"""
TRAINED = f"""echo '{PREFIX}{{"type":"trained","images_per_second":[80.0,100.0,90.0],"parameters":7}}'"""
END = f"""echo '{PREFIX}{{"type":"end"}}'"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that the pods run; a test writes it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "python.sh"
    path.touch(mode=0o755)
    return path


def saying(script: Path, *lines: str) -> str:
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    return f"--python={script}"


@pytest.mark.parametrize(("most", "found"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])])
def test_numbers_of_nodes(most: int, found: list[int]) -> None:
    assert numbers(most) == found


def test_scaling(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = saying(script, WORLD, TRAINED, END, "sleep 60")

    assert main(["scaling", "--backend=gloo", "--nodes=2", "--isolation=loopback", python]) == 0

    (file,) = Path("nccl-bench").glob("*-scaling.json")
    record = load(file)
    assert isinstance(record, Scaling)
    assert [(run.nodes, run.images_per_second) for run in record.runs] == [
        (1, [80, 100, 90]),
        (2, [80, 100, 90]),
    ]
    assert "50.0%" in capsys.readouterr().out, "two nodes that are as fast as one"


def test_partial_scaling(script: Path) -> None:
    """The script fails on two nodes, because the second has no torch."""
    python = saying(
        script, '[ "$RANK" = 1 ] && exit 9', WORLD, "sleep 1", TRAINED, "[ $PET_NNODES = 2 ] && sleep 60", END
    )

    assert main(["scaling", "--backend=gloo", "--nodes=2", "--isolation=loopback", python]) == 1

    (file,) = Path("nccl-bench").glob("*-scaling.json")
    record = load(file)
    assert isinstance(record, Scaling)
    assert (record.state, [run.nodes for run in record.runs]) == ("partial", [1])
    assert "worker-0 has failed with exit code 9" in record.why


def test_overhead_alternates(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = saying(script, WORLD, POINT, END)

    assert (
        main(
            ["overhead", "--backend=gloo", "--gpus=2", "--max=8", "--runs=2", "--isolation=loopback", python]
        )
        == 0
    )

    (file,) = Path("nccl-bench").glob("*-overhead.json")
    record = load(file)
    assert isinstance(record, Overhead)
    assert [start.manual for start in record.starts] == [True, False, False, True]
    assert all(0 < start.timestamps["process"] <= start.timestamps["first"] < 60 for start in record.starts)
    assert "1.000 to 1.000" in " ".join(capsys.readouterr().out.split())


def test_overhead_without_torch(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = saying(script, "echo no module named torch", "exit 1")

    assert main(["overhead", "--backend=gloo", "--max=8", "--runs=1", "--isolation=loopback", python]) == 1
    assert "the run is partial: run 1 by hand: exit code 1; no module named torch" in capsys.readouterr().err
