"""The Go operators as processes beside a control plane, compiled from their published modules, with their own manifests.

    with training_operator(plane, ["PyTorchJob", "MPIJob"]), mpi_operator(plane):
        ...

Both act as the administrator. training-operator gets the certificates of its webhook as it does in a pod: from its Secret, which is
made here for loopback, and from files.
"""

import base64
import os
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.controlplane import ControlPlane, Unavailable, binaries, gobuild
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.controlplane.process import Process, answers, free_port
from rallypoint.testing.controlplane.programs import PROGRAMS
from rallypoint.testing.webhook_certificates import webhook_certificates

KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
"""Those of training-operator; all but MPIJob have a webhook."""
READY_SECONDS = 120.0
NAMESPACE = "kubeflow"
LOCK_NAMESPACE = "mpi-operator"
"""The namespace of mpi-operator's Lease in its own manifest."""
WEBHOOKS = "validator.training-operator.kubeflow.org"

_SECRET = "training-operator-webhook-cert"
_AUTHORITY = "training-operator-ca"
"""A name that its certificate authority must have, or it makes another one."""
_MOUNTED = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
_MPI_HEALTH_PORT = 8080
"""A constant of mpi-operator."""


def manifests(program: str) -> Path:
    """The folder with the manifests of one of the Go operators.

    Raises:
        Unavailable: its module cannot be fetched.
    """
    module = PROGRAMS[program]
    return gobuild.module_directory(module.module, module.version) / "manifests"


def definitions(program: str) -> list[Any]:
    """The CustomResourceDefinitions of one of the Go operators."""
    folder = manifests(program) / "base"
    return [
        document
        for path in sorted(folder.rglob("kubeflow.org_*.yaml"))
        for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        if document
    ]


@contextmanager
def training_operator(
    plane: ControlPlane, kinds: Sequence[str] = (), *, user: str = ADMIN, flags: Sequence[str] = ()
) -> Generator[Process]:
    """training-operator, once its webhooks and controllers work and until the end; its webhooks go with it.

    Args:
        kinds: those that it serves; default is all. Only these have webhooks, as after the guide for kind by kind.
        user: one of the control plane's, in place of the administrator.
    """
    served = kinds or KINDS
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    folder = plane.directory / f"training-operator-{port}"
    _prepare_webhooks(plane, folder, port, served)
    command: list[str | Path] = [
        binaries.ensure(["training-operator"])["training-operator"],
        f"--kubeconfig={plane.kubeconfig(user)}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={health}",
        f"--webhook-server-port={port}",
        *(f"--enable-scheme={kind}" for kind in kinds),
        *flags,
    ]
    environment = {**os.environ, "MY_POD_NAMESPACE": NAMESPACE, "TMPDIR": str(folder)}
    try:
        with plane.running(
            f"training-operator-{port}",
            command,
            environment=environment,
            ready=lambda _: answers(f"http://{health}/readyz"),
            seconds=READY_SECONDS,
        ) as process:
            # It says that it is ready when the first of them is.
            validated = [kind for kind in served if kind != "MPIJob"]
            plane.wait(
                "training-operator to work",
                lambda: (
                    process.log.read_text().count("Registering webhook\t") == len(validated)
                    and all(
                        f'"controller": "{kind.lower()}-controller", "worker count"'
                        in process.log.read_text()
                        for kind in served
                    )
                ),
            )
            yield process
    finally:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{WEBHOOKS}"
        if plane.has(path):
            plane.request("DELETE", path)


@contextmanager
def mpi_operator(plane: ControlPlane, *, user: str = ADMIN, flags: Sequence[str] = ()) -> Generator[Process]:
    """mpi-operator, once it leads and until the end. ``user`` is one of the control plane's, in place of the administrator.

    Raises:
        Unavailable: something else serves on the port of its health check, which cannot be chosen.
    """
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", _MPI_HEALTH_PORT)) == 0:
            raise Unavailable(
                f"mpi-operator serves on port {_MPI_HEALTH_PORT}, and something else does already"
            )
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOCK_NAMESPACE}})
    program = binaries.ensure(["mpi-operator"])["mpi-operator"]
    command: list[str | Path] = [
        program,
        f"--kubeConfig={plane.kubeconfig(user)}",
        f"--lock-namespace={LOCK_NAMESPACE}",
        *flags,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    health = f"http://127.0.0.1:{_MPI_HEALTH_PORT}/healthz"
    with plane.running(
        f"mpi-operator-{free_port()}",
        command,
        environment=environment,
        ready=lambda _: answers(health),
        seconds=READY_SECONDS,
    ) as process:
        plane.wait("mpi-operator to work", lambda: "Started workers" in process.log.read_text())
        yield process


def _prepare_webhooks(plane: ControlPlane, folder: Path, port: int, kinds: Sequence[str]) -> None:
    """The Secret and the files that training-operator would have in a pod, and its webhooks, all for a port of loopback."""
    pki = folder / "k8s-webhook-server" / "serving-certs"
    pki.mkdir(parents=True)
    data = webhook_certificates(f"training-operator.{NAMESPACE}.svc", _AUTHORITY)
    for name in ("tls.crt", "tls.key"):
        write_private(pki / name, data[name])
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    metadata = {"name": _SECRET, "namespace": NAMESPACE}
    (webhooks,) = yaml.safe_load_all(
        (manifests("training-operator") / "base/webhook/manifests.yaml").read_text()
    )
    validated = {f"validator.{kind.lower()}.training-operator.kubeflow.org" for kind in kinds}
    webhooks["webhooks"] = [webhook for webhook in webhooks["webhooks"] if webhook["name"] in validated]
    for webhook in webhooks["webhooks"]:
        webhook["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
        }
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded},
        {**webhooks, "metadata": {"name": WEBHOOKS}},
    )
    _MOUNTED.parent.mkdir(parents=True, exist_ok=True)
    _MOUNTED.touch()  # asked only whether it is there; what is served lies in TMPDIR
