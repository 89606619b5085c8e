"""The bodies of a replica kind's pods and Services. They share parts with the templates, which never change.

Differs: the original always creates a Service for each replica. See docs/decisions/0042-services.md.

Source: training-operator 1.9, pkg/controller.v1/common/pod.go, service.go and job_controller.go.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from api import labels
from api.children import NO_INDEX
from api.job import RestartPolicy, owner_reference
from api.meta import PODS, SERVICES
from api.names import child_labels, job_labels
from api.services import ServiceMode
from controller.domain import Child, Present, Role
from controller.kind.defaults import J, Roles
from controller.kind.options import Options
from controller.kind.services import subdomain
from controller.kind.shape import Shape


def children(
    kind: Shape[J], job: J, roles: Roles, role: Role, options: Options, present: Present
) -> Iterator[tuple[Role, int, Child]]:
    """Yield the pod of each replica of a role that has none, and after it its Service, if it needs one and has none.

    Slots are compared before anything is built: usually nothing is missing.
    """
    pods, services = present.pods.get(role.label, ()), present.services.get(role.label, ())
    # Compared once and not for each replica: with 10,000 of them that takes longer than the rest.
    has_each = options.services == ServiceMode.PER_REPLICA
    has_some = options.services == ServiceMode.ADDRESSED
    for index in range(role.replicas):
        if index not in pods:
            body = partial(pod, kind, job, roles, role, index, options)
            yield role, index, Child(PODS, kind.name(job, role, index), body)
        if (
            (has_each or has_some)
            and index not in services
            and (has_each or kind.is_addressed(job, roles, role, index))
        ):
            name = kind.name(job, role, index)
            yield role, index, Child(SERVICES, name, partial(service, kind, job, role, index))


def job_service(
    kind: Shape[J], job: J, roles: Roles, options: Options, present: Present
) -> Iterator[tuple[Role, int, Child]]:
    """Yield the Service of the job as a whole, if it needs one and has none, as a child of the first replica.

    It is created before the pods: if its name belongs to somebody else, pods would only wait for names that nobody publishes.
    """
    first = next((role for role in roles.values() if role.replicas), None)
    is_present = NO_INDEX in present.services.get("", ())
    if first is not None and options.services == ServiceMode.PER_JOB and not is_present:
        body = partial(service_of_job, kind, job, roles)
        yield first, 0, Child(SERVICES, job.metadata.name, body, first=1)


def pod(kind: Shape[J], job: J, roles: Roles, role: Role, index: int, options: Options) -> dict[str, Any]:
    """Return one pod: the template with the operator's labels, environment, port and restart policy."""
    template: Mapping[str, Any] = role.template.get("metadata") or {}
    spec = role.template["spec"]
    own_labels = child_labels(kind.controller_name, job.metadata.name, role.label, index)
    if kind.is_leader(roles, role, index):
        own_labels[labels.JOB_ROLE] = "master"
    metadata = {key: template[key] for key in ("annotations", "finalizers") if template.get(key)}
    env = [
        {"name": name, "value" if isinstance(value, str) else "valueFrom": value}
        for name, value in kind.env(job, roles, role, index, options)
    ]
    body_spec = {
        **spec,
        "containers": [with_env(kind, container, env) for container in containers(kind, role)],
        "restartPolicy": effective_restart_policy(role),
    }
    if domain := subdomain(job, options):
        body_spec |= {"hostname": kind.name(job, role, index), "subdomain": domain}
    waiting = kind.init_containers(job, roles, role, options)
    if waiting:
        body_spec["initContainers"] = [*(spec.get("initContainers") or ()), *waiting]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": kind.name(job, role, index),
            "labels": {**(template.get("labels") or {}), **own_labels},
            "ownerReferences": [owner_reference(kind.resource, job)],
        },
        "spec": body_spec,
    }


def service(kind: Shape[J], job: J, role: Role, index: int) -> dict[str, Any]:
    """Return the headless Service that gives one replica its DNS name."""
    selector = child_labels(kind.controller_name, job.metadata.name, role.label, index)
    return _headless_service(kind, job, kind.name(job, role, index), selector, service_ports(kind, role))


