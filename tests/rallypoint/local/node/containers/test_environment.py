"""A container's variables, ``$(NAME)`` references and the variables of Services: the kubelet's rules, case by case."""

from fractions import Fraction
from typing import Any

import pytest

from rallypoint.local.node.containers.environment import expand, references, service_links, skipped, variables
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.references import Reference, Unresolved

PLACEMENT = Placement("local", "127.9.0.1", "127.9.1.3", {"cpu": Fraction(8), "memory": Fraction(2**33)})
POD: dict[str, Any] = {
    "metadata": {
        "name": "job-worker-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"app": "x"},
        "annotations": {"note/a": "y"},
    },
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}]},
}
SOURCES: dict[Reference, dict[str, str] | None] = {
    Reference("configMap", "settings"): {"LR": "0.1", "EPOCHS": "3"},
    Reference("secret", "token"): {"key": "s3cret"},
    Reference("configMap", "absent"): None,
}

VARIABLES = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "$(A)"}

PORTS = [{"port": 80, "name": "http"}, {"port": 53, "name": "dns-udp", "protocol": "UDP"}]


def values(*env: dict[str, Any], env_from: list[dict[str, Any]] | None = None) -> dict[str, str]:
    container = {**POD["spec"]["containers"][0], "env": list(env), "envFrom": env_from or []}
    return {name: variable.value for name, variable in variables(POD, container, PLACEMENT, SOURCES).items()}


def from_(**source: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": source}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param([{"name": "A", "value": "1"}], {"A": "1"}, id="a value"),
        pytest.param([{"name": "A"}], {"A": ""}, id="a name alone is empty"),
        pytest.param(
            [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}],
            {"A": "1", "B": "12"},
            id="an earlier one",
        ),
        pytest.param(
            [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}],
            {"A": "1", "B": "$(A)"},
            id="a later one",
        ),
        pytest.param(
            [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            {"A": "2"},
            id="the last of a name wins",
        ),
        pytest.param([{"name": "A", "value": "$$(B)"}], {"A": "$(B)"}, id="an escape"),
    ],
)
def test_values(env: list[dict[str, Any]], expected: dict[str, str]) -> None:
    assert values(*env) == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "job-worker-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note/a']", "y"),
        ("spec.nodeName", "local"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.9.1.3"),
        ("status.podIPs", "127.9.1.3"),
        ("status.hostIP", "127.9.0.1"),
    ],
)
def test_field_references(path: str, value: str) -> None:
    assert values(from_(fieldRef={"fieldPath": path})) == {"X": value}


@pytest.mark.parametrize(
    ("chosen", "value"),
    [
        pytest.param({"resource": "limits.cpu"}, "2", id="cores are rounded up"),
        pytest.param({"resource": "limits.cpu", "divisor": "1m"}, "1500", id="in millicores"),
        pytest.param(
            {"resource": "requests.memory", "divisor": "1Mi"}, "1024", id="a request is the limit if unset"
        ),
        pytest.param({"resource": "limits.memory", "containerName": "main"}, str(2**30), id="of a container"),
    ],
)
def test_resource_references(chosen: dict[str, Any], value: str) -> None:
    assert values(from_(resourceFieldRef=chosen)) == {"X": value}


def test_an_unset_limit_is_the_capacity_of_the_node() -> None:
    bare = {"name": "main", "env": [from_(resourceFieldRef={"resource": "limits.cpu"})]}

    assert variables(POD, bare, PLACEMENT, SOURCES)["X"].value == "8"


def test_keys_of_objects() -> None:
    env = [
        {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LR"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k", "optional": True}}},
    ]

    assert values(*env) == {"LR": "0.1", "KEY": "s3cret"}


def test_whole_objects_come_first_and_can_be_referred_to() -> None:
    found = values(
        {"name": "P_LR", "value": "mine"},
        {"name": "TEXT", "value": "$(P_EPOCHS) epochs"},
        env_from=[{"prefix": "P_", "configMapRef": {"name": "settings"}}],
    )

    assert found == {"P_LR": "mine", "P_EPOCHS": "3", "TEXT": "3 epochs"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param(
            {"configMapKeyRef": {"name": "absent", "key": "k"}},
            'configmap "absent" not found',
            id="no such object",
        ),
        pytest.param(
            {"secretKeyRef": {"name": "token", "key": "k"}},
            "couldn't find key k in Secret team/token",
            id="no such key",
        ),
        pytest.param(
            {"fieldRef": {"fieldPath": "spec.x"}}, "unsupported fieldPath: spec.x", id="no such field"
        ),
        pytest.param(
            {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "z"}},
            "container z not found",
            id="no such container",
        ),
    ],
)
def test_an_unresolved_reference_is_named(source: dict[str, Any], words: str) -> None:
    with pytest.raises(Unresolved) as raised:
        values(from_(**source))

    assert str(raised.value) == words


