"""The pods of v1 MPIJobs: the worked example of the contract and further rules."""

from typing import Any

import pytest

from api.mpijob import MPIJob
from controller.kind import Options
from controller.kinds.mpi import v1pods, v1spec
from tests.support.mpi import HVD, v1_job, v1_template


def launcher_of(of: MPIJob) -> dict[str, Any]:
    return v1pods.launcher_body(of, v1spec.roles(of), Options())


def test_example_12_worker() -> None:
    body = v1pods.worker_body(HVD, v1spec.roles(HVD), 0)

    assert body["metadata"]["name"] == "hvd-worker-0"
    assert body["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "hvd",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    assert body["spec"]["restartPolicy"] == "Never"
    assert set(body["spec"]) == {"restartPolicy", "containers", "volumes"}
    assert set(body["spec"]["containers"][0]) == {
        "name",
        "image",
        "command",
        "args",
        "resources",
        "volumeMounts",
    }


def test_example_12_launcher() -> None:
    body = launcher_of(HVD)
    (container,) = body["spec"]["containers"]

    assert body["metadata"]["name"] == "hvd-launcher"
    assert body["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "hvd",
        "training.kubeflow.org/replica-type": "launcher",
        "training.kubeflow.org/job-role": "master",
    }
    assert body["metadata"]["ownerReferences"][0]["apiVersion"] == "kubeflow.org/v1"
    assert body["spec"]["serviceAccountName"] == "hvd-launcher"
    assert body["spec"]["initContainers"][0]["image"] == "kubeflow/kubectl-delivery:latest"
    assert [(variable["name"], variable["value"]) for variable in container["env"]] == [
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
        ("NVIDIA_DRIVER_CAPABILITIES", ""),
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"),
        ("PRTE_MCA_plm_ssh_agent", "/etc/mpi/kubexec.sh"),
        ("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"),
    ]


def test_a_launcher_with_gpus_keeps_them() -> None:
    env = launcher_of(v1_job({"template": v1_template(resources={"limits": {"nvidia.com/gpu": 1}})}))["spec"][
        "containers"
    ][0]["env"]

    assert not any(variable["name"].startswith("NVIDIA") for variable in env)


@pytest.mark.parametrize(
    "name", ["I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "PRTE_MCA_plm_ssh_agent"]
)
def test_variables_of_the_user_for_intel_mpi_and_open_mpi_5_win(name: str) -> None:
    env = launcher_of(v1_job({"template": v1_template(env=[{"name": name, "value": "mine"}])}))["spec"][
        "containers"
    ][0]["env"]

    assert [variable["value"] for variable in env if variable["name"] == name] == ["mine"]


@pytest.mark.parametrize("policy", ["ExitCode"])
def test_pods_that_the_operator_restarts_have_restart_policy_never(policy: str) -> None:
    of = v1_job({"restartPolicy": policy}, {"restartPolicy": policy})

    assert launcher_of(of)["spec"]["restartPolicy"] == "Never"
    assert v1pods.worker_body(of, v1spec.roles(of), 0)["spec"]["restartPolicy"] == "Never"
