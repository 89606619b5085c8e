"""Which deleted pods ``rallypoint logs`` shows."""

from pathlib import Path

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from controller.kube.connect import Connection
from rallypoint.cli.cluster import Cluster, ServedResource
from rallypoint.cli.logs import _deleted_pods
from rallypoint.local.log_archive import LogArchive
from rallypoint.local.node.streams.logs import Logs


async def test_pods_that_never_started_are_left_out(tmp_path: Path) -> None:
    """Local mode records their last status, too."""
    logs = Logs(tmp_path)
    owner = {"kind": RESOURCE.kind, "name": "j", "uid": "job", "controller": True}
    labels = {"training.kubeflow.org/job-name": "j"}
    for uid in ("ran", "waited"):
        metadata = {"name": "j-worker-0", "namespace": "default", "uid": uid, "labels": labels}
        times = {
            "creationTimestamp": f"2026-01-0{1 + (uid == 'waited')}T00:00:00Z",
            "ownerReferences": [owner],
        }
        pod = {"metadata": metadata | times, "spec": {"containers": [{"name": "pytorch"}]}}
        if uid == "ran":
            logs.open(pod, "pytorch", 0).close()
        logs.record_deletion(pod)
    archive = LogArchive(tmp_path)
    async with Client(Connection("http://127.0.0.1")) as client:
        cluster = Cluster(client, "", "default", [], archive)
        found = [
            _deleted_pods(cluster, ServedResource(resource, frozenset(), frozenset()), name)
            for resource, name in ((PODS, "j-worker-0"), (RESOURCE, "j"))
        ]

    assert len(archive.pods("default")) == 2
    assert [[pod.uid for pod in pods] for pods in found] == [["ran"], ["ran"]]
