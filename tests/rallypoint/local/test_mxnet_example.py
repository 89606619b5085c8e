"""The example of MXJob, which needs no framework, on this machine: scheduler, server and workers find each other by their variables."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = "examples/mxnet/parameter-server.yaml"
SECONDS = 120.0


@pytest.mark.parametrize("isolation", ["loopback", "auto"])
def test_the_example_trains(isolation: str, tmp_path: Path) -> None:
    command = "import sys; from rallypoint.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "run", f"--isolation={isolation}", "--run-dir", str(tmp_path), EXAMPLE],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "MXJob default/parameter-server-mx: Succeeded" in done.stdout
    assert "1 servers and 2 workers are here" in done.stdout
    assert "Traceback" not in done.stdout
