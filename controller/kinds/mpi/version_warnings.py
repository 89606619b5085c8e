"""Warnings about a job's flavor: a mismatch, fields that it ignores, and missing workers. Pure.

``api.mpijob`` reads the flavor itself. Warnings change nothing; each is recorded once per process.

Differs: the originals know one version each. See docs/decisions/0017-mpijob-versions.md.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api.batch import BatchJob
from api.children import Owned, Pod
from api.labels import LAST_APPLIED
from api.mpijob import FLAVOR, Flavor, MPIJob, MPIJobSpec, flavor
from controller.domain import Event, Severity, shortened
from controller.kind.reasons import EventReason
from controller.kinds.mpi import kubexec, v1spec
from controller.kinds.mpi.names import LAUNCHER, launcher_name

_V1_FIELDS = frozenset({"clean_pod_policy", "main_container"})
_V1ALPHA2_FIELDS = _V1_FIELDS | {"backoff_limit", "active_deadline_seconds", "mpi_distribution"}
_V2BETA1_FIELDS = frozenset(
    {"run_launcher_as_worker", "ssh_auth_mount_path", "launcher_creation_policy", "mpi_implementation"}
)
_FIELDS: Mapping[Flavor, frozenset[str]] = {
    Flavor.V1: _V1_FIELDS,
    Flavor.V1ALPHA2: _V1ALPHA2_FIELDS,
    Flavor.V2BETA1: _V2BETA1_FIELDS,
}
"""The spec fields that each flavor reads in addition to the common ones."""

_DEFAULTS: Mapping[str, Any] = {
    "run_launcher_as_worker": False,
    "ssh_auth_mount_path": "/root/.ssh",
    "launcher_creation_policy": "AtStartup",
    "mpi_implementation": "OpenMPI",
}
"""The defaults that the API server writes into any job that is patched through v2beta1. They cause no warning."""


def version_warnings(job: MPIJob, running: Flavor) -> Iterator[Event]:
    """Return the warnings for a job that runs as the given flavor. Equal jobs get equal warnings."""
    annotation = (job.metadata.annotations or {}).get(FLAVOR)
    if annotation is not None and annotation not in set(Flavor):
        known = ", ".join(sorted(Flavor))
        yield _warning(
            EventReason.FLAVOR_UNKNOWN,
            f'annotation {FLAVOR}: "{shortened(annotation, 64)}" is not one of {known}; ignored',
        )
    if running is not flavor(job):
        started = "Pod" if running is Flavor.V1 else "Job"
        text = (
            f"the job's flavor is {flavor(job)}, but its launcher is a {started} of flavor {running}; "
            f"the job continues as {running} until it ends or is suspended"
        )
        yield _warning(EventReason.FLAVOR_MISMATCH, text)
    elif annotation in set(Flavor) and job.spec.flavor not in {None, annotation}:
        text = f"the annotation is {annotation}, but spec.flavor is {job.spec.flavor}; the job runs as {annotation}"
        yield _warning(EventReason.FLAVOR_MISMATCH, text)
    elif (applied := _last_applied_version(job)) and applied != flavor(job):
        text = (
            f"the last applied manifest has apiVersion kubeflow.org/{applied}, but the job was created as "
            f"{flavor(job)}, and the flavor is immutable; delete the job and create it again to change it"
        )
        yield _warning(EventReason.FLAVOR_IMMUTABLE, text)
    if ignored := sorted(ignored_fields(job, running)):
        text = f"a {running} job ignores: {', '.join(f'spec.{field}' for field in ignored)}"
        yield _warning(EventReason.FIELDS_IGNORED, text)
    older, newer = job.spec.clean_pod_policy, job.spec.policy.clean_pod_policy
    if older and newer and older != newer and "clean_pod_policy" in _FIELDS[running]:
        wins = newer if running is Flavor.V1 else older
        text = f"spec.cleanPodPolicy is {older}, spec.runPolicy.cleanPodPolicy is {newer}; {wins} applies"
        yield _warning(EventReason.FIELDS_IGNORED, text)
    if running is not Flavor.V2BETA1 and _has_launcher_alone(job, running):
        text = "the job has no workers, so all ranks run on the launcher; set spec.mpiReplicaSpecs[Worker].replicas"
        yield _warning(EventReason.NO_WORKERS, text)


def ignored_fields(job: MPIJob, running: Flavor) -> Iterator[str]:
    """Return the JSON names of the fields that are set and that the flavor does not read."""
    for name in frozenset().union(*_FIELDS.values()) - _FIELDS[running]:
        value = getattr(job.spec, name)
        if value is not None and value != _DEFAULTS.get(name):
            yield MPIJobSpec.model_fields[name].alias or name


def fields_of_other_flavors(running: Flavor) -> frozenset[str]:
    """Return the JSON names of the spec fields that only other flavors read. The API server's defaults can set them in any job."""
    others = frozenset[str]().union(*_FIELDS.values()) - _FIELDS[running]
    return frozenset(MPIJobSpec.model_fields[name].alias or name for name in others)


def effective_flavor(job: MPIJob, children: Iterable[Owned]) -> Flavor:
    """Return the flavor that a job runs as: that of its launcher while there is one, else its own.

    ``children`` are owned by the job, whatever their names. Two flavors have batch Jobs as launchers: v1alpha2 labels them with a role.
    The MPI Operator of 2020 did not, and created a StatefulSet instead of pods.
    """
    owned = list(children)
    launcher = next((child for child in owned if child.name == launcher_name(job)), None)
    if launcher is None:
        return flavor(job)
    if not isinstance(launcher, BatchJob):
        return Flavor.V1
    is_legacy = flavor(job) is Flavor.V1ALPHA2 and not any(isinstance(child, Pod) for child in owned)
    return Flavor.V1ALPHA2 if launcher.role or is_legacy else Flavor.V2BETA1


def required_annotations(job: MPIJob) -> dict[str, str]:
    """Return the annotations that a job needs if another controller copies it and drops fields that it does not know.

    v2beta1 needs none: such controllers write that version.
    """
    if flavor(job) is Flavor.V2BETA1:
        return {}
    return {FLAVOR: flavor(job).value}


def _has_launcher_alone(job: MPIJob, running: Flavor) -> bool:
    """Return whether all ranks run on a launcher that is not in the list of hosts. In v1 a launcher with GPUs is in that list."""
    roles = v1spec.roles(job)
    if LAUNCHER not in roles or v1spec.workers(roles):
        return False
    return running is not Flavor.V1 or not kubexec.has_gpus(roles[LAUNCHER])


def _last_applied_version(job: MPIJob) -> str:
    """Return the API version of the last applied manifest; empty if that manifest sets a flavor."""
    applied = (job.metadata.annotations or {}).get(LAST_APPLIED, "")
    try:
        manifest = json.loads(applied or "{}")
        version = str(manifest.get("apiVersion", "")).rpartition("/")[2]
        chosen = (manifest.get("spec") or {}).get("flavor")
    except (ValueError, AttributeError):
        return ""
    return version if version in set(Flavor) and not chosen else ""


def _warning(reason: str, text: str) -> Event:
    return Event(Severity.WARNING, reason, text, once=f"{reason}: {text}")
