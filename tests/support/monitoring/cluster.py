"""A control plane with two operators behind a proxy, kube-state-metrics, simulated exporters, a load of jobs and Prometheus."""

import json
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.controlplane.access import kubeconfig, write_private
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.controlplane.process import answers, free_port
from rallypoint.testing.service import MANIFESTS, Service, service
from tests.support.monitoring.exporter import exporter
from tests.support.monitoring.fault_proxy import FaultProxy, fault_proxy
from tests.support.monitoring.load import Load
from tests.support.monitoring.prometheus import Object, Prometheus, Series, prometheus
from tests.support.schedulers.gangs import open_nodes

NODES = 2
JOB = "training-operator-eu"
"""The label ``job`` of the operator's series: its Service's name, in an installation with a ``nameSuffix``."""
_PAGE = MANIFESTS.parent / "docs" / "how-to" / "dashboards.md"
_FLAGS = (
    "--leader-elect=true",
    "--leader-election-namespace=kubeflow",
    "--lock-namespace=kubeflow",
    "--mpi-ssh-check=false",
    "--controller-threads=2",
    *(
        f"--enable-scheme={kind}"
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "MXJob")
    ),
)
_WAIT_SECONDS = 60.0


class MonitoredCluster:
    """The cluster, and ``load`` and ``proxy`` to change it."""

    def __init__(self, folder: Path, groups: list[Object]) -> None:
        self._folder = folder
        self._groups = groups
        self._cleanup = ExitStack()
        self._operators: list[tuple[Service, ExitStack]] = []
        self.plane = ControlPlane(nodes=NODES, scheduler=True)
        self.load = Load(self.plane)
        self.proxy: FaultProxy
        self.prometheus: Prometheus

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._cleanup.close()

    def until(self, what: str, holds: Callable[[], bool], *, seconds: float = _WAIT_SECONDS) -> None:
        """Return when ``holds`` does. Unlike ``ControlPlane.wait``, a program may end meanwhile."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{what} not after {seconds:.0f} s"
            time.sleep(0.5)

    def start_operator(self) -> Service:
        """Start another operator, and let Prometheus scrape it."""
        stack = self._cleanup.enter_context(ExitStack())
        config = write_private(
            self._folder / "operator.yaml",
            kubeconfig(
                self.proxy.url, self.plane.authority.pem, self.plane.users[ADMIN].token, user="operator"
            ),
        )
        module = "tests.support.monitoring.impatient"
        running = stack.enter_context(service(self.plane, config, _FLAGS, module=module))
        self._operators.append((running, stack))
        self._write_targets()
        return running

    @property
    def operators(self) -> list[Service]:
        return [running for running, _ in self._operators]

    def stop_operators(self) -> None:
        for _, stack in self._operators:
            stack.close()
        self._operators.clear()

    def query_range(self, expr: str, start: float, end: float) -> list[Series]:
        return self.prometheus.query_range(expr, start, end, max(1.0, (end - start) / 120))

    def _start(self) -> None:
        self._cleanup.enter_context(self.plane)
        plane = self.plane
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}})
        plane.apply_files(*sorted(MANIFESTS.glob("**/kubeflow.org_*.yaml")))
        open_nodes(plane)
        self.proxy = self._cleanup.enter_context(fault_proxy(plane.kubeconfig()))
        exported = self._cleanup.enter_context(exporter(self.load.all_pods))
        states = self._kube_state_metrics()
        self._write_targets()
        scrapes = [*_scrapes(exported, states), self._operator_scrape()]
        self.prometheus = self._cleanup.enter_context(prometheus(plane, self._folder, scrapes, self._groups))
        for _ in range(2):
            self.start_operator()

    def _kube_state_metrics(self) -> str:
        path = binaries.ensure(["kube-state-metrics"])["kube-state-metrics"]
        port, own = free_port(), free_port()
        command = (
            path,
            f"--kubeconfig={self.plane.kubeconfig()}",
            "--host=127.0.0.1",
            f"--port={port}",
            "--telemetry-host=127.0.0.1",
            f"--telemetry-port={own}",
            "--resources=pods",
            *re.findall(r"^(--metric-labels-allowlist=\S+)$", _PAGE.read_text(), re.MULTILINE),
        )
        address = f"127.0.0.1:{port}"
        ready = lambda _: answers(f"http://{address}/metrics")  # noqa: E731
        self._cleanup.enter_context(self.plane.running("kube-state-metrics", command, ready=ready))
        return address

    def _operator_scrape(self) -> Object:
        return {"job_name": JOB, "file_sd_configs": [{"files": [str(self._folder / "operators.json")]}]}

    def _write_targets(self) -> None:
        addresses = [running.address for running, _ in self._operators]
        body: list[Any] = [{"targets": addresses, "labels": {"namespace": "kubeflow"}}] if addresses else []
        new = self._folder / "operators.new"
        new.write_text(json.dumps(body))
        new.rename(self._folder / "operators.json")


@dataclass(frozen=True)
class Loaded:
    """The cluster after its load, and when that began and ended, in seconds since 1970."""

    cluster: MonitoredCluster
    start: float
    end: float


def _scrapes(exported: str, states: str) -> list[Object]:
    """Return the scrapes of everything but the operator.

    kube-prometheus keeps the labels of kube-state-metrics and of the kubelet; of the nodes with GPUs one does and one does not.
    """
    honoring: Object = {"honor_labels": True}
    dcgm = [
        {
            "job_name": f"dcgm-exporter-{node}",
            "metrics_path": f"/dcgm/node-{node}",
            "honor_labels": node == 0,
            "static_configs": [
                {
                    "targets": [exported],
                    "labels": {"namespace": "gpu-operator", "pod": f"dcgm-exporter-{node}"},
                }
            ],
        }
        for node in range(NODES)
    ]
    return [
        {**honoring, "job_name": "kube-state-metrics", "static_configs": [{"targets": [states]}]},
        {
            **honoring,
            "job_name": "kubelet",
            "metrics_path": "/cadvisor",
            "static_configs": [{"targets": [exported]}],
        },
        *dcgm,
    ]
