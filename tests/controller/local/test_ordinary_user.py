"""Jobs of an ordinary user and of root, in both isolations: what real training does with names, ports and paths."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.local.node.choice import Wanted

ROOT = Path(__file__).parents[3]
USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
SOMEBODY = 65534

BECOME_SOMEBODY = f"""
import os, sys
from pathlib import Path
from controller.local.node.keeper import system
from controller.local.node.keeper.view import View

system.unshare(system.NEW_MOUNT)
system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
view = View("/nowhere")
for needed in map(Path, (sys.base_prefix, {str(ROOT)!r}, sys.argv[1])):
    for folder in reversed(needed.parents):
        if not folder.stat().st_mode & 1:
            view._mirror(str(folder))  # In this process's view alone others may pass.
            folder.chmod(0o755)
os.setgroups([])
os.setgid({SOMEBODY})
os.setuid({SOMEBODY})
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
"""
RUN = "import sys; from controller.cli import main; sys.exit(main())"

RENDEZVOUS = """
import os, socket, time
port, rank, size = int(os.environ["MASTER_PORT"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    with socket.create_server(("0.0.0.0", port)) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
        print("together", sum(int(peer.recv(8)) for peer in peers), "uid", os.geteuid())
        for peer in peers:
            peer.sendall(b"go")
else:
    while True:
        try:
            master = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.05)
    master.sendall(str(rank).encode())
    assert master.recv(2) == b"go"
"""
"""What torch's store does: the first process listens on all addresses, the others look for it by its name."""


def job(name: str, script: str, workers: int = 2, **spec: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "none", "command": ["python", "-c", script], **spec}
    template = {"spec": {"containers": [container]}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def run(folder: Path, user: str, isolation: Wanted, *documents: dict[str, Any]) -> tuple[int, str]:
    """Exit status, and everything that was printed."""
    home = folder / "home"
    home.mkdir()
    file = home / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    start = [sys.executable, "-c", RUN]
    if user == "ordinary" and os.geteuid() == 0:
        for path in (folder, home, file):
            os.chown(path, SOMEBODY, SOMEBODY)
        start = [sys.executable, "-c", BECOME_SOMEBODY, str(home), RUN]
    done = subprocess.run(
        [*start, "run", str(file), "--isolation", isolation, "--run-dir", str(home / "run"), "--timeout=60"],
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("user", USERS)
def test_two_jobs_at_once_with_one_port_find_their_own(
    tmp_path: Path, left: Callable[[], list[str]], user: str, isolation: Wanted
) -> None:
    status, out = run(tmp_path, user, isolation, job("one", RENDEZVOUS), job("two", RENDEZVOUS, workers=3))
    uid = 0 if user == "root" else os.geteuid() or SOMEBODY

    assert status == 0, out
    assert f"[one/master-0] together 3 uid {uid}\n" in out
    assert f"[two/master-0] together 6 uid {uid}\n" in out
    assert left() == []
