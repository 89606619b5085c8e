"""The MPI examples of the repository: each pod compiles the program; ssh and kubectl exec start ranks on two nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from api.labels import RESTART_ATTEMPT
from rallypoint.testing.cluster.workloads import Workloads, example, templates

Document = dict[str, Any]

OVER_THE_NETWORK = {"name": "UCX_TLS", "value": "tcp,self"}
"""What MPICH talks through: both nodes are one machine, which it finds out, and then it tries memory that pods do not share."""
MPICH = "timeout -k 1 60 mpirun.mpich -n 4 {} /opt/pi/pi > /tmp/told; cat /tmp/told; grep -q '^pi ' /tmp/told"
"""What is computed counts, not the end: MPICH 4.0, Debian 12's, hangs in MPI_Finalize over TCP now and then, without pods as well."""
OWN_ADDRESS = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
SECONDS = 400.0
WAITS_FOR_WORKERS = {"kubeflow.org/mpi-wait-for-workers": "true"}
"""What MPICH needs: its mpirun does not end, ever, when it meets a worker that does not run yet."""


def as_it_is(document: Document) -> None:
    """Nothing is changed."""


def v1alpha2_mpich(document: Document) -> None:
    document["spec"]["mpiDistribution"] = "MPICH"
    compile_with_mpich(document)
    launch_with_mpich(document)


def v1_mpich(document: Document) -> None:
    """As docs/reference/mpijob-v1.md has it: v1 writes no host list for MPICH, and the launcher's name does not resolve."""
    hosts = ",".join(f"pi-v1-worker-{index}" for index in range(4))
    agent = "-launcher rsh -launcher-exec /etc/mpi/kubexec.sh"
    compile_with_mpich(document)
    launch_with_mpich(document, f"{agent} -localhost $(POD_IP) -hosts {hosts}")


def launch_with_mpich(document: Document, options: str = "") -> None:
    document["metadata"]["annotations"] = WAITS_FOR_WORKERS
    command, env = ["sh", "-c", MPICH.format(options)], [OWN_ADDRESS, OVER_THE_NETWORK]
    first(document, "Launcher").update(command=command, env=env)


def compile_with_mpich(document: Document) -> None:
    for template in templates(document).values():
        template["spec"]["initContainers"][0]["command"][0] = "mpicc.mpich"


def first(document: Document, role: str) -> Document:
    """The first container of the pods of a role."""
    container: Document = templates(document)[role]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(
    ("manifest", "change"),
    [
        pytest.param("mpi/pi.yaml", as_it_is, id="v2beta1, Open MPI"),
        pytest.param("mpi/pi-mpich.yaml", launch_with_mpich, id="v2beta1, MPICH"),
        pytest.param("mpi/pi-v1.yaml", as_it_is, id="v1, Open MPI"),
        pytest.param("mpi/pi-v1.yaml", v1_mpich, id="v1, MPICH", marks=pytest.mark.full),
        pytest.param("mpi/pi-v1alpha2.yaml", as_it_is, id="v1alpha2, Open MPI", marks=pytest.mark.full),
        pytest.param("mpi/pi-v1alpha2.yaml", v1alpha2_mpich, id="v1alpha2, MPICH"),
    ],
)
@pytest.mark.usefixtures("rights_of_mpi_v1")
def test_ranks_on_two_nodes_compute_pi(
    workloads: Workloads, manifest: str, change: Callable[[Document], None]
) -> None:
    (document,) = example(manifest)
    change(document)
    name, roles = document["metadata"]["name"], document["spec"]["mpiReplicaSpecs"]
    workloads.apply(document)

    workloads.wait_for("mpijobs", name, "Succeeded", seconds=SECONDS)

    lines = workloads.logs_of("role=Launcher").splitlines()
    workers = {f"{name}-worker-{index}" for index in range(roles["Worker"]["replicas"])}
    assert {line.split()[-1] for line in lines if line.startswith("rank ")} == workers
    assert [line for line in lines if line.startswith("pi 3.141592653590 on 4 ranks")]
    assert workloads.nodes(f"{name}-worker-") == {"node-1", "node-2"}


RANK_FAILS_ONCE = (
    "[ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && [ $OMPI_COMM_WORLD_RANK = 2 ] && exit 7; exec /opt/pi/pi"
)


@pytest.mark.parametrize(
    "manifest", ["mpi/pi.yaml", pytest.param("mpi/pi-v1alpha2.yaml", marks=pytest.mark.full)]
)
@pytest.mark.usefixtures("rights_of_mpi_v1")
def test_a_rank_that_fails_restarts_launcher_and_workers(workloads: Workloads, manifest: str) -> None:
    """The other ranks wait for it in MPI_Init; mpirun ends them with its exit code."""
    (document,) = example(manifest)
    document["spec"].pop("backoffLimit", None)
    policy = {"maxRestarts": 1, "rules": [{"action": "RestartJob", "roles": ["Launcher"]}]}
    document["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "failurePolicy": policy}
    document["metadata"]["annotations"] = WAITS_FOR_WORKERS
    name = document["metadata"]["name"]
    mpirun = ["mpirun", "-n", "4", "-x", "RALLYPOINT_RESTART_ATTEMPT"]
    first(document, "Launcher").update(command=[*mpirun, "sh", "-c", RANK_FAILS_ONCE])
    workloads.apply(document)

    workloads.wait_for("mpijobs", name, "Succeeded", seconds=SECONDS)

    (attempt,) = workloads.get("mpijobs", name)["status"]["attempts"]
    assert (attempt["role"], attempt["exitCode"], attempt["action"]) == ("Launcher", 7, "RestartJob")
    pods = workloads.pods(name)
    assert {pod["metadata"]["labels"][RESTART_ATTEMPT] for pod in pods.values()} == {"1"}
    assert len(pods) == 5
    assert "pi 3.141592653590 on 4 ranks" in workloads.logs_of("role=Launcher")
