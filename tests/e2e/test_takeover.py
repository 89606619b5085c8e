"""Running jobs of a Go operator continue with their pods under this operator.

What the Go operators made is in ``tests/parity/golden``; here it runs in real pods, with a program that ends on a signal of the test.
"""

import base64
import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.installation import stopped
from rallypoint.testing.cluster.workloads import Workloads

IMAGE = "rallypoint-examples:mpi"
"""That of the examples for MPI; it has a shell, too."""
GOLDEN = Path(__file__).parents[1] / "parity" / "golden"
LEFT_BEHIND = {
    "PyTorchJob": "pytorchjob/never-fails",
    "TFJob": "tfjob/exitcode-143",
    "XGBoostJob": "xgboostjob/never-fails",
    "PaddleJob": "paddlejob/pod-deleted",
    "JAXJob": "jaxjob/never-fails",
    "MPIJob v1": "mpijob-v1/never-fails",
    "MPIJob v2beta1": "mpijob-v2beta1/worker-fails",
}
"""Of each kind, and of MPIJob each version that a Go operator serves, a recording with three pods, or two, that all run in ``expect/running.json``."""
PROGRAM = """
[ "$K_MPI_JOB_ROLE" = worker ] && exec /usr/sbin/sshd -De
[ -e /etc/mpi/kubexec.sh ] && [ ! -e /opt/kube ] && exec sleep infinity
until [ -e /tmp/go ]; do sleep 0.2; done
[ "$OMPI_MCA_orte_default_hostfile" ] || exit 0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun -n 2 hostname
"""
"""Workers of MPI serve ssh, or wait for kubectl exec; everybody else waits for a word; launchers then start ranks with what was made for them."""
CHILDREN = "pods,services,configmaps,secrets,jobs,serviceaccounts,roles,rolebindings"
WHEN = "2026-01-01T12:00:00Z"


class Left:
    """A job as its Go operator has left it, in a namespace of its own."""

    def __init__(self, workloads: Workloads, case: Path) -> None:
        self.workloads = workloads
        self._job = self._read(case / "case.yaml")["job"]
        self._job["spec"].setdefault("runPolicy", {})["cleanPodPolicy"] = "None"
        self.name: str = self._job["metadata"]["name"]
        workloads.apply(self._job)
        uid = workloads.get(self.resource, self.name)["metadata"]["uid"]
        made = self._read(case / "expect" / "created.json", uid)["creates"]
        for children in (made[name] for name in sorted(made, key="Pod".__eq__)):  # pods need what is not one
            for child in children.values():
                workloads.apply(with_keys(child))
        self.status = self._read(case / "expect" / "running.json", uid)["status"]
        patch = json.dumps({"status": self.status})
        workloads.kubectl(
            "patch", self.resource, self.name, "--subresource=status", "--type=merge", "-p", patch
        )

    @property
    def resource(self) -> str:
        """With the version in which the job was made, for kubectl."""
        group, _, version = self._job["apiVersion"].partition("/")
        return f"{self._job['kind'].lower()}s.{version}.{group}"

    def children(self) -> dict[str, str]:
        """All objects of the kinds that operators make, with their UIDs."""
        listed = json.loads(self.workloads.kubectl("get", CHILDREN, "-o", "json"))["items"]
        return {f"{child['kind']} {child['metadata']['name']}": child["metadata"]["uid"] for child in listed}

    def runs(self) -> bool:
        phases = [pod["status"]["phase"] for pod in self.workloads.pods(self.name).values()]
        return len(phases) == sum(self.active().values()) and set(phases) == {"Running"}

    def active(self) -> dict[str, int]:
        return {
            role: replica_status["active"] for role, replica_status in self.status["replicaStatuses"].items()
        }

    def finish(self) -> None:
        """All programs that wait for it to end."""
        for pod in self.workloads.pods(self.name):
            self.workloads.kubectl("exec", pod, "--", "touch", "/tmp/go")

    def _read(self, path: Path, uid: str = "") -> Any:
        """A file of the recording, for this namespace, and with a program that can run here."""
        text = json.dumps(yaml.load(path.read_text(), Loader=yaml.CSafeLoader))
        replaced = {
            "example/train:1": IMAGE,
            '["train"]': json.dumps(["sh", "-c", PROGRAM]),
            "golden": self.workloads.namespace,
            "<job uid>": uid,
            "<time>": WHEN,
        }
        for old, new in replaced.items():
            text = text.replace(old, new)
        return json.loads(text)


def with_keys(child: dict[str, Any]) -> dict[str, Any]:
    """Recordings do not hold what is in Secrets: a new key of the sort that mpi-operator makes."""
    if child["kind"] != "Secret":
        return child
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    data = {"ssh-privatekey": private, "ssh-publickey": public}
    return {**child, "data": {name: base64.b64encode(value).decode() for name, value in data.items()}}


@pytest.fixture(scope="module")
def taken_over(cluster: Cluster, rights_of_mpi_v1: None) -> Generator[dict[str, tuple[Left, dict[str, str]]]]:
    """Jobs of all kinds that ran before our operator did, each with the children that it had then."""
    with ExitStack() as stack:
        with stopped(cluster):
            left = {
                kind: Left(stack.enter_context(Workloads(cluster)), GOLDEN / case)
                for kind, case in LEFT_BEHIND.items()
            }
            for left_job in left.values():
                left_job.workloads.wait(f"{left_job.name} to run", left_job.runs)
            found = {kind: (left_job, left_job.children()) for kind, left_job in left.items()}
        yield found


@pytest.mark.parametrize("kind", LEFT_BEHIND)
def test_a_job_of_a_go_operator_continues(
    taken_over: dict[str, tuple[Left, dict[str, str]]], kind: str
) -> None:
    left, before = taken_over[kind]
    left.finish()
    left.workloads.wait_for(left.resource, left.name, "Succeeded")

    assert left.children() == before
    status = left.workloads.get(left.resource, left.name)["status"]
    assert status["startTime"] == WHEN
    assert status["completionTime"] > WHEN
    if kind.startswith("MPIJob"):
        (launcher,) = (pod for pod in left.workloads.pods(left.name) if "-launcher" in pod)
        lines = left.workloads.logs(launcher).splitlines()
        assert {f"{left.name}-worker-{index}" for index in range(2)} <= set(lines)
