"""Two clusters with Kueue, of which one, the manager, runs its jobs on the other, the worker."""

import base64

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig
from rallypoint.testing.controlplane.plane import ADMIN
from tests.support.jobs import TIMEOUT_SECONDS
from tests.support.schedulers.kueue import NAMESPACE
from tests.support.schedulers.link import Link
from tests.support.schedulers.queues import QUEUES

CHECK = "multikueue"
"""The admission check of the manager's ClusterQueues."""


def connect(manager: ControlPlane, worker: ControlPlane, link: Link) -> None:
    """Let the manager's Kueue run jobs on the worker, which it reaches through the link, as the worker's administrator."""
    host, port = link.address
    token = worker.users[ADMIN].token
    config = kubeconfig(f"https://{host}:{port}", worker.authority.pem, token, user=ADMIN)
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    secret = {"kubeConfig": {"locationType": "Secret", "location": "worker"}}
    manager.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "worker", "namespace": NAMESPACE},
            "data": {"kubeconfig": base64.b64encode(config.encode()).decode()},
        },
        {
            **kind,
            "kind": "MultiKueueCluster",
            "metadata": {"name": "worker"},
            "spec": {"clusterSource": secret},
        },
        {**kind, "kind": "MultiKueueConfig", "metadata": {"name": CHECK}, "spec": {"clusters": ["worker"]}},
        {
            **kind,
            "kind": "AdmissionCheck",
            "metadata": {"name": CHECK},
            "spec": {
                "controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK},
            },
        },
    )

    _wait_for_active(manager, f"admissionchecks/{CHECK}", is_active=True)


def wait_until_lost(manager: ControlPlane) -> None:
    """Wait until the manager's Kueue has noticed that it has no connection to the worker."""
    _wait_for_active(manager, "multikueueclusters/worker", is_active=False)


def _wait_for_active(manager: ControlPlane, path: str, *, is_active: bool) -> None:
    """Wait until an object of Kueue has the condition Active with this status."""

    def holds() -> bool:
        conditions = manager.request("GET", f"{QUEUES}/{path}").get("status", {}).get("conditions", [])
        return ("Active", str(is_active)) in [(own["type"], own["status"]) for own in conditions]

    manager.wait(f"{path} to be {'active' if is_active else 'inactive'}", holds, seconds=TIMEOUT_SECONDS)
