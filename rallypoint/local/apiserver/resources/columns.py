"""Printer columns of the built-in kinds.

Source: kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Callable, Iterable
from typing import Any

from rallypoint.local.apiserver.apimachinery.unstructured import Json, read_path
from rallypoint.local.apiserver.resources.resource import Column

NONE = "<none>"


def _name(obj: Json) -> Any:
    return obj["metadata"]["name"]


def _created(obj: Json) -> Any:
    return obj["metadata"].get("creationTimestamp")


NAME = Column("Name", _name, format="name")
AGE = Column("Age", _created, reads="age")
CREATED_AT = Column("Created At", _created, type="date")


def _field(*path: str, missing: Any = "") -> Any:
    def cell(obj: Json) -> Any:
        value = read_path(obj, path)
        return missing if value in (None, "") else value

    return cell


def _join_pairs(labels: Json | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _statuses(pod: Json) -> list[Json]:
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses") or []
    return statuses


def _sidecars(pod: Json) -> set[str]:
    inits = pod["spec"].get("initContainers") or ()
    return {c["name"] for c in inits if c.get("restartPolicy") == "Always"}


def _ready(pod: Json) -> str:
    sidecars = _sidecars(pod)
    inits = pod.get("status", {}).get("initContainerStatuses") or ()
    ready = [
        status["name"]
        for status in inits
        if status["name"] in sidecars and status.get("started") and status.get("ready")
    ]
    if not _init_status(pod) or _has_condition(pod, "Initialized"):
        ready += [
            status["name"]
            for status in _statuses(pod)
            if status.get("ready") and "running" in (status.get("state") or {})
        ]
    return f"{len(ready)}/{len(pod['spec'].get('containers') or ()) + len(sidecars)}"


def _restarts(pod: Json) -> str:
    counts = [status.get("restartCount", 0) for status in _statuses(pod)]
    sidecars = _sidecars(pod)
    counts += [
        status.get("restartCount", 0)
        for status in pod.get("status", {}).get("initContainerStatuses") or ()
        if status["name"] in sidecars or not _has_condition(pod, "Initialized")
    ]
    return str(sum(counts))


def _has_condition(obj: Json, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def pod_status(pod: Json) -> str:
    """Return the status of a pod: its phase, or the reason that blocks it."""
    status = pod.get("status", {})
    word: str = status.get("reason") or status.get("phase", "")
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or ()):
        word = "SchedulingGated"
    initializing = _init_status(pod)
    word = initializing or word
    if not initializing or _has_condition(pod, "Initialized"):
        word = _container_status(pod, word)
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    return word


def _init_status(pod: Json) -> str:
    inits = pod["spec"].get("initContainers") or ()
    sidecars = _sidecars(pod)
    for i, status in enumerate(pod.get("status", {}).get("initContainerStatuses") or ()):
        state = status.get("state") or {}
        if state.get("terminated", {}).get("exitCode") == 0 or (
            status["name"] in sidecars and status.get("started")
        ):
            continue
        if "terminated" in state:
            return f"Init:{_termination_reason(state['terminated'])}"
        reason = state.get("waiting", {}).get("reason", "")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{i}/{len(inits)}"
    return ""


def _termination_reason(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _container_status(pod: Json, word: str) -> str:
    running = False
    for status in reversed(_statuses(pod)):
        state = status.get("state") or {}
        if state.get("waiting", {}).get("reason"):
            word = state["waiting"]["reason"]
        elif "terminated" in state:
            word = _termination_reason(state["terminated"])
        elif status.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        return "Running" if _has_condition(pod, "Ready") else "NotReady"
    return word


def _gates(pod: Json) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    met = sum(_has_condition(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}" if gates else NONE


def _ports(service: Json) -> str:
    cells = [
        f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in service["spec"].get("ports") or ()
    ]
    return ",".join(cells) or NONE


def _event_last_seen(event: Json) -> Any:
    series = event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
    )


def _event_first(event: Json) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


def _event_object(event: Json) -> str:
    involved = event.get("involvedObject") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def _event_source(event: Json) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    return ", ".join(filter(None, (component, source.get("host", ""))))


def _job_status(job: Json) -> str:
    words = ["Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet"]
    is_deleted = bool(job["metadata"].get("deletionTimestamp"))
    return next(
        (w for w in words if (is_deleted and w == "Terminating") or _has_condition(job, w)), "Running"
    )


def _completions(job: Json) -> str:
    done, completions = job.get("status", {}).get("succeeded", 0), job["spec"].get("completions")
    return (
        f"{done}/{completions}"
        if completions is not None
        else f"{done}/1 of {job['spec'].get('parallelism', 0)}"
    )


def _template_containers(field: str) -> Any:
    def cell(job: Json) -> str:
        return ",".join(c.get(field, "") for c in job["spec"]["template"]["spec"].get("containers") or ())

    return cell


def _job_selector(job: Json) -> str:
    return _join_pairs((job["spec"].get("selector") or {}).get("matchLabels"))


def _targets(autoscaler: Json) -> str:
    cells = []
    for metric in autoscaler["spec"].get("metrics") or ():
        resource = metric.get("resource")
        if resource:
            cells.append(
                f"{resource['name']}: <unknown>/{resource.get('target', {}).get('averageUtilization', '')}%"
            )
        else:
            cells.append(f"<unknown>/{metric.get('type', '')}")
    return ", ".join(cells) or NONE


def _reference(autoscaler: Json) -> str:
    target = autoscaler["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _node_status(node: Json) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = [c.get("status") == "True" for c in conditions if c.get("type") == "Ready"]
    word = ("Ready" if ready[0] else "NotReady") if ready else "Unknown"
    return f"{word},SchedulingDisabled" if node["spec"].get("unschedulable") else word


def _node_roles(node: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    roles: list[str] = sorted(
        label.removeprefix(prefix)
        for label in node["metadata"].get("labels") or ()
        if label.startswith(prefix)
    )
    return ",".join(filter(None, roles)) or NONE


def _node_address(kind: str) -> Any:
    def cell(node: Json) -> str:
        addresses = node.get("status", {}).get("addresses") or ()
        return next((a["address"] for a in addresses if a.get("type") == kind), NONE)

    return cell


MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Iterable[str]) -> str:
    present = set(modes)
    return ",".join(short for mode, short in MODES.items() if mode in present)


def _phase(obj: Json) -> str:
    return (
        "Terminating" if obj["metadata"].get("deletionTimestamp") else obj.get("status", {}).get("phase", "")
    )


def _if_bound(cell: Callable[[Json], Any]) -> Callable[[Json], Any]:
    """Return a cell that is empty for a claim without a volume."""
    return lambda claim: cell(claim) if claim["spec"].get("volumeName") else ""


def _claimed_by(volume: Json) -> str:
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _class_name(storage_class: Json) -> str:
    annotations = storage_class["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{storage_class['metadata']['name']}{' (default)' if is_default else ''}"


def _subjects(kind: str) -> Any:
    def cell(binding: Json) -> str:
        found = [s for s in binding.get("subjects") or () if s.get("kind") == kind]
        named = kind == "ServiceAccount"
        return ", ".join(
            f"{s.get('namespace', '')}/{s.get('name', '')}" if named else s.get("name", "") for s in found
        )

    return cell


def _endpoints(endpoints: Json) -> str:
    cells = [
        f"{address['ip']}:{port['port']}"
        for subset in endpoints.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    return ",".join(cells[:3]) + (f" + {len(cells) - 3} more..." if len(cells) > 3 else "") or NONE


def _count(*fields: str) -> Any:
    return lambda obj: sum(len(obj.get(field) or ()) for field in fields)


def _info(field: str) -> Any:
    return _field("status", "nodeInfo", field, missing="<unknown>")


STORAGE_CLASS_NAME = Column("Name", _class_name, format="name")


BINDING = (
    NAME,
    Column("Role", lambda obj: f"{obj['roleRef'].get('kind', '')}/{obj['roleRef'].get('name', '')}"),
    AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)

BUILTIN: dict[str, tuple[Column, ...]] = {
    "Pod": (
        NAME,
        Column("Ready", _ready),
        Column("Status", pod_status),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", _field("status", "podIP", missing=NONE), priority=1),
        Column("Node", _field("spec", "nodeName", missing=NONE), priority=1),
        Column("Nominated Node", _field("status", "nominatedNodeName", missing=NONE), priority=1),
        Column("Readiness Gates", _gates, priority=1),
    ),
    "Service": (
        NAME,
        Column("Type", _field("spec", "type")),
        Column("Cluster-IP", _field("spec", "clusterIP", missing=NONE)),
        Column("External-IP", _field("spec", "externalName", missing=NONE)),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", lambda obj: _join_pairs(obj["spec"].get("selector")), priority=1),
    ),
    "Event": (
        Column("Last Seen", _event_last_seen, reads="age"),
        Column("Type", _field("type")),
        Column("Reason", _field("reason")),
        Column("Object", _event_object),
        Column("Subobject", _field("involvedObject", "fieldPath"), priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", lambda obj: str(obj.get("message", "")).strip()),
        Column("First Seen", _event_first, priority=1, reads="age"),
        Column(
            "Count", lambda obj: (obj.get("series") or {}).get("count") or obj.get("count") or 1, priority=1
        ),
        Column("Name", _name, format="name", priority=1),
    ),
    "ConfigMap": (NAME, Column("Data", _count("data", "binaryData")), AGE),
    "Secret": (NAME, Column("Type", _field("type")), Column("Data", _count("data")), AGE),
    "Namespace": (NAME, Column("Status", _field("status", "phase")), AGE),
    "Node": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _field("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", _info("osImage"), priority=1),
        Column("Kernel-Version", _info("kernelVersion"), priority=1),
        Column("Container-Runtime", _info("containerRuntimeVersion"), priority=1),
    ),
    "ServiceAccount": (NAME, AGE),
    "PersistentVolumeClaim": (
        NAME,
        Column("Status", _phase),
        Column("Volume", _field("spec", "volumeName")),
        Column("Capacity", _if_bound(_field("status", "capacity", "storage", missing="0"))),
        Column(
            "Access Modes", _if_bound(lambda claim: _modes(claim.get("status", {}).get("accessModes") or ()))
        ),
        Column("StorageClass", _field("spec", "storageClassName")),
        Column("VolumeAttributesClass", _field("spec", "volumeAttributesClassName", missing="<unset>")),
        AGE,
        Column("VolumeMode", _field("spec", "volumeMode"), priority=1),
    ),
    "PersistentVolume": (
        NAME,
        Column("Capacity", _field("spec", "capacity", "storage", missing="0")),
        Column("Access Modes", lambda volume: _modes(volume["spec"].get("accessModes") or ())),
        Column("Reclaim Policy", _field("spec", "persistentVolumeReclaimPolicy")),
        Column("Status", _phase),
        Column("Claim", _claimed_by),
        Column("StorageClass", _field("spec", "storageClassName")),
        Column("VolumeAttributesClass", _field("spec", "volumeAttributesClassName", missing="<unset>")),
        Column("Reason", _field("status", "reason")),
        AGE,
        Column("VolumeMode", _field("spec", "volumeMode", missing="<unset>"), priority=1),
    ),
    "StorageClass": (
        STORAGE_CLASS_NAME,
        Column("Provisioner", _field("provisioner")),
        Column("ReclaimPolicy", _field("reclaimPolicy", missing="Delete")),
        Column("VolumeBindingMode", _field("volumeBindingMode", missing="Immediate")),
        Column("AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion"))),
        AGE,
    ),
    "Endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "Job": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", lambda obj: obj.get("status") or {}, reads="duration"),
        AGE,
        Column("Containers", _template_containers("name"), priority=1),
        Column("Images", _template_containers("image"), priority=1),
        Column("Selector", _job_selector, priority=1),
    ),
    "HorizontalPodAutoscaler": (
        NAME,
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", lambda obj: str(obj["spec"].get("minReplicas", "<unset>"))),
        Column("MaxPods", _field("spec", "maxReplicas")),
        Column("Replicas", _field("status", "currentReplicas", missing=0)),
        AGE,
    ),
    "Lease": (NAME, Column("Holder", _field("spec", "holderIdentity")), AGE),
    "Role": (NAME, CREATED_AT),
    "ClusterRole": (NAME, CREATED_AT),
    **dict.fromkeys(("ClusterRoleBinding", "RoleBinding"), BINDING),
    "PriorityClass": (
        NAME,
        Column("Value", _field("value", missing=0), type="integer"),
        Column("Global-Default", _field("globalDefault", missing=False), type="boolean"),
        AGE,
        Column("PreemptionPolicy", _field("preemptionPolicy")),
    ),
    "CustomResourceDefinition": (NAME, CREATED_AT),
}
