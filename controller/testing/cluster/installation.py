"""The operator on a cluster, as a user installs it: ``kubectl apply`` of what is in ``deploy``."""

import time
from pathlib import Path

from controller.testing.cluster import roots
from controller.testing.cluster.cluster import Cluster

DEPLOY = roots.REPOSITORY / "deploy" / "standalone.yaml"
NAMESPACE = "kubeflow"
DEPLOYMENT = "deployment/training-operator"
_ROLLOUT_SECONDS = 120


def install(cluster: Cluster, manifest: Path = DEPLOY) -> None:
    """Returns when both replicas are ready.

    Raises:
        subprocess.CalledProcessError: kubectl fails, or they do not get ready.
    """
    started = time.monotonic()
    cluster.kubectl("apply", "--server-side", "-f", str(manifest))
    _wait(cluster)
    cluster.say(f"  operator ready: {time.monotonic() - started:.0f} s")


def spread(cluster: Cluster) -> None:
    """Has the replicas run on different nodes again, after a drain: nothing moves a pod that runs where it is."""
    nodes = (
        "get",
        "pods",
        "-l",
        "app=training-operator",
        "-o",
        r"jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{'\n'}{end}",
    )
    placed = dict(line.split() for line in cluster.kubectl("-n", NAMESPACE, *nodes).splitlines())
    if len(placed) == 1:
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", *placed.values())
        _wait(cluster)


def _wait(cluster: Cluster) -> None:
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", DEPLOYMENT, f"--timeout={_ROLLOUT_SECONDS}s")
