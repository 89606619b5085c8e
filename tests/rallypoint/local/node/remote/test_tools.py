"""The tools of MPI pods, the replacements of sshd and kubectl-delivery, and the files for ``--real-ssh``."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.remote.tools import SSHD_MESSAGE, Tools, ssh_config

LABELS = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "pi"}
SSHD = {"name": "w", "command": ["/usr/sbin/sshd", "-De"]}
DELIVERY = {"name": "kubectl-delivery", "image": "x"}


def pod(uid: str = "u", **labels: str) -> dict[str, Any]:
    mounts = [{"name": "ssh-auth", "mountPath": "/home/mpiuser/.ssh"}, {"name": "x", "mountPath": "/x"}]
    meta = {"uid": uid, "namespace": "ns", "labels": labels or LABELS}
    return {"metadata": meta, "spec": {"containers": [{"name": "l", "volumeMounts": mounts}, {"name": "m"}]}}


def test_ssh_is_the_first_on_path(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    tools.install(pod())
    env = tools.on_path(pod(), {"PATH": "/usr/bin"})
    (ours, theirs) = env["PATH"].split(os.pathsep)

    assert theirs == "/usr/bin"
    assert os.access(Path(ours) / "ssh", os.X_OK)
    tools.release(pod())
    assert not Path(ours).exists()


def test_pods_of_other_kinds_use_the_tools_of_the_user(tmp_path: Path) -> None:
    tools, other = Tools(tmp_path), pod(app="x")
    tools.install(other)

    assert tools.on_path(other, {"PATH": "/usr/bin"}) == {"PATH": "/usr/bin"}
    assert [path.name for path in tmp_path.iterdir()] == ["shim.py"]
    assert tools.replacement(other, SSHD) == SSHD


def test_sshd_is_replaced_by_a_wait_with_a_single_message(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    first, second = (tools.replacement(pod(uid), SSHD)["command"][2] for uid in ("a", "b"))

    assert (SSHD_MESSAGE in first, SSHD_MESSAGE in second) == (True, False)


def test_with_the_real_ssh_sshd_is_not_replaced(tmp_path: Path) -> None:
    tools = Tools(tmp_path, real_ssh=True)
    tools.install(pod())

    assert tools.replacement(pod(), SSHD) == SSHD
    assert [path.name for path in (tmp_path / "u").rglob("*") if path.is_file()] == ["kubectl"]


def test_the_kubectl_init_container_is_replaced(tmp_path: Path) -> None:
    tools, target = Tools(tmp_path / "a place"), tmp_path / "target"
    tools.install(pod())
    target.mkdir()
    command = tools.replacement(pod(), DELIVERY)["command"]
    subprocess.run(command, env={**os.environ, "TARGET_DIR": str(target)}, check=True)
    said = subprocess.run([target / "kubectl", "exec"], capture_output=True, text=True)

    assert (said.returncode, said.stderr) == (255, "the node of this pod has stopped\n")


def test_an_image_with_a_command_is_not_replaced(tmp_path: Path) -> None:
    container = {**DELIVERY, "command": ["cp", "/bin/kubectl", "/opt/kube"]}

    assert Tools(tmp_path).replacement(pod(), container) == container


@pytest.mark.parametrize(("is_root", "port"), [(True, []), (False, ["Port 2222"])])
def test_the_client_has_the_keys_and_never_prompts(is_root: bool, port: list[str]) -> None:
    lines = [line.strip() for line in ssh_config(pod(), is_root=is_root).splitlines()]

    assert lines[:3] == ["Host *", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    assert lines[4:] == ["IdentityFile /home/mpiuser/.ssh/id_rsa", *port]


def test_pods_of_mpi_jobs_mount_the_ssh_configuration(tmp_path: Path) -> None:
    mounts = Tools(tmp_path, real_ssh=True).mounts(pod())

    assert [(mount.path, mount.source.is_dir()) for mount in mounts] == [
        ("/etc/ssh/ssh_config.d/rallypoint.conf", False),
        ("/run/sshd", True),
    ]
    assert Tools(tmp_path, real_ssh=True).mounts(pod(app="x")) == Tools(tmp_path).mounts(pod()) == []


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """A Secret's files are links to those that a swap replaces."""
    (tmp_path / "ssh-auth" / "..now").mkdir(parents=True)
    key = tmp_path / "ssh-auth" / "..now" / "id_rsa"
    key.touch(mode=0o644)
    (tmp_path / "ssh-auth" / "id_rsa").symlink_to(key)
    Tools(tmp_path / "tools").protect(pod(), tmp_path)
    before = key.stat().st_mode & 0o777
    Tools(tmp_path / "tools", real_ssh=True).protect(pod(), tmp_path)

    assert (before, key.stat().st_mode & 0o777) == (0o644, 0o600)
