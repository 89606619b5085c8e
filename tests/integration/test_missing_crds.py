"""Definitions that are installed, deleted and installed again while the controller runs, on a real kube-apiserver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.service import Service, service
from tests.support.jobs import Jobs, job

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
USER = "operator"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FLAGS = ("--leader-elect=true", "--enable-scheme=PyTorchJob", "--enable-scheme=TFJob")


class TFJobs(Jobs):
    kind = "TFJob"
    container = "tensorflow"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    users = [administrator(USER)]
    with ControlPlane(users=users, controllers=(), service_account_admission=False, nodes=2) as running:
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        yield running


def wait_served(plane: ControlPlane, running: Service, plural: str, *, served: bool) -> None:
    series = f'rallypoint_resource_served{{resource="{plural}"}}'
    plane.wait(f"{plural} served: {served}", lambda: running.metric(series) == served, seconds=90)


def tf_job() -> dict[str, object]:
    pod = {"spec": {"nodeName": "node-0", "containers": [{"name": "tensorflow", "image": "img"}]}}
    return {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": pod}}}}


def test_each_kind_is_served_while_its_definition_exists(plane: ControlPlane) -> None:
    pytorch, tensorflow = CRDS / "kubeflow.org_pytorchjobs.yaml", CRDS / "kubeflow.org_tfjobs.yaml"
    jobs, others = Jobs(plane, "team"), TFJobs(plane, "team")
    plane.apply_files(pytorch)
    with service(plane, plane.kubeconfig(USER), FLAGS) as running:
        wait_served(plane, running, "tfjobs", served=False)
        jobs.create("first", job(workers=1))
        jobs.wait_for("first", "Running")

        plane.apply_files(tensorflow)
        others.create("second", tf_job())
        others.wait_for("second", "Running")
        wait_served(plane, running, "tfjobs", served=True)

        plane.request("DELETE", f"{DEFINITIONS}/pytorchjobs.kubeflow.org")
        wait_served(plane, running, "pytorchjobs", served=False)
        others.create("third", tf_job())
        others.wait_for("third", "Running")

        plane.apply_files(pytorch)
        jobs.create("fourth", job(workers=1))
        jobs.wait_for("fourth", "Running")
        wait_served(plane, running, "pytorchjobs", served=True)
        running.process.check()
        assert running.is_ready()
