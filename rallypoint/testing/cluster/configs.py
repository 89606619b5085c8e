"""Configuration of the programs of a node and of DNS. Pure: documents from a layout."""

import json
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.cluster.layout import DOMAIN, HOST, PAUSE, PODS, NodeLayout

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The values that a kubelet writes for the whole machine. A node sees files with these values, so that it writes nothing."""


def containerd(programs: Path, runc: Path, layout: NodeLayout) -> str:
    """Return TOML. It uses neither AppArmor nor protection from the OOM killer: not every machine has them."""
    return f"""\
version = 3
root = "{layout.folder}/containerd"
state = "/run/containerd"
oom_score = 0

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{programs}"]
conf_dir = "{layout.config}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


def cni(layout: NodeLayout) -> str:
    """Return a CNI configuration of a bridge with addresses for pods; the node's routes lead to other nodes' pods."""
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": layout.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni",
        },
    }
    plugins = [bridge, {"type": "loopback"}]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})


def kubelet(layout: NodeLayout, ca: Path) -> str:
    """Return a configuration as of kubeadm, except for what one machine cannot have twice; images are never collected."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(ca)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "clusterDNS": [HOST],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(layout.config / "resolv.conf"),
            "serializeImagePulls": False,
        }
    )


def kube_proxy(layout: NodeLayout) -> str:
    """Return a configuration that leaves the machine's limits of connection tracking unchanged."""
    conntrack = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(layout.config / "kube-proxy.yaml")},
            "clusterCIDR": PODS,
            "conntrack": conntrack,
            "hostnameOverride": layout.name,
            "mode": "nftables",
        }
    )


def corefile(kubeconfig: Path) -> str:
    """Return a configuration that answers the cluster's names, and NXDOMAIN for all others."""
    listen = f"bind {HOST}\n    errors"
    return f"""\
{DOMAIN}:53 in-addr.arpa:53 {{
    {listen}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
.:53 {{
    {listen}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
