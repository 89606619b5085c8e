"""Two clusters with Kueue, of which one, the manager, runs its jobs on the other, the worker."""

import base64

import yaml

from rallypoint.testing.controlplane import ControlPlane
from tests.support.jobs import TIMEOUT_SECONDS
from tests.support.schedulers.kueue import NAMESPACE
from tests.support.schedulers.link import Link
from tests.support.schedulers.queues import QUEUES

CHECK = "multikueue"
"""The admission check of the manager's ClusterQueues."""


def connect(manager: ControlPlane, worker: ControlPlane, link: Link) -> None:
    """Let the manager's Kueue run jobs on the worker, which it reaches through the link, as the worker's administrator."""
    config = yaml.safe_load(worker.kubeconfig().read_text())
    host, port = link.address
    config["clusters"][0]["cluster"]["server"] = f"https://{host}:{port}"
    kubeconfig = base64.b64encode(yaml.safe_dump(config).encode()).decode()
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

    wait_for_worker(manager, is_active=True)


def wait_for_worker(manager: ControlPlane, *, is_active: bool) -> None:
    """Wait until the manager's Kueue has a connection to the worker, or has noticed that it has none."""

    def holds() -> bool:
        cluster = manager.request("GET", f"{QUEUES}/multikueueclusters/worker")
        conditions = cluster.get("status", {}).get("conditions", [])
        return ("Active", str(is_active)) in [(own["type"], own["status"]) for own in conditions]

    what = "the worker connected" if is_active else "the worker lost"
    manager.wait(what, holds, seconds=TIMEOUT_SECONDS)
