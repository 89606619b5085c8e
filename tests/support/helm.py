"""The real helm, compiled from its module, with its files in a folder of its own."""

import base64
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.service import Service, in_cluster_service
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


class Release:
    """A release on a control plane, as the administrator manages it."""

    def __init__(self, plane: ControlPlane, namespace: str = NAMESPACE, name: str = RELEASE) -> None:
        self._plane = plane
        self._namespace = namespace
        self._name = name

    def install(self, values: Mapping[str, Any] | None = None, *flags: str, chart: Path = CHART) -> None:
        self._run("install", chart, "--create-namespace", *flags, values=values)

    def upgrade(self, values: Mapping[str, Any] | None = None, *flags: str, chart: Path = CHART) -> None:
        self._run("upgrade", chart, *flags, values=values)

    def rollback(self) -> None:
        """Return to the revision before."""
        self._run("rollback")

    def uninstall(self) -> None:
        self._run("uninstall")

    def deployment(self) -> dict[str, Any]:
        """Return the Deployment as it is installed."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/training-operator"
        found: dict[str, Any] = self._plane.request("GET", path)
        return found

    def operator(self) -> AbstractContextManager[Service]:
        """Return a pod of the Deployment, which runs in the ``with`` block."""
        return in_cluster_service(self._plane, deployment=self.deployment())

    def sizes_bytes(self) -> list[int]:
        """Return the size of the data of each Secret in which Helm keeps a revision."""
        path = f"/api/v1/namespaces/{self._namespace}/secrets"
        return [
            sum(len(base64.b64decode(text)) for text in secret["data"].values())
            for secret in self._plane.request("GET", path)["items"]
            if secret["type"] == "helm.sh/release.v1"
        ]

    def _run(self, command: str, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> None:
        helm(
            command,
            self._name,
            *arguments,
            f"--namespace={self._namespace}",
            f"--kubeconfig={self._plane.kubeconfig()}",
            values=values,
        )
