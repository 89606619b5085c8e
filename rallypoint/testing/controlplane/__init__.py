"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and the other programs that a test requests.

    with ControlPlane(users=[User("operator")]) as plane:
        plane.request("GET", "/api/v1/namespaces")
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig("operator"), "get", "pods"])

``binaries`` finds the programs, downloads or compiles them; ``plane`` runs them. Nothing here knows of jobs.
"""

from rallypoint.testing.controlplane.access import User
from rallypoint.testing.controlplane.plane import ControlPlane
from rallypoint.testing.controlplane.process import ProcessFailed
from rallypoint.testing.controlplane.programs import Unavailable
from rallypoint.testing.controlplane.requests import Refused

__all__ = ["ControlPlane", "ProcessFailed", "Refused", "Unavailable", "User"]
