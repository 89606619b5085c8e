"""At most a single cluster per machine: the error names the process that runs it."""

import os
from pathlib import Path

import pytest

from rallypoint.testing.cluster import cluster
from rallypoint.testing.controlplane import Unavailable


def test_the_process_that_runs_a_cluster_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cluster.holder() is None

    with cluster._alone(0.0):
        running = cluster.holder()
        assert running is not None
        assert running.pid == os.getpid()
        with pytest.raises(Unavailable, match=f"process {os.getpid()}, .*python"), cluster._alone(0.0):
            pass

    assert cluster.holder() is None


def test_a_stale_pid_in_the_lock_file_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the pid of a killed process; another process can have it by now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with cluster._alone(0.0):
        pass
    (tmp_path / "rallypoint" / "controlplane" / ".cluster.lock").write_text(str(os.getppid()))

    assert cluster.holder() is None
