"""Names in the pod network: what resolves, and what is written in a name's place."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from controller.local.node.addresses import Addresses
from controller.local.node.network import Network

LABELS = {"job": "job", "index": "0"}


@pytest.fixture
def network() -> Iterator[Network]:
    addresses = Addresses(9, socket.socket())
    yield Network(addresses)
    addresses.close()


def pod(
    name: str, *, ready: bool = True, owner: str = "job", namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "labels": LABELS,
            "ownerReferences": [{"name": owner, "uid": owner, "controller": True}],
        },
        "spec": {"containers": [], **spec},
        "status": {
            "podIP": "127.9.1.77",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": LABELS, **spec}}


def add(network: Network, *pods: dict[str, Any]) -> None:
    network.pods.update({(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in pods})


@pytest.mark.parametrize("word", ["svc", "svc.default", "svc.default.svc", "svc.default.svc.cluster.local"])
def test_a_service_resolves_to_its_ready_pods(network: Network, word: str) -> None:
    network.services["default", "svc"] = service("svc")
    add(network, pod("job-master-0"))

    assert network.resolve("default", word) == ["127.9.1.77"]


def test_a_pod_that_is_not_ready_does_not_resolve(network: Network) -> None:
    network.services["default", "svc"] = service("svc")
    network.services["default", "early"] = service("early", publishNotReadyAddresses=True)
    add(network, pod("job-master-0", ready=False))

    assert network.resolve("default", "svc") == []
    assert network.resolve("default", "early") == ["127.9.1.77"]


def test_a_pods_name_alone_does_not_resolve(network: Network) -> None:
    """As in a cluster: a name needs a Service, or a subdomain."""
    add(network, pod("job-master-0"), pod("job-worker-0", subdomain="job"))

    assert network.resolve("default", "job-master-0") == []
    assert network.resolve("default", "job-worker-0.job") == ["127.9.1.77"]


def test_a_sibling_has_an_address_before_it_exists(network: Network) -> None:
    me = pod("job-worker-0")
    early = network.address_of(me, "job-master-0")
    add(network, pod("job-master-0"))

    assert early is not None
    assert network.address_of(me, "job-master-0") == early


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("job", id="the job itself"),
        pytest.param("job-data", id="another name"),
        pytest.param("job-train-0", id="a number that is no role's"),
        pytest.param("other-master-0", id="another job's, before it exists"),
        pytest.param("python3.11", id="a word with a dot"),
        pytest.param("localhost", id="localhost"),
    ],
)
def test_other_words_have_no_address(network: Network, word: str) -> None:
    assert network.address_of(pod("job-worker-0"), word) is None


def test_services_and_other_jobs_pods_have_addresses_once_they_exist(network: Network) -> None:
    other = pod("other-master-0", owner="other")
    add(network, other)
    network.services["default", "store"] = service("store")
    me = pod("job-worker-0")

    assert network.address_of(me, "other-master-0") == network.address_of(me, "store") is not None


def test_two_nodes_have_two_networks() -> None:
    one, two = Addresses.claim(), Addresses.claim()
    try:
        assert one.node.split(".")[1] != two.node.split(".")[1]
    finally:
        one.close()
        two.close()


def test_addresses_are_distinct_and_kept() -> None:
    addresses = Addresses(9, socket.socket())
    given = [addresses.of("default", f"p{i}") for i in range(600)]

    assert len({*given, addresses.node}) == 601
    assert addresses.of("default", "p0") == given[0]
    assert addresses.of("other", "p0") not in given
    assert not any(address.endswith((".0", ".255")) for address in given)
    addresses.close()
