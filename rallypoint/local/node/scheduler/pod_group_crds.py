"""The PodGroup CRDs of the gang schedulers, as these install them in a cluster.

Source: volcano, config/crd; scheduler-plugins, manifests/crds: names, fields and columns.
"""

from collections.abc import Mapping
from typing import Any

from api.meta import VOLCANO_POD_GROUPS, Resource
from rallypoint.local.node.scheduler.scheduler import rules_of

_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "format": "int32"}
_AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
_COMMON = {"minMember": _COUNT, "minResources": _AMOUNTS}
_VOLCANO = {
    **_COMMON,
    "minTaskMember": {"type": "object", "additionalProperties": _COUNT},
    "queue": {**_TEXT, "default": "default"},
    "priorityClassName": _TEXT,
}
_COSCHEDULING = {**_COMMON, "scheduleTimeoutSeconds": _COUNT}
_CONDITION = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("type", "status", "reason", "message", "transitionID"), _TEXT),
        "lastTransitionTime": {**_TEXT, "format": "date-time"},
    },
}
_STATUS = {
    **dict.fromkeys(("running", "succeeded", "failed"), _COUNT),
    "phase": _TEXT,
    "occupiedBy": _TEXT,
    "scheduleStartTime": {**_TEXT, "format": "date-time"},
    "conditions": {"type": "array", "items": _CONDITION},
}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def definitions(gang_scheduler: str) -> list[dict[str, Any]]:
    """Return the CRDs of a gang scheduler; none for an empty name."""
    rules = rules_of(gang_scheduler)
    return [] if rules is None else [_definition(rules.resource)]


def _definition(resource: Resource) -> dict[str, Any]:
    is_volcano = resource == VOLCANO_POD_GROUPS
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.singular}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("STATUS" if is_volcano else "Phase", "string", ".status.phase"),
            _column("minMember" if is_volcano else "MinMember", "integer", ".spec.minMember"),
            _column("RUNNINGS" if is_volcano else "Running", "integer", ".status.running"),
            {**_AGE, "name": "AGE"} if is_volcano else _AGE,
        ],
        "schema": {"openAPIV3Schema": _schema(_VOLCANO if is_volcano else _COSCHEDULING)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {**names, "shortNames": ["pg", "podgroup-v1beta1"] if is_volcano else ["pg", "pgs"]},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _column(name: str, kind: str, path: str) -> dict[str, str]:
    return {"name": name, "type": kind, "jsonPath": path}


def _schema(spec: Mapping[str, Any]) -> dict[str, Any]:
    parts = {"spec": spec, "status": _STATUS}
    objects = {name: {"type": "object", "properties": fields} for name, fields in parts.items()}
    return {
        "type": "object",
        "properties": {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}, **objects},
    }
