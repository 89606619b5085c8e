"""The pods of jobs that start ranks by ``kubectl exec``: the user's template with the additions for a launcher or a worker.

The additions go into the first container. Templates are never modified; the results share parts of them.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go, newWorker and newLauncher.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from api.job import owner_reference
from api.meta import Resource
from api.mpijob import MPIJob
from controller.domain import Role
from controller.kind.security import RESTRICTED
from controller.kinds.mpi.kubexec import AGENT, DISCOVERY, HOSTFILE
from controller.kinds.mpi.names import config_name

CONFIG_PATH: Final = "/etc/mpi"
KUBECTL_PATH: Final = "/opt/kube"

_CONFIG, _KUBECTL = "mpi-job-config", "mpi-job-kubectl"
_MODES: Mapping[str, int] = {AGENT: 0o555, HOSTFILE: 0o444, DISCOVERY: 0o555}
_CONFIG_MOUNT = {"name": _CONFIG, "mountPath": CONFIG_PATH}
_KUBECTL_MOUNT = {"name": _KUBECTL, "mountPath": KUBECTL_PATH}
_DELIVERY_RESOURCES = {"cpu": "100m", "ephemeral-storage": "5Gi", "memory": "512Mi"}


def worker(job: MPIJob, role: Role) -> dict[str, Any]:
    """Return the pod spec of a worker. It sleeps, unless its template has a command.

    No worker calls the agent, but Open MPI checks that the file exists on each host.
    """
    spec = role.template["spec"]
    first = _mounting(spec["containers"][0], _CONFIG_MOUNT)
    if not first.get("command"):
        first = {**first, "command": ["sleep"], "args": ["365d"]}
    return {
        **spec,
        "containers": [first, *spec["containers"][1:]],
        "volumes": [*(spec.get("volumes") or ()), _config_volume(job, [AGENT])],
    }


def launcher(
    job: MPIJob, role: Role, account: str, env: Sequence[tuple[str, str]], image: str, files: Iterable[str]
) -> dict[str, Any]:
    """Return the pod spec of the launcher, with the variables, the files of the ConfigMap, and kubectl from the image."""
    spec = role.template["spec"]
    first = _mounting(spec["containers"][0], _KUBECTL_MOUNT, _CONFIG_MOUNT)
    added = [{"name": name, "value": value} for name, value in env]
    first = {**first, "env": [*(first.get("env") or ()), *added]}
    kubectl = {"name": _KUBECTL, "emptyDir": {}}
    return {
        **spec,
        "serviceAccountName": account,
        "initContainers": [*(spec.get("initContainers") or ()), kubectl_delivery(job, image)],
        "containers": [first, *spec["containers"][1:]],
        "volumes": [*(spec.get("volumes") or ()), kubectl, _config_volume(job, files)],
    }


def kubectl_delivery(job: MPIJob, image: str) -> dict[str, Any]:
    """Return the init container that copies kubectl into the launcher.

    Differs: it has a security context that a restricted namespace accepts. See docs/decisions/0020-mpijob-v1.md.
    """
    return {
        "name": "kubectl-delivery",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "TARGET_DIR", "value": KUBECTL_PATH},
            {"name": "NAMESPACE", "value": job.metadata.namespace},
        ],
        "resources": {"limits": _DELIVERY_RESOURCES, "requests": _DELIVERY_RESOURCES},
        "securityContext": RESTRICTED,
        "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
    }


def pod(
    owner: Resource, job: MPIJob, name: str, role: Role, labels: Mapping[str, str], spec: dict[str, Any]
) -> dict[str, Any]:
    """Return a pod with this name and spec. ``labels`` override those of the template."""
    template: Mapping[str, Any] = role.template.get("metadata") or {}
    metadata = {key: template[key] for key in ("annotations", "finalizers") if template.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": name,
            "labels": {**(template.get("labels") or {}), **labels},
            "ownerReferences": [owner_reference(owner, job)],
        },
        "spec": spec,
    }


def set_by_user(role: Role) -> set[str]:
    """Return the variables that the first container of the template sets."""
    return {variable.get("name", "") for variable in role.template["spec"]["containers"][0].get("env") or ()}


def _mounting(container: Mapping[str, Any], *mounts: dict[str, str]) -> dict[str, Any]:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}


def _config_volume(job: MPIJob, files: Iterable[str]) -> dict[str, Any]:
    items = [{"key": name, "path": name, "mode": _MODES[name]} for name in files]
    return {"name": _CONFIG, "configMap": {"name": config_name(job), "items": items}}
