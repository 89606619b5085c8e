"""The Go operators as processes beside a control plane, compiled from their published modules, with their own manifests.

    with training_operator(plane, ["PyTorchJob", "MPIJob"]), mpi_operator(plane):
        ...

Both act as the administrator. training-operator gets the certificates of its webhook as it does in a pod: from its Secret, which is
made here for loopback, and from files.
"""

import base64
import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rallypoint.testing.controlplane import ControlPlane, Unavailable, binaries
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.controlplane.process import Process
from rallypoint.testing.controlplane.programs import PROGRAMS

KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
"""Those of training-operator; all but MPIJob have a webhook."""
READY_SECONDS = 120.0
NAMESPACE = "kubeflow"
LOCK_NAMESPACE = "mpi-operator"
"""Where the Lease of mpi-operator is, by its own manifest."""
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
    command = ["go", "mod", "download", "-json", f"{module.module}@{module.version}"]
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"`{' '.join(command)}` failed: {getattr(error, 'stderr', '') or error}") from error
    return Path(json.loads(done.stdout)["Dir"]) / "manifests"


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
    port, health = _free_port(), f"127.0.0.1:{_free_port()}"
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
        with _running(plane, "training-operator", command, environment, f"http://{health}/readyz") as process:
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
    with _running(plane, "mpi-operator", command, environment, health) as process:
        plane.wait("mpi-operator to work", lambda: "Started workers" in process.log.read_text())
        yield process


@contextmanager
def _running(
    plane: ControlPlane, name: str, command: Sequence[str | Path], environment: dict[str, str], health: str
) -> Generator[Process]:
    log = plane.directory / "logs" / f"{name}-{_free_port()}.log"
    process = Process(name, command, log, environment)
    process.start()
    try:
        plane.processes[log.stem] = process  # so that waiting ends when it does
        plane.wait(f"{name} ready", lambda: _answers(health), seconds=READY_SECONDS)
        yield process
    finally:
        plane.processes.pop(log.stem, None)
        process.stop()


def _prepare_webhooks(plane: ControlPlane, folder: Path, port: int, kinds: Sequence[str]) -> None:
    """The Secret and the files that training-operator would have in a pod, and its webhooks, all for a port of loopback."""
    pki = folder / "k8s-webhook-server" / "serving-certs"
    pki.mkdir(parents=True)
    certificate, key = _certificate()
    data = {"ca.crt": certificate, "ca.key": key, "tls.crt": certificate, "tls.key": key}
    for name in ("tls.crt", "tls.key"):
        write_private(pki / name, data[name])
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    metadata = {"name": _SECRET, "namespace": NAMESPACE}
    (webhooks,) = yaml.safe_load_all(
        (manifests("training-operator") / "base/webhook/manifests.yaml").read_text()
    )
    validated = {f"validator.{kind.lower()}.training-operator.kubeflow.org" for kind in kinds}
    webhooks["webhooks"] = [one for one in webhooks["webhooks"] if one["name"] in validated]
    for one in webhooks["webhooks"]:
        one["clientConfig"] = {"url": f"https://127.0.0.1:{port}{one['clientConfig']['service']['path']}"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded},
        {**webhooks, "metadata": {"name": WEBHOOKS}},
    )
    _MOUNTED.parent.mkdir(parents=True, exist_ok=True)
    _MOUNTED.touch()  # asked only whether it is there; what is served lies in TMPDIR


def _certificate() -> tuple[bytes, bytes]:
    """A certificate that has signed itself and serves on loopback, and its key, as training-operator accepts them: PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # it reads no other
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY)])
    names = [x509.DNSName(_AUTHORITY), x509.DNSName(f"training-operator.{NAMESPACE}.svc")]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([*names, x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
