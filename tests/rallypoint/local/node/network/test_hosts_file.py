"""The names in ``/etc/hosts``: the same as in cluster DNS, and updated in place."""

import asyncio
from pathlib import Path
from typing import Any

from rallypoint.local.node.network.addresses import Addresses
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.network.hosts_file import LOCALHOST, Hosts, records_text


def pod(name: str, address: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [], **spec},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": {"app": name}}}


def test_a_short_name_is_known_in_its_own_namespace_alone() -> None:
    records = {("ns", "a"): ["10.0.0.1"], ("other", "b"): ["10.0.0.2", "10.0.0.3"], ("ns", "none"): []}

    assert records_text(records, "ns").splitlines() == [
        "10.0.0.1\ta.ns.svc.cluster.local a.ns.svc a.ns a",
        "10.0.0.2\tb.other.svc.cluster.local b.other.svc b.other",
        "10.0.0.3\tb.other.svc.cluster.local b.other.svc b.other",
        "::ffff:10.0.0.1\t10-0-0-1.ns.pod.cluster.local",
        "::ffff:10.0.0.2\t10-0-0-2.other.pod.cluster.local",
        "::ffff:10.0.0.3\t10-0-0-3.other.pod.cluster.local",
    ]


def test_an_address_has_one_mapped_form() -> None:
    records = {("ns", "a"): ["10.0.0.1"], ("ns", "also-a"): ["10.0.0.1"]}

    assert records_text(records, "ns").count("::ffff:10.0.0.1\t10-0-0-1.ns.pod.cluster.local\n") == 1


async def test_a_pod_resolves_its_own_name_first(tmp_path: Path) -> None:
    hosts = Hosts(PodNetwork(Addresses("10.0")))
    hosts.add(pod("a", ""), "10.0.0.1", tmp_path / "a")
    hosts.add(pod("b", "", hostname="h", subdomain="s"), "10.0.0.2", tmp_path / "b")

    assert (tmp_path / "a").read_text() == f"{LOCALHOST}10.0.0.1\ta\n"
    assert (tmp_path / "b").read_text() == f"{LOCALHOST}10.0.0.2\th.s.ns.svc.cluster.local h\n"


async def test_files_are_updated_in_place(tmp_path: Path) -> None:
    """Also when the text becomes shorter."""
    network = PodNetwork(Addresses("10.0"))
    hosts, file = Hosts(network), tmp_path / "a"
    hosts.add(pod("a", ""), "10.0.0.1", file)
    before, inode = file.read_text(), file.stat().st_ino
    network.put_service(service("b"))
    network.put_pod(pod("b", "10.0.0.2"))
    await asyncio.sleep(1)
    there = file.read_text()
    network.drop_pod(("ns", "b"))
    await asyncio.sleep(1)

    assert there == before + "10.0.0.2\tb.ns.svc.cluster.local b.ns.svc b.ns b\n" + (
        "::ffff:10.0.0.2\t10-0-0-2.ns.pod.cluster.local\n"
    )
    assert (file.read_text(), file.stat().st_ino) == (before, inode)


async def test_a_starting_pod_sees_all_known_names(tmp_path: Path) -> None:
    network = PodNetwork(Addresses("10.0"))
    hosts, file = Hosts(network), tmp_path / "a"
    hosts.add(pod("a", ""), "10.0.0.1", file)
    network.put_service(service("b"))
    network.put_pod(pod("b", "10.0.0.2"))
    hosts.refresh(pod("a", ""))

    assert "10.0.0.2\tb." in file.read_text()
    hosts.close()


async def test_the_file_of_a_deleted_pod_is_removed(tmp_path: Path) -> None:
    network = PodNetwork(Addresses("10.0"))
    hosts, file = Hosts(network), tmp_path / "a"
    hosts.add(pod("a", ""), "10.0.0.1", file)
    hosts.drop(pod("a", ""))
    file.unlink()
    network.put_service(service("b"))
    hosts.refresh(pod("a", ""))
    await asyncio.sleep(1)

    assert not file.exists()


def test_a_search_domain_shortens_names() -> None:
    records = {("ns", "l.job"): ["10.0.0.1"], ("ns", "l.other"): ["10.0.0.2"]}

    assert records_text(records, "ns", ["job.ns.svc.cluster.local"]).splitlines()[:2] == [
        "10.0.0.1\tl.job.ns.svc.cluster.local l.job.ns.svc l.job.ns l.job l",
        "10.0.0.2\tl.other.ns.svc.cluster.local l.other.ns.svc l.other.ns l.other",
    ]
