"""What this machine has, as a Node object tells it."""

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
from rallypoint.local.node.capacity import Amounts
from rallypoint.local.node.devices.gpus import RESOURCE
from rallypoint.local.node.pods.status import timestamp

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")

MOST_PODS = 1000
"""A kubelet's default is 110; processes are lighter than containers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the site may use of this machine."""

    capacity: Amounts
    gpus: tuple[str, ...] = ()
    """Their UUIDs."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the node, beside those that every node has."""
    hides_gpus: bool = False
    """Whether the machine has any, so that pods without must not see them."""


def this_machine(folder: Path, gpus: Sequence[str], labels: Mapping[str, str]) -> Machine:
    """All cores that we may use, all memory, the disk that ``folder`` is on, and these GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    capacity = {
        "cpu": Fraction(cores),
        "memory": Fraction(psutil.virtual_memory().total),
        "ephemeral-storage": Fraction(psutil.disk_usage(str(folder)).total),
        "pods": Fraction(MOST_PODS),
    }
    if gpus:
        capacity[RESOURCE] = Fraction(len(gpus))
    return Machine(capacity, tuple(gpus), labels)


def node(name: str, address: str, machine: Machine, now: datetime) -> dict[str, Any]:
    """The Node object."""
    spelled = {resource: spell(resource, amount) for resource, amount in machine.capacity.items()}
    system, architecture = platform.system().lower(), _architecture()
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "kubernetes.io/arch": architecture,
        **machine.labels,
    }
    moment = timestamp(now)
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
            "capacity": spelled,
            "allocatable": spelled,
            "conditions": [*(_calm(kind, moment) for kind in PRESSURES), ready],
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
    """As a kubelet writes it: bytes in KiB, rounded down."""
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount // 1024}Ki"
    return quantity.spell(amount)


def _calm(kind: str, moment: str) -> dict[str, str]:
    """Nothing watches for this here, so it never is."""
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
