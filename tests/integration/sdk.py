"""A session of a kubeflow-training SDK user with a PyTorchJob; it runs in its own environment.

    python sdk.py KUBECONFIG

Prints what the calls return, as one JSON document.
"""

import json
import sys
import time
from contextlib import closing
from typing import Any

from kubeflow.training import (  # type: ignore[import-not-found]
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    TrainingClient,
)
from kubernetes import client, config, stream  # type: ignore[import-not-found]

NAME = "from-the-sdk"
PORT = 8765
SERVE = f"python3 -m http.server --bind localhost $(({PORT} + RANK))"


def job(name: str, script: str, **run_policy: Any) -> KubeflowOrgV1PyTorchJob:
    container = client.V1Container(name="pytorch", image="none", command=["sh", "-c", script])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    replicas = {
        role: KubeflowOrgV1ReplicaSpec(replicas=1, restart_policy="OnFailure", template=template)
        for role in ("Master", "Worker")
    }
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=client.V1ObjectMeta(name=name),
        spec=KubeflowOrgV1PyTorchJobSpec(
            pytorch_replica_specs=replicas,
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None", **run_policy),
        ),
    )


def train() -> None:
    """What the SDK ships as a function."""
    import os

    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")  # noqa: T201 - what the log is to say


def main(kubeconfig: str) -> dict[str, Any]:
    training = TrainingClient(config_file=kubeconfig, job_kind="PyTorchJob")
    results: dict[str, Any] = {}
    training.create_job(job(NAME, "echo rank $RANK of $WORLD_SIZE"))
    finished = training.wait_for_job_conditions(NAME, timeout=120, polling_interval=1)
    results["conditions"] = [
        condition.type for condition in finished.status.conditions if condition.status == "True"
    ]
    results["pods"] = sorted(training.get_job_pod_names(NAME))
    results["masters"] = training.get_job_pod_names(NAME, is_master=True)
    logs, _ = training.get_job_logs(NAME)
    results["logs"] = logs
    results["succeeded"] = training.is_job_succeeded(NAME)

    long = f"{NAME}-2"
    training.create_job(job(long, f"echo up; exec {SERVE}"))
    training.wait_for_job_conditions(long, expected_conditions={"Running"}, timeout=120, polling_interval=1)
    results["said"] = _exec(kubeconfig, f"{long}-master-0", ["sh", "-c", "echo here; echo there >&2"])
    results["forwarded"] = _forward(kubeconfig, f"{long}-master-0")
    training.update_job(job(long, f"echo up; exec {SERVE}", suspend=True), long)
    results["suspended"] = _until_suspended(training, long)

    shipped = f"{NAME}-3"
    training.create_job(name=shipped, train_func=train, base_image="none", num_workers=1)
    training.wait_for_job_conditions(shipped, timeout=120, polling_interval=1)
    results["shipped"] = next(iter(training.get_job_logs(shipped)[0].values()))

    results["listed"] = sorted(listed_job.metadata.name for listed_job in training.list_jobs())
    for name in (NAME, long, shipped):
        training.delete_job(name)
    results["left"] = [listed_job.metadata.name for listed_job in training.list_jobs()]
    return results


def _until_suspended(training: TrainingClient, name: str) -> bool:
    """The SDK waits for no such condition."""
    for _ in range(60):
        conditions = training.get_job_conditions(name)
        if any(condition.type == "Suspended" and condition.status == "True" for condition in conditions):
            return True
        time.sleep(1)
    return False


def _exec(kubeconfig: str, pod: str, command: list[str]) -> str:
    config.load_kube_config(kubeconfig)
    said: str = stream.stream(
        client.CoreV1Api().connect_get_namespaced_pod_exec,
        pod,
        "default",
        command=command,
        stdout=True,
        stderr=True,
        stdin=False,
        tty=False,
    )
    return said


def _forward(kubeconfig: str, pod: str) -> str:
    """The first line of the answer of the pod's server."""
    config.load_kube_config(kubeconfig)
    answer = ""
    for _ in range(60):
        forwarded = stream.portforward(
            client.CoreV1Api().connect_get_namespaced_pod_portforward, pod, "default", ports=str(PORT)
        )
        with closing(forwarded.socket(PORT)) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = connection.makefile().readline() or str(forwarded.error(PORT))
        if answer.startswith("HTTP"):
            break
        time.sleep(0.5)  # Its server has not started yet.
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
