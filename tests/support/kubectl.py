"""Commands of kubectl, as the administrator of a control plane types them."""

import shlex
import subprocess
from pathlib import Path

from rallypoint.testing.controlplane import ControlPlane, binaries

ROOT = Path(__file__).parents[2]


def run(plane: ControlPlane, command: str) -> str:
    """A line for a shell that begins with kubectl, as the administrator and in the folder of the checkout."""
    program = binaries.ensure(["kubectl"])["kubectl"]
    whole = [str(program), f"--kubeconfig={plane.kubeconfig()}", *shlex.split(command)[1:]]
    done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
