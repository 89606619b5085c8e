"""MPIJobs with real MPI: ranks on two nodes, started by ssh and, in v1, by kubectl exec."""

from typing import Any

import pytest

from controller.testing.cluster.cluster import Cluster
from controller.testing.cluster.images import MPI
from controller.testing.cluster.workloads import Workloads
from controller.testing.manifests import build
from controller.testing.service import WITH_MPI_V1

RIGHTS = "training-operator-mpi-v1"
LAUNCHERS = {"v1": "master", "v2beta1": "launcher"}
"""What each version calls them in the label of a pod's role."""
OVER_THE_NETWORK = [{"name": "UCX_TLS", "value": "tcp,self"}]
"""What MPICH talks through: both nodes are one machine, which it finds out, and then it tries memory that pods do not share."""
SSH_ANSWERS = {"tcpSocket": {"port": 22}, "periodSeconds": 1}
AS_ROOT = [
    {"name": name, "value": "1"} for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
]


def apart(label: str) -> dict[str, Any]:
    """One pod on each node, of those with this label."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {f"training.kubeflow.org/{label}": "worker"}},
            }
        ]
    }


def role(replicas: int, container: dict[str, Any], **more: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "mpi", "image": MPI, **container}], **more.pop("pod", {})}
    return {"replicas": replicas, "template": {"spec": pod}, **more}


def launched(workloads: Workloads, version: str, spec: dict[str, Any]) -> list[str]:
    """What the launcher has printed once the job has succeeded."""
    workloads.apply(
        {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": "pi"}, "spec": spec}
    )
    workloads.wait_for("mpijobs", "pi", "Succeeded")
    selector = f"training.kubeflow.org/job-role={LAUNCHERS[version]}"
    return workloads.kubectl("logs", "-l", selector, "--tail=-1").splitlines()


def where(lines: list[str]) -> set[str]:
    """The hosts of the ranks."""
    return {line.split()[-1] for line in lines if " runs on " in line}


@pytest.mark.parametrize(("implementation", "mpirun"), [("OpenMPI", "mpirun"), ("MPICH", "mpirun.mpich")])
def test_ranks_are_started_by_ssh(workloads: Workloads, implementation: str, mpirun: str) -> None:
    """Once they are up: a launcher of MPICH that meets a name too early does not end, ever."""
    program = f"/opt/pi/{implementation.lower()}"
    roles = {
        "Launcher": role(1, {"command": [mpirun, "-n", "4", program], "env": [*AS_ROOT, *OVER_THE_NETWORK]}),
        "Worker": role(
            2, {"command": ["/usr/sbin/sshd", "-De"], "readinessProbe": SSH_ANSWERS}, pod=apart("job-role")
        ),
    }
    spec = {
        "slotsPerWorker": 2,
        "mpiImplementation": implementation,
        "launcherCreationPolicy": "WaitForWorkersReady",
    }
    lines = launched(workloads, "v2beta1", {**spec, "mpiReplicaSpecs": roles})

    assert where(lines) == {"pi-worker-0", "pi-worker-1"}
    assert [line for line in lines if line.startswith("pi 3.141592653590 on 4 ranks")]


def test_ranks_are_started_by_kubectl_exec(cluster: Cluster, workloads: Workloads) -> None:
    """With the rights that the overlay for it adds."""
    cluster.plane.apply(*(one for one in build(WITH_MPI_V1) if one["metadata"]["name"] == RIGHTS))
    roles = {
        "Launcher": role(
            1,
            {"command": ["mpirun", "-n", "2", "/opt/pi/openmpi"], "env": AS_ROOT},
            restartPolicy="OnFailure",
        ),
        "Worker": role(2, {}, pod=apart("replica-type")),
    }
    lines = launched(workloads, "v1", {"slotsPerWorker": 1, "mpiReplicaSpecs": roles})

    assert where(lines) == {"pi-worker-0", "pi-worker-1"}
    assert [line for line in lines if line.startswith("pi 3.141592653590 on 2 ranks")]
