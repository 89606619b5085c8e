"""The real Kueue beside a control plane: its definitions, its webhooks by address, and its manager as a process.

It is set up as its own manifests do it, but that it runs on loopback: webhooks and conversions have a ``url`` in place
of a Service, and a certificate for that address.
"""

import base64
import datetime
import ipaddress
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.process import Process
from rallypoint.testing.schedulers import programs
from rallypoint.testing.schedulers.process import HOST, free_port, running

NAMESPACE = "kueue-system"
FRAMEWORKS = ("batch/job", "kubeflow.org/mpijob", "pod")
"""Those of its default configuration that concern MPIJobs."""

_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_CA_NAME = "kueue-ca"
_LIFETIME = datetime.timedelta(days=3650)
"""Kueue makes certificates anew that end within three months."""
_CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")


@contextmanager
def kueue(plane: ControlPlane, *, jobs_without_queue_name: bool = False) -> Generator[Process]:
    """Kueue, once its webhooks answer and until the end.

    Args:
        jobs_without_queue_name: what its configuration calls ``manageJobsWithoutQueueName``.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    folder = programs.ensure(programs.KUEUE)
    place = Path(tempfile.mkdtemp(prefix="kueue-", dir=plane.directory))
    port, probes = free_port(), free_port()
    certificates = _certificates()
    for name in ("tls.crt", "tls.key"):
        write_private(place / name, certificates[name])
    _install(plane, folder, certificates, f"https://{HOST}:{port}")
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port, "certDir": str(place)},
        "leaderElection": {"leaderElect": False},
        "manageJobsWithoutQueueName": jobs_without_queue_name,
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": _SERVICE,
            "webhookSecretName": _SECRET,
        },
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }
    command = (
        folder / "kueue",
        f"--kubeconfig={plane.kubeconfig()}",
        f"--config={write_private(place / 'config.yaml', yaml.safe_dump(config))}",
        "--feature-gates=VisibilityOnDemand=false",  # whose server is not on loopback
    )
    with running(plane, "kueue", command, f"http://{HOST}:{probes}/readyz") as process:
        yield process


def _install(plane: ControlPlane, folder: Path, certificates: dict[str, bytes], url: str) -> None:
    ca = base64.b64encode(certificates["ca.crt"]).decode()
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for path in sorted((folder / "crds").glob("*.yaml")):
        definition = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        if definition["spec"]["names"]["plural"] in _CONVERTED:
            client = {"url": f"{url}/convert", "caBundle": ca}
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        plane.apply(definition)
    data = {name: base64.b64encode(content).decode() for name, content in certificates.items()}
    metadata = {"name": _SECRET, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    for configuration in yaml.safe_load_all((folder / "webhooks.yaml").read_text()):
        configuration["metadata"] = {"name": f"kueue-{configuration['metadata']['name']}"}
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"{url}{path}", "caBundle": ca}
            webhook["namespaceSelector"] = _OTHERS_NAMESPACES
        plane.apply(configuration)


_OTHERS_NAMESPACES: dict[str, Any] = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    ]
}


def _certificates() -> dict[str, bytes]:
    """What the Secret holds that Kueue keeps its certificates in, with keys in the form that it reads."""
    ca_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    dns_name = f"{_SERVICE}.{NAMESPACE}.svc"
    names = [x509.DNSName(dns_name), x509.IPAddress(ipaddress.ip_address(HOST))]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    ca = (
        _certificate(_CA_NAME, _CA_NAME, ca_key, [x509.DNSName(_CA_NAME)])
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    own = (
        _certificate(dns_name, _CA_NAME, key, names)
        .add_extension(usage, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return {
        "ca.crt": ca.public_bytes(encoding),
        "ca.key": _pkcs1(ca_key),
        "tls.crt": own.public_bytes(encoding),
        "tls.key": _pkcs1(key),
    }


def _certificate(
    name: str, issuer: str, key: rsa.RSAPrivateKey, names: Sequence[x509.GeneralName]
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )


def _pkcs1(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
