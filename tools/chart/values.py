"""The values of the chart: one table, from which ``values.yaml``, ``values.schema.json`` and the README are made.

Defaults that the manifests contain are read from there. The operator's flags are read from its parser.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controller.command import INERT, build_parser
from controller.kinds import ALL
from controller.settings import CHOICES

Schema = dict[str, Any]

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_SWITCH: Schema = {"type": "boolean"}

SET_BY_THE_CHART = frozenset(
    {
        "help",
        "version",
        "kubeconfig",
        "master",
        "namespace",
        "kueue",
        "leader_elect",
        "shadow",
        "metrics_bind_address",
        "metrics_secure",
        "health_probe_bind_address",
        "zap_devel",
    }
)
"""Flags without a value of their own: the templates set them, or they have no use in a pod."""


ON_OFF = {True: "on", False: "off"}
"""What YAML 1.1, which Helm reads, makes of these words without quotes."""


@dataclass(frozen=True)
class Value:
    """One value: its path with dots, its default, the JSON Schema of it, and what it does, in Markdown."""

    path: str
    default: Any
    schema: Schema
    text: str


def table(deployment: Mapping[str, Any], digest: str = "") -> list[Value]:
    """Return all values; ``deployment`` is the one of the overlay ``standalone``, ``digest`` the default of the image's."""
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    repository, _, _ = container["image"].rpartition(":")
    return [
        Value("image.repository", repository, _text(), "The image, with its registry and without its tag."),
        Value("image.tag", "", _text(), "Default: the `appVersion` of the chart."),
        Value(
            "image.digest",
            digest,
            _text(r"(sha256:[0-9a-f]{64})?"),
            "Pins the image: `sha256:…`. The tag is then ignored.",
        ),
        Value(
            "image.pullPolicy",
            "",
            _choice("", "Always", "IfNotPresent", "Never"),
            "Default: that of Kubernetes, `IfNotPresent` for a tag that is not `latest`.",
        ),
        Value("imagePullSecrets", [], _OBJECTS, "Secrets for the registry: `[{name: …}]`."),
        Value(
            "fullnameOverride",
            "",
            _text(r"([a-z]([-a-z0-9]{0,38}[a-z0-9])?)?"),
            "Name of the operator's objects in place of `training-operator`, for a second operator in one cluster. Labels, Leases and"
            " the roles for users keep their names.",
        ),
        Value(
            "watchNamespace",
            "",
            _text(rf"({_DNS_LABEL})?"),
            "Serve only this namespace. The operator then gets Roles in place of ClusterRoles, and the release has no cluster-scoped object:"
            " no FlowSchemas and no CRDs, which must be installed already.",
        ),
        Value(
            "shadow.enabled",
            False,
            _SWITCH,
            "Install a shadow in place of the operator: it decides beside another operator, writes nothing, and reports differences. The"
            " release has no CRDs and no component.",
        ),
        Value("replicas", deployment["spec"]["replicas"], _integer(0), "One leads, the others stand by."),
        Value("resources", container["resources"], _OBJECT, "Requests and limits of the container."),
        Value("nodeSelector", {}, _TEXTS, "Labels of the nodes for the pods."),
        Value("tolerations", [], _OBJECTS, "Taints that the pods tolerate."),
        Value("affinity", {}, _OBJECT, "Affinity of the pods."),
        Value(
            "topologySpreadConstraints",
            pod["topologySpreadConstraints"],
            _OBJECTS,
            "Default: on two nodes if there are two.",
        ),
        Value("priorityClassName", "", _text(), "PriorityClass of the pods, such as `system-cluster-critical`."),
        Value("podAnnotations", {}, _TEXTS, "More annotations of the pods; they replace those of the same name."),
        Value("podLabels", {}, _TEXTS, "More labels of the pods; those of the selector stay."),
        Value("extraEnv", [], _OBJECTS, "More variables of the container, such as `OTEL_*` or `HTTPS_PROXY`."),
        Value("extraVolumes", [], _OBJECTS, "More volumes of the pods."),
        Value("extraVolumeMounts", [], _OBJECTS, "More mounts of the container."),
        Value(
            "extraArgs",
            [],
            {"type": "array", "items": _text("--?[^ ]+.*")},
            "More arguments, after the flags: `[--name=value]`.",
        ),
        *(_flag_values()),
        Value(
            "crds.install",
            True,
            _SWITCH,
            "Install and upgrade the CRDs. They stay when the release is uninstalled, because jobs would be deleted with them.",
        ),
        Value("mpi.enabled", True, _SWITCH, "Serve MPIJobs, with the rights on Secrets and ConfigMaps that they need."),
        Value("mpiV1.enabled", False, _SWITCH, "The rights for MPIJobs of `v1` and `v1alpha2`."),
        Value("mpiTopology.enabled", False, _SWITCH, "The right to read nodes, for `flags.mpiTopologyLabel`."),
        Value(
            "mpiVersions.enabled",
            False,
            _SWITCH,
            "The rights to store again MPIJobs that a Go operator has stored, for upgrades from one, and for MultiKueue.",
        ),
        Value(
            "mpiFlavorPolicy.enabled",
            False,
            _SWITCH,
            "Admission policies that repair what typed clients of another version write to MPIJobs; Kubernetes 1.36.",
        ),
        Value(
            "kueue.enabled",
            False,
            _SWITCH,
            "Queue jobs with Kueue, except those of kinds that Kueue's own integrations manage: the flag, and the rights for it.",
        ),
        Value(
            "progress.enabled",
            False,
            _SWITCH,
            "The right to read logs of pods, for `progressDeadlineSeconds` in jobs.",
        ),
        Value(
            "progressExec.enabled",
            False,
            _SWITCH,
            "The right to run commands in pods, for stacks of jobs that hang and for `progress.exec`. It is a strong right: see SECURITY.md.",
        ),
        Value("mxjob.enabled", False, _SWITCH, "Serve MXJobs, with their CRD and the roles for users."),
        Value(
            "flowControl.enabled",
            True,
            _SWITCH,
            "FlowSchemas: a busy API server queues the operator's requests apart from those of other ServiceAccounts.",
        ),
        Value("userRoles.enabled", False, _SWITCH, "The ClusterRoles `kubeflow-training-admin`, `-edit` and `-view`."),
        Value(
            "networkPolicy.enabled",
            False,
            _SWITCH,
            "Allows metrics and probes in, the API server and DNS out, and nothing else.",
        ),
        Value(
            "networkPolicy.apiServerPorts",
            [443, 6443],
            {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}, "minItems": 1},
            "The ports on which the API server itself listens.",
        ),
        Value(
            "secureMetrics.enabled",
            False,
            _SWITCH,
            "Serve the metrics over TLS, and only to clients that may get `/metrics`; the ServiceMonitor then sends Prometheus' token.",
        ),
        Value(
            "monitoring.serviceMonitor",
            False,
            _SWITCH,
            "A ServiceMonitor; needs the CRDs of prometheus-operator.",
        ),
        Value("monitoring.alerts", False, _SWITCH, "A PrometheusRule with alerts; needs the same CRDs."),
        Value("monitoring.dashboards", False, _SWITCH, "Dashboards as ConfigMaps for Grafana's sidecar."),
        Value(
            "monitoring.labels",
            {},
            _TEXTS,
            "More labels of the ServiceMonitor and the PrometheusRule, such as `release`, by which kube-prometheus-stack selects them.",
        ),
    ]  # fmt: skip


