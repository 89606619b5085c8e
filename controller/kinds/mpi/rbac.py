"""The rights of a launcher that starts ranks by ``kubectl exec``: a ServiceAccount, a Role and the RoleBinding between them.

The Role names pods, and only those that are known to be the job's own: a pod of somebody else may bear the name of a worker.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go, newLauncherRole.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from api.job import owner_reference
from api.meta import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Event, Role, Severity, Upkeep
from controller.kinds.mpi.names import launcher_name

_RBAC_ERROR = re.compile(r'"(serviceaccounts|roles|rolebindings)"|attempting to grant RBAC')
"""In what the API server says; what it says of quotas and policies is another matter."""


def missing_rights_event(message: str) -> Event | None:
    """What is told where the controller may not hand rights on."""
    if not _RBAC_ERROR.search(message):
        return None
    text = f"{message}: MPIJobs of v1 and v1alpha2 need the rights of manifests/components/mpi-v1"
    return Event(Severity.WARNING, "RightsMissing", text)


def account_name(job: MPIJob, launcher: Role) -> str:
    """The account that the launcher runs as: its template's, else one of its own."""
    spec = launcher.template.get("spec") or {}
    return str(spec.get("serviceAccountName") or "") or launcher_name(job)


def rules(pods: Sequence[str]) -> list[dict[str, Any]]:
    """What kubectl asks for to run something in one of those pods; without pods, nothing.

    ``get`` of ``pods/exec`` is what the API server asks of a WebSocket, which kubectl tries first.

    Differs: the original lets the launcher read every pod of the namespace, and without workers run anything in each of them. See
    docs/decisions/0020-mpijob-v1.md.
    """
    if not pods:
        return []
    names = list(pods)
    return [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names},
        {"verbs": ["create", "get"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": names},
    ]


def account(owner: Resource, job: MPIJob, launcher: Role) -> Child:
    """The launcher's ServiceAccount. One that the template names is taken as it is, whoever it belongs to.

    Differs: the original takes any account, though the user did not name it. See docs/decisions/0020-mpijob-v1.md.
    """
    name = account_name(job, launcher)
    own = own_account(owner, job)
    if name == own.name:
        return own
    body = partial(_body, SERVICE_ACCOUNTS, owner, job, name, {})
    return replace(own, name=name, body=body, upkeep=Upkeep.ANY, version=name)


def own_account(owner: Resource, job: MPIJob) -> Child:
    """The account of a launcher that nobody named one for."""
    name = launcher_name(job)
    body = partial(_body, SERVICE_ACCOUNTS, owner, job, name, {})
    return Child(SERVICE_ACCOUNTS, name, body, Upkeep.EQUAL, first=1, lasting=True, version=name)


def role(owner: Resource, job: MPIJob, pods: Sequence[str], upkeep: Upkeep = Upkeep.EQUAL) -> Child:
    """The right to run ranks in those pods. One that is only kept is changed if it is there: so it can be taken away."""
    name = launcher_name(job)
    body = partial(_body, ROLES, owner, job, name, {"rules": rules(pods)})
    version = str(hash(tuple(pods)))
    return Child(ROLES, name, body, upkeep, first=1, lasting=True, version=version, grants=bool(pods))


def binding(owner: Resource, job: MPIJob, account: str) -> Child:
    """Gives that right to the launcher's account. It comes after the Role: nobody may bind what is not there."""
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": job.metadata.namespace}
    role_ref = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": launcher_name(job)}
    name = launcher_name(job)
    body = partial(_body, ROLE_BINDINGS, owner, job, name, {"subjects": [subject], "roleRef": role_ref})
    return Child(ROLE_BINDINGS, name, body, Upkeep.EQUAL, first=2, lasting=True, version=account)


def _body(
    resource: Resource, owner: Resource, job: MPIJob, name: str, content: dict[str, Any]
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"app": job.metadata.name},
        "ownerReferences": [owner_reference(owner, job)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}
