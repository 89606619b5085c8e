"""The command lines of the control plane's programs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.controlplane.certificates import Pair

TEST_CONTROLLERS = (
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "ttl-after-finished-controller",
)
"""The controllers of a cluster that tests of an operator rely on. None of them moves pods."""

LOOPBACK = "127.0.0.1"
SERVICES = "10.0.0.0/16"
"""The address range of Services; nothing routes it without real nodes."""
KUBERNETES_SERVICE = "10.0.0.1"
"""The API server's own Service address."""
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The API server's name as a client of kubelets."""

STAGES = Path(__file__).with_name("stages.yaml")
"""The default stages of simulated nodes and pods."""
KWOK = Path(__file__).with_name("kwok.yaml")
"""The configuration of kwok."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that the programs read: see ``ControlPlane`` for their folder."""

    ca: Path
    serving: Pair
    etcd_client: Pair
    kubelet_client: Pair
    token_key: Path
    tokens: Path


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit policy (``audit.k8s.io/v1``, YAML) and the path of the log."""

    policy: Path
    log: Path


def etcd(program: Path, data: Path, files: Files, port: int, peer_port: int) -> list[str | Path]:
    """Omit fsync: the data ends with the process, and fsync would set the pace."""
    url, peer = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        program,
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--socket-reuse-port",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={files.serving.certificate}",
        f"--key-file={files.serving.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={files.ca}",
    ]


def kube_apiserver(
    program: Path,
    files: Files,
    address: str,
    port: int,
    etcd_port: int,
    *,
    audit: Audit | None,
    disabled_admission_plugins: Sequence[str],
    extra: Sequence[str],
) -> list[str | Path]:
    """Serve on one address, authenticate users by token and authorize each request by RBAC."""
    # A loopback address is no valid endpoint of the Service ``kubernetes``; pods reach the server through any other.
    reconciler = "none" if address == LOOPBACK else "master-count"
    flags: list[str | Path] = [
        program,
        f"--etcd-servers=https://127.0.0.1:{etcd_port}",
        f"--etcd-cafile={files.ca}",
        f"--etcd-certfile={files.etcd_client.certificate}",
        f"--etcd-keyfile={files.etcd_client.key}",
        f"--bind-address={address}",
        f"--advertise-address={address}",  # else it looks for one, and ends where there is no network
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={files.serving.certificate}",
        f"--tls-private-key-file={files.serving.key}",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.token_key}",
        f"--service-account-signing-key-file={files.token_key}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        f"--endpoint-reconciler-type={reconciler}",
    ]
    if disabled_admission_plugins:
        flags.append(f"--disable-admission-plugins={','.join(disabled_admission_plugins)}")
    if audit:
        flags += [
            f"--audit-policy-file={audit.policy}",
            f"--audit-log-path={audit.log}",
            "--audit-log-maxsize=0",  # a rotated log would hide its beginning from whoever reads along
        ]
    return [*flags, *extra]


def kube_controller_manager(
    program: Path, kubeconfig: Path, files: Files, controllers: Sequence[str], extra: Sequence[str] = ()
) -> list[str | Path]:
    """Run the named controllers alone, without the client-side limit that would set the pace of a test."""
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={files.token_key}",
        f"--root-ca-file={files.ca}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *extra,
    ]


def kube_scheduler(program: Path, kubeconfig: Path, extra: Sequence[str] = ()) -> list[str | Path]:
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *extra,
    ]


def kwok(program: Path, kubeconfig: Path, stages: Path | None) -> list[str | Path]:
    """Simulate the kubelet of every node by the stages."""
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--config={KWOK}",
        f"--config={stages or STAGES}",
        "--manage-nodes-with-label-selector=type=kwok",
        "--cidr=10.128.0.0/9",
    ]
