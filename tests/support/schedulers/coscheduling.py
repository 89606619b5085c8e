"""The scheduler of scheduler-plugins with its coscheduling plugin, and the controller of its PodGroups."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import yaml

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.flags import LOOPBACK
from rallypoint.testing.controlplane.process import answers, free_port
from tests.support.schedulers import programs

SCHEDULER = "scheduler-plugins-scheduler"
"""What pods call it."""

RETRY_SECONDS = 10
"""After how long the scheduler considers a refused pod again, and up to 30 s more, as our guide recommends."""


@contextmanager
def coscheduling(
    plane: ControlPlane, *, permit_seconds: int = 10, retry_seconds: int | None = RETRY_SECONDS
) -> Generator[None]:
    """Both, once the controller is ready and until the end; pods wait until the scheduler is.

    Args:
        permit_seconds: how long the first pods of a gang are kept for the others.
        retry_seconds: after how long a pod that the plugin has refused is considered again if nothing else causes it; ``None`` leaves
            the default of 5 minutes.

    Raises:
        ProcessFailed: one of them ends before it is ready, or does not become so.
    """
    folder = programs.ensure(programs.COSCHEDULING)
    plane.apply_files(*sorted((folder / "crds").glob("*.yaml")))
    kubeconfig = plane.kubeconfig()
    arguments = {"permitWaitingTimeSeconds": permit_seconds, "podGroupBackoffSeconds": 1}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        "profiles": [
            {
                "schedulerName": SCHEDULER,
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "Coscheduling"}],
                        "disabled": [{"name": "PrioritySort"}],
                    }
                },
                "pluginConfig": [{"name": "Coscheduling", "args": arguments}],
            }
        ],
    }
    file = write_private(plane.directory / "coscheduling.yaml", yaml.safe_dump(config))
    probes = free_port()
    retry: list[str | Path] = (
        [f"--pod-max-in-unschedulable-pods-duration={retry_seconds}s"] if retry_seconds else []
    )
    scheduler = (folder / "coscheduling-scheduler", f"--config={file}", "--secure-port=0", *retry)
    controller = (
        folder / "coscheduling-controller",
        f"--kubeconfig={kubeconfig}",
        f"--probeAddr={LOOPBACK}:{probes}",
        "--metricsAddr=0",
        "--qps=100",
        "--burst=200",
    )
    with (
        plane.running(
            "coscheduling-controller",
            controller,
            ready=lambda _: answers(f"http://{LOOPBACK}:{probes}/readyz"),
        ),
        plane.running("coscheduling-scheduler", scheduler),
    ):
        yield
