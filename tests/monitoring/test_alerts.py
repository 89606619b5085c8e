"""Each alert fires for its fault in a real Prometheus. Only times are shorter than in the shipped alerts."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.support.monitoring.cluster import Loaded, MonitoredCluster
from tests.support.monitoring.fault_proxy import Fault
from tests.support.monitoring.load import NAMESPACES, PYTORCH
from tests.support.monitoring.prometheus import alert_names
from tests.support.running_jobs import MPI_V2BETA1, OTHERS, Kind

SPEECH, VISION = NAMESPACES
_, TENSORFLOW, XGBOOST, PADDLE, JAX = OTHERS
FIRING_SECONDS = 150.0
SILENCE_SECONDS = 120.0
SLOW_SECONDS = 25.0
"""Below the operator's limit of 30 s for a request."""
Labels = dict[str, str]
Injection = Callable[[MonitoredCluster], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def through(cluster: MonitoredCluster, fault: Fault) -> Generator[None]:
    """Inject a fault at the proxy."""
    cluster.proxy.faults.append(fault)
    try:
        yield
    finally:
        cluster.proxy.faults.remove(fault)


def job(cluster: MonitoredCluster, kind: Kind, name: str) -> None:
    cluster.load.create(kind, SPEECH, name)


@contextlib.contextmanager
def silent_watch(cluster: MonitoredCluster) -> Generator[None]:
    with through(cluster, Fault("hang", "GET", r"/xgboostjobs\?")):
        yield


@contextlib.contextmanager
def refused_events(cluster: MonitoredCluster) -> Generator[None]:
    with through(cluster, Fault("refuse", "POST|PATCH", "/events", code=500)):
        job(cluster, TENSORFLOW, "unheard")
        yield


@contextlib.contextmanager
def slow_pods(cluster: MonitoredCluster) -> Generator[None]:
    """More jobs than workers, each with a request that takes long."""
    with through(cluster, Fault("delay", "POST", "/pods", '"slow-', seconds=SLOW_SECONDS)):
        for number in range(6):
            job(cluster, JAX, f"slow-{number}")
        yield


@contextlib.contextmanager
def missing_definition(cluster: MonitoredCluster) -> Generator[None]:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mxjobs.kubeflow.org"
    cluster.plane.request("DELETE", path)
    yield


@contextlib.contextmanager
def lost_events(cluster: MonitoredCluster) -> Generator[None]:
    cluster.proxy.lost = "overlooked-master-0"
    job(cluster, PYTORCH, "overlooked")
    yield
    cluster.proxy.lost = ""


@contextlib.contextmanager
def garbled_answers(cluster: MonitoredCluster) -> Generator[None]:
    """A proxy answers with an object without metadata. The operator does not expect that of its own ConfigMap."""
    with through(cluster, Fault("garble", "POST|GET", r"/configmaps(/garbled.*)?(\?field.*)?$")):
        job(cluster, MPI_V2BETA1, "garbled")
        yield


@contextlib.contextmanager
def taken_name(cluster: MonitoredCluster) -> Generator[None]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "taken-worker-0", "namespace": SPEECH},
        "spec": {"containers": [{"name": "other", "image": "other:1"}]},
    }
    cluster.plane.apply(pod)
    job(cluster, PADDLE, "taken")
    yield


@contextlib.contextmanager
def refused_requests(cluster: MonitoredCluster) -> Generator[None]:
    """All requests are refused but watches and those of the Lease."""
    with through(cluster, Fault("refuse", path=r"^(?!.*(watch=|/leases))", code=503)):
        for number in range(3):
            job(cluster, TENSORFLOW, f"refused-{number}")
        yield


@contextlib.contextmanager
def paused_process(cluster: MonitoredCluster) -> Generator[None]:
    pid = cluster.operators[-1].process.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(pid, signal.SIGCONT)
    yield


@contextlib.contextmanager
def wrong_clock(cluster: MonitoredCluster) -> Generator[None]:
    cluster.proxy.clock_offset_seconds = 60.0
    yield
    cluster.proxy.clock_offset_seconds = 0.0


@contextlib.contextmanager
def no_lease(cluster: MonitoredCluster) -> Generator[None]:
    """The leader cannot renew the Lease and exits; the standby cannot take it."""
    with through(cluster, Fault("refuse", path="/leases", code=403)):
        yield


