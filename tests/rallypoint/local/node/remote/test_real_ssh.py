"""What pods are given so that the machine's own ssh and sshd work in them."""

from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.remote import real_ssh
from rallypoint.local.node.remote.tools import Tools

LABELS = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "pi"}


def pod(**labels: str) -> dict[str, Any]:
    mounts = [{"name": "ssh-auth", "mountPath": "/home/mpiuser/.ssh"}, {"name": "x", "mountPath": "/x"}]
    meta = {"uid": "u", "namespace": "ns", "labels": labels or LABELS}
    return {"metadata": meta, "spec": {"containers": [{"name": "l", "volumeMounts": mounts}, {"name": "m"}]}}


@pytest.mark.parametrize(("is_root", "port"), [(True, []), (False, ["Port 2222"])])
def test_the_client_knows_the_keys_and_asks_for_nothing(is_root: bool, port: list[str]) -> None:
    lines = [line.strip() for line in real_ssh.config(pod(), is_root=is_root).splitlines()]

    assert lines[:3] == ["Host *", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    assert lines[4:] == ["IdentityFile /home/mpiuser/.ssh/id_rsa", *port]


def test_pods_of_mpi_jobs_see_it(tmp_path: Path) -> None:
    mounts = Tools(tmp_path, real_ssh=True).mounts(pod())

    assert [(one.path, one.source.is_dir()) for one in mounts] == [
        ("/etc/ssh/ssh_config.d/rallypoint.conf", False),
        ("/run/sshd", True),
    ]
    assert Tools(tmp_path, real_ssh=True).mounts(pod(app="x")) == Tools(tmp_path).mounts(pod()) == []


def test_nobody_else_reads_the_keys(tmp_path: Path) -> None:
    """A Secret's files are links to those that a swap replaces."""
    (tmp_path / "ssh-auth" / "..now").mkdir(parents=True)
    key = tmp_path / "ssh-auth" / "..now" / "id_rsa"
    key.touch(mode=0o644)
    (tmp_path / "ssh-auth" / "id_rsa").symlink_to(key)
    Tools(tmp_path / "tools").protect(pod(), tmp_path)
    before = key.stat().st_mode & 0o777
    Tools(tmp_path / "tools", real_ssh=True).protect(pod(), tmp_path)

    assert (before, key.stat().st_mode & 0o777) == (0o644, 0o600)
