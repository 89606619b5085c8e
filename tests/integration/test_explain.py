"""``kubectl explain`` describes our fields on a real API server, by the docstrings of the models."""

import os
import subprocess
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import ControlPlane, binaries

FIELDS = {
    "pytorchjob": "A training job of PyTorch: a master and workers, workers alone, or elastic workers under torchrun.",
    "pytorchjob.spec": "Desired state of the job.",
    "pytorchjob.spec.nprocPerNode": "Processes that torchrun starts in each pod: `auto`, `gpu`, `cpu` or a number, as text.",
    "pytorchjob.spec.elasticPolicy": "the number of workers may change while the job runs. The job needs the role `Worker`.",
    "pytorchjob.spec.elasticPolicy.minReplicas": "Must not exceed `maxReplicas`.",
    "pytorchjob.spec.elasticPolicy.rdzvBackend": "Defaults to `c10d`.",
    "pytorchjob.spec.elasticPolicy.rdzvConf.key": "Name of the setting.",
    "pytorchjob.spec.elasticPolicy.metrics": "by which a HorizontalPodAutoscaler changes the number of workers",
    "pytorchjob.spec.pytorchReplicaSpecs": "Roles of the job: `Master`, at most one pod, and `Worker`.",
    "pytorchjob.spec.pytorchReplicaSpecs.replicas": "Number of pods of the role. 0 means none.",
    "pytorchjob.spec.pytorchReplicaSpecs.restartPolicy": "`ExitCode` replaces a pod with an exit code of 128 or more",
    "pytorchjob.spec.pytorchReplicaSpecs.template": "Template of the role's pods.",
    "pytorchjob.spec.runPolicy": "Limits of the job's duration and restarts",
    "pytorchjob.spec.runPolicy.cleanPodPolicy": "Pods to delete when the job has finished",
    "pytorchjob.spec.runPolicy.ttlSecondsAfterFinished": "Seconds until a finished job is deleted",
    "pytorchjob.spec.runPolicy.backoffLimit": "3 tolerates two restarts; 0 and 1 tolerate none.",
    "pytorchjob.spec.runPolicy.managedBy": "`kueue.x-k8s.io/multikueue` leaves the job to MultiKueue.",
    "pytorchjob.spec.runPolicy.schedulingPolicy.minAvailable": "Number of pods that must start together.",
    "pytorchjob.status.conditions": "State of the job, with at most one entry of each type.",
    "pytorchjob.status.replicaStatuses.restarts": "which count towards `backoffLimit`",
    "tfjob.spec.successPolicy": "with `AllWorkers` when all workers have succeeded",
    "tfjob.spec.enableDynamicWorker": "Whether workers may come, go and fail while the job runs.",
    "xgboostjob.spec.xgbReplicaSpecs": "`Master`, exactly one pod, which is rank 0",
    "paddlejob.spec.elasticPolicy": "Accepted without effect",
    "jaxjob.spec.jaxReplicaSpecs": "Worker 0 is the coordinator.",
    "mxjob.spec.jobMode": "`MXTrain` or `MXTune`.",
    "mpijob.spec.flavor": "Behavior of the job: that of `v1`, `v1alpha2` or `v2beta1`.",
    "mpijob.spec.slotsPerWorker": "Number of ranks that a worker can run.",
    "mpijob.spec.runPolicy.managedBy": "`kubeflow.org/training-operator` and `kubeflow.org/mpi-operator` are this operator.",
    "mpijob.status.startTime": "When the job became active, or was last resumed.",
    "mpijob.spec.mpiImplementation --api-version=kubeflow.org/v2beta1": "v2beta1: MPI of the image",
    "mpijob.spec.mpiDistribution --api-version=kubeflow.org/v1alpha2": "See v1.",
}
"""What to explain, and a part of the answer."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of kubectl, where it caches what the API server publishes."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.mark.parametrize(("field", "expected"), FIELDS.items(), ids=list(FIELDS))
def test_kubectl_explains_the_field(
    control_plane: ControlPlane, crds: list[Path], home: Path, field: str, expected: str
) -> None:
    # A definition is published a moment after it is served.
    control_plane.wait(f"explanation of {field}", lambda: expected in explain(control_plane, home, field))


def explain(control_plane: ControlPlane, home: Path, field: str) -> str:
    """Return the output of ``kubectl explain`` on one line, because kubectl wraps it."""
    done = subprocess.run(
        [str(binaries.ensure(["kubectl"])["kubectl"]), "explain", *field.split()],
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig()), "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    return " ".join(done.stdout.split())
