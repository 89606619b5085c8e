"""The built-in resources that training jobs and their tools use.

The server responds with 404 for any other built-in resource.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import orjson

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.selectors import FieldReader, path_reader
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth.authorization import GROUP as RBAC
from rallypoint.local.apiserver.resources import configuration, jobs, persistentvolumes, rbac, services
from rallypoint.local.apiserver.resources.columns import BUILTIN as COLUMNS
from rallypoint.local.apiserver.resources.pods import pods, priority
from rallypoint.local.apiserver.resources.resource import Resource, Strategy
from rallypoint.local.apiserver.schema.structural import Compiler, Node

INVOLVED_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

EVENT_FIELDS = {
    **{f"involvedObject.{part}": path_reader(f"involvedObject.{part}") for part in INVOLVED_OBJECT_FIELDS},
    **{path: path_reader(path) for path in ("reason", "type", "reportingComponent", "source")},
}


@cache
def schemas() -> "Schemas":
    return Schemas()


class Schemas:
    """The schemas of the built-in kinds, compiled on first use."""

    def __init__(self) -> None:
        stored = orjson.loads(Path(__file__).with_name("core.json").read_bytes())
        self.kinds: dict[str, str] = stored["kinds"]
        self.definitions: dict[str, Json] = stored["definitions"]
        self._compiler = Compiler(self.definitions, omit_empty=True)

    def kind(self, group: str, kind: str) -> Node:
        return self._compiler.definition(self.kinds[f"{group}/{kind}"])

    @property
    def metadata(self) -> Node:
        return self._compiler.definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def _prepare_namespace(obj: Json) -> Json:
    labels = {"kubernetes.io/metadata.name": obj["metadata"].get("name", "")}
    obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    return obj


def _prepare_node(obj: Json) -> Json:
    obj.setdefault("spec", {})
    obj.setdefault("status", {})
    return obj


def _default_event(obj: Json) -> Json:
    obj.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")
    return obj


def _validate_event_namespace(obj: Json) -> Iterator[FieldError]:
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    expected = involved or "default"
    if obj["metadata"].get("namespace") != expected:
        yield field_errors.invalid("involvedObject.namespace", involved, "does not match event.namespace")


DEFAULT_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def _default_autoscaler(obj: Json) -> Json:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [DEFAULT_METRIC]
    return obj


def _prepare_autoscaler(obj: Json) -> Json:
    obj["status"] = {"desiredReplicas": 0, "currentMetrics": None}
    return obj


def _validate_autoscaler(obj: Json) -> Iterator[FieldError]:
    spec = obj["spec"]
    if spec.get("maxReplicas", 0) < 1:
        yield field_errors.required("spec.maxReplicas", "must be set and greater than 0")
    if spec["minReplicas"] < 1:
        yield field_errors.invalid(
            "spec.minReplicas", spec["minReplicas"], "must be greater than or equal to 1"
        )
    if spec.get("maxReplicas", 0) < spec["minReplicas"]:
        detail = "must be greater than or equal to `minReplicas`"
        yield field_errors.invalid("spec.maxReplicas", spec.get("maxReplicas", 0), detail)
    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not target.get(field):
            yield field_errors.required(f"spec.scaleTargetRef.{field}")
    version = target.get("apiVersion", "")
    if "/" not in version and version != "v1":
        detail = "apiVersion must specify API group"
        yield field_errors.invalid("spec.scaleTargetRef.apiVersion", version, detail)


def _validate_lease(lease: Json) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield field_errors.invalid(
            "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
        )
    if spec.get("leaseTransitions", 0) < 0:
        yield field_errors.negative("spec.leaseTransitions", spec["leaseTransitions"])


DEFAULT_STRATEGY = Strategy()


def _resource(
    group: str,
    version: str,
    kind: str,
    plural: str,
    *,
    short_names: str = "",
    namespaced: bool = True,
    status: bool = False,
    subresources: tuple[str, ...] = (),
    category: str = "",
    strategy: Strategy = DEFAULT_STRATEGY,
    fields: dict[str, FieldReader] | None = None,
) -> Resource:
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=tuple(filter(None, short_names.split(","))),
        categories=(category,) if category else (),
        schema=schemas().kind(group, kind),
        strategy=strategy,
        subresources=(*(("status",) if status else ()), *subresources),
        columns=COLUMNS.get(kind, ()),
        fields=fields or {},
    )


def resources() -> list[Resource]:
    """Return new definitions of all built-in resources."""
    lease = Strategy(validate=_validate_lease, requires_version=True, allows_create_on_update=True)
    event = Strategy(
        default=_default_event,
        validate=_validate_event_namespace,
        validate_name=names.path_segment,
        allows_create_on_update=True,
    )
    return [
        _resource(
            "", "v1", "Pod", "pods", short_names="po", status=True, category="all", strategy=pods.STRATEGY, fields=pods.FIELDS,
            subresources=("log", "binding", "exec", "attach", "portforward", "eviction"),
        ),
        _resource("", "v1", "Service", "services", short_names="svc", status=True, category="all", strategy=services.STRATEGY,
                fields={path: path_reader(path) for path in ("spec.clusterIP", "spec.type")}),
        _resource("", "v1", "Event", "events", short_names="ev", strategy=event, fields=EVENT_FIELDS),
        _resource("", "v1", "ConfigMap", "configmaps", short_names="cm", strategy=configuration.CONFIG_MAPS),
        _resource("", "v1", "Secret", "secrets", fields={"type": path_reader("type")},
                strategy=configuration.SECRETS),
        _resource("", "v1", "Namespace", "namespaces", short_names="ns", namespaced=False, status=True, subresources=("finalize",),
                strategy=Strategy(prepare_create=_prepare_namespace, validate_name=names.label, returns_deleted_object=True,
                            emptied_first=True),
                fields={"status.phase": path_reader("status.phase")}),
        _resource("", "v1", "Node", "nodes", short_names="no", namespaced=False, status=True, strategy=Strategy(prepare_create=_prepare_node),
                fields={"spec.unschedulable": path_reader("spec.unschedulable")}),
        _resource("", "v1", "ServiceAccount", "serviceaccounts", short_names="sa", strategy=Strategy(returns_deleted_object=True)),
        _resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short_names="pvc", status=True,
                strategy=persistentvolumes.CLAIMS),
        _resource("", "v1", "PersistentVolume", "persistentvolumes", short_names="pv", namespaced=False, status=True,
                strategy=persistentvolumes.VOLUMES),
        _resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", short_names="sc", namespaced=False,
                strategy=persistentvolumes.CLASSES),
        _resource("", "v1", "Endpoints", "endpoints", short_names="ep", strategy=DEFAULT_STRATEGY),
        _resource("batch", "v1", "Job", "jobs", status=True, category="all", strategy=jobs.STRATEGY,
                fields={"status.successful": path_reader("status.succeeded")}),
        _resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", short_names="hpa", status=True,
                category="all",
                strategy=Strategy(default=_default_autoscaler, prepare_create=_prepare_autoscaler, validate=_validate_autoscaler)),
        _resource("coordination.k8s.io", "v1", "Lease", "leases", strategy=lease),
        _resource(RBAC, "v1", "Role", "roles", strategy=rbac.ROLES),
        _resource(RBAC, "v1", "RoleBinding", "rolebindings", strategy=rbac.BINDINGS),
        _resource(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False, strategy=rbac.CLUSTER_ROLES),
        _resource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, strategy=rbac.CLUSTER_BINDINGS),
        _resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", short_names="pc", namespaced=False,
                strategy=priority.STRATEGY),
    ]  # fmt: skip
