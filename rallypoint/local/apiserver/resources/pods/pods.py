"""Pods and pod templates: defaults, validation and mutable fields.

Source: kubernetes, pkg/apis/core/v1/defaults.go and pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator
from typing import Any

from api.quantity import value as amount
from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_labels
from rallypoint.local.apiserver.apimachinery.selectors import path_reader
from rallypoint.local.apiserver.apimachinery.unstructured import Json, set_if_empty
from rallypoint.local.apiserver.resources.pods import containers, network, scheduling, security, volumes
from rallypoint.local.apiserver.resources.resource import Strategy

FIELDS = {
    path: path_reader(path)
    for path in (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    )
}  # fmt: skip

VOLUMES_WITH_MODE = ("configMap", "secret", "projected", "downwardAPI")

GATED_CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}

NOT_READY_SECONDS = 300
"""The default toleration of nodes that are not ready or unreachable."""


def default_spec(spec: Json) -> None:
    """Set the defaults of a pod spec in place. Parts shared with a stored pod already have them."""
    set_if_empty(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in _containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _default_container(container: Json, *, host_network: bool) -> None:
    resources = container.setdefault("resources", {})
    if resources.get("limits"):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        if requests != resources.get("requests"):
            resources["requests"] = requests
    set_if_empty(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=_pull_policy(container.get("image", "")),
    )
    for port in container.get("ports") or ():
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env") or ():
        if variable.get("value") == "":
            del variable["value"]
        _default_references(variable.get("valueFrom") or {})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_http(hook.get("httpGet"))


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    tagged = ":" in last or "@" in last
    return "Always" if not tagged or image.endswith(":latest") else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    _default_http(probe.get("httpGet"))
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)


def _default_http(action: Json | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _default_references(source: Json) -> None:
    """Set the defaults of a downward API reference."""
    if source.get("fieldRef") is not None:
        source["fieldRef"].setdefault("apiVersion", "v1")
    if source.get("resourceFieldRef") is not None:
        source["resourceFieldRef"].setdefault("divisor", "0")


def _default_volume(volume: Json) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for kind in VOLUMES_WITH_MODE:
        if volume.get(kind) is not None:
            volume[kind].setdefault("defaultMode", 0o644)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    items = list((volume.get("downwardAPI") or {}).get("items") or ())
    for source in (volume.get("projected") or {}).get("sources") or ():
        items += (source.get("downwardAPI") or {}).get("items") or ()
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    for item in items:
        _default_references(item)


def default(pod: Json) -> Json:
    default_spec(pod.setdefault("spec", {}))
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for name in ("initContainerStatuses", "containerStatuses"):
        for container_status in status.get(name) or ():
            container_status.setdefault("state", {})
            container_status.setdefault("lastState", {})
    pod["spec"].setdefault("enableServiceLinks", True)
    return pod


def prepare(pod: Json) -> Json:
    """Prepare a new pod: phase Pending, and the tolerations that admission adds."""
    spec = pod["spec"]
    tolerations: list[Json] = list(spec.get("tolerations") or ())
    for name in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{name}"
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": NOT_READY_SECONDS,
                }
            )
    spec["tolerations"] = tolerations
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        moment = {"lastProbeTime": None, "lastTransitionTime": pod["metadata"]["creationTimestamp"]}
        status["conditions"] = [{**GATED_CONDITION, **moment}]
    pod["status"] = status
    return pod


def _tolerates(toleration: Json, key: str) -> bool:
    effect = toleration.get("effect") or "NoExecute"
    return toleration.get("key") in (None, "", key) and effect == "NoExecute"


def qos_class(spec: Json) -> str:
    """Return the QoS class from the CPU and memory of all containers."""
    limited = requested = True
    has_any = False
    for container in _containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = amount(str(requests.get(name, "0"))), amount(str(limits.get(name, "0")))
            has_any = has_any or bool(request or limit)
            limited = limited and bool(limit)
            requested = requested and request == limit
    if not has_any:
        return "BestEffort"
    return "Guaranteed" if limited and requested else "Burstable"


def validate(pod: Json) -> Iterator[FieldError]:
    yield from validate_spec(pod.get("spec") or {}, "spec")


def validate_spec(spec: Json, path: str) -> Iterator[FieldError]:
    mountable: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        yield from volumes.validate_volume(volume, f"{path}.volumes[{i}]", mountable)
    yield from containers.validate_containers(spec, path, mountable)
    if spec.get("activeDeadlineSeconds", 1) < 1:
        field, given = f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"]
        yield field_errors.invalid(field, given, "must be between 1 and 2147483647, inclusive")
    yield from validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from scheduling.validate_affinity(spec.get("affinity") or {}, f"{path}.affinity")
    for name in ("hostname", "subdomain"):
        if spec.get(name) and (wrong := names.label(spec[name])):
            yield field_errors.invalid(f"{path}.{name}", spec[name], wrong)
    yield from scheduling.validate_tolerations(spec.get("tolerations") or (), f"{path}.tolerations")
    yield from scheduling.validate_spread(
        spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints"
    )
    yield from scheduling.validate_gates(spec, path)
    yield from security.validate_pod(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from network.validate(spec, path)


FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Only images, the active deadline, scheduling gates and added tolerations are mutable."""
    if new["spec"] is old["spec"]:
        return
    for role, words in (("containers", ""), ("initContainers", "init ")):
        if len(new["spec"].get(role) or ()) != len(old["spec"].get(role) or ()):
            yield field_errors.forbidden(
                f"spec.{role}", f"pod updates may not add or remove {words}containers"
            )
            return
    gates = [gate["name"] for gate in old["spec"].get("schedulingGates") or ()]
    if any(gate["name"] not in gates for gate in new["spec"].get("schedulingGates") or ()):
        yield field_errors.forbidden("spec.schedulingGates", "only deletion is allowed")
    if _fixed_part(new["spec"], gated=bool(gates)) != _fixed_part(old["spec"], gated=bool(gates)):
        yield field_errors.forbidden("spec", FIXED)


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    free = ["activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"]
    if gated:  # node selection is mutable while the pod is gated
        free += ["nodeSelector", "affinity"]
    fixed: dict[str, Any] = {name: part for name, part in spec.items() if name not in free}
    for role in ("containers", "initContainers"):
        fixed[role] = [
            {name: part for name, part in container.items() if name != "image"}
            for container in spec.get(role) or ()
        ]
    return fixed


STRATEGY = Strategy(
    default=default,
    prepare_create=prepare,
    validate=validate,
    validate_update=validate_update,
    counts_generation=True,
    returns_deleted_object=True,
    graceful=True,
)
