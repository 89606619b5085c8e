"""Names in the pod network: which resolve, and which are replaced by addresses."""

from typing import Any

import pytest

from rallypoint.local.node.network.addresses import LAST, Addresses, NoAddresses
from rallypoint.local.node.network.dns import PodNetwork

LABELS = {"job": "job", "index": "0"}


@pytest.fixture
def network() -> PodNetwork:
    return PodNetwork(Addresses("127.9"))


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


def add(network: PodNetwork, *pods: dict[str, Any]) -> None:
    for new_pod in pods:
        network.put_pod(new_pod)


@pytest.mark.parametrize("word", ["svc", "svc.default", "svc.default.svc", "svc.default.svc.cluster.local"])
def test_a_service_resolves_to_its_ready_pods(network: PodNetwork, word: str) -> None:
    network.put_service(service("svc"))
    add(network, pod("job-master-0"))

    assert network.resolve("default", word) == ["127.9.1.77"]


def test_a_pod_that_is_not_ready_does_not_resolve(network: PodNetwork) -> None:
    network.put_service(service("svc"))
    network.put_service(service("early", publishNotReadyAddresses=True))
    add(network, pod("job-master-0", ready=False))

    assert network.resolve("default", "svc") == []
    assert network.resolve("default", "early") == ["127.9.1.77"]


@pytest.mark.parametrize(
    ("changes", "plainly", "early"),
    [
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False, True, id="it is to go"
        ),
        pytest.param({"status": {"phase": "Failed"}}, False, False, id="it is over"),
        pytest.param({"status": {"podIP": ""}}, False, False, id="it has no address"),
    ],
)
def test_a_terminating_or_finished_pod_does_not_resolve(
    network: PodNetwork, changes: dict[str, dict[str, Any]], plainly: bool, early: bool
) -> None:
    network.put_service(service("svc"))
    network.put_service(service("early", publishNotReadyAddresses=True))
    left = pod("job-master-0")
    add(network, left | {part: left[part] | change for part, change in changes.items()})

    assert bool(network.resolve("default", "svc")) is plainly
    assert bool(network.resolve("default", "early")) is early


@pytest.mark.parametrize(
    ("spec", "resolves"),
    [
        pytest.param({}, False, id="a name alone"),
        pytest.param({"hostname": "h", "subdomain": "sub"}, True, id="a hostname below its Service"),
        pytest.param({"subdomain": "sub"}, False, id="no hostname"),
        pytest.param({"hostname": "h", "subdomain": "other"}, False, id="no such Service"),
        pytest.param(
            {"hostname": "h", "subdomain": "nobodys"}, False, id="a Service that does not select it"
        ),
    ],
)
def test_a_pods_own_name(network: PodNetwork, spec: dict[str, Any], resolves: bool) -> None:
    network.put_service(service("sub"))
    network.put_service(service("nobodys", selector={"job": "other"}))
    add(network, pod("job-master-0", **spec))
    name = f"h.{spec.get('subdomain', '')}".rstrip(".")

    assert network.resolve("default", "job-master-0") == []
    assert network.resolve("default", name) == (["127.9.1.77"] if resolves else [])
    assert network.records().get(("default", name), []) == (["127.9.1.77"] if resolves else [])


def test_a_pods_own_name_waits_until_it_is_ready_unless_the_service_does_not(network: PodNetwork) -> None:
    add(network, pod("job-master-0", ready=False, hostname="h", subdomain="sub"))
    network.put_service(service("sub"))
    assert network.resolve("default", "h.sub") == []
    network.put_service(service("sub", publishNotReadyAddresses=True))

    assert network.resolve("default", "h.sub") == ["127.9.1.77"]


def test_a_sibling_has_an_address_before_it_exists(network: PodNetwork) -> None:
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
def test_other_names_have_no_address(network: PodNetwork, word: str) -> None:
    assert network.address_of(pod("job-worker-0"), word) is None


