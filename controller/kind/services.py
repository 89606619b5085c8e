"""The names of a replica kind's pods in DNS, which depend on the Services of their job.

In all modes but ``per-job`` a pod is reached by the name of its own Service, which is its own name. In that mode it is reached as
``POD.JOB``: the one Service publishes the host names of the pods in its subdomain.
"""

from collections.abc import Mapping
from typing import Any, Final

from api.job import Job
from api.labels import SERVICES
from api.names import child_name
from api.services import ServiceMode
from controller.domain import Role
from controller.kind.options import Options

_OWN_NAMES: Final = ("hostname", "subdomain", "setHostnameAsFQDN")
"""The fields of a pod template that decide about its names in DNS."""


def subdomain(job: Job, options: Options) -> str:
    """Return the subdomain of the job's pods; empty if each has a Service of its own."""
    return job.metadata.name if options.services == ServiceMode.PER_JOB else ""


def host(job: Job, role: Role, index: int, options: Options, *, is_own: bool = False) -> str:
    """Return the name by which the pods of a job reach one of them.

    With ``is_own`` the name is for that pod itself: its host name, which it resolves before DNS has it, and which programs compare with
    it to learn whether they are the first. A pod on the network of its node has the node's host name instead.
    """
    pod = child_name(job.metadata.name, role.label, index)
    if is_own and not (role.template.get("spec") or {}).get("hostNetwork"):
        return pod
    return qualified(pod, subdomain(job, options))


def qualified(pod: str, subdomain: str) -> str:
    """Return the name of a pod with its subdomain, if it has one."""
    return f"{pod}.{subdomain}" if subdomain else pod


def annotation_of(job: Job) -> str | None:
    """Return the value of the job's annotation about Services, None without one."""
    return (job.metadata.annotations or {}).get(SERVICES)


def names_itself(role: Role) -> bool:
    """Return whether the role's template decides about the names of its pods in DNS. Such pods cannot share a Service of the job."""
    spec: Mapping[str, Any] = role.template.get("spec") or {}
    return any(spec.get(field) for field in _OWN_NAMES)
