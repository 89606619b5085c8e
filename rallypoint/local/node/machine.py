"""The resources of this machine and its Node object."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil

from api import quantity
from api.times import format_time
from rallypoint.local.node.gpus import RESOURCE
from rallypoint.local.node.resources import Amounts

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")

MAX_PODS = 1000
"""A kubelet's default is 110; processes need less than containers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the cluster may use of this machine."""

    capacity: Amounts
    gpus: tuple[str, ...] = ()
    """Their UUIDs."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the node, in addition to those that every node has."""
    hides_gpus: bool = False
    """Whether GPUs must be hidden from pods that request none."""


def this_machine(folder: Path, gpus: Sequence[str], labels: Mapping[str, str]) -> Machine:
    """Return the usable cores, the memory, the disk of ``folder``, and these GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    capacity = {
        "cpu": Fraction(cores),
        "memory": Fraction(psutil.virtual_memory().total),
        "ephemeral-storage": Fraction(psutil.disk_usage(str(folder)).total),
        "pods": Fraction(MAX_PODS),
    }
    if gpus:
        capacity[RESOURCE] = Fraction(len(gpus))
    return Machine(capacity, tuple(gpus), labels)


def node(name: str, address: str, machine: Machine, now: datetime) -> dict[str, Any]:
    amounts = {resource: spell(resource, amount) for resource, amount in machine.capacity.items()}
    system, architecture = platform.system().lower(), _architecture()
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "kubernetes.io/arch": architecture,
        **machine.labels,
    }
    moment = format_time(now)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the local node runs pods as processes",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [*(_no_pressure(kind, moment) for kind in PRESSURES), ready],
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": system,
                "kernelVersion": platform.release(),
                "osImage": platform.platform(),
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "rallypoint-local",
            },
        },
    }


def spell(resource: str, amount: Fraction) -> str:
    """Format an amount as a kubelet does: bytes in KiB, rounded down."""
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount // 1024}Ki"
    return quantity.spell(amount)


def _no_pressure(kind: str, moment: str) -> dict[str, str]:
    """Return a pressure condition that is always False."""
    return {
        "type": kind,
        "status": "False",
        "reason": "NotWatched",
        "message": "the local node evicts no pods",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
