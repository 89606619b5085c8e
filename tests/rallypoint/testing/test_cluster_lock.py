"""One cluster at a time on a machine: who runs it is known, and named."""

import os
from pathlib import Path

import pytest

from rallypoint.testing.cluster import cluster
from rallypoint.testing.controlplane import Unavailable


def test_who_runs_a_cluster_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cluster.holder() is None

    with cluster._alone(0.0):
        running = cluster.holder()
        assert running is not None
        assert running.pid == os.getpid()
        with pytest.raises(Unavailable, match=f"process {os.getpid()}, .*python"), cluster._alone(0.0):
            pass

    assert cluster.holder() is None


def test_a_number_that_is_left_in_the_file_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a cluster's, whose process has been killed; the number may be another's by now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with cluster._alone(0.0):
        pass
    (tmp_path / "rallypoint" / "controlplane" / ".cluster.lock").write_text(str(os.getppid()))

    assert cluster.holder() is None