def flags() -> dict[str, argparse.Action]:
    """Return the operator's flags that are values, by the name of the value: ``gangSchedulerName``."""
    actions = build_parser()._actions  # noqa: SLF001  # argparse has no other way to list them
    excluded = SET_BY_THE_CHART | {name.replace("-", "_") for name in INERT}
    found: dict[str, argparse.Action] = {}
    for action in actions:
        if action.dest not in excluded and action.default is not argparse.SUPPRESS:
            found.setdefault(_camel(long_option(action)), action)
    return found


def long_option(action: argparse.Action) -> str:
    """Return the name of a flag, without its dashes."""
    return action.option_strings[0].removeprefix("--")


def _camel(flag: str) -> str:
    first, *others = flag.split("-")
    return first + "".join(word.capitalize() for word in others)


def _flag_values() -> Iterator[Value]:
    """Yield the values ``flags.NAME``, none of which has a default: the operator's own applies."""
    for name, action in flags().items():
        yield Value(f"flags.{name}", None, _flag_schema(action), f"`--{long_option(action)}`: {action.help}.")


def is_on_off(action: argparse.Action) -> bool:
    """Whether the flag has the value ``off``."""
    return "off" in _choices(action)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(action.choices or CHOICES.get(action.dest, ()))


def _flag_schema(action: argparse.Action) -> Schema:
    choices = _choices(action)
    if action.dest == "enable_scheme":
        kinds = [kind.resource.kind for kind in ALL]
        return {"type": "array", "items": {"type": "string", "enum": kinds}, "uniqueItems": True}
    if choices:
        return {"enum": [*choices, *(boolean for boolean, text in ON_OFF.items() if text in choices)]}
    if action.type is int:
        return _integer(1)
    if action.type is float:
        return {"type": "number", "minimum": 0}
    if isinstance(action.default, bool):
        return _SWITCH
    return _text()


