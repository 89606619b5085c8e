"""The settings that all kinds share, with their units, defaults and the reasons for the defaults. ``command`` derives flags from them.

Source of the flags: training-operator 1.9, cmd/training-operator.v1/main.go.
"""

import re
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from api.services import ServiceMode

_NAMESPACE = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""A label as defined by RFC 1123."""
_LEASE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A subdomain as defined by RFC 1123."""


IN_FLIGHT = 16
"""Maximum number of concurrent requests to the API server by default.

They keep a server of two cores busy; with 32 it needs more CPU for the same requests. See docs/explanation/performance.md.
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the process; they never change."""

    kubeconfig: str = ""
    """A kubeconfig file; empty means $KUBECONFIG, or the ServiceAccount of the pod. Flag ``--kubeconfig``."""

    master: str = ""
    """The address of the API server, in place of the kubeconfig's; empty means that of the kubeconfig. Flag ``--master``."""

    namespace: str = ""
    """Serve only this namespace; empty means all. Flag ``--namespace``, or $KUBEFLOW_NAMESPACE."""

    enable_scheme: tuple[str, ...] = ()
    """Kinds to serve, case-insensitive; empty means those of the default installation. Flag ``--enable-scheme``, repeatable."""

    controller_threads: int = 16
    """Maximum number of jobs of one kind that are reconciled concurrently. Flag ``--controller-threads``.

    Differs: training-operator's default is 1, so that each job waits for all others. A reconcile spends most of its time waiting for the
    API server, so more of them cost nothing. See docs/decisions/0009-flags.md.
    """

    kube_api_qps: float = 0.0
    """Average number of requests per second to the API server; 0 means no limit. Flag ``--kube-api-qps``.

    Differs: training-operator limits itself to 20, so that large jobs start slowly. Here the API server's flow control
    and the limit on concurrent requests decide. See docs/decisions/0009-flags.md.
    """

    kube_api_burst: int = 30
    """Burst of requests above ``kube_api_qps``. Flag ``--kube-api-burst``."""

    kube_api_in_flight: int = IN_FLIGHT
    """Maximum number of concurrent requests to the API server, not counting watches. Flag ``--kube-api-in-flight``."""

    metrics_bind_address: str = ":8080"
    """The address of ``/metrics``; ``0`` disables it. Flag ``--metrics-bind-address``."""

    metrics_secure: bool = False
    """Whether ``/metrics`` is served over TLS, and only to clients that the API server authorizes. Flag ``--metrics-secure``.

    Off, because the metrics of training-operator are open to all, and no scrape may break. See docs/decisions/0031-metrics-authentication.md.
    Source of the name and of the next three: kubebuilder 4, the scaffold of cmd/main.go.
    """

    metrics_cert_path: str = ""
    """The folder of the certificate of ``/metrics``; empty means self-signed and in memory. Flag ``--metrics-cert-path``."""

    metrics_cert_name: str = "tls.crt"
    """The file of the certificate, with intermediate ones, in that folder. Flag ``--metrics-cert-name``."""

    metrics_cert_key: str = "tls.key"
    """The file of the private key in that folder. Flag ``--metrics-cert-key``."""

    metrics_token_audiences: tuple[str, ...] = ()
    """The accepted token audiences; a client's token must have at least one of them. Empty means that of the API server. Flag ``--metrics-token-audiences``."""

    health_probe_bind_address: str = ":8081"
    """The address of ``/healthz`` and ``/readyz``; ``0`` disables them. Flag ``--health-probe-bind-address``."""

    pprof_bind_address: str = "0"
    """The address of ``/debug/pprof/``, on loopback; ``0`` disables it. Flag ``--pprof-bind-address``.

    Source of the name: controller-runtime, manager.Options.PprofBindAddress. Differs: only addresses of loopback.
    """

    tracing: bool = False
    """Whether to export a trace of each reconcile, configured by the OTEL_* variables. Flag ``--tracing``; needs the extra ``tracing``."""

    leader_elect: bool = False
    """Whether this process reconciles only while it holds a Lease. Flag ``--leader-elect``.

    Off as in training-operator, for a single process started by hand; the shipped Deployment enables it.
    """

    leader_election_id: str = "1ca428e5.training-operator.kubeflow.org"
    """The name of that Lease. Flag ``--leader-election-id``.

    It is training-operator's, so that a training-operator that uses it never works at the same time.
    """

    leader_election_namespace: str = ""
    """The namespace of that Lease; empty means that of the pod, or of the kubeconfig's context. Flag ``--leader-election-namespace``."""

    lock_namespace: str = ""
    """The namespace of the Lease ``mpi-operator``, which is also required if MPIJobs are served. Flag ``--lock-namespace``.

    With it, an mpi-operator that still runs stands by. Empty means the namespace of the leader election Lease. Differs: mpi-operator's default is the
    namespace ``mpi-operator``, which some clusters do not have.
    """

    shadow: bool = False
    """Whether to compare this operator's decisions with those of the running operator, and write nothing. Flag ``--shadow``.

    It excludes ``leader_elect``: a shadow writes no Lease.
    """

    gang_scheduler_name: str = ""
    """``volcano``, ``kubernetes`` or ``yunikorn`` (case-insensitive), or the name of a scheduler with the coscheduling of scheduler-plugins.

    Flag ``--gang-scheduler-name``. Empty or ``None`` disables gang scheduling. The scheduler's PodGroups must be served, of which YuniKorn has
    none; until then no job gets pods.
    """

    kueue: bool = False
    """Whether to queue jobs with Kueue, where its own integration of their kind is off. Flag ``--kueue``.

    Off, because it changes which jobs may run: with it, a job with a queue label waits until Kueue has admitted it.
    See docs/decisions/0039-kueue.md.
    """

    events: str = "full"
    """Which events to record about jobs. Flag ``--events``.

    ``full`` records one for each child as the originals do, up to 25 per job and then a summary. ``compact`` records one per reason and
    reconcile, which saves requests. ``off`` records none.
    """

    cluster_domain: str = ""
    """The domain after ``.svc`` in the addresses of TF_CONFIG and of MPI's hosts, such as ``cluster.local``; empty adds nothing.

    Flag ``--cluster-domain``, or $CUSTOM_CLUSTER_DOMAIN.

    Empty by default, because a pod's DNS search list completes the name. Programs that ignore the list need the domain.
    """

    services: str = "per-replica"
    """Which Services a job gets: one ``per-replica``, one for each replica that is ``addressed``, or one ``per-job``. Flag ``--services``.

    A job's annotation overrides it. One per replica as in training-operator, because programs may use the names of all replicas.
    See docs/decisions/0042-services.md.
    """

    clean_finished_pods: bool = False
    """Whether pods that still run are deleted when their job has failed and has no ``cleanPodPolicy``. Flag ``--clean-finished-pods``.

    Off as in training-operator, which keeps them: ranks that wait for the failed one hold their GPUs until somebody deletes the job.
    """

    max_replicas: int = 10_000
    """Maximum number of pods of one job; larger jobs are refused. Flag ``--max-replicas``.

    A job of this size fits into one API server; one with a million pods does not, and is probably a mistake.
    """

    of_kinds: tuple[Any, ...] = ()
    """The options of single kinds, each an instance of the kind's own class; a missing kind has its defaults.

    Their flags and defaults are next to the kinds, in ``controller/kinds``.
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
        if self.shadow and self.leader_elect:
            raise ValueError("--shadow cannot be combined with --leader-elect: a shadow writes no Lease")
        if self.shadow and self.kueue:
            raise ValueError("--shadow cannot be combined with --kueue: a shadow suspends no job")
        if self.shadow and self.services != ServiceMode.PER_REPLICA:
            raise ValueError(
                "--shadow cannot be combined with --services: the Go operators create one for each replica"
            )
        if not (isfinite(self.kube_api_qps) and self.kube_api_qps >= 0):
            raise ValueError(f"--kube-api-qps must be a finite number of at least 0, not {self.kube_api_qps}")
        for flag, name in (
            ("--namespace or $KUBEFLOW_NAMESPACE", self.namespace),
            ("--leader-election-namespace", self.leader_election_namespace),
            ("--lock-namespace", self.lock_namespace),
        ):
            if name and not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{flag}: {name!r} is not a valid namespace name")
        if not _LEASE.fullmatch(self.leader_election_id):
            raise ValueError(f"--leader-election-id: {self.leader_election_id!r} is not a valid Lease name")
        self._check_metrics()
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"--{name.replace('_', '-')} must be one of {', '.join(allowed)}")

    def _check_metrics(self) -> None:
        for flag, value in (
            ("--metrics-cert-path", self.metrics_cert_path),
            ("--metrics-token-audiences", self.metrics_token_audiences),
        ):
            if value and not self.metrics_secure:
                raise ValueError(f"{flag} needs --metrics-secure")
        for flag, value in (
            ("--metrics-cert-name", self.metrics_cert_name),
            ("--metrics-cert-key", self.metrics_cert_key),
        ):
            if not value:
                raise ValueError(f"{flag} must not be empty")
        address = self.metrics_bind_address
        if self.metrics_secure and address != "0" and address == self.health_probe_bind_address:
            raise ValueError(
                "--metrics-bind-address and --health-probe-bind-address must differ with --metrics-secure: "
                "the kubelet's probes have no token"
            )


CHOICES = {
    "events": ("full", "compact", "off"),
    "log_format": ("json", "console"),
    "log_level": ("debug", "info", "warning", "error"),
    "services": tuple(ServiceMode),
}
"""The values of the settings that have few."""

FIELDS = tuple(field.name for field in fields(Settings))
