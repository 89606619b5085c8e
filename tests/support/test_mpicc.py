"""The error where MPI programs cannot be compiled."""

from pathlib import Path

import pytest

from tests.support.mpicc import Unusable, mpicc


def compiler(folder: Path, script: str) -> None:
    path = folder / "mpicc.openmpi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_compiler_with_its_headers(path: Path) -> None:
    compiler(path, "exit 0")

    assert mpicc("openmpi") == str(path / "mpicc.openmpi")


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        pytest.param(None, "there is no mpicc.openmpi here", id="no compiler"),
        pytest.param(
            "echo '<stdin>:1:10: fatal error: mpi.h: No such file or directory' >&2; exit 1",
            "mpicc.openmpi finds no mpi.h here",
            id="no headers of MPI",
        ),
        pytest.param(
            "echo 'mpi.h:5:10: fatal error: stdio.h: No such file or directory' >&2; exit 1",
            "mpicc.openmpi finds no stdio.h here",
            id="no headers of C",
        ),
        pytest.param("exit 1", "mpicc.openmpi finds no working C compiler here", id="no C compiler"),
    ],
)
def test_the_packages_are_named(path: Path, script: str | None, complaint: str) -> None:
    if script:
        compiler(path, script)

    with pytest.raises(Unusable, match=f"^{complaint}; install it: .* libopenmpi-dev"):
        mpicc("openmpi")
