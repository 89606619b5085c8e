"""The controller as a process of its own beside a control plane: by a kubeconfig, or as a pod of the shipped Deployment."""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import Process, free_port
from rallypoint.testing.manifests import build

MANIFESTS = Path(__file__).parents[2] / "manifests"
RBAC = MANIFESTS / "base" / "rbac"
STANDALONE = MANIFESTS / "overlays" / "standalone"
KUBEFLOW = MANIFESTS / "overlays" / "kubeflow"
SHADOW = MANIFESTS / "overlays" / "shadow"
WITH_MPI_V1 = MANIFESTS / "overlays" / "mpi-v1"
MPI_RIGHTS = MANIFESTS / "components" / "mpi"
MPI_V1_RIGHTS = MANIFESTS / "components" / "mpi-v1"
MXJOB = MANIFESTS / "components" / "mxjob"
OPERATOR_NAMESPACE = "rallypoint-system"
"""The namespace of the overlay ``standalone``."""
ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:training-operator"
"""Who the controller is to the API server, and to its audit log, in a cluster."""
IN_CLUSTER = ("rallypoint.testing.incluster",)
"""The module that runs the controller as in a pod, and arguments that come before those which it is given."""
READY_SECONDS = 300.0
_VARIABLE = re.compile(r"\$\((\w+)\)")
"""What the kubelet replaces in arguments."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running controller, and where its probes and metrics are."""

    process: Process
    address: str

    def is_ready(self) -> bool:
        try:
            return self._read("/readyz") != ""
        except OSError:  # urllib's errors are among them
            return False

    def metric(self, series: str) -> float:
        """The value of one series of ``/metrics``, written as there; 0 if it is not there."""
        lines = self._read("/metrics").splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series)), 0.0)

    def log(self) -> list[dict[str, Any]]:
        """Its log lines so far."""
        return [
            json.loads(line) for line in self.process.log.read_text().splitlines() if line.startswith("{")
        ]

    def _read(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
            return str(answer.read().decode())


def granted(user: str) -> list[dict[str, Any]]:
    """The shipped ClusterRoles, bound to a user instead of the ServiceAccount."""
    documents = [
        document for folder in (RBAC, MPI_RIGHTS, MPI_V1_RIGHTS, MXJOB) for document in build(folder)
    ]
    bindings = [document for document in documents if document["kind"] == "ClusterRoleBinding"]
    for binding in bindings:
        binding["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
    return [*(document for document in documents if document["kind"] == "ClusterRole"), *bindings]


def install(plane: ControlPlane, overlay: Path = STANDALONE) -> None:
    """All that ships but the Deployment, whose pods nobody would run; ``in_cluster_service`` is one of them."""
    plane.apply(*(document for document in build(overlay) if document["kind"] != "Deployment"))


@contextmanager
def service(
    plane: ControlPlane,
    kubeconfig: Path,
    flags: Sequence[str] = (),
    *,
    module: str = "controller",
    code: Path | None = None,
) -> Generator[Service]:
    """The controller, by a kubeconfig, once it is ready and until the end.

    Args:
        module: another one that runs it.
        code: the folder of another commit, whose packages come first.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    command = (module, f"--kubeconfig={kubeconfig}", "--leader-elect=false", *flags)
    with _running(plane, command, code=code) as running:
        yield running


@contextmanager
def in_cluster_service(
    plane: ControlPlane,
    flags: Sequence[str] = (),
    *,
    replica: str = "training-operator-0",
    launcher: Sequence[str] = IN_CLUSTER,
    overlay: Path = STANDALONE,
    metrics_address: str = "",
    deployment: Mapping[str, Any] | None = None,
    python: str | Path = sys.executable,
    code: Path | None = None,
) -> Generator[Service]:
    """A pod of the shipped Deployment by its container's arguments and environment, once it is ready and until the end.

    It finds the API server and its token as a pod does, and may do what its ServiceAccount may. ``install`` comes first.

    Args:
        flags: come after the Deployment's, so they win.
        replica: the pod's name; several may run at once.
        launcher: another module that does as ``IN_CLUSTER`` does, and more.
        overlay: what contains the Deployment, with its namespace.
        metrics_address: another address of the metrics than that of the probes.
        deployment: the Deployment itself, such as one that is installed.
        python: the interpreter, such as that of another version with its own packages.
        code: the folder of another commit, whose packages come first.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    if deployment is None:
        deployment = next(document for document in build(overlay) if document["kind"] == "Deployment")
    namespace, pod = deployment["metadata"]["namespace"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    folder = plane.service_account_folder(namespace, pod["serviceAccountName"])
    fields = {"metadata.namespace": namespace, "metadata.name": replica}
    environment = _environment(plane, container["env"], fields)
    arguments = [_VARIABLE.sub(lambda found: environment[found[1]], text) for text in container["args"]]
    command = (*launcher, str(folder), *arguments, *flags)
    with _running(plane, command, environment, metrics_address, python, code) as running:
        yield running


def _environment(
    plane: ControlPlane, declared: list[dict[str, Any]], fields: Mapping[str, str]
) -> dict[str, str]:
    """What a container sees: its own variables and those of the Service ``kubernetes``, over what this machine needs."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    server = urlsplit(plane.server)
    values = {
        variable["name"]: variable["value"]
        if "value" in variable
        else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for variable in declared
    }
    around = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
    return {**ours, **around, **values}


@contextmanager
def _running(
    plane: ControlPlane,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    metrics_address: str = "",
    python: str | Path = sys.executable,
    code: Path | None = None,
) -> Generator[Service]:
    """Run a module of ours with these flags; probes and metrics are on a port of loopback, unless the metrics have their own."""
    address = f"127.0.0.1:{free_port()}"
    binds = (
        f"--health-probe-bind-address={address}",
        f"--metrics-bind-address={metrics_address or address}",
    )
    # With -P the folder of this process does not come before other packages.
    options = [] if python == sys.executable and code is None else ["-P"]
    if code is not None:
        environment = {**(os.environ if environment is None else environment), "PYTHONPATH": str(code)}
    with plane.running(
        f"controller-{address}",
        [python, *options, "-m", *command, *binds],
        environment=environment,
        ready=lambda process: Service(process, address).is_ready(),
        seconds=READY_SECONDS,
    ) as process:
        yield Service(process, address)
