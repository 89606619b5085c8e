"""MPIJob's wire model: all fields of all versions, and the flavor that a job has."""

from typing import Any

import pytest

from api.job import owner_reference
from api.mpijob import FLAVOR, Flavor, MPIJob, flavor

SPEC: dict[str, Any] = {
    "runPolicy": {"cleanPodPolicy": "Running", "suspend": True, "managedBy": "kubeflow.org/mpi-operator"},
    "mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": {"spec": {}}}, "Worker": {"replicas": 2}},
    "slotsPerWorker": 2,
    "cleanPodPolicy": "All",
    "mainContainer": "trainer",
    "backoffLimit": 3,
    "activeDeadlineSeconds": 60,
    "mpiDistribution": "IntelMPI",
    "runLauncherAsWorker": True,
    "sshAuthMountPath": "/home/mpiuser/.ssh",
    "launcherCreationPolicy": "WaitForWorkersReady",
    "mpiImplementation": "Intel",
    "flavor": "v2beta1",
}


def test_every_field_is_serialized_under_its_name() -> None:
    job = MPIJob.model_validate({"spec": SPEC})

    assert not job.spec.model_extra
    assert job.to_wire() == {"spec": SPEC}


def test_null_counts_as_unset() -> None:
    """As the MPI Operator of 2020 stored them."""
    job = MPIJob.model_validate(
        {
            "spec": dict.fromkeys(SPEC),
            "status": {"conditions": None, "replicaStatuses": None, "startTime": None},
        }
    )

    assert job.to_wire() == {"spec": {}, "status": {}}
    assert flavor(job) is Flavor.V1


@pytest.mark.parametrize("stamped", [None, "v1", "v1alpha2", "v2beta1", "v3"])
@pytest.mark.parametrize("marked", [None, "v1", "v1alpha2", "v2beta1", "", "v3", "V1"])
def test_the_annotation_overrides_the_spec(marked: str | None, stamped: str | None) -> None:
    annotations = None if marked is None else {FLAVOR: marked}
    job = MPIJob.model_validate({"metadata": {"annotations": annotations}, "spec": {"flavor": stamped}})

    known = {"v1", "v1alpha2", "v2beta1"}
    expected = marked if marked in known else stamped if stamped in known else "v1"

    assert flavor(job) == expected


@pytest.mark.parametrize("version", Flavor)
def test_events_are_of_the_job_in_the_version_of_its_flavor(version: Flavor) -> None:
    assert version.resource.api_version == f"kubeflow.org/{version}"
    assert version.resource.path("ns", "pi") == f"/apis/kubeflow.org/{version}/namespaces/ns/mpijobs/pi"


@pytest.mark.parametrize("version", Flavor)
def test_children_name_their_owner_in_the_version_that_kueue_knows(version: Flavor) -> None:
    job = MPIJob.model_validate({"metadata": {"name": "pi", "uid": "pi-uid"}, "spec": {"flavor": version}})

    owner = owner_reference(version.resource, job)

    assert (owner["apiVersion"], owner["uid"]) == ("kubeflow.org/v2beta1", "pi-uid")


def test_children_name_their_owner_in_v1_under_a_definition_that_has_no_other_version() -> None:
    job = MPIJob.model_validate({"metadata": {"name": "pi", "uid": "pi-uid"}})

    assert owner_reference(Flavor.V1.resource, job)["apiVersion"] == "kubeflow.org/v1"
