"""Pods and pod templates: what a server fills in, refuses, and lets change.

Source: kubernetes, pkg/apis/core/v1/defaults.go and pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator
from typing import Any

from api.quantity import value as amount
from controller.local.apiserver import names, refusals
from controller.local.apiserver.refusals import FieldError, Json
from controller.local.apiserver.resources import Rules
from controller.local.apiserver.selectors import path_reader

FIELDS = {
    path: path_reader(path)
    for path in (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    )
}  # fmt: skip

MODED_VOLUMES = ("configMap", "secret", "projected", "downwardAPI")

GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}

NOT_READY_SECONDS = 300
"""How long a pod stays on a node that is not ready, when it does not say."""


def default_spec(spec: Json) -> None:
    """Fill in a pod spec, of a pod or of a template. In place: what is shared with a stored pod is complete."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
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
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or ():
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env") or ():
        if variable.get("value") == "":
            del variable["value"]
        _default_field_ref((variable.get("valueFrom") or {}).get("fieldRef"))
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


def _default_field_ref(reference: Json | None) -> None:
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _default_volume(volume: Json) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for kind in MODED_VOLUMES:
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
        _default_field_ref(item.get("fieldRef"))


def default(pod: Json) -> Json:
    default_spec(pod.setdefault("spec", {}))
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for name in ("initContainerStatuses", "containerStatuses"):
        for told in status.get(name) or ():
            told.setdefault("state", {})
            told.setdefault("lastState", {})
    pod["spec"].setdefault("enableServiceLinks", True)
    return pod


def prepare(pod: Json) -> Json:
    """A new pod: Pending, with what the admission of a cluster adds."""
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
    status: Json = {"phase": "Pending", "qosClass": quality(spec)}
    if spec.get("schedulingGates"):
        moment = {"lastProbeTime": None, "lastTransitionTime": pod["metadata"]["creationTimestamp"]}
        status["conditions"] = [{**GATED, **moment}]
    pod["status"] = status
    return pod


def _tolerates(toleration: Json, key: str) -> bool:
    effect = toleration.get("effect") or "NoExecute"
    return toleration.get("key") in (None, "", key) and effect == "NoExecute"


def quality(spec: Json) -> str:
    """The quality of service class, from the cpu and memory of all containers."""
    limited = requested = True
    anything = False
    for container in _containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = amount(str(requests.get(name, "0"))), amount(str(limits.get(name, "0")))
            anything = anything or bool(request or limit)
            limited = limited and bool(limit)
            requested = requested and request == limit
    if not anything:
        return "BestEffort"
    return "Guaranteed" if limited and requested else "Burstable"


def validate(pod: Json) -> Iterator[FieldError]:
    yield from validate_spec(pod.get("spec") or {}, "spec")


def validate_spec(spec: Json, path: str) -> Iterator[FieldError]:
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        yield from _named(volume, f"{path}.volumes[{i}]", volumes)
    seen: set[str] = set()
    if not spec.get("containers"):
        yield refusals.required(f"{path}.containers")
    for role in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(role) or ()):
            yield from _container(container, f"{path}.{role}[{i}]", volumes, seen)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        field, given = f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"]
        yield refusals.bad_value(field, given, "must be greater than or equal to 0")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        field, given = f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"]
        yield refusals.bad_value(field, given, "must be between 1 and 2147483647, inclusive")


def _named(thing: Json, path: str, seen: set[str]) -> Iterator[FieldError]:
    name = thing.get("name", "")
    if not name:
        yield refusals.required(f"{path}.name")
    elif "." in name:
        yield refusals.bad_value(f"{path}.name", name, "must not contain dots")
    elif wrong := names.label(name):
        yield refusals.bad_value(f"{path}.name", name, wrong)
    elif name in seen:
        yield refusals.duplicate(f"{path}.name", name)
    seen.add(name)


