"""Configuration files of nodes: paths and addresses differ, and nothing changes the whole machine."""

import json
from pathlib import Path

import yaml

from rallypoint.testing.cluster import configs
from rallypoint.testing.cluster.layout import HOST, PAUSE, NodeLayout

FIRST, SECOND = NodeLayout(1, Path("/nodes/1")), NodeLayout(2, Path("/nodes/2"))


def test_nodes_have_different_addresses_and_links() -> None:
    assert FIRST.address != SECOND.address
    assert FIRST.pods != SECOND.pods
    assert FIRST.link != SECOND.link
    assert len(SECOND.link) < 16  # what Linux takes as the name of a link


def test_pods_get_the_addresses_of_their_node() -> None:
    (bridge, _) = json.loads(configs.cni(SECOND))["plugins"]

    assert bridge["ipam"]["ranges"] == [[{"subnet": SECOND.pods}]]
    assert bridge["ipMasq"] is False


def test_a_kubelet_rejects_anonymous_requests() -> None:
    config = yaml.safe_load(configs.kubelet(FIRST, Path("/pki/ca.crt")))

    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authentication"]["x509"] == {"clientCAFile": "/pki/ca.crt"}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["clusterDNS"] == [HOST]


def test_kube_proxy_does_not_change_the_conntrack_limits() -> None:
    assert yaml.safe_load(configs.kube_proxy(FIRST))["conntrack"]["maxPerCore"] == 0


def test_containerd_pins_the_pause_image() -> None:
    config = configs.containerd(Path("/programs"), Path("/bin/runc"), FIRST)

    assert f'sandbox = "{PAUSE}"' in config
    assert 'root = "/nodes/1/containerd"' in config
