"""Every knob of the service that all kinds share: what it is, its unit, its default, and why that default. ``command`` makes flags of them.

Source of the flags: training-operator 1.9, cmd/training-operator.v1/main.go.
"""

import re
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

_NAMESPACE = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""A label as of RFC 1123."""
_LEASE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A subdomain as of RFC 1123."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One instance for the life of the process."""

    kubeconfig: str = ""
    """A kubeconfig file; empty is $KUBECONFIG, or the cluster around this process. Flag ``--kubeconfig``."""

    namespace: str = ""
    """Serve this namespace only; empty is all. Flag ``--namespace``, or $KUBEFLOW_NAMESPACE."""

    enable_scheme: tuple[str, ...] = ()
    """Kinds to serve, without regard to case; empty is all. Flag ``--enable-scheme``, repeatable."""

    controller_threads: int = 16
    """Jobs of one kind that are worked on at once. Flag ``--controller-threads``.

    Differs: training-operator's default is 1, which makes each job wait for all others; a pass here waits for the API server most of
    the time, so more cost nothing. See docs/decisions/0009-flags.md.
    """

    kube_api_qps: float = 0.0
    """Requests per second to the API server, averaged; 0 is no limit. Flag ``--kube-api-qps``.

    Differs: training-operator limits itself to 20, which is what makes large jobs start slowly; here the API server's own flow control
    and the cap on requests in flight decide. See docs/decisions/0009-flags.md.
    """

    kube_api_burst: int = 30
    """Requests that may go at once above ``kube_api_qps``. Flag ``--kube-api-burst``."""

    kube_api_in_flight: int = 32
    """Requests to the API server at once, watches not counted. Flag ``--kube-api-in-flight``.

    32 keep a loopback API server busy; more only wait in its queues.
    """

    metrics_bind_address: str = ":8080"
    """Where ``/metrics`` is served; ``0`` is nowhere. Flag ``--metrics-bind-address``."""

    health_probe_bind_address: str = ":8081"
    """Where ``/healthz`` and ``/readyz`` are served; ``0`` is nowhere. Flag ``--health-probe-bind-address``."""

    leader_elect: bool = False
    """Whether this replica works only while it holds a Lease. Flag ``--leader-elect``.

    Off as in training-operator, for a single one started by hand; the shipped Deployment turns it on.
    """

    leader_election_id: str = "1ca428e5.training-operator.kubeflow.org"
    """The name of that Lease. Flag ``--leader-election-id``.

    That of training-operator, so that one which uses it never works beside this one.
    """

    leader_election_namespace: str = ""
    """The namespace of that Lease; empty is the pod's own, or the one that the kubeconfig names. Flag ``--leader-election-namespace``."""

    lock_namespace: str = ""
    """The namespace of the Lease ``mpi-operator``, which is held as well where MPIJobs are served. Flag ``--lock-namespace``.

    So an mpi-operator that was left running stands by. Empty is the namespace of the other Lease. Differs: mpi-operator's default is a
    namespace ``mpi-operator``, which not every cluster has.
    """

    gang_scheduler_name: str = ""
    """``volcano`` (in any case), or the name of a scheduler with the coscheduling of scheduler-plugins. Flag ``--gang-scheduler-name``.

    Empty or ``None`` schedules no gangs. The scheduler's PodGroups have to be defined in the cluster; until they are, no job has its turn.
    """

    events: str = "full"
    """How much is told of jobs as events. Flag ``--events``.

    ``full`` tells of each child as the originals do, up to 25 events a job and then summed up; ``compact`` one event per reason and pass,
    which saves calls to the API server; ``off`` tells nothing.
    """

    cluster_domain: str = ""
    """What follows ``.svc`` in the addresses of TF_CONFIG and of MPI's hosts, such as ``cluster.local``; empty is nothing.

    Flag ``--cluster-domain``, or $CUSTOM_CLUSTER_DOMAIN.

    Nothing, since a pod's search list completes the name; programs that do without the list need the domain.
    """

    max_replicas: int = 10_000
    """The most pods one job may ask for; more is refused. Flag ``--max-replicas``.

    A job of this size still fits into one API server; one of a million does not, and would be a mistake.
    """

    of_kinds: tuple[Any, ...] = ()
    """Options that single kinds have, each an instance of the kind's own class; a kind that is missing has its defaults.

    Their flags and defaults are beside the kinds, in ``controller/kinds``.
    """

    log_format: str = "json"
    """``json`` for machines, ``console`` for people. Flag ``--log-format``."""

    log_level: str = "info"
    """``debug``, ``info``, ``warning`` or ``error``. Flag ``--log-level``."""

    def __post_init__(self) -> None:
        for name in (
            "controller_threads",
            "kube_api_burst",
            "kube_api_in_flight",
            "max_replicas",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        if not (isfinite(self.kube_api_qps) and self.kube_api_qps >= 0):
            raise ValueError(f"--kube-api-qps must be a number and not negative, but is {self.kube_api_qps}")
        for flag, name in (
            ("--namespace or $KUBEFLOW_NAMESPACE", self.namespace),
            ("--leader-election-namespace", self.leader_election_namespace),
            ("--lock-namespace", self.lock_namespace),
        ):
            if name and not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{flag}: {name!r} is no name of a namespace")
        if not _LEASE.fullmatch(self.leader_election_id):
            raise ValueError(f"--leader-election-id: {self.leader_election_id!r} is no name of a Lease")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"--{name.replace('_', '-')} must be one of {', '.join(allowed)}")


_CHOICES = {
    "events": ("full", "compact", "off"),
    "log_format": ("json", "console"),
    "log_level": ("debug", "info", "warning", "error"),
}

FIELDS = tuple(field.name for field in fields(Settings))