def test_services_and_other_jobs_pods_have_addresses_once_they_exist(network: PodNetwork) -> None:
    other = pod("other-master-0", owner="other")
    add(network, other)
    network.put_service(service("store"))
    me = pod("job-worker-0")

    assert network.address_of(me, "other-master-0") == network.address_of(me, "store") is not None


def test_two_nodes_have_two_networks() -> None:
    first, second = Addresses.claim(), Addresses.claim()
    try:
        assert first.node.split(".")[1] != second.node.split(".")[1]
    finally:
        first.close()
        second.close()


def test_addresses_are_distinct_and_stable() -> None:
    addresses = Addresses("127.9")
    given = [addresses.of("default", f"p{i}") for i in range(600)]

    assert len({*given, addresses.node}) == 601
    assert addresses.of("default", "p0") == given[0]
    assert addresses.of("other", "p0") not in given
    assert not any(address.endswith((".0", ".255")) for address in given)


def test_released_addresses_are_reused_when_no_new_address_is_left() -> None:
    """The address that was released first is reused first; a name that comes back keeps its address."""
    addresses = Addresses("10.244")
    given = [addresses.of("default", f"p{i}") for i in range(LAST - 256)]
    with pytest.raises(NoAddresses):
        addresses.of("default", "more")
    for name in ("p1", "p2", "p3"):
        addresses.release("default", name)

    assert addresses.of("default", "p1") == given[1]
    assert addresses.of("default", "more") == given[2]
    assert addresses.of("default", "p2") == given[3]


def test_records_contain_the_resolvable_names(network: PodNetwork) -> None:
    network.put_service(service("sub"))
    network.put_service(service("nobodys", selector={"job": "other"}))
    named: dict[str, Any] = {"hostname": "c", "subdomain": "sub"}
    add(network, pod("job-master-0", **named), pod("b", ready=False), pod("c", namespace="other", **named))

    assert network.records() == {
        ("default", "sub"): ["127.9.1.77"],
        ("default", "nobodys"): [],
        ("default", "c.sub"): ["127.9.1.77"],
        ("other", "c.sub"): [],
    }


def test_a_pod_that_changed_its_labels_or_went_is_no_longer_selected(network: PodNetwork) -> None:
    network.put_service(service("svc"))
    moved, gone = pod("moved"), pod("gone")
    add(network, moved, gone)
    add(network, {**moved, "metadata": {**moved["metadata"], "labels": {"job": "job"}}})
    network.drop_pod(("default", "gone"))

    assert network.resolve("default", "svc") == []


def test_listeners_are_notified_of_every_change(network: PodNetwork) -> None:
    heard: list[str] = []
    network.listen(lambda: heard.append("change"))
    add(network, pod("a"))
    network.put_service(service("svc"))
    network.drop_service(("default", "svc"))
    network.drop_pod(("default", "a"))

    assert len(heard) == 4


def test_pods_of_old_mpi_jobs_resolve_by_their_host_names(network: PodNetwork) -> None:
    manifest = pod("job-launcher-x", hostname="job-launcher")
    manifest["metadata"]["labels"] = {"mpi_job_name": "job"}
    add(network, manifest)

    assert network.resolve("default", "job-launcher") == ["127.9.1.77"]
    network.drop_pod(("default", "job-launcher-x"))
    assert network.resolve("default", "job-launcher") == []


def test_siblings_are_recognized_by_the_job_label(network: PodNetwork) -> None:
    """A batch Job owns the launcher, and the job itself owns its siblings."""
    launcher = pod("pi-launcher-x", owner="pi-launcher")
    launcher["metadata"]["labels"] = {"training.kubeflow.org/job-name": "pi"}
    address = network.address_of(launcher, "pi-worker-0.pi.default.svc")

    assert address is not None
    assert network.is_sibling(launcher, address)
    assert network.address_of(pod("pi-worker-1", owner="pi"), "pi-worker-0") == address
