"""Volcano's scheduler, and its controllers of queues and PodGroups."""

from collections.abc import Generator
from contextlib import contextmanager

import yaml

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.flags import LOOPBACK
from rallypoint.testing.controlplane.process import answers, free_port
from tests.support.schedulers import programs

SCHEDULER = "volcano"
"""What pods call it."""
QUEUE = "default"
"""The queue that it makes itself."""

_CONFIG = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {"plugins": [{"name": name} for name in ("priority", "gang", "conformance")]},
        {
            "plugins": [
                {"name": name} for name in ("overcommit", "drf", "predicates", "proportion", "nodeorder")
            ]
        },
    ],
}
"""As its own installation has it, which packs pods onto nodes beside."""


@contextmanager
def volcano(plane: ControlPlane) -> Generator[None]:
    """Both, once the queue is open and until the end.

    Raises:
        ProcessFailed: one of them ends before that.
        TimeoutError: the queue does not open.
    """
    folder = programs.ensure(programs.VOLCANO)
    plane.apply_files(*sorted((folder / "crds").glob("*.yaml")))
    config = write_private(plane.directory / "volcano.yaml", yaml.safe_dump(_CONFIG))
    probes = [f"{LOOPBACK}:{free_port()}" for _ in range(2)]
    common = [
        (
            f"--kubeconfig={plane.kubeconfig()}",
            "--leader-elect=false",
            "--enable-healthz=true",
            f"--healthz-address={probe}",
        )
        for probe in probes
    ]
    controller = (
        folder / "volcano-controller",
        "--controllers=queue-controller,pg-controller",  # without one of them no queue opens
        *common[0],
    )
    scheduler = (
        folder / "volcano-scheduler",
        f"--scheduler-conf={config}",
        "--schedule-period=200ms",
        "--cache-dumper=false",
        *common[1],
    )
    with (
        plane.running(
            "volcano-controller", controller, ready=lambda _: answers(f"http://{probes[0]}/healthz")
        ),
        plane.running("volcano-scheduler", scheduler, ready=lambda _: answers(f"http://{probes[1]}/healthz")),
    ):
        plane.wait("the queue to open", lambda: _is_open(plane), seconds=60)
        yield


def _is_open(plane: ControlPlane) -> bool:
    path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{QUEUE}"
    return plane.has(path) and plane.request("GET", path).get("status", {}).get("state") == "Open"
