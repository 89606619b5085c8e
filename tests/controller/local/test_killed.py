"""``kill -9`` of a run at random moments: whatever it has started ends by itself, in both isolations.

``RALLYPOINT_KILLS`` says how many times (50 in a measurement), ``RALLYPOINT_SEED`` repeats a run.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import yaml

from controller.local.node.choice import Wanted

ROUNDS = int(os.environ.get("RALLYPOINT_KILLS", "5"))
SEED = int(os.environ.get("RALLYPOINT_SEED", random.randrange(2**32)))
LONGEST_SECONDS = 4.0
"""By then all pods run; earlier kills meet the start of each part."""
PATIENCE_SECONDS = 30.0
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "import sys; from controller.cli import main; sys.exit(main())", "run"]


def job(folder: Path) -> str:
    """Three pods, each with a process that leaves its group and one that does not listen, and volumes of all kinds."""
    script = "(setsid sleep 1000 &) ; trap '' TERM; while :; do sleep 0.05; done"
    container = {
        "name": "pytorch",
        "image": "none",
        "command": ["sh", "-c", script],
        "env": [{"name": "D", "value": "/data /secret"}],
        "volumeMounts": [
            {"name": "memory", "mountPath": "/dev/shm"},
            {"name": "scratch", "mountPath": "/data"},
            {"name": "secret", "mountPath": "/secret"},
        ],
    }
    volumes = [
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    replicas = {"Master": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    documents = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "value"}},
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "job"},
            "spec": {"pytorchReplicaSpecs": replicas},
        },
    ]
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def test_a_killed_run_leaves_nothing(
    tmp_path: Path, left: Callable[[], list[str]], isolation: Wanted
) -> None:
    chance = random.Random(SEED)
    print(f"RALLYPOINT_SEED={SEED}")  # noqa: T201 - shown when it fails
    file, before = job(tmp_path), machine()
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        moment = chance.uniform(0, LONGEST_SECONDS)
        run_and_kill([*COMMAND, file, "--isolation", isolation, "--run-dir", str(folder)], moment)
        until(lambda: not left(), f"after {moment:.3f} s these are left: {left()}")
        until(partial(no_volumes, folder), f"after {moment:.3f} s volumes are left")
        assert machine() == before


def no_volumes(folder: Path) -> bool:
    return not list(folder.glob("volumes-*"))


def run_and_kill(command: list[str], moment: float) -> None:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def until(holds: Callable[[], bool], otherwise: str) -> None:
    """What ends with a killed process ends a moment after it."""
    late = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < late, otherwise
        time.sleep(0.02)


def machine() -> tuple[str, list[str]]:
    """What could be left beside processes: mounts and links."""
    return Path("/proc/self/mounts").read_text(), sorted(psutil.net_if_addrs())
