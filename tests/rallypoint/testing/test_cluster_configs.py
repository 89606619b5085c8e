"""What nodes are told: places differ, and nothing is asked of the machine as a whole."""

import json
from pathlib import Path

import yaml

from rallypoint.testing.cluster import configs
from rallypoint.testing.cluster.layout import HOST, PAUSE, NodeLayout

FIRST, SECOND = NodeLayout(1, Path("/nodes/1")), NodeLayout(2, Path("/nodes/2"))


def test_nodes_share_no_address_and_no_link() -> None:
    assert FIRST.address != SECOND.address
    assert FIRST.pods != SECOND.pods
    assert FIRST.link != SECOND.link
    assert len(SECOND.link) < 16  # what Linux takes as the name of a link


def test_pods_get_the_addresses_of_their_node() -> None:
    (bridge, _) = json.loads(configs.cni(SECOND))["plugins"]

    assert bridge["ipam"]["ranges"] == [[{"subnet": SECOND.pods}]]
    assert bridge["ipMasq"] is False


def test_a_kubelet_lets_nobody_in_whom_the_api_server_does_not_know() -> None:
    told = yaml.safe_load(configs.kubelet(FIRST, Path("/pki/ca.crt")))

    assert told["authentication"]["anonymous"] == {"enabled": False}
    assert told["authentication"]["x509"] == {"clientCAFile": "/pki/ca.crt"}
    assert told["authorization"] == {"mode": "Webhook"}
    assert told["clusterDNS"] == [HOST]


def test_the_machines_limits_on_connections_stay_as_they_are() -> None:
    assert yaml.safe_load(configs.kube_proxy(FIRST))["conntrack"]["maxPerCore"] == 0


def test_containerd_keeps_the_image_that_every_pod_needs() -> None:
    told = configs.containerd(Path("/programs"), Path("/bin/runc"), FIRST)

    assert f'sandbox = "{PAUSE}"' in told
    assert 'root = "/nodes/1/containerd"' in told
