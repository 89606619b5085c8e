"""The templates of the chart, made of the objects that kustomize builds of ``manifests``.

An object is dumped as YAML with markers, such as ``__NAME__``, in place of what values decide; then the markers become template
expressions. Everything else is the text of the object, so the chart cannot differ from the manifests.
"""

import copy
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from controller.crds.files import file_name
from controller.kinds import DEFAULT
from rallypoint.testing.manifests import Document, build
from tools.chart.values import flags, is_on_off, long_option

CLUSTER_SCOPED = {"customresourcedefinitions", "nodes", "queues"}
"""Resources in the operator's roles that a Role cannot grant. An operator for one namespace does without them."""
NODE_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]}
"""The rule for the Leases of nodes, which are in a namespace of their own."""
NAME = "training-operator"
SHADOW_NAME = "rallypoint-shadow"
"""What the names of the operator's objects, or of a shadow's, begin with; ``fullnameOverride`` replaces it."""
FILES = Path(__file__).parent / "files"
MANIFESTS = Path(__file__).parents[2] / "manifests"
COMPONENTS = {
    "flow-control": "flowControl",
    "kueue": "kueue",
    "mpi": "mpi",
    "mpi-flavor-policy": "mpiFlavorPolicy",
    "mpi-topology": "mpiTopology",
    "mpi-v1": "mpiV1",
    "mpi-versions": "mpiVersions",
    "mxjob": "mxjob",
    "network-policy": "networkPolicy",
    "progress": "progress",
    "progress-exec": "progressExec",
    "secure-metrics": "secureMetrics",
    "user-roles": "userRoles",
}
"""Component → the value that switches it on. ``monitoring`` has a value for each kind of its objects."""
MONITORING = {"ServiceMonitor": "serviceMonitor", "PrometheusRule": "alerts", "ConfigMap": "dashboards"}
RULES = ("mpi", "mpi-v1", "mxjob", "progress", "progress-exec")
"""Components whose rights an operator for one namespace can have, in a Role."""
WATCHES_ALL = "(not .Values.watchNamespace)"
IS_SHADOW = ".Values.shadow.enabled"

_EXPRESSIONS = {
    "__NAME__": '{{ include "rallypoint.fullname" $ }}',
    "__NAMESPACE__": "{{ $.Release.Namespace }}",
    "__LEASE__": '{{ include "rallypoint.leaseName" $ }}',
    "__ROLE__": "{{ $role }}",
    "__ROLE_NAMESPACE__": "{{ $namespace }}",
}
"""Marker in a string → the expression of its text, which the template puts into quotes."""


class Block(str):
    """Lines of a template in place of a field or of an item of a list. They get its indentation, ``<n>`` in them a number of n more."""


class _Dumper(yaml.SafeDumper):
    """Writes blocks as markers, and repeated parts in full."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def is_cluster_wide(rule: Document) -> bool:
    """Return whether a Role in the operator's namespace cannot grant a rule."""
    return rule == NODE_LEASES or bool(CLUSTER_SCOPED & set(rule["resources"]))


def render() -> dict[str, str]:
    """Return the text of each template by its path in the chart."""
    base = _build([])
    (role, binding, account, cluster_role, cluster_binding, deployment, budget, service) = (
        copy.deepcopy(next(document for document in base if document["kind"] == kind))
        for kind in (
            "Role", "RoleBinding", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment", "PodDisruptionBudget", "Service",
        )
    )  # fmt: skip
    secured = _build(["monitoring", "secure-metrics"])
    shadow = {
        document["kind"]: document for document in _build_in_namespace([MANIFESTS / "overlays" / "shadow"])
    }
    definitions = _generated(role, cluster_role, deployment, shadow["Deployment"], base)
    found = {
        "service-account.yaml": _text(account),
        "cluster-role.yaml": _if(WATCHES_ALL, _texts([cluster_role, cluster_binding])),
        "role.yaml": _roles(role, binding, cluster_role),
        "deployment.yaml": _deployment(deployment, "replicas", "topologySpreadConstraints"),
        "disruption-budget.yaml": _text(budget),
        "service.yaml": _text(_secured(service, secured, "metadata", "annotations")),
    }
    for definition in build(MANIFESTS / "base" / "crds"):
        found[f"crds/{file_name(definition)}"] = _definition(definition)
    for component, value in COMPONENTS.items():
        objects = []
        for document in _added_by(component, base):
            if document["kind"] == "CustomResourceDefinition":
                found[f"crds/{file_name(document)}"] = _definition(document, f".Values.{value}.enabled")
            else:
                objects.append(document)
        found[f"{component}.yaml"] = _component(component, value, objects)
    found["monitoring.yaml"], dashboards = _monitoring(_added_by("monitoring", base), secured)
    found = {name: _if(f"not {IS_SHADOW}", text) for name, text in found.items()}
    found["shadow.yaml"] = _shadow(shadow)
    found |= {path.name: path.read_text(encoding="utf-8") for path in FILES.iterdir()}
    found["_generated.tpl"] = definitions
    return {f"templates/{name}": text for name, text in found.items()} | dashboards


