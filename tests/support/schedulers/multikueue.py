"""Two clusters with Kueue, of which one, the manager, runs its jobs on the other, the worker."""

import base64

from rallypoint.testing.controlplane import ControlPlane
from tests.support.jobs import TIMEOUT_SECONDS
from tests.support.schedulers.kueue import NAMESPACE
from tests.support.schedulers.queues import QUEUES

CHECK = "multikueue"
"""The admission check of the manager's ClusterQueues."""


def connect(manager: ControlPlane, worker: ControlPlane) -> None:
    """Let the manager's Kueue run jobs on the worker, as the worker's administrator."""
    kubeconfig = base64.b64encode(worker.kubeconfig().read_bytes()).decode()
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    secret = {"kubeConfig": {"locationType": "Secret", "location": "worker"}}
    manager.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "worker", "namespace": NAMESPACE},
            "data": {"kubeconfig": kubeconfig},
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

    def is_active() -> bool:
        conditions = manager.request("GET", f"{QUEUES}/admissionchecks/{CHECK}").get("status", {})
        return ("Active", "True") in [
            (own["type"], own["status"]) for own in conditions.get("conditions", [])
        ]

    manager.wait("the worker connected", is_active, seconds=TIMEOUT_SECONDS)