def test_references_name_every_object() -> None:
    container = {
        "name": "main",
        "envFrom": [{"secretRef": {"name": "s"}}],
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
    }

    assert set(references(container)) == {Reference("secret", "s"), Reference("configMap", "c")}


def test_values_from_the_manifest_are_marked() -> None:
    """Isolation replaces names in values from the manifest, but not in values from the downward API."""
    env = [
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "A", "value": "a"},
    ]
    found = variables(POD, {"name": "main", "env": env}, PLACEMENT, SOURCES)

    assert (found["ME"].written, found["A"].written) == (False, True)


def test_invalid_keys_are_skipped_and_reported() -> None:
    sources = {Reference("configMap", "odd"): {"1st": "1", "ok.key": "2", "..": "3"}}
    container = {"name": "main", "envFrom": [{"configMapRef": {"name": "odd"}}]}

    assert list(variables(POD, container, PLACEMENT, sources)) == ["ok.key"]
    (message,) = skipped(POD, container, sources)
    assert message.startswith("Keys [.., 1st] from the EnvFrom configMap team/odd were skipped since")


def test_a_prefix_makes_a_name() -> None:
    sources = {Reference("secret", "odd"): {"1st": "1"}}
    container = {"name": "main", "envFrom": [{"prefix": "_", "secretRef": {"name": "odd"}}]}

    assert variables(POD, container, PLACEMENT, sources)["_1st"].value == "1"
    assert list(skipped(POD, container, sources)) == []


def test_services_can_be_referred_to_and_give_way() -> None:
    env = [{"name": "URL", "value": "http://$(DB_SERVICE_HOST)"}, {"name": "DB_PORT", "value": "mine"}]
    links = {"DB_SERVICE_HOST": "10.0.0.7", "DB_PORT": "tcp://10.0.0.7:5"}
    found = variables(POD, {"name": "main", "env": env}, PLACEMENT, {}, links)

    assert {name: variable.value for name, variable in found.items()} == {
        "DB_SERVICE_HOST": "10.0.0.7",
        "DB_PORT": "mine",
        "URL": "http://10.0.0.7",
    }
    assert not found["DB_SERVICE_HOST"].written


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        pytest.param("$(A)", "one", id="a name"),
        pytest.param("$(A)-$(B)", "one-two", id="two names"),
        pytest.param("x$(EMPTY)y", "xy", id="an empty value"),
        pytest.param("$(UNKNOWN)", "$(UNKNOWN)", id="an unknown name stays"),
        pytest.param("$$(A)", "$(A)", id="two dollars escape"),
        pytest.param("$$$(A)", "$one", id="an escaped dollar before a name"),
        pytest.param("$$", "$", id="two dollars are one"),
        pytest.param("$A ${A}", "$A ${A}", id="a shell's own syntax is left to the shell"),
        pytest.param("$(A", "$(A", id="an open reference stays"),
        pytest.param("100$", "100$", id="a dollar at the end"),
        pytest.param("$(NESTED)", "$(A)", id="a value is not expanded again"),
    ],
)
def test_expand(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


def service(
    name: str = "my-db", namespace: str = "team", address: str = "10.0.0.7", **spec: Any
) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"metadata": meta, "spec": {"clusterIP": address, "ports": PORTS, **spec}}


def links(*services: dict[str, Any], **spec: Any) -> dict[str, str]:
    return service_links({"metadata": {"namespace": "team"}, "spec": spec}, services)


def test_address_and_ports_have_both_forms() -> None:
    assert links(service()) == {
        "MY_DB_SERVICE_HOST": "10.0.0.7",
        "MY_DB_SERVICE_PORT": "80",
        "MY_DB_SERVICE_PORT_HTTP": "80",
        "MY_DB_SERVICE_PORT_DNS_UDP": "53",
        "MY_DB_PORT": "tcp://10.0.0.7:80",
        "MY_DB_PORT_80_TCP": "tcp://10.0.0.7:80",
        "MY_DB_PORT_80_TCP_PROTO": "tcp",
        "MY_DB_PORT_80_TCP_PORT": "80",
        "MY_DB_PORT_80_TCP_ADDR": "10.0.0.7",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.7",
    }


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        pytest.param(service(address="None"), {}, id="a headless one"),
        pytest.param(service(address=""), {}, id="one without an address"),
        pytest.param(service(namespace="other"), {}, id="one of another namespace"),
        pytest.param(service(), {"enableServiceLinks": False}, id="not wanted"),
    ],
)
def test_none(given: dict[str, Any], spec: dict[str, Any]) -> None:
    assert links(given, **spec) == {}