@contextlib.contextmanager
def no_operator(cluster: MonitoredCluster) -> Generator[None]:
    cluster.stop_operators()
    yield


LASTING: dict[str, tuple[Injection, Labels]] = {
    "TrainingOperatorWatchSilent": (silent_watch, {"resource": "xgboostjobs"}),
    "TrainingOperatorEventsLost": (refused_events, {}),
}
"""Faults that take a minute or two; they start together, before the others."""
FAULTS: dict[str, tuple[Injection, Labels]] = {
    "TrainingOperatorDefect": (garbled_answers, {"controller": "mpijob-controller"}),
    "TrainingOperatorReconcilesFail": (taken_name, {"controller": "paddlejob-controller"}),
    "TrainingOperatorLate": (paused_process, {}),
    "TrainingOperatorWatchEventsLost": (lost_events, {"resource": "pods"}),
    "TrainingOperatorClock": (wrong_clock, {}),
    "TrainingOperatorResourceNotServed": (missing_definition, {"resource": "mxjobs"}),
    "TrainingOperatorJobsWait": (slow_pods, {"controller": "jaxjob-controller"}),
    **LASTING,
    "TrainingOperatorRefused": (refused_requests, {}),
    "TrainingOperatorNotOneLeader": (no_lease, {"name": "mpi-operator"}),
    "TrainingOperatorDown": (no_operator, {}),
}
"""By alert, in the order of the tests: what makes it fire, and labels that it has then."""
OF_LOAD: tuple[tuple[str, Labels], ...] = (
    ("TrainingJobsPending", {"job_namespace": VISION, "framework": "pytorch"}),
    # Two of four pods run.
    ("TrainingJobsPending", {"job_namespace": SPEECH, "framework": "pytorch"}),
    (
        "TrainingResourcesHeld",
        {"job_namespace": VISION, "framework": "pytorch"},
    ),
)
"""Alerts about jobs of the load, and their labels."""


@pytest.fixture(scope="module")
def lasting_faults(loaded: Loaded) -> Iterator[dict[str, contextlib.ExitStack]]:
    """By alert, what ends its fault."""
    cluster = loaded.cluster
    stacks = {alert: contextlib.ExitStack() for alert in LASTING}
    for alert, (_, labels) in LASTING.items():
        await_silence(cluster, alert, labels)
    try:
        for alert, (inject, _) in LASTING.items():
            stacks[alert].enter_context(inject(cluster))
        yield stacks
    finally:
        for stack in stacks.values():
            stack.close()


def test_each_alert_has_a_fault() -> None:
    assert {*FAULTS, *(alert for alert, _ in OF_LOAD)} == set(alert_names())


@pytest.mark.parametrize(("alert", "labels"), OF_LOAD)
def test_an_alert_about_jobs_fires(loaded: Loaded, alert: str, labels: Labels) -> None:
    assert await_alert(loaded.cluster, alert, labels)


@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_for_its_fault(
    loaded: Loaded, lasting_faults: dict[str, contextlib.ExitStack], alert: str
) -> None:
    cluster = loaded.cluster
    inject, labels = FAULTS[alert]
    if alert not in LASTING:
        await_silence(cluster, alert, labels)
    with lasting_faults[alert] if alert in LASTING else inject(cluster):
        fired = await_alert(cluster, alert, labels)

    texts = [fired["annotations"][name] for name in ("summary", "description")]
    assert not [text for text in texts if "<no value>" in text or "<error" in text]
    assert fired["annotations"]["runbook_url"].endswith(f"#{alert.lower()}")


def await_alert(cluster: MonitoredCluster, alert: str, labels: Labels) -> dict[str, Any]:
    """Wait until the alert fires with these labels, and return it."""
    cluster.until(f"{alert} fires", lambda: firing(cluster, alert, labels) != [], seconds=FIRING_SECONDS)
    return firing(cluster, alert, labels)[0]


def await_silence(cluster: MonitoredCluster, alert: str, labels: Labels) -> None:
    """Wait until the alert does not fire with these labels: when it fires after this, its fault is the cause."""
    cluster.until(f"{alert} is silent", lambda: firing(cluster, alert, labels) == [], seconds=SILENCE_SECONDS)


def firing(cluster: MonitoredCluster, alert: str, labels: Labels) -> list[dict[str, Any]]:
    found = cluster.prometheus.firing().get(alert, [])
    return [instance for instance in found if labels.items() <= instance["labels"].items()]