def _build(components: Sequence[str]) -> list[Document]:
    """Return the objects of the base with these components, in the namespace of the release, without the CRDs of the base."""
    return _build_in_namespace(
        [MANIFESTS / "base" / folder for folder in ("rbac", "operator")],
        [MANIFESTS / "components" / component for component in components],
    )


def _build_in_namespace(resources: Sequence[Path], components: Sequence[Path] = ()) -> list[Document]:
    kustomization = {
        "namespace": "__NAMESPACE__",
        "resources": list(map(str, resources)),
        "components": list(map(str, components)),
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
        return build(Path(folder))


def _added_by(component: str, base: Sequence[Document]) -> list[Document]:
    """Return the objects that a component adds. What it patches, ``rallypoint.arguments`` does."""
    known = {(document["kind"], document["metadata"]["name"]) for document in base}
    return [
        document
        for document in _build([component])
        if (document["kind"], document["metadata"]["name"]) not in known
    ]


def _component(component: str, value: str, objects: list[Document]) -> str:
    condition = f".Values.{value}.enabled"
    if component == "network-policy":
        (policy,) = objects
        policy["spec"]["egress"][0]["ports"] = Block(
            "ports:\n{{- range .Values.networkPolicy.apiServerPorts }}\n- port: {{ . }}\n{{- end }}"
        )
        return _if(condition, _text(policy))
    if component == "flow-control":
        for schema in objects:
            _set_account(schema)
    return _if(f"and {WATCHES_ALL} {condition}", _texts(objects))


def _set_account(schema: Document) -> None:
    """Let a FlowSchema name the ServiceAccount of the release; kustomize replaces no namespace there."""
    for rule in schema["spec"]["rules"]:
        for subject in rule["subjects"]:
            subject["serviceAccount"] |= {"name": "__NAME__", "namespace": "__NAMESPACE__"}
        for resources in rule["resourceRules"]:
            if resources["namespaces"] != ["*"]:
                resources["namespaces"] = Block('namespaces: {{ include "rallypoint.leaseNamespaces" . }}')


def _secured(document: Document, secured: Sequence[Document], *path: str | int) -> Document:
    """Add the fields that the component ``secure-metrics`` adds at this path of the object."""
    own: Any = document
    other: Any
    (other,) = (
        found
        for found in secured
        if found["kind"] == document["kind"] and found["metadata"]["name"] == document["metadata"]["name"]
    )
    for step in path:
        own, other = own[step], other[step]
    added = {name: value for name, value in other.items() if name not in own}
    own["secure"] = Block(f"{{{{- if .Values.secureMetrics.enabled }}}}\n{_yaml(added)}{{{{- end }}}}")
    return document


def _monitoring(objects: list[Document], secured: Sequence[Document]) -> tuple[str, dict[str, str]]:
    """Return the template, and the dashboards as files, which are no templates: Grafana's own expressions look like them."""
    texts: list[str] = []
    files: dict[str, str] = {}
    for document in objects:
        if document["kind"] == "ConfigMap":
            ((name, content),) = document["data"].items()
            files[f"dashboards/{name}"] = content
            document["data"] = {name: Block(f'{name}: {{{{ .Files.Get "dashboards/{name}" | toJson }}}}')}
        else:
            if document["kind"] == "ServiceMonitor":
                _secured(document, secured, "spec", "endpoints", 0)
            document["metadata"]["labels"] = _merged(
                "labels", document["metadata"]["labels"], "monitoring.labels"
            )
        texts.append(_if(f".Values.monitoring.{MONITORING[document['kind']]}", f"---\n{_text(document)}"))
    return "".join(texts), files


def _definition(definition: Document, *conditions: str) -> str:
    """Return the template of a CRD. Its schema takes one line: the release contains it twice and must stay below 1 MiB."""
    metadata = copy.deepcopy(definition["metadata"])
    metadata["annotations"] = metadata.get("annotations", {}) | {"helm.sh/resource-policy": "keep"}
    head = {"apiVersion": definition["apiVersion"], "kind": definition["kind"], "metadata": metadata}
    spec = json.dumps(definition["spec"], separators=(",", ":"), ensure_ascii=False)
    condition = " ".join(["and", WATCHES_ALL, ".Values.crds.install", *conditions])
    return _if(condition, f"{_text(head)}spec: {_escaped(spec)}\n")


def _shadow(objects: dict[str, Document]) -> str:
    """Return the template of a shadow, which is a release by itself: its namespace is the release's."""
    texts = [
        _deployment(document) if kind == "Deployment" else _text(document)
        for kind, document in objects.items()
        if kind != "Namespace"
    ]
    return _if(IS_SHADOW, "".join(f"---\n{text}" for text in texts))


def _deployment(deployment: Document, *more: str) -> str:
    """Return the template of a Deployment; ``more`` are values that decide about fields, beside those of every Deployment."""
    if "replicas" in more:
        deployment["spec"]["replicas"] = Block("replicas: {{ .Values.replicas }}")
    template = deployment["spec"]["template"]
    for field, own_first in (("labels", True), ("annotations", False)):
        path = f"pod{field.capitalize()}"
        template["metadata"][field] = _merged(field, template["metadata"][field], path, own_first=own_first)
    pod = template["spec"]
    (container,) = pod["containers"]
    container["image"] = Block('image: {{ include "rallypoint.image" . | quote }}')
    container["imagePullPolicy"] = _text_of("image.pullPolicy", "imagePullPolicy")
    container["args"] = Block('args:\n{{- include "rallypoint.arguments" . | nindent <0> }}')
    container["resources"] = _object_of("resources")
    container["env"].append(_items_of("extraEnv"))
    container["volumeMounts"].append(_items_of("extraVolumeMounts"))
    pod["volumes"].append(_items_of("extraVolumes"))
    pod["priorityClassName"] = _text_of("priorityClassName", "priorityClassName")
    for field in ("imagePullSecrets", "nodeSelector", "affinity", "tolerations", *more):
        if field != "replicas":
            pod[field] = _object_of(field)
    return _text(deployment)


def _object_of(field: str) -> Block:
    """Return a field with the value of the same name, or nothing if that is empty."""
    return Block(
        f"{{{{- with .Values.{field} }}}}\n{field}:\n  {{{{- toYaml . | nindent <2> }}}}\n{{{{- end }}}}"
    )


def _text_of(path: str, field: str) -> Block:
    return Block(f"{{{{- with .Values.{path} }}}}\n{field}: {{{{ . | quote }}}}\n{{{{- end }}}}")


def _items_of(path: str) -> Block:
    return Block(f"{{{{- with .Values.{path} }}}}\n{{{{- toYaml . | nindent <0> }}}}\n{{{{- end }}}}")


def _merged(field: str, own: dict[str, str], path: str, *, own_first: bool = True) -> Block:
    """Return a map of the object's own texts and those of a value; ``own_first`` decides which win."""
    pairs = " ".join(json.dumps(text) for pair in own.items() for text in pair)
    function = "merge" if own_first else "mergeOverwrite"
    return Block(f"{field}:\n  {{{{- {function} (dict {pairs}) .Values.{path} | toYaml | nindent <2> }}}}")


def _roles(role: Document, binding: Document, cluster_role: Document) -> str:
    """Return a Role for each namespace: the rights on Leases where they are, and on jobs where the operator serves only one namespace.

    A new leader records an event on the Lease; without a ClusterRole it needs the right to do so there.
    """
    for document in (role, binding):
        document["metadata"] |= {"name": "__ROLE__", "namespace": "__ROLE_NAMESPACE__"}
    binding["roleRef"]["name"] = "__ROLE__"
    for rule in role["rules"]:
        if "resourceNames" in rule:
            rule["resourceNames"][0] = "__LEASE__"
    role["rules"] = Block(
        "rules:\n{{- if has $namespace $leases }}\n"
        + _yaml(role["rules"])
        + "{{- if and $.Values.watchNamespace (ne $namespace $.Values.watchNamespace) }}\n"
        + _yaml([rule for rule in cluster_role["rules"] if rule["resources"] == ["events"]])
        + "{{- end }}\n{{- end }}\n{{- if eq $namespace $.Values.watchNamespace }}\n"
        + '{{- include "rallypoint.rules.base" $ | nindent <0> }}\n'
        + "".join(
            f'{{{{- if $.Values.{COMPONENTS[component]}.enabled }}}}\n{{{{- include "rallypoint.rules.{component}" $ | nindent <0> }}}}\n{{{{- end }}}}\n'
            for component in RULES
        )
        + "{{- end }}"
    )
    return (
        '{{- $leases := include "rallypoint.leaseNamespaces" . | fromJsonArray }}\n'
        "{{- range $namespace := concat $leases (list .Values.watchNamespace) | compact | uniq }}\n"
        '{{- $role := include "rallypoint.roleName" (list $ $namespace) }}\n'
        f"{_texts([role, binding])}{{{{- end }}}}\n"
    )


def _generated(
    role: Document, cluster_role: Document, deployment: Document, shadow: Document, base: Sequence[Document]
) -> str:
    """Return the named templates that follow from the manifests and from the operator."""
    (lease,) = (names[0] for rule in role["rules"] if (names := rule.get("resourceNames")))
    rules = {"base": cluster_role["rules"]} | {
        component: [
            rule
            for document in _added_by(component, base)
            if document["metadata"]["name"].startswith(NAME) and document["kind"] == "ClusterRole"
            for rule in document["rules"]
        ]
        for component in RULES
    }
    definitions = {
        "name": f"{{{{- ternary {json.dumps(SHADOW_NAME)} {json.dumps(NAME)} {IS_SHADOW} -}}}}",
        "lease": lease,
        "arguments.base": _arguments(deployment),
        "arguments.shadow": _arguments(shadow),
        "kinds": json.dumps([kind.resource.kind for kind in DEFAULT]),
        "flags": json.dumps({name: long_option(action) for name, action in flags().items()}),
        "flags.onOff": json.dumps([name for name, action in flags().items() if is_on_off(action)]),
    } | {
        f"rules.{name}": _yaml([rule for rule in found if not is_cluster_wide(rule)])
        for name, found in rules.items()
    }
    return "".join(
        f'{{{{- define "rallypoint.{name}" -}}}}\n{text.rstrip()}\n{{{{- end }}}}\n'
        for name, text in definitions.items()
    )


def _arguments(deployment: Document) -> str:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return json.dumps(container["args"])


def _if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _texts(documents: Iterable[Document]) -> str:
    return "".join(f"---\n{_text(document)}" for document in documents)


def _text(document: Document) -> str:
    """Return the YAML of an object of which values decide the name, the namespace, the account and the blocks."""
    document = copy.deepcopy(document)
    _rename(document)
    return _yaml(document)


def _rename(document: Document) -> None:
    """Put the marker of the name in all places that refer to one of the operator's objects."""
    for reference in (document["metadata"], document.get("roleRef", {}), *document.get("subjects", ())):
        for name in (NAME, SHADOW_NAME):
            if reference.get("name", "").startswith(name):
                reference["name"] = reference["name"].replace(name, "__NAME__", 1)
    if document["kind"] == "Deployment":
        document["spec"]["template"]["spec"]["serviceAccountName"] = "__NAME__"


def _yaml(value: Any) -> str:
    """Return the YAML of a value, with expressions in place of its markers and blocks."""
    blocks: list[Block] = []

    def mark(dumper: yaml.SafeDumper, block: Block) -> yaml.Node:
        blocks.append(block)
        return dumper.represent_str(f"__BLOCK_{len(blocks) - 1}__")

    _Dumper.add_representer(Block, mark)
    dumped = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10_000)
    lines = (_line(_escaped(line), blocks) for line in dumped.splitlines())
    return "".join(f"{line}\n" for line in lines)


def _line(line: str, blocks: Sequence[Block]) -> str:
    # The marker is the value of a field, which may be the first one of an item of a list, or an item by itself.
    if found := re.fullmatch(r"( *)(- (?=\S+: ))?.*__BLOCK_(\d+)__", line):
        indent = found[1] + " " * len(found[2] or "")
        block = re.sub(r"<(\d+)>", lambda more: str(len(indent) + int(more[1])), blocks[int(found[3])])
        first, *others = block.splitlines()
        return "\n".join([found[1] + (found[2] or "") + first, *(indent + other for other in others)])
    if any(marker in line for marker in _EXPRESSIONS):
        start, text = re.findall(r"^( *(?:- )?(?:[\w.-]+: )?)(.*)$", line)[0]
        for marker, expression in _EXPRESSIONS.items():
            text = text.replace(marker, expression)
        return f'{start}"{text}"'
    return line


def _escaped(text: str) -> str:
    """Return a text that a template prints as it is."""
    return text.replace("{{", '{{ "{{" }}')
