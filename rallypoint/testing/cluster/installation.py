"""The operator on a cluster, installed as a user does: ``kubectl apply`` of ``deploy``."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rallypoint.testing.cluster import roots
from rallypoint.testing.cluster.cluster import Cluster

DEPLOY = roots.REPOSITORY / "deploy" / "standalone.yaml"
NAMESPACE = "rallypoint-system"
DEPLOYMENT = "deployment/training-operator"
REPLICAS = 2
_PODS = "app=training-operator"
_ROLLOUT_SECONDS = 120


def install(cluster: Cluster, manifest: Path = DEPLOY) -> None:
    """Returns when both replicas are ready.

    Raises:
        subprocess.CalledProcessError: kubectl fails, or they do not get ready.
    """
    started = time.monotonic()
    apply(cluster, manifest)
    wait(cluster)
    cluster.say(f"  operator ready: {time.monotonic() - started:.0f} s")


def apply(cluster: Cluster, manifest: Path = DEPLOY) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(manifest))


def spread(cluster: Cluster) -> None:
    """Move one replica to another node after a drain: Kubernetes does not move a running pod."""
    nodes = (
        "get",
        "pods",
        "-l",
        _PODS,
        "-o",
        r"jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{'\n'}{end}",
    )
    placed = dict(line.split() for line in cluster.kubectl("-n", NAMESPACE, *nodes).splitlines())
    if len(placed) == 1:
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", *placed.values())
        wait(cluster)


@contextmanager
def stopped(cluster: Cluster) -> Generator[None]:
    """Stop the operator during the block; afterwards wait until both replicas are ready."""
    _scale(cluster, 0)
    cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", _PODS, "--timeout=60s")
    try:
        yield
    finally:
        _scale(cluster, REPLICAS)
        wait(cluster)


def _scale(cluster: Cluster, replicas: int) -> None:
    cluster.kubectl("-n", NAMESPACE, "scale", DEPLOYMENT, f"--replicas={replicas}")


def wait(cluster: Cluster) -> None:
    """Wait until both replicas run the latest manifest and are ready."""
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", DEPLOYMENT, f"--timeout={_ROLLOUT_SECONDS}s")
