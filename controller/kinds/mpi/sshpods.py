"""The pods of jobs that start ranks by ssh: the user's template with the additions for a launcher or a worker.

Templates are never modified; the results share parts of them.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, newWorker and newLauncherPodTemplate.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api import labels
from api.job import owner_reference
from api.mpijob import Flavor, MPIJob
from controller.domain import Role
from controller.kind import Options, Roles
from controller.kinds.mpi.names import LAUNCHER, WORKER, config_name, launcher_name, worker_name
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.variables import CONFIG_PATH, HOSTFILE, OPERATOR_VARIABLES, ROLE, launcher_env

CONTROLLER: Final = "mpi-operator"
OWNER: Final = Flavor.V2BETA1.resource
ROOT_PATH: Final = "/root/.ssh"
DISCOVERY: Final = "discover_hosts.sh"
PRIVATE: Final = "ssh-privatekey"
PUBLIC: Final = "ssh-publickey"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Annotation of a template: the container that kubectl uses by default."""

_SSH, _CONFIG = "ssh-auth", "mpi-job-config"


def worker(job: MPIJob, roles: Roles, index: int, options: Options) -> dict[str, Any]:
    """Return one worker pod. It runs an ssh server, unless its template has a command.

    Differs: the search domain is that of ``--cluster-domain``. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    role, name = roles[WORKER], worker_name(job, index)
    spec = _spec(
        job,
        role,
        name,
        {ROLE: "worker"},
        [_keys_volume(job, role, private=not options.of(MPIOptions).launcher_only_key)],
        [_keys_mount(job)],
    )
    at = main_container_index(role)
    if not (spec["containers"][at].get("command") or spec["containers"][at].get("args")):
        spec["containers"][at] = {**spec["containers"][at], "command": ["/usr/sbin/sshd", "-De"]}
    dns = spec.get("dnsConfig") or {}
    domain = f"{job.metadata.name}.{job.metadata.namespace}.svc.{options.cluster_domain or 'cluster.local'}"
    spec["dnsConfig"] = {**dns, "searches": [*(dns.get("searches") or ()), domain]}
    own_labels = _labels(job, role, index + 1 if job.spec.run_launcher_as_worker else index)
    metadata = {"name": name, **_metadata(job, role, own_labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def launcher(job: MPIJob, roles: Roles, options: Options) -> dict[str, Any]:
    """Return the launcher's pod template. Its owner reference has no effect; the original sets it."""
    role = roles[LAUNCHER]
    volumes = [_keys_volume(job, role), _config_volume(job)]
    mounts = [_keys_mount(job), {"name": _CONFIG, "mountPath": CONFIG_PATH}]
    own_labels = _labels(job, role, 0 if job.spec.run_launcher_as_worker else None)
    return {
        "metadata": _metadata(job, role, own_labels),
        "spec": _spec(job, role, launcher_name(job), dict(launcher_env(job, options)), volumes, mounts),
    }


def secret_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-ssh"


def main_container_index(role: Role) -> int:
    """Return the index of the container that runs MPI: kubectl's default container by annotation, else the first.

    Differs: mpi-operator always uses the first. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    annotations = (role.template.get("metadata") or {}).get("annotations") or {}
    containers = role.template["spec"]["containers"]
    chosen = annotations.get(DEFAULT_CONTAINER)
    return next((at for at, container in enumerate(containers) if container.get("name") == chosen), 0)


def _spec(
    job: MPIJob,
    role: Role,
    name: str,
    env: Mapping[str, str],
    volumes: Sequence[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the template's pod spec with this host name. The main container gets the variables and mounts after its own.

    Differs: variables of MPI that the user has set are kept. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    spec, at = role.template["spec"], main_container_index(role)
    containers = list(spec["containers"])
    given = [
        variable
        for variable in containers[at].get("env") or ()
        if variable.get("name") not in OPERATOR_VARIABLES & env.keys()
    ]
    taken = {variable.get("name") for variable in given}
    added = [{"name": key, "value": value} for key, value in env.items() if key not in taken]
    containers[at] = {
        **containers[at],
        "env": [*given, *added],
        "volumeMounts": [*(containers[at].get("volumeMounts") or ()), *mounts],
    }
    network = {"dnsPolicy": "ClusterFirstWithHostNet"} if spec.get("hostNetwork") else {}
    return {
        **spec,
        **network,
        "hostname": name,
        "subdomain": job.metadata.name,
        "restartPolicy": role.restart_policy,
        "containers": containers,
        "volumes": [*(spec.get("volumes") or ()), *volumes],
    }


def _metadata(job: MPIJob, role: Role, own_labels: Mapping[str, str]) -> dict[str, Any]:
    template = role.template.get("metadata") or {}
    inherited = {"annotations": template["annotations"]} if template.get("annotations") else {}
    owners = [owner_reference(OWNER, job)]
    return {
        **inherited,
        "labels": {**(template.get("labels") or {}), **own_labels},
        "ownerReferences": owners,
    }


def _labels(job: MPIJob, role: Role, index: int | None) -> dict[str, str]:
    own_labels = {
        labels.OPERATOR_NAME: CONTROLLER,
        labels.JOB_NAME: job.metadata.name,
        labels.JOB_ROLE: role.label,
    }
    return own_labels if index is None else {**own_labels, labels.REPLICA_INDEX: str(index)}


def _keys_volume(job: MPIJob, role: Role, *, private: bool = True) -> dict[str, Any]:
    """Return the volume with the key pair under the file names that ssh expects; without ``private``, the public key alone.

    ssh rejects a private key that others can read, and only root can read a key with root's permissions.

    Differs: mpi-operator detects root by the exact path /root/.ssh. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    items = [
        *([{"key": PRIVATE, "path": "id_rsa"}] if private else []),
        {"key": PUBLIC, "path": "id_rsa.pub"},
        {"key": PUBLIC, "path": "authorized_keys"},
    ]
    is_root = _mount_path(job).rstrip("/") == ROOT_PATH or _user(role) == 0
    mode = {"defaultMode": 0o600} if is_root else {}
    return {"name": _SSH, "secret": {"secretName": secret_name(job), **mode, "items": items}}


def _user(role: Role) -> Any:
    """Return the user ID of the main container; None if its image sets the user."""
    spec = role.template["spec"]
    context = spec["containers"][main_container_index(role)].get("securityContext") or {}
    return context.get("runAsUser", (spec.get("securityContext") or {}).get("runAsUser"))


def _keys_mount(job: MPIJob) -> dict[str, Any]:
    return {"name": _SSH, "mountPath": _mount_path(job)}


def _mount_path(job: MPIJob) -> str:
    return job.spec.ssh_auth_mount_path or ROOT_PATH


def _config_volume(job: MPIJob) -> dict[str, Any]:
    items = [
        {"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444},
        {"key": DISCOVERY, "path": DISCOVERY, "mode": 0o555},
    ]
    return {"name": _CONFIG, "configMap": {"name": config_name(job), "items": items}}
