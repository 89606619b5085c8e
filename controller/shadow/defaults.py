"""What the API server writes into objects when whoever sends them leaves it out.

A body in the audit log is complete: it shows defaults whether they were sent or not. ``bare`` takes them out again, so
that a comparison does not depend on who wrote them down. A value that differs from the default always stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


def _as_it_is(value: Object) -> Object:
    return value


@dataclass(frozen=True, slots=True)
class Shape:
    """The defaults of one place: fixed values, the shapes inside, and values that follow from other fields."""

    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inside: Mapping[str, "Shape"] = field(default_factory=dict[str, "Shape"])
    follows: Callable[[Object], Object] = _as_it_is
    """Removes what follows from other fields of the same object."""


def bare(value: Any, shape: Shape) -> Any:
    """Return the value without defaults; of a list, each item. The argument stays unchanged."""
    if isinstance(value, list):
        return [bare(item, shape) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {
        name: bare(item, shape.inside[name]) if name in shape.inside else item for name, item in value.items()
    }
    return shape.follows({name: item for name, item in inner.items() if not _is_default(shape, name, item)})


def _is_default(shape: Shape, name: str, value: Any) -> bool:
    """Equal and of the same type: 1 is not True, and 0 is not False."""
    return (
        name in shape.defaults and shape.defaults[name] == value and type(shape.defaults[name]) is type(value)
    )


def _without(value: Object, *names: str) -> Object:
    return {name: item for name, item in value.items() if name not in names}


def _resources(resources: Object) -> Object:
    """A missing request equals the limit, resource by resource."""
    limits = resources.get("limits") or {}
    requests = {
        name: amount
        for name, amount in (resources.get("requests") or {}).items()
        if limits.get(name) != amount
    }
    rest = _without(resources, "requests")
    return {**rest, "requests": requests} if requests else rest


def _container(container: Object) -> Object:
    pulled = _pull_policy(container.get("image", ""))
    return _without(container, "imagePullPolicy") if container.get("imagePullPolicy") == pulled else container


def _pull_policy(image: str) -> str:
    """Always for images that may change: without a tag, or tagged as the latest."""
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    return "IfNotPresent" if last.partition(":")[2] not in {"", "latest"} else "Always"


def _pod_spec(spec: Object) -> Object:
    """``serviceAccount`` repeats ``serviceAccountName``; on the network of the host, container ports are host ports."""
    if spec.get("serviceAccount") == spec.get("serviceAccountName"):
        spec = _without(spec, "serviceAccount")
    if spec.get("serviceAccountName") == "":
        spec = _without(spec, "serviceAccountName")
    if not spec.get("hostNetwork"):
        return spec
    lists = ("containers", "initContainers")
    return {**spec, **{name: [_host_ports(item) for item in spec[name]] for name in lists if spec.get(name)}}


def _host_ports(container: Object) -> Object:
    ports = container.get("ports")
    if not ports:
        return container
    return {
        **container,
        "ports": [
            _without(port, "hostPort") if port.get("hostPort") == port.get("containerPort") else port
            for port in ports
        ],
    }


def _service_port(port: Object) -> Object:
    return _without(port, "targetPort") if port.get("targetPort") == port.get("port") else port


def _service_spec(spec: Object) -> Object:
    """Sort ports: training-operator creates them from a map, in another order each time."""
    if not spec.get("ports"):
        return spec
    ports = sorted(spec["ports"], key=lambda port: (port.get("name", ""), port.get("port", 0)))
    return {**spec, "ports": ports}


_MODE = Shape({"defaultMode": 0o644})

_PROBE = Shape(
    {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    {"httpGet": Shape({"scheme": "HTTP"})},
)

_CONTAINER = Shape(
    {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {}},
    {
        "env": Shape(inside={"valueFrom": Shape(inside={"fieldRef": Shape({"apiVersion": "v1"})})}),
        "livenessProbe": _PROBE,
        "ports": Shape({"protocol": "TCP"}),
        "readinessProbe": _PROBE,
        "resources": Shape(follows=_resources),
        "startupProbe": _PROBE,
    },
    _container,
)

_VOLUME = Shape(
    inside={
        "configMap": _MODE,
        "downwardAPI": _MODE,
        "hostPath": Shape({"type": ""}),
        "projected": _MODE,
        "secret": _MODE,
    }
)

_POD_SPEC = Shape(
    {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "resources": {},
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    },
    {"containers": _CONTAINER, "initContainers": _CONTAINER, "volumes": _VOLUME},
    _pod_spec,
)

_JOB_SPEC = Shape(
    {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "suspend": False,
    },
    {"template": Shape(inside={"spec": _POD_SPEC})},
)

_SERVICE_SPEC = Shape(
    {
        "internalTrafficPolicy": "Cluster",
        "publishNotReadyAddresses": False,
        "sessionAffinity": "None",
        "type": "ClusterIP",
    },
    {"ports": Shape({"protocol": "TCP"}, follows=_service_port)},
    _service_spec,
)

SHAPES: Mapping[str, Shape] = {
    "Job": Shape(inside={"spec": _JOB_SPEC}),
    "Pod": Shape(inside={"spec": _POD_SPEC}),
    "RoleBinding": Shape(inside={"subjects": Shape({"apiGroup": ""})}),
    "Service": Shape(inside={"spec": _SERVICE_SPEC}),
}
"""By kind, the objects with defaults."""
