"""Validation of jobs before their first pod: the rules of the original's webhooks, and limits of this operator.

There is no webhook: a problem becomes a Failed condition with the webhook's message. See docs/decisions/0002-validation.md.

Source: training-operator 1.9, pkg/webhooks and pkg/common/util/webhooks.go.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from api.job import Job, RestartPolicy
from api.labels import SERVICES
from api.names import LONGEST_NAME
from api.services import ServiceMode
from controller.domain import Problem, Role, shortened
from controller.kind.defaults import J
from controller.kind.options import Options
from controller.kind.services import annotation_of, names_itself
from controller.kind.shape import Shape

LONGEST_VARIABLE: Final = 128 * 1024 - 1
"""The longest environment variable that Linux accepts, with name and ``=``, if pages have 4 KiB.

Source: Linux, include/uapi/linux/binfmts.h, MAX_ARG_STRLEN, which counts the NUL at the end.
"""
SURELY_LISTED: Final = 300
"""This number of addresses always fits into a variable, whatever the length of their names."""

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an"
    " alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def common_problems(kind: Shape[J], job: J, options: Options) -> Iterator[Problem]:
    """Return the problems of a job that do not depend on its kind, in the order of the spec.

    Differs: an empty replica map is refused, and one role of several may be empty. See docs/decisions/0002-validation.md.
    """
    yield from name_problems(job)
    yield from service_problems(kind, job)
    specs = kind.replicas(job)
    path = f"spec.{kind.replicas_field}"
    if not specs:
        yield Problem(path, "Required value: must be required")
        return
    yield from role_name_problems(kind.role_names, specs, path)
    roles = kind.roles(job)
    for name in kind.required_roles:
        if name not in roles:
            yield Problem(f"{path}[{name}]", "Required value: must be present")
    if sum(name in roles for name in kind.alternative_roles) > 1:
        names = " or ".join(kind.alternative_roles)
        yield Problem(path, f"Forbidden: must not have more than 1 {names} role")
    for role in roles.values():
        yield from role_problems(kind, job, role, f"{path}[{role.name}]")
    total = sum(role.replicas for role in roles.values())
    if roles and all(role.replicas == 0 for role in roles.values()):
        # One of several roles may have no replicas, as when workers are scaled to zero beside a master; a job without any pod cannot run.
        yield Problem(f"{path}[{next(iter(roles))}].replicas", "Forbidden: must be at least 1", at_start=True)
    if total > options.max_replicas:
        yield Problem(path, f"Invalid value: {total} replicas: must be at most {options.max_replicas}")


def variable_problems(kind: Shape[J], job: J, options: Options) -> Iterator[Problem]:
    """Return a problem if the list of replicas does not fit into a variable: containers would fail with "argument list too long".

    Called only for jobs without other problems.

    Differs: the original creates the pods. See docs/decisions/0002-validation.md.
    """
    roles = kind.roles(job)
    total = sum(role.replicas for role in roles.values())
    if total <= SURELY_LISTED:
        return
    for role in roles.values():
        if not role.replicas:
            continue
        for name, value in kind.env(job, roles, role, role.replicas - 1, options):
            size = len(f"{name}={value}".encode())
            if size > LONGEST_VARIABLE:
                text = (
                    f"Invalid value: {total} replicas: with the addresses of all replicas, environment variable {name} would be {size} bytes long, "
                    f"but Linux allows {LONGEST_VARIABLE}: use at most about {total * LONGEST_VARIABLE // size} replicas, or a shorter job name"
                )
                yield Problem(f"spec.{kind.replicas_field}", text)
                return


def name_problems(job: Job) -> Iterator[Problem]:
    """Check that the job's name is valid for Services, which contain it."""
    if label_problem(job.metadata.name):
        yield Problem(
            "metadata.name", f'Invalid value: "{job.metadata.name}": should match: {_DNS_1035_TEXT}'
        )


def service_problems(kind: Shape[J], job: J) -> Iterator[Problem]:
    """Check the annotation about Services. Pods with one Service have names of the operator's choice."""
    value, path = annotation_of(job), f"metadata.annotations[{SERVICES}]"
    if value is None:
        return
    if value not in set(ServiceMode):
        yield Problem(path, unsupported_value(value, ServiceMode))
    elif value == ServiceMode.PER_JOB:
        for role in filter(names_itself, kind.roles(job).values()):
            text = f"must not be {value}: the template of {role.name} sets hostname, subdomain or setHostnameAsFQDN"
            yield Problem(path, f"Forbidden: {text}")


