"""The ServiceAccount, Role and RoleBinding of a launcher that starts ranks by ``kubectl exec``.

The Role names only pods that the job owns: a foreign pod may have the name of a worker.

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
from controller.domain import Child, Event, Role, Severity, WriteMode
from controller.kind.reasons import EventReason
from controller.kinds.mpi.names import launcher_name

_RBAC_ERROR = re.compile(r'"(serviceaccounts|roles|rolebindings)"|attempting to grant RBAC')
"""Matches RBAC errors of the API server, but not errors of quotas and policies."""


def missing_rights_event(message: str) -> Event | None:
    """Return the event for an error that shows that the controller lacks the rights to grant; None for other errors."""
    if not _RBAC_ERROR.search(message):
        return None
    text = f"{message}: MPIJobs of v1 and v1alpha2 require the component manifests/components/mpi-v1"
    return Event(Severity.WARNING, EventReason.MISSING_PERMISSIONS, text)


def account_name(job: MPIJob, launcher: Role) -> str:
    """Return the launcher's ServiceAccount: that of its template, else one that is created for it."""
    spec = launcher.template.get("spec") or {}
    return str(spec.get("serviceAccountName") or "") or launcher_name(job)


def rules(pods: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rules that let kubectl run commands in these pods; without pods, none.

    The API server requires ``get`` of ``pods/exec`` for WebSockets, which kubectl tries first.

    Differs: the original lets the launcher read every pod of the namespace, and without workers run commands in each of them. See
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
    """Return the launcher's ServiceAccount. An account that the template names is used unchanged, whoever owns it.

    Differs: the original uses any account of that name, even if the template does not name it. See docs/decisions/0020-mpijob-v1.md.
    """
    name = account_name(job, launcher)
    own = own_account(owner, job)
    if name == own.name:
        return own
    body = partial(_body, SERVICE_ACCOUNTS, owner, job, name, {})
    return replace(own, name=name, body=body, write_mode=WriteMode.CREATE_IF_ABSENT, version=name)


def own_account(owner: Resource, job: MPIJob) -> Child:
    """Return the ServiceAccount of a launcher whose template names none."""
    name = launcher_name(job)
    body = partial(_body, SERVICE_ACCOUNTS, owner, job, name, {})
    return Child(SERVICE_ACCOUNTS, name, body, WriteMode.APPLY, first=1, lasting=True, version=name)


def role(owner: Resource, job: MPIJob, pods: Sequence[str], write_mode: WriteMode = WriteMode.APPLY) -> Child:
    """Return the Role that allows ranks in these pods. It can be updated without being created, to revoke rights."""
    name = launcher_name(job)
    body = partial(_body, ROLES, owner, job, name, {"rules": rules(pods)})
    version = str(hash(tuple(pods)))
    return Child(ROLES, name, body, write_mode, first=1, lasting=True, version=version, grants=bool(pods))


def binding(owner: Resource, job: MPIJob, account: str) -> Child:
    """Return the RoleBinding of the launcher's account. It is created after the Role, which must exist."""
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": job.metadata.namespace}
    role_ref = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": launcher_name(job)}
    name = launcher_name(job)
    body = partial(_body, ROLE_BINDINGS, owner, job, name, {"subjects": [subject], "roleRef": role_ref})
    return Child(ROLE_BINDINGS, name, body, WriteMode.APPLY, first=2, lasting=True, version=account)


def _body(
    resource: Resource, owner: Resource, job: MPIJob, name: str, content: dict[str, Any]
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"app": job.metadata.name},
        "ownerReferences": [owner_reference(owner, job)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}