def _container(container: Json, path: str, volumes: set[str], seen: set[str]) -> Iterator[FieldError]:
    if not container.get("image"):
        yield refusals.required(f"{path}.image")
    elif container["image"] != container["image"].strip():
        yield refusals.bad_value(
            f"{path}.image", container["image"], "must not have leading or trailing whitespace"
        )
    yield from _named(container, path, seen)
    yield from _ports(container.get("ports") or (), f"{path}.ports")
    yield from _environment(container.get("env") or (), f"{path}.env")
    yield from _mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, port in enumerate(ports):
        name, number = port.get("name", ""), port.get("containerPort", 0)
        if name and (wrong := names.port(name)):
            yield refusals.bad_value(f"{path}[{i}].name", name, wrong)
        elif name in seen and name:
            yield refusals.duplicate(f"{path}[{i}].name", name)
        seen.add(name)
        if number == 0:
            yield refusals.required(f"{path}[{i}].containerPort")
        elif not 0 < number < 65536:
            detail = "must be between 1 and 65535, inclusive"
            yield refusals.bad_value(f"{path}[{i}].containerPort", number, detail)


def _environment(variables: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    for i, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            yield refusals.required(f"{path}[{i}].name")
        elif wrong := names.environment(name):
            yield refusals.bad_value(f"{path}[{i}].name", name, wrong)
        if variable.get("value") and variable.get("valueFrom"):
            detail = "may not be specified when `value` is not empty"
            yield refusals.bad_value(f"{path}[{i}].valueFrom", "", detail)


def _mounts(mounts: list[Json] | tuple[()], path: str, volumes: set[str]) -> Iterator[FieldError]:
    places: set[str] = set()
    for i, mount in enumerate(mounts):
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield refusals.required(f"{path}[{i}].name")
        elif name not in volumes:
            yield FieldError("FieldValueNotFound", f"{path}[{i}].name", f'Not found: "{name}"')
        if not place:
            yield refusals.required(f"{path}[{i}].mountPath")
        elif place in places:
            yield refusals.bad_value(f"{path}[{i}].mountPath", place, "must be unique")
        places.add(place)


def _resources(resources: Json, path: str) -> Iterator[FieldError]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            if amount(str(text)) < 0:
                yield refusals.bad_value(f"{path}.{kind}[{name}]", text, "must be greater than or equal to 0")
    for name, text in requests.items():
        if name in limits and amount(str(text)) > amount(str(limits[name])):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield refusals.bad_value(f"{path}.requests", text, detail)


FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_update(new: Json, old: Json) -> Iterator[FieldError]:
    """A pod's spec stays as it is but for images, the deadline and more tolerations."""
    if new["spec"] is old["spec"]:
        return
    for role, words in (("containers", ""), ("initContainers", "init ")):
        if len(new["spec"].get(role) or ()) != len(old["spec"].get(role) or ()):
            yield refusals.forbidden_field(
                f"spec.{role}", f"pod updates may not add or remove {words}containers"
            )
            return
    gates = [gate["name"] for gate in old["spec"].get("schedulingGates") or ()]
    if any(gate["name"] not in gates for gate in new["spec"].get("schedulingGates") or ()):
        yield refusals.forbidden_field("spec.schedulingGates", "only deletion is allowed")
    if _fixed_part(new["spec"], gated=bool(gates)) != _fixed_part(old["spec"], gated=bool(gates)):
        yield refusals.forbidden_field("spec", FIXED)


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    free = ["activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"]
    if gated:  # a gated pod may still be steered to other nodes
        free += ["nodeSelector", "affinity"]
    fixed: dict[str, Any] = {name: part for name, part in spec.items() if name not in free}
    for role in ("containers", "initContainers"):
        fixed[role] = [
            {name: part for name, part in container.items() if name != "image"}
            for container in spec.get(role) or ()
        ]
    return fixed


RULES = Rules(
    default=default,
    prepare=prepare,
    validate=validate,
    validate_update=validate_update,
    counts_generation=True,
    shown_when_deleted=True,
    graceful=True,
)
