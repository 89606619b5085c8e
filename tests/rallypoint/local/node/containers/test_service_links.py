"""What variables say of Services."""

from typing import Any

import pytest

from rallypoint.local.node.containers.service_links import service_links

PORTS = [{"port": 80, "name": "http"}, {"port": 53, "name": "dns-udp", "protocol": "UDP"}]


def service(
    name: str = "my-db", namespace: str = "team", address: str = "10.0.0.7", **spec: Any
) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"metadata": meta, "spec": {"clusterIP": address, "ports": PORTS, **spec}}


def links(*services: dict[str, Any], **spec: Any) -> dict[str, str]:
    return service_links({"metadata": {"namespace": "team"}, "spec": spec}, services)


def test_address_and_ports_in_both_forms() -> None:
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
