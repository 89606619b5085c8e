"""The programs of the control plane and of a node, their versions and Go modules."""

from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.36.3"
OLDEST_KUBERNETES = "1.29.15"
"""The last release of the oldest minor version that ``docs/reference/versions.md`` promises."""
NEWEST_KUBERNETES = "1.37.2"
"""A release newer than that of all tests, which are yet to follow it, and the one whose pod templates the definitions contain;
``make test-newest`` runs on it."""
ETCD = "3.6.16"
KWOK = "0.8.0"
CONTAINERD = "2.4.2"
CNI_PLUGINS = "1.9.1"
COREDNS = "1.15.0"
TRAINING_OPERATOR = "1.9.4"
MPI_OPERATOR = "0.8.2"
KUBE_STATE_METRICS = "2.15.0"
HELM = "4.3.1"
ACTIONLINT = "1.7.12"


class Unavailable(RuntimeError):
    """A program is neither installed nor available; the message says what was tried and what would help."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: ``package`` is its main package, inside ``module`` at ``version``, or ``source`` is, and uses that.

    ``tags`` are Go's build tags, with commas between them. ``replacements`` name versions of modules in Go's words
    (``path=path@version``), where those that the module names itself cannot be fetched.
    """

    name: str
    module: str
    version: str
    package: str
    ldflags: str = "-s -w"
    tags: str = ""
    source: Path | None = None
    replacements: tuple[str, ...] = ()


def kubernetes(name: str, version: str = KUBERNETES) -> Program:
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    ldflags = (
        f"-s -w -X {stamp}.gitVersion=v{version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
    return Program(name, "k8s.io/kubernetes", f"v{version}", f"k8s.io/kubernetes/cmd/{name}", ldflags)


def _containerd(name: str) -> Program:
    """Return a program of containerd, without the snapshotters of other file systems than overlay."""
    module = "github.com/containerd/containerd/v2"
    return Program(name, module, f"v{CONTAINERD}", f"{module}/cmd/{name}", tags=_OVERLAY_ONLY)


def _kubeflow(name: str, version: str, command: str) -> Program:
    """Return one of the Go operators that Rallypoint replaces."""
    module = f"github.com/kubeflow/{name}"
    return Program(name, module, f"v{version}", f"{module}/cmd/{command}")


def _cni(name: str, plugin_type: str) -> Program:
    module = "github.com/containernetworking/plugins"
    return Program(name, module, f"v{CNI_PLUGINS}", f"{module}/plugins/{plugin_type}/{name}")


def _kube_state_metrics() -> Program:
    module = "k8s.io/kube-state-metrics/v2"
    return Program("kube-state-metrics", module, f"v{KUBE_STATE_METRICS}", module)


def _helm() -> Program:
    module = "helm.sh/helm/v4"
    return Program(
        "helm",
        module,
        f"v{HELM}",
        f"{module}/cmd/helm",
        f"-s -w -X {module}/internal/version.version=v{HELM}",
    )


def _actionlint() -> Program:
    module = "github.com/rhysd/actionlint"
    return Program("actionlint", module, f"v{ACTIONLINT}", f"{module}/cmd/actionlint")


_OVERLAY_ONLY = "no_btrfs,no_devmapper,no_zfs,no_erofs,no_tracing"
_COREDNS = Path(__file__).with_name("coredns.go")

PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "go.etcd.io/etcd/server/v3", f"v{ETCD}", "go.etcd.io/etcd/server/v3"),
        kubernetes("kube-apiserver"),
        kubernetes("kube-controller-manager"),
        Program("kwok", "sigs.k8s.io/kwok", f"v{KWOK}", "sigs.k8s.io/kwok/cmd/kwok"),
        kubernetes("kube-scheduler"),
        kubernetes("kubectl"),
        kubernetes("kubelet"),
        kubernetes("kube-proxy"),
        _containerd("containerd"),
        _containerd("containerd-shim-runc-v2"),
        _containerd("ctr"),
        _cni("bridge", "main"),
        _cni("loopback", "main"),
        _cni("host-local", "ipam"),
        Program("coredns", "github.com/coredns/coredns", f"v{COREDNS}", "./coredns", source=_COREDNS),
        _kubeflow("training-operator", TRAINING_OPERATOR, "training-operator.v1"),
        _kubeflow("mpi-operator", MPI_OPERATOR, "mpi-operator"),
        _kube_state_metrics(),
        _helm(),
        _actionlint(),
    )
}

USUAL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")
"""The programs of the tests and benchmarks; the others are fetched on demand."""

SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""The programs that make a control plane of a version; the others fit any version."""

NODE = (
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "bridge",
    "loopback",
    "host-local",
    "coredns",
)
"""The programs of real nodes, beside those of the system's packages; one CoreDNS serves all nodes."""
