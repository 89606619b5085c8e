"""Which programs make up the control plane, in which versions, and from which Go module each is compiled."""

from dataclasses import dataclass

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
KWOK = "0.8.0"

STAGING = f"0.{KUBERNETES.partition('.')[2]}"
"""Version of the k8s.io libraries that are released together with Kubernetes."""


class Unavailable(RuntimeError):
    """A program is neither installed nor to be had; the message says what was tried and what would help."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: ``package`` is its main package, inside ``module`` at ``version``."""

    name: str
    module: str
    version: str
    package: str
    ldflags: str = "-s -w"


def _kubernetes(name: str) -> Program:
    major, minor, _ = KUBERNETES.split(".")
    stamp = "k8s.io/component-base/version"
    ldflags = (
        f"-s -w -X {stamp}.gitVersion=v{KUBERNETES} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
    return Program(name, "k8s.io/kubernetes", f"v{KUBERNETES}", f"k8s.io/kubernetes/cmd/{name}", ldflags)


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "go.etcd.io/etcd/server/v3", f"v{ETCD}", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        Program("kwok", "sigs.k8s.io/kwok", f"v{KWOK}", "sigs.k8s.io/kwok/cmd/kwok"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubectl"),
    )
}

USUAL = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kubectl")
"""What the tests and the benchmarks run; the others are fetched when somebody names them."""
