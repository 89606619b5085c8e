"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and what of the rest a test asks for.

    with ControlPlane(users=[User("operator")]) as plane:
        plane.request("GET", "/api/v1/namespaces")
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig("operator"), "get", "pods"])

``binaries`` finds the programs, downloads or compiles them; ``plane`` runs them. Nothing here knows of jobs.
"""

from controller.testing.controlplane.access import User
from controller.testing.controlplane.plane import ControlPlane
from controller.testing.controlplane.process import ProcessFailed
from controller.testing.controlplane.programs import Unavailable
from controller.testing.controlplane.requests import Refused

__all__ = ["ControlPlane", "ProcessFailed", "Refused", "Unavailable", "User"]