def service_of_job(kind: Shape[J], job: J, roles: Roles) -> dict[str, Any]:
    """Return the headless Service that gives all pods of a job their DNS names, ready or not."""
    selector = job_labels(kind.controller_name, job.metadata.name)
    ports = job_service_ports(kind, roles)
    body = _headless_service(kind, job, job.metadata.name, selector, ports)
    body["spec"]["publishNotReadyAddresses"] = True
    return body


def _headless_service(
    kind: Shape[J], job: J, name: str, selector: dict[str, str], ports: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a Service without an address of its own, whose labels are its selector."""
    spec: dict[str, Any] = {"clusterIP": "None", "selector": selector}
    if ports:
        spec["ports"] = ports
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": selector,
            "ownerReferences": [owner_reference(kind.resource, job)],
        },
        "spec": spec,
    }


def effective_restart_policy(role: Role) -> str:
    """Return the pod's restart policy. With ExitCode the operator restarts pods, not the kubelet."""
    return RestartPolicy.NEVER if role.restart_policy == RestartPolicy.EXIT_CODE else role.restart_policy


def containers(kind: Shape[J], role: Role) -> list[Mapping[str, Any]]:
    """Return the template's containers, with the default port added if it is missing.

    The port is added to the container that is named after the kind, or to the first one if there is none.

    Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/defaulting_utils.go, setDefaultPort.
    """
    given: list[Mapping[str, Any]] = role.template["spec"]["containers"]
    chosen = next((at for at, container in enumerate(given) if container.get("name") == kind.container), 0)
    ports = given[chosen].get("ports") or ()
    if any(port.get("name") == kind.port_name for port in ports):
        return given
    added = {"name": kind.port_name, "containerPort": kind.port}
    return [
        {**container, "ports": [*ports, added]} if at == chosen else container
        for at, container in enumerate(given)
    ]


def with_env(kind: Shape[J], container: Mapping[str, Any], env: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return the container with these variables after its own, if it gets them."""
    if not env or not (kind.env_everywhere or container.get("name") == kind.container):
        return container
    return {**container, "env": [*(container.get("env") or ()), *env]}


def role_port(kind: Shape[J], role: Role) -> int:
    """Return the number of the kind's port in one role's template."""
    for container in containers(kind, role):
        for port in container.get("ports") or ():
            if container.get("name") == kind.container and port.get("name") == kind.port_name:
                return int(port["containerPort"])
    return kind.port


def service_ports(kind: Shape[J], role: Role) -> list[dict[str, Any]]:
    """Return the named ports of the kind's container, each number once, the kind's own port first.

    Differs: training-operator creates Services with unnamed ports and with one number under two names, which the API server always
    refuses. See docs/decisions/0005-ports.md.
    """
    named = [
        port
        for container in containers(kind, role)
        if container.get("name") == kind.container
        for port in container.get("ports") or ()
        if port.get("name")
    ]
    named.sort(key=lambda port: port["name"] != kind.port_name)
    ports: dict[tuple[int, str], dict[str, Any]] = {}
    for port in named:
        protocol = port.get("protocol") or "TCP"
        entry = {"name": port["name"], "port": port["containerPort"]}
        ports.setdefault(
            (port["containerPort"], protocol), entry if protocol == "TCP" else {**entry, "protocol": protocol}
        )
    return list(ports.values())


def job_service_ports(kind: Shape[J], roles: Roles) -> list[dict[str, Any]]:
    """Return the ports of all roles, each number once. A name that another number has already gets its own number added."""
    ports: dict[tuple[int, str], dict[str, Any]] = {}
    names: set[str] = set()
    for role in roles.values():
        for port in service_ports(kind, role):
            key = port["port"], port.get("protocol", "TCP")
            if key in ports:
                continue
            name = port["name"] if port["name"] not in names else f"{port['name']}-{key[1].lower()}-{key[0]}"
            if name not in names:
                names.add(name)
                ports[key] = {**port, "name": name}
    return list(ports.values())
