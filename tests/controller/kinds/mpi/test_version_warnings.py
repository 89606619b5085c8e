"""Warnings about a job's flavor: contradictions, fields without effect and launchers of another flavor."""

import json
from typing import Any

import pytest

from api.labels import LAST_APPLIED
from api.mpijob import FLAVOR, Flavor, MPIJob, flavor
from controller.kinds.mpi.version_warnings import ignored_fields, required_annotations, version_warnings

BY_PATCH = {
    "slotsPerWorker": 1,
    "runLauncherAsWorker": False,
    "sshAuthMountPath": "/root/.ssh",
    "launcherCreationPolicy": "AtStartup",
    "mpiImplementation": "OpenMPI",
}
"""What any patch through v2beta1 leaves in a job of whichever flavor."""

SET = {
    "cleanPodPolicy": "All", "mainContainer": "m", "backoffLimit": 1, "activeDeadlineSeconds": 9, "mpiDistribution": "MPICH",
    "runLauncherAsWorker": True, "sshAuthMountPath": "/home/mpi/.ssh", "launcherCreationPolicy": "WaitForWorkersReady",
    "mpiImplementation": "Intel",
}  # fmt: skip
"""Every field that some flavor ignores, with an explicit value."""


def job(spec: dict[str, Any] | None = None, **annotations: str) -> MPIJob:
    given = {FLAVOR if key == "flavor" else LAST_APPLIED: text for key, text in annotations.items()}
    return MPIJob.model_validate({"metadata": {"annotations": given}, "spec": spec or {}})


def reasons_of(mpijob: MPIJob) -> list[str]:
    return [event.reason for event in version_warnings(mpijob, flavor(mpijob))]


@pytest.mark.parametrize("stamp", Flavor)
def test_defaults_of_the_server_cause_no_warning(stamp: Flavor) -> None:
    assert reasons_of(job({"flavor": stamp, **BY_PATCH})) == []


@pytest.mark.parametrize(
    ("stamp", "read"),
    [
        ("v1", {"cleanPodPolicy", "mainContainer"}),
        ("v1alpha2", {"cleanPodPolicy", "mainContainer", "backoffLimit", "activeDeadlineSeconds", "mpiDistribution"}),
        ("v2beta1", {"runLauncherAsWorker", "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"}),
    ],
)  # fmt: skip
def test_a_flavor_reads_only_its_own_fields(stamp: str, read: set[str]) -> None:
    mpijob = job({"flavor": stamp, "slotsPerWorker": 2, "runPolicy": {"backoffLimit": 3}, **SET})

    (event,) = version_warnings(mpijob, flavor(mpijob))
    assert set(ignored_fields(mpijob, flavor(mpijob))) == SET.keys() - read
    assert event.message == f"a {stamp} job ignores: " + ", ".join(
        f"spec.{name}" for name in sorted(SET.keys() - read)
    )


@pytest.mark.parametrize(
    ("mpijob", "reasons"),
    [
        pytest.param(job({"flavor": "v1"}, flavor="v1"), [], id="annotation and field agree"),
        pytest.param(job({"flavor": "v1"}, flavor="v2beta1"), ["FlavorMismatch"], id="annotation and field differ"),
        pytest.param(job({}, flavor="v2beta1"), [], id="the annotation alone"),
        pytest.param(job({"flavor": "v1"}, flavor="v3"), ["FlavorUnknown"], id="an annotation of no flavor"),
        pytest.param(job({"flavor": "v1"}, flavor=""), ["FlavorUnknown"], id="an empty annotation"),
        pytest.param(job({"flavor": "v1"}, applied='{"apiVersion":"kubeflow.org/v1"}'), [], id="applied as it is"),
        pytest.param(
            job({"flavor": "v1"}, applied='{"apiVersion":"kubeflow.org/v2beta1"}'), ["FlavorImmutable"], id="applied in another version"
        ),
        pytest.param(
            job({"flavor": "v2beta1"}, applied=json.dumps({"apiVersion": "kubeflow.org/v1", "spec": {"flavor": "v2beta1"}})),
            [], id="applied with a flavor chosen",
        ),
        pytest.param(job({"flavor": "v1"}, applied="{"), [], id="applied with invalid JSON"),
        pytest.param(job({"flavor": "v1"}, applied="[]"), [], id="applied as something else"),
    ],
)  # fmt: skip
def test_contradictory_fields_cause_a_warning(mpijob: MPIJob, reasons: list[str]) -> None:
    assert reasons_of(mpijob) == reasons
    assert all(
        event.severity == "Warning" and event.once for event in version_warnings(mpijob, flavor(mpijob))
    )


