"""The real helm, compiled from its module, with its files in a folder of its own."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.controlplane import binaries
from tools.chart.__main__ import CHART

RELEASE = "rallypoint"
NAMESPACE = "rallypoint-system"


class HelmFailed(Exception):
    """helm ended with an error, which is the message."""


def helm(*arguments: str | Path, values: Mapping[str, Any] | None = None) -> str:
    """Run helm with these arguments and, if there are any, a file of values; return its output.

    Raises:
        HelmFailed: it failed.
    """
    program = binaries.ensure(["helm"])["helm"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    with tempfile.TemporaryDirectory() as home:
        environment |= {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        command = [str(program), *map(str, arguments)]
        if values:
            file = Path(home, "values.yaml")
            file.write_text(yaml.safe_dump(dict(values)))
            command.append(f"--values={file}")
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise HelmFailed(done.stderr)
    return done.stdout


def template(
    values: Mapping[str, Any] | None = None, *, namespace: str = NAMESPACE, chart: Path = CHART
) -> list[dict[str, Any]]:
    """Return the objects of a release with these values."""
    rendered = helm("template", RELEASE, chart, f"--namespace={namespace}", values=values)
    return [document for document in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if document]
