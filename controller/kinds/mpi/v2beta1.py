"""MPIJobs as mpi-operator 0.8 runs them: ranks are started by ssh, from pod to pod.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go and pkg/apis/kubeflow/v2beta1/default.go.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from api import labels
from api.children import Pod
from api.job import RestartPolicy, RunPolicy, owner_reference
from api.meta import CONFIG_MAPS, SECRETS, SERVICES, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Event, EventMessages, Probe, Problem, Role, Snapshot, WriteMode
from controller.kind import Options, Roles
from controller.kind.reasons import EventReason
from controller.kinds.mpi import hosts
from controller.kinds.mpi.checks import problems
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.launcher_job import failed_attempts
from controller.kinds.mpi.names import LAUNCHER, WORKER, config_name, launcher_name, slots, worker_name
from controller.kinds.mpi.sshpods import (
    CONTROLLER,
    DISCOVERY,
    OWNER,
    launcher,
    main_container_index,
    secret_name,
    worker,
)
from controller.kinds.mpi.status_builder import warning_event
from controller.kinds.mpi.variables import HOSTFILE, INTEL, MPICH, OPEN_MPI, implementation

_SEPARATORS = {OPEN_MPI: " slots=", INTEL: ":", MPICH: ":"}
HIGHEST_PORT: Final = 65535
SSH_PORTS: Final = (22, 2222)
"""The port for root, and the port of images for other users."""
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""Annotation: the queue of a job whose scheduling policy names none, for Volcano."""


def roles(job: MPIJob) -> Roles:
    """Return the roles with their defaults. Role names are case-sensitive; the number of workers has no default.

    Source: mpi-operator 0.8, pkg/apis/kubeflow/v2beta1/default.go.
    """
    given = job.spec.mpi_replica_specs or {}
    defaults = ((LAUNCHER, 1, RestartPolicy.ON_FAILURE), (WORKER, 0, RestartPolicy.NEVER))
    return {
        name: Role(
            name=name,
            replicas=least if given[name].replicas is None else int(given[name].replicas or 0),
            restart_policy=given[name].restart_policy or policy,
            template=given[name].template or {},
        )
        for name, least, policy in defaults
        if name in given
    }


def normal(job: MPIJob) -> MPIJob:
    """Complete the scheduling policy from the queue annotation and the priority classes of templates.

    Source: mpi-operator 0.8, pkg/controller/podgroup.go.
    """
    run_policy = job.spec.run_policy or RunPolicy()
    given = run_policy.scheduling
    classes = [((role.template.get("spec") or {}).get("priorityClassName")) for role in roles(job).values()]
    policy = given.model_copy(
        update={
            "queue": given.queue or (job.metadata.annotations or {}).get(QUEUE_ANNOTATION),
            "priority_class": given.priority_class or next(filter(None, classes), None),
            "schedule_timeout_seconds": given.schedule_timeout_seconds or 0,
        }
    )
    run_policy = run_policy.model_copy(update={"scheduling_policy": policy})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": run_policy})})


def all_problems(job: MPIJob, options: Options) -> Iterator[Problem]:
    """Return why the job is invalid: by mpi-operator's rules, or because a ConfigMap cannot contain its lists of hosts."""
    yield from problems(job, roles, options)
    given = roles(job)
    workers = given[WORKER].replicas if WORKER in given else 0
    if workers <= options.max_replicas:
        path = f"spec.mpiReplicaSpecs[{WORKER}].replicas"
        yield from hosts.size_problems(workers, lambda order: host_lists(job, options, order, order), path)


def should_wait_for_workers(job: MPIJob, options: Options) -> bool:
    """Return whether the launcher starts only when all workers are ready.

    Differs: mpi-operator waits only before it creates the launcher, not when a suspended job is resumed. See
    docs/decisions/0018-mpijob-v2beta1.md.
    """
    return hosts.should_wait_for_workers(
        job, options, job.spec.launcher_creation_policy == "WaitForWorkersReady"
    )


def ssh_probe(_: MPIJob, roles: Roles, pod: Pod) -> Probe:
    """Return the probe for an ssh banner, at a port that the template names ssh and at the ports that images use."""
    ports = (
        roles[WORKER].template["spec"]["containers"][main_container_index(roles[WORKER])].get("ports") or ()
    )
    named = [port["containerPort"] for port in ports if port.get("name") in {"ssh", "sshd"}]
    # The CRD has no range for ports, and the template may have changed since the API server checked the pod.
    possible = [port for port in named if 0 < port <= HIGHEST_PORT]
    return Probe(pod.uid, pod.address, tuple(dict.fromkeys([*possible, *SSH_PORTS])), b"SSH-")


def created_note(job: MPIJob, roles: Roles) -> str:
    """Return the note for a job whose ranks all run beside the launcher."""
    if WORKER in roles or job.spec.run_launcher_as_worker:
        return ""
    return " It has no workers, so all ranks run on the launcher: add a Worker, or set runLauncherAsWorker."


