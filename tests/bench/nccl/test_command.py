"""``bench nccl`` from flags to the exit status, without a measurement."""

from pathlib import Path

import pytest

from bench.__main__ import main

pytestmark = pytest.mark.looptime(False)


@pytest.mark.parametrize(
    ("flags", "status", "why"),
    [
        (["--min=1M", "--max=1K"], 2, "rallypoint-bench: the smallest size, 1M, is above the largest, 1K"),
        (["--kubeconfig=no-such-file"], 1, "not measured: kubeconfig no-such-file: no such file"),
        (["--in-cluster"], 1, "not measured: no cluster: no kubeconfig is given"),
        (["--manifest=no-such-file"], 1, "not measured: no-such-file: "),
        (["--name=Not_a_name"], 1, "not measured: "),
    ],
    ids=["flags", "kubeconfig", "in-cluster", "manifest", "name"],
)
def test_errors_before_the_measurement(
    flags: list[str],
    status: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["nccl", "--isolation=loopback", "--backend=gloo", *flags]) == status
    assert why in capsys.readouterr().err
    assert not (tmp_path / "nccl-bench").exists()


def test_a_run_that_never_starts_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["nccl", "--isolation=loopback", "--gpus=8", "--start-timeout=1"]) == 1
    assert "the run is partial: not started within 1 s" in capsys.readouterr().err
    assert [path.suffix for path in sorted((tmp_path / "nccl-bench").iterdir())] == [".html", ".json"]


def test_overhead_rejects_several_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overhead", "--nodes=2"]) == 2
    assert "overhead needs one node" in capsys.readouterr().err