def label_problem(name: str) -> str:
    """Return why a Service cannot have that name; empty if it can."""
    if len(name) > LONGEST_NAME:
        return f"must be no more than {LONGEST_NAME} characters"
    return "" if _DNS_1035.fullmatch(name) else _DNS_1035_TEXT


def role_name_problems(known: Sequence[str], given: Iterable[str], path: str) -> Iterator[Problem]:
    """Check that each role occurs at most once, and only roles of the kind.

    Differs: the original's webhook requires the exact spelling, although its controller does not. See docs/decisions/0002-validation.md.
    """
    left = {name.lower() for name in known}
    for key in given:
        if key.lower() in left:
            left.remove(key.lower())
        elif key.lower() in {name.lower() for name in known}:
            yield Problem(f"{path}[{_cut(key)}]", f'Duplicate value: "{_cut(key)}"')
        else:
            yield Problem(f"{path}[{_cut(key)}]", unsupported_value(key, known))


def role_problems(kind: Shape[J], job: J, role: Role, path: str) -> Iterator[Problem]:
    """Return the problems of one replica spec.

    Differs: a spec without replicas is allowed (see ``common_problems``), an unknown restart policy is refused, and so are invalid derived
    names. See docs/decisions/0002-validation.md.
    """
    if role.name in kind.single_roles:
        if role.replicas != 1:
            yield Problem(f"{path}.replicas", "Forbidden: must be 1")
    elif role.replicas < 0:
        yield Problem(f"{path}.replicas", "Forbidden: must be at least 1")
    longest = kind.name(job, role, max(role.replicas - 1, 0))
    if len(longest) > LONGEST_NAME >= len(job.metadata.name):
        yield Problem(
            "metadata.name",
            f'Invalid value: "{longest}": pod names must be no more than {LONGEST_NAME} characters',
        )
    yield from restart_policy_problems(role, tuple(RestartPolicy), f"{path}.restartPolicy")
    yield from template_problems(kind, role, f"{path}.template.spec.containers")


def restart_policy_problems(role: Role, known: Collection[str], path: str) -> Iterator[Problem]:
    if role.restart_policy not in set(known):
        yield Problem(path, unsupported_value(role.restart_policy, known))


def template_problems(kind: Shape[J], role: Role, path: str) -> Iterator[Problem]:
    """Return the problems of the containers; the API server validates the rest of the template."""
    containers = _containers(role)
    yield from container_problems(role, path)
    if not any(container.get("name") == kind.container for container in containers):
        yield Problem(path, f"Required value: {kind.missing_container.format(kind.container)}")


def container_problems(role: Role, path: str) -> Iterator[Problem]:
    """Return the problems of the containers, except those of their names."""
    containers = _containers(role)
    if not containers:
        yield Problem(path, "Required value: must be specified")
    for at, container in enumerate(containers):
        if not container.get("image"):
            yield Problem(f"{path}[{at}].image", "Required value: must be required")


def unknown_role_problems(given: Sequence[str] | None, roles: Iterable[str], path: str) -> Iterator[Problem]:
    """Return the problems of a list in which a job names roles that it does not have, whatever their case."""
    known = {name.lower() for name in roles}
    for at, role in enumerate(given or ()):
        if role.lower() not in known:
            text = f'Invalid value: "{shortened(role, 64)}": the job has no such replica type'
            yield Problem(f"{path}[{at}]", text)


def unsupported_value(value: object, known: Iterable[object]) -> str:
    """Return the text of a problem about a value that is none of the known ones, as the API server words it."""
    supported = ", ".join(f'"{name}"' for name in known)
    return f'Unsupported value: "{_cut(str(value))}": supported values: {supported}'


def _containers(role: Role) -> Sequence[Mapping[str, Any]]:
    spec: Mapping[str, Any] = role.template.get("spec") or {}
    return spec.get("containers") or ()


def _cut(value: str) -> str:
    """Shorten a user's value for a message."""
    return shortened(value, 64)