def support_objects(
    job: MPIJob, roles: Roles, snapshot: Snapshot, now: datetime, options: Options
) -> Iterator[Child]:
    """Return the Service, the ConfigMap with the lists of hosts, and the Secret with the keys.

    They are checked again for each generation and for each attempt of the launcher.
    """
    name = job.metadata.name
    restarts = (job.status and job.status.restarts) or 0
    attempt_version = f"{job.metadata.generation}/{restarts}/{failed_attempts(job, snapshot)}"
    yield Child(
        SERVICES, name, partial(service, job), WriteMode.APPLY, first=1, lasting=True, version=attempt_version
    )
    data = config(job, roles, snapshot, now, options)
    digest = hashlib.sha256("\0".join(data.values()).encode()).hexdigest()
    body, version = (
        partial(_object, CONFIG_MAPS, job, config_name(job), {"data": data}),
        f"{attempt_version}/{digest}",
    )
    yield Child(CONFIG_MAPS, config_name(job), body, WriteMode.APPLY, first=1, lasting=True, version=version)
    yield Child(
        SECRETS,
        secret_name(job),
        partial(secret, job),
        WriteMode.APPLY,
        first=1,
        lasting=True,
        version=attempt_version,
        flaw=_secret_problem,
    )


def service(job: MPIJob) -> dict[str, Any]:
    """Return the headless Service of all pods.

    Differs: names resolve before pods are ready, since ssh retries connections but not name lookups. See
    docs/decisions/0018-mpijob-v2beta1.md.
    """
    selector = {labels.OPERATOR_NAME: CONTROLLER, labels.JOB_NAME: job.metadata.name}
    spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
    return _object(SERVICES, job, job.metadata.name, {"spec": spec})


def config(job: MPIJob, roles: Roles, snapshot: Snapshot, now: datetime, options: Options) -> dict[str, str]:
    """Return the lists of hosts: all workers of the spec, and those that are ready.

    Differs: mpi-operator lists running pods even if they are not ready or are terminating, worker 10 before worker 2. See
    docs/decisions/0018-mpijob-v2beta1.md.
    """
    desired = roles[WORKER].replicas if WORKER in roles else 0
    running = [pod for pod in snapshot.pods if pod.index < desired]
    advertised = {
        pod.index for pod in hosts.advertised_workers(running, desired, now, hosts.running_since(job))
    }
    order = hosts.worker_order(running, desired, snapshot.node_domains)
    return host_lists(job, options, order, [index for index in order if index in advertised])


def host_lists(job: MPIJob, options: Options, order: Iterable[int], up: Iterable[int]) -> dict[str, str]:
    """Return the data of the ConfigMap for workers in this order, of which ``up`` are listed for discovery."""
    separator = f"{_SEPARATORS[implementation(job)]}{slots(job)}"
    first = [launcher_name(job)] if job.spec.run_launcher_as_worker else []
    hostfile = (*first, *(worker_name(job, index) for index in order))
    discovered = (*first, *(worker_name(job, index) for index in up))
    return {
        HOSTFILE: "".join(f"{address(job, host, options)}{separator}\n" for host in hostfile),
        DISCOVERY: "".join(
            ["#!/bin/sh\n", *(f"echo {address(job, host, options)}\n" for host in discovered)]
        ),
    }


def secret(job: MPIJob) -> dict[str, Any]:
    from controller.kinds.mpi import keys

    return _object(SECRETS, job, secret_name(job), {"type": keys.TYPE, "data": keys.new_pair()})


def _secret_problem(found: Mapping[str, Any]) -> str:
    from controller.kinds.mpi import keys

    return keys.secret_problem(found)


def address(job: MPIJob, pod: str, options: Options) -> str:
    """Return the DNS name of the pod."""
    domain = f".{options.cluster_domain}" if options.cluster_domain else ""
    return f"{pod}.{job.metadata.name}.{job.metadata.namespace}.svc{domain}"


def _object(resource: Resource, job: MPIJob, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of the job. All but Secrets have the label that informers select.

    Differs: mpi-operator watches all objects, and sets no label. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    watched_by = {} if resource == SECRETS else {labels.JOB_NAME: job.metadata.name}
    metadata = {
        "name": name,
        "labels": {"app": job.metadata.name, **watched_by},
        "ownerReferences": [owner_reference(OWNER, job)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


def _name_conflict(_kind: str, name: str) -> Event:
    """Return the event for a name conflict. The kind is empty, as in the original."""
    return warning_event(
        EventReason.RESOURCE_EXISTS,
        f'Resource "{name}" of Kind "" already exists and is not managed by MPIJob',
    )


def _write_failure(verb: str, kind: str, message: str) -> Event | None:
    role = {"Pod": "worker", "Job": "launcher"}.get(kind)
    return (
        warning_event("MPIJobFailed", f"{role} pod created failed: {message}")
        if verb == "Create" and role
        else None
    )


V2BETA1: Final = LauncherFlavor(
    resource=OWNER,
    controller_name=CONTROLLER,
    managed_by=labels.MANAGED_BY_MPI_OPERATOR,
    event_messages=EventMessages(
        done=lambda *_: None, failed=_write_failure, taken=_name_conflict, source="mpi-job-controller"
    ),
    roles=roles,
    problems=all_problems,
    support_objects=support_objects,
    worker_pod=worker,
    launcher_template=launcher,
    normal=normal,
    should_wait_for_workers=should_wait_for_workers,
    worker_probe=ssh_probe,
    created_note=created_note,
    role_label=labels.JOB_ROLE,
)
