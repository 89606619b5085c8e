"""The form in which the child that planning would create is compared with the child that exists, and the differences of the two.

The API server adds defaults, and admission adds fields, volumes and labels. Both must not count as differences. A field of the job's own
spec always counts: if it is missing on one side, an operator has lost it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from controller.domain import shortened
from controller.shadow.defaults import SHAPES, Object, Shape, bare

MISSING: Final = "nothing"
"""The text for a field that one side lacks."""
_MISSING: Final = object()
HIDDEN: Final = "a value that is not shown"
"""Stands for values that may be secret: the arguments and the environment of the user's containers."""
LONGEST_TEXT: Final = 200
"""The longest value that a difference shows, in characters."""

_OPERATOR_PREFIXES = (
    "training.kubeflow.org/",
    "kubeflow.org/",
    "scheduling.k8s.io/",
    "scheduling.x-k8s.io/",
    "volcano.sh/",
    "scheduling.volcano.sh/",
)
"""The labels and annotations that the operators set."""
_OPERATOR_LABEL = "app"
_OPERATOR_VOLUMES = frozenset({"mpi-job-config", "mpi-job-kubectl", "ssh-auth", "ssh-home"})
_OPERATOR_INIT_CONTAINERS = frozenset({"init-pytorch", "kubectl-delivery"})
_ADMITTED_POD_FIELDS = frozenset(
    {
        *("imagePullSecrets", "nodeName", "nodeSelector", "overhead", "preemptionPolicy", "priority"),
        *("priorityClassName", "runtimeClassName", "serviceAccount", "serviceAccountName"),
    }
)
"""Fields of a pod that the scheduler and the API server's admission plugins set."""
_ADMITTED_CONTAINER_FIELDS = frozenset({"resources", "securityContext"})
"""Fields of a container that LimitRanger and security policies set."""
_NODE_TAINTS, _TOLERATION_SECONDS = "node.kubernetes.io/", 300
"""Admission makes every pod tolerate two taints of nodes for this time. Source: Kubernetes, plugin/pkg/admission/defaulttolerationseconds."""
_JOB_LABELS = frozenset(
    prefix + name for prefix in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")
)
"""The API server sets them on the template of each batch Job."""
_SERVER_SERVICE_FIELDS = frozenset({"clusterIPs", "ipFamilies", "ipFamilyPolicy"})
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "name",
}
"""Lists whose items have a unique key, so that a difference can name the item instead of a position."""
_EXACT = frozenset({"data", "keys", "labels", "ports", "rules", "selector", "subjects", "metrics"})
"""Members of other objects than pods in which an additional entry is a difference. Elsewhere the server may add defaults."""
_PRIVATE = frozenset({"args", "command", "env"})


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that differs: its JSON pointer (RFC 6901), empty for the whole object, and both values as short texts."""

    field: str
    ours: str
    theirs: str


def words_of(value: Any) -> frozenset[str]:
    """Return all keys and texts in a JSON value, such as a job's spec."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            found.update(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, str):
            found.add(item)
    return frozenset(found)


def child_differences(
    kind: str, ours: Object, theirs: Object, words: Collection[str]
) -> list[FieldDifference]:
    """Return the differences between a child that planning would create and the one that exists.

    ``words`` are the keys and texts of the job's spec: what admission adds is ignored unless the job itself names it.
    """
    sent = orjson.loads(orjson.dumps(ours))
    wanted, live = _form(kind, sent, words), _form(kind, theirs, words)
    if kind == "Secret" and not live["keys"]:
        wanted["keys"] = {}  # a server without records of field managers does not say which keys there are
    if kind in {"Pod", "Job"}:
        template = ("spec", "template") if kind == "Job" else ()
        _drop_admitted(_at(wanted, template), _at(live, template), words)
    return [
        FieldDifference(field, _text(field, mine, words), _text(field, other, words))
        for field, mine, other in _walk(wanted, live, "", is_exact=kind in {"Pod", "Job"})
    ]


def _form(kind: str, body: Object, words: Collection[str]) -> Object:
    """Return the compared part of an object, without defaults, in new dictionaries."""
    plain = bare(
        _copy({name: item for name, item in body.items() if name != "status"}), SHAPES.get(kind, Shape())
    )
    metadata = plain.get("metadata") or {}
    form = {name: item for name, item in plain.items() if name not in {"apiVersion", "kind", "metadata"}}
    form["metadata"] = _metadata(metadata, words)
    if kind == "Secret":
        return {"metadata": form["metadata"], "keys": dict.fromkeys(secret_keys(body), "present")}
    spec = form.get("spec")
    if kind == "Job" and spec:
        _shorten_job(spec, words)
    if kind == "Service" and spec:
        form["spec"] = {name: item for name, item in spec.items() if name not in _SERVER_SERVICE_FIELDS}
    return dict(_keyed(form))


def secret_keys(secret: Object) -> list[str]:
    """Return the keys of a Secret. Of one that was read without its values, they are in the record of the field managers."""
    keys = {*(secret.get("data") or {}), *(secret.get("stringData") or {})}
    for entry in (secret.get("metadata") or {}).get("managedFields") or ():
        data = (entry.get("fieldsV1") or {}).get("f:data") or {}
        keys |= {name.removeprefix("f:") for name in data if name.startswith("f:")}
    return sorted(keys)