def test_the_warning_names_the_way_out() -> None:
    mpijob = job({"flavor": "v1"}, applied='{"apiVersion":"kubeflow.org/v2beta1"}')
    (event,) = version_warnings(mpijob, Flavor.V1)

    assert event.message == (
        "the last applied manifest has apiVersion kubeflow.org/v2beta1, but the job was created as v1, and the flavor is immutable; "
        "delete the job and create it again to change it"
    )


def test_a_launcher_of_another_flavor_causes_a_warning() -> None:
    """It is the only warning about the flavor; the flavor that runs decides which fields have an effect."""
    mpijob = job({"flavor": "v1", "mainContainer": "m", "sshAuthMountPath": "/keys"}, flavor="v2beta1")
    events = [(event.reason, event.message) for event in version_warnings(mpijob, Flavor.V1)]

    assert events == [
        (
            "FlavorMismatch",
            (
                "the job's flavor is v2beta1, but its launcher is a Pod of flavor v1; the job continues as v1 until it ends or is "
                "suspended"
            ),
        ),
        ("FieldsIgnored", "a v1 job ignores: spec.sshAuthMountPath"),
    ]


@pytest.mark.parametrize(
    ("mpijob", "expected"),
    [
        (job({"flavor": "v1"}), {FLAVOR: "v1"}),
        (job({"flavor": "v1alpha2"}), {FLAVOR: "v1alpha2"}),
        (job({"flavor": "v2beta1"}), {}),
        (job({"flavor": "v2beta1"}, flavor="v1"), {FLAVOR: "v1"}),
    ],
)
def test_only_fields_that_copies_lose_need_an_annotation(mpijob: MPIJob, expected: dict[str, str]) -> None:
    assert required_annotations(mpijob) == expected


@pytest.mark.parametrize(
    ("stamp", "messages"),
    [
        ("v1", ["spec.cleanPodPolicy is All, spec.runPolicy.cleanPodPolicy is None; None applies"]),
        ("v1alpha2", ["spec.cleanPodPolicy is All, spec.runPolicy.cleanPodPolicy is None; All applies"]),
        ("v2beta1", ["a v2beta1 job ignores: spec.cleanPodPolicy"]),
    ],
)
def test_two_clean_pod_policies_cause_a_warning(stamp: str, messages: list[str]) -> None:
    mpijob = job({"flavor": stamp, "cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "None"}})

    assert [event.message for event in version_warnings(mpijob, flavor(mpijob))] == messages


GPUS = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


@pytest.mark.parametrize(
    ("stamp", "roles", "reasons"),
    [
        pytest.param("v1", {"Launcher": {}}, ["NoWorkers"], id="no role of that name"),
        pytest.param("v1", {"Launcher": {}, "Worker": {}}, ["NoWorkers"], id="no replicas field"),
        pytest.param(
            "v1alpha2", {"Launcher": {}, "Worker": {"replicas": 0}}, ["NoWorkers"], id="zero replicas"
        ),
        pytest.param("v1", {"Launcher": {}, "Worker": {"replicas": 1}}, [], id="a single worker"),
        pytest.param("v1", {"Launcher": {"template": GPUS}}, [], id="a launcher with GPUs is a host"),
        pytest.param("v1alpha2", {"Launcher": {"template": GPUS}}, ["NoWorkers"], id="but not in 2020"),
        pytest.param("v1", {"Worker": {}}, [], id="rejected without a launcher"),
        pytest.param("v2beta1", {"Launcher": {}}, [], id="warned at its creation"),
    ],
)
def test_a_job_without_workers(stamp: str, roles: dict[str, Any], reasons: list[str]) -> None:
    assert reasons_of(job({"flavor": stamp, "mpiReplicaSpecs": roles})) == reasons
