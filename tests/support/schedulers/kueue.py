"""The real Kueue beside a control plane: its definitions, its webhooks by address, and its manager as a process.

It is set up as its own manifests do it, but that it runs on loopback: webhooks and conversions have a ``url`` in place
of a Service, and a certificate for that address.
"""

import base64
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.flags import LOOPBACK
from rallypoint.testing.controlplane.process import Process, answers, free_port
from rallypoint.testing.webhook_certificates import webhook_certificates
from tests.support.schedulers import programs

NAMESPACE = "kueue-system"
FRAMEWORKS = ("batch/job", "kubeflow.org/mpijob", "pod")
"""Those of its default configuration that concern MPIJobs."""

_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")


@dataclass(frozen=True, slots=True)
class Installation:
    """Kueue's definitions and webhooks on a control plane, and what its manager needs to serve them."""

    program: Path
    config_folder: Path
    port: int


@contextmanager
def kueue(
    plane: ControlPlane,
    installation: Installation | None = None,
    *,
    jobs_without_queue_name: bool = False,
    frameworks: Sequence[str] = FRAMEWORKS,
    external: Sequence[str] = (),
) -> Generator[Process]:
    """Kueue, once its webhooks answer and until the end.

    Args:
        installation: one that exists, so that it starts again with another configuration.
        jobs_without_queue_name: what its configuration calls ``manageJobsWithoutQueueName``.
        frameworks: the kinds that it manages itself.
        external: those that others manage by its API, ``Kind.version.group``.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    installation = installation or install_kueue(plane)
    probes = free_port()
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": LOOPBACK,
            "port": installation.port,
            "certDir": str(installation.config_folder),
        },
        "leaderElection": {"leaderElect": False},
        "manageJobsWithoutQueueName": jobs_without_queue_name,
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": _SERVICE,
            "webhookSecretName": _SECRET,
        },
        "integrations": {"frameworks": list(frameworks), "externalFrameworks": list(external)},
    }
    command = (
        installation.program,
        f"--kubeconfig={plane.kubeconfig()}",
        f"--config={write_private(installation.config_folder / 'config.yaml', yaml.safe_dump(config))}",
        "--feature-gates=VisibilityOnDemand=false",  # whose server is not on loopback
    )
    with plane.running(
        "kueue", command, ready=lambda _: answers(f"http://{LOOPBACK}:{probes}/readyz")
    ) as process:
        yield process


def install_kueue(plane: ControlPlane) -> Installation:
    """Install the definitions and webhooks, for a manager that does not run yet."""
    folder = programs.ensure(programs.KUEUE)
    config_folder = Path(tempfile.mkdtemp(prefix="kueue-", dir=plane.directory))
    port = free_port()
    certificates = webhook_certificates(f"{_SERVICE}.{NAMESPACE}.svc", "kueue-ca")
    for name in ("tls.crt", "tls.key"):
        write_private(config_folder / name, certificates[name])
    _install(plane, folder, certificates, f"https://{LOOPBACK}:{port}")
    return Installation(folder / "kueue", config_folder, port)


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