def _shorten_job(spec: Object, words: Collection[str]) -> None:
    """Drop what the API server generates for a batch Job, and ``suspend``, which is a decision and not a part of the object."""
    for name in ("selector", "suspend", "managedBy"):
        spec.pop(name, None)
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    metadata["labels"] = {name: value for name, value in labels.items() if name not in _JOB_LABELS}
    template["metadata"] = _metadata(metadata, words)


def _metadata(metadata: Object, words: Collection[str]) -> Object:
    """Return labels and annotations that an operator or the user sets, and the controller's reference."""
    form = {
        field: {
            name: value
            for name, value in (metadata.get(field) or {}).items()
            if name in words or name == _OPERATOR_LABEL or name.startswith(_OPERATOR_PREFIXES)
        }
        for field in ("labels", "annotations")
    }
    owner: Object = next((ref for ref in metadata.get("ownerReferences") or () if ref.get("controller")), {})
    form["owner"] = {name: owner[name] for name in ("apiVersion", "kind", "name", "uid") if name in owner}
    return {name: part for name, part in form.items() if part}


def _drop_admitted(wanted: Object, live: Object, words: Collection[str]) -> None:
    """Remove from a live pod, or pod template, what admission and the scheduler have added; both are changed in place."""
    ours, theirs = wanted.get("spec") or {}, live.get("spec") or {}
    for name in _ADMITTED_POD_FIELDS - ours.keys() - set(words):
        theirs.pop(name, None)
    for side in (ours, theirs):
        tolerations = [
            toleration
            for toleration in side.get("tolerations") or ()
            if not (
                toleration.get("key", "").startswith(_NODE_TAINTS)
                and toleration.get("tolerationSeconds") == _TOLERATION_SECONDS
            )
        ]
        side["tolerations"] = tolerations
    added = {
        name
        for name in (theirs.get("volumes") or {})
        if name not in (ours.get("volumes") or {}) and name not in _OPERATOR_VOLUMES and name not in words
    }
    for name in added:
        theirs["volumes"].pop(name)
    for field, own in (("containers", frozenset[str]()), ("initContainers", _OPERATOR_INIT_CONTAINERS)):
        mine, others = ours.get(field) or {}, theirs.get(field) or {}
        for name in [name for name in others if name not in mine and name not in own and name not in words]:
            others.pop(name)
        for name, container in others.items():
            _drop_admitted_of_container(mine.get(name) or {}, container, added, words)
    for side in (ours, theirs):
        for name in ("volumes", "tolerations", "containers", "initContainers"):
            if not side.get(name):
                side.pop(name, None)


def _drop_admitted_of_container(
    mine: Object, container: Object, volumes: set[str], words: Collection[str]
) -> None:
    for name in _ADMITTED_CONTAINER_FIELDS - mine.keys() - set(words):
        container.pop(name, None)
    mounts = container.get("volumeMounts") or {}
    for path in [path for path, mount in mounts.items() if mount.get("name") in volumes]:
        mounts.pop(path)
    if not mounts:
        container.pop("volumeMounts", None)


def _at(value: Object, path: Iterable[str]) -> Object:
    for name in path:
        value = value.setdefault(name, {})
    return value


def _copy(value: Any) -> Any:
    """Return a copy without nulls in its objects; ``Mapping`` becomes ``dict``."""
    if isinstance(value, Mapping):
        return {name: _copy(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value


def _keyed(value: Any) -> Any:
    """Return the value with lists of named items as objects."""
    if isinstance(value, dict):
        return {name: _keyed_list(item, _KEYS.get(name, "")) for name, item in value.items()}
    if isinstance(value, list):
        return [_keyed(item) for item in value]
    return value


def _keyed_list(value: Any, key: str) -> Any:
    if not isinstance(value, list) or not key:
        return _keyed(value)
    names = [item.get(key) for item in value if isinstance(item, dict)]
    if len(names) < len(value) or None in names or len(set(names)) < len(names):
        return _keyed(value)
    return {name: _keyed(item) for name, item in zip(names, value, strict=True)}


def _walk(ours: Any, theirs: Any, at: str, *, is_exact: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield the pointers at which two values differ. Unless ``is_exact``, entries that only the second has are ignored."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            pointer = f"{at}/{str(name).replace('~', '~0').replace('/', '~1')}"
            if name not in theirs:
                if ours[name] not in ({}, [], ""):  # the server may drop an empty value
                    yield pointer, ours[name], _MISSING
            elif name in ours:
                yield from _walk(ours[name], theirs[name], pointer, is_exact=is_exact or name in _EXACT)
            elif is_exact and theirs[name] not in ({}, [], ""):
                yield pointer, _MISSING, theirs[name]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _walk(mine, other, f"{at}/{index}", is_exact=is_exact)
    elif ours != theirs or type(ours) is not type(theirs):
        yield at, ours, theirs


def _text(field: str, value: Any, words: Collection[str]) -> str:
    """Return a value as a short text. Values that the user has written and that may be secret are hidden; so are those inside of objects."""
    if value is _MISSING:
        return MISSING
    parts = field.split("/")
    is_own = "env" in parts and (at := parts.index("env") + 1) < len(parts) and parts[at] not in words
    if _PRIVATE.intersection(parts) and not is_own:
        return HIDDEN
    if isinstance(value, dict) and not is_own:
        return shortened(f"an object with {', '.join(sorted(value))}", LONGEST_TEXT)
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return f"a list of {len(value)}"
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return shortened(text, LONGEST_TEXT)
