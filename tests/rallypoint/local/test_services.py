"""Jobs of every kind on this machine, with fewer Services than replicas: each name in their environment resolves, and their programs meet."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.labels import SERVICES
from api.services import ServiceMode
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.cluster.workloads import job

ROOT = Path(__file__).parents[3]
MEET = (ROOT / "tests" / "e2e" / "meet.py").read_text()
MXNET = ROOT / "examples" / "mxnet" / "parameter-server.yaml"
SECONDS = 180.0
ROLES = {
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
}


def meeting(kind: str) -> dict[str, Any]:
    """A job of that kind whose programs meet."""
    container = {
        "image": "none",
        "command": [sys.executable, "-c", MEET],
        "env": [{"name": "MEET_AS", "value": kind}],
    }
    roles = {role: {"replicas": count, **container} for role, count in ROLES[kind].items()}
    return job(kind, f"meet-{kind.lower()}", roles)


@pytest.mark.parametrize("mode", [ServiceMode.ADDRESSED, ServiceMode.PER_JOB])
def test_programs_of_every_kind_meet(mode: ServiceMode, isolation: IsolationMode, tmp_path: Path) -> None:
    jobs = [*map(meeting, ROLES), yaml.safe_load(MXNET.read_text())]
    for document in jobs:
        document["metadata"]["annotations"] = {SERVICES: str(mode)}
    manifest = tmp_path / "jobs.yaml"
    manifest.write_text(yaml.safe_dump_all(jobs))
    command = "import sys; from rallypoint.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "run", f"--isolation={isolation}", "--run-dir", str(tmp_path / "run"), str(manifest)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    for document in jobs:
        assert f"{document['kind']} default/{document['metadata']['name']}: Succeeded" in done.stdout
