"""The base of every wire type: the base model, object metadata and the address of a resource.

Each job kind has its own module; ``api.job`` contains what they share.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from api.times import Time


class Wire(BaseModel):
    """A JSON object of the API: camelCase in JSON, snake_case in Python. Unknown fields are kept.

    The first paragraph of the docstring beneath a field is its description for users, in ``kubectl explain`` and the API reference. Its first
    sentence stands alone in definitions with several versions. ``Defaults to …`` begins the sentence about the default.
    """

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object without unset fields and nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


class ObjectMeta(Wire):
    """The fields of ``metadata`` that planning needs; the others are kept unchanged."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class OwnerReference(Wire):
    """The owner of an object; at most one owner is its controller."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """The URL of objects of one kind; ``group`` is empty for the core API."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` for the core group, ``group/version`` otherwise."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource.

        Without a namespace the path spans all namespaces (or the resource is cluster-scoped).
        """
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "Pod", "pods")
SERVICES = Resource("", "v1", "Service", "services")
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
STATEFUL_SETS = Resource("apps", "v1", "StatefulSet", "statefulsets")
EVENTS = Resource("", "v1", "Event", "events")
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
)
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
NATIVE_POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups")
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
