"""Volcano's scheduler, and its controllers of queues and PodGroups."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
Object = dict[str, Any]

INSTALLED: Object = {
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
PREEMPTING: Object = {
    "actions": "allocate, backfill, reclaim, preempt",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False, "enableReclaimable": False},
                {"name": "conformance"},
                {"name": "capacity", "enableHierarchy": True},
            ]
        },
        {
            "plugins": [
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "nodeorder"},
            ]
        },
    ],
}
"""One that preempts gangs and divides queues. With ``enqueue``, a gang for which nothing is free gets no pods, and preempts nothing."""


@contextmanager
def volcano(plane: ControlPlane, config: Object = INSTALLED) -> Generator[None]:
    """Both, once the queue is open and until the end.

    Args:
        config: of the scheduler.

    Raises:
        ProcessFailed: one of them ends before that.
        TimeoutError: the queue does not open.
    """
    folder = programs.ensure(programs.VOLCANO)
    plane.apply_files(*sorted((folder / "crds").glob("*.yaml")))
    file = configure(plane, config)
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
        f"--scheduler-conf={file}",
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
        wait_for_state(plane, QUEUE, "Open")
        yield


def configure(plane: ControlPlane, config: Object) -> Path:
    """Write the configuration of the scheduler, which follows its changes."""
    return write_private(plane.directory / "volcano.yaml", yaml.safe_dump(config))


def create_queue(plane: ControlPlane, name: str, **spec: Any) -> None:
    """Create a queue, and return when it is open."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    plane.apply({**kind, "metadata": {"name": name}, "spec": spec})
    wait_for_state(plane, name, "Open")


def queue_status(plane: ControlPlane, name: str) -> Object:
    path = f"{QUEUES}/{name}"
    return plane.request("GET", path).get("status") or {} if plane.has(path) else {}


def wait_for_state(plane: ControlPlane, name: str, *states: str) -> None:
    """Wait until the queue has one of these states."""
    plane.wait(
        f"the queue to be {' or '.join(states)}",
        lambda: queue_status(plane, name).get("state") in states,
        seconds=60,
    )


def operate_queue(plane: ControlPlane, name: str, action: str, *states: str) -> None:
    """Open or close a queue, as ``vcctl queue operate --action`` does; ``action`` is OpenQueue or CloseQueue."""
    queue = plane.request("GET", f"{QUEUES}/{name}")
    target = {
        "apiVersion": queue["apiVersion"],
        "kind": "Queue",
        "name": name,
        "uid": queue["metadata"]["uid"],
        "controller": True,
    }
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"{action.lower()}-{name}"},
        "action": action,
        "target": target,
    }
    plane.request("POST", "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", body)
    wait_for_state(plane, name, *states)