def _text(pattern: str = "") -> Schema:
    return {"type": "string"} | ({"pattern": f"^{pattern}$"} if pattern else {})


def _integer(minimum: int) -> Schema:
    return {"type": "integer", "minimum": minimum}


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def tree(values: list[Value]) -> dict[str, Any]:
    """Return the defaults as Helm sees them; values without a default are left out."""
    root: dict[str, Any] = {}
    for value in values:
        *parents, name = value.path.split(".")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        if value.default is not None:
            node[name] = value.default
    return root


def schema(values: list[Value]) -> str:
    """Return ``values.schema.json``. A value that is not in the table is refused, so that a typing error has no silent effect."""
    root: Schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_closed(),
        "title": "Values of the chart rallypoint",
    }
    root["properties"]["global"] = {
        "type": "object",
        "description": "Values that Helm gives to every chart; not used here.",
    }
    for value in values:
        *parents, name = value.path.split(".")
        node = root
        for parent in parents:
            node = node["properties"].setdefault(parent, _closed())
        described = value.schema | {"description": value.text}
        node["properties"][name] = (
            described if value.default is None else described | {"default": value.default}
        )
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"  # fmt: skip


def _closed() -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def values_yaml(values: list[Value]) -> str:
    """Return ``values.yaml``: every default with its description; the flags as comments."""
    lines = [
        "# Made by `python -m tools.chart`. README.md has the same values as a table, values.schema.json as a schema.",
        "",
    ]
    section: list[str] = []
    for value in values:
        *parents, name = value.path.split(".")
        if parents and parents != section:
            lines.append(f"{parents[0]}:" + (" {}" if value.default is None else ""))
        section = parents
        indent = "  " * len(parents)
        lines += [f"{indent}# {line}" for line in textwrap.wrap(value.text, 120, break_on_hyphens=False)]
        if value.default is None:
            lines.append(f"{indent}# {name}:")
        else:
            lines += [indent + line for line in _field(name, value.default)]
    return "\n".join(lines) + "\n"


def _field(name: str, default: Any) -> list[str]:
    if isinstance(default, dict | list) and default:
        return yaml.safe_dump(
            {name: default}, sort_keys=False, default_flow_style=None, width=120
        ).splitlines()
    return [f"{name}: {json.dumps(default)}"]


def reference(values: list[Value]) -> str:
    """Return the table of values in Markdown."""
    lines = ["| value | type | default | |", "|---|---|---|---|"]
    for value in values:
        default = "" if value.default is None else f"`{json.dumps(value.default, separators=(', ', ': '))}`"
        text = value.text.replace("|", r"\|")
        lines.append(f"| `{value.path}` | {_type(value.schema)} | {default} | {text} |")
    return "\n".join(lines) + "\n"


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"] if isinstance(choice, str) and choice)
    if schema["type"] == "array":
        return "list of objects" if schema["items"] == _OBJECT else f"list of {_type(schema['items'])}"
    return str(schema["type"])
