"""What this machine has, as a Node object tells it."""

import os
import platform
from datetime import datetime
from fractions import Fraction
from typing import Any

import psutil

from api import quantity
from controller.local.node.capacity import Amounts
from controller.local.node.status import timestamp

MOST_PODS = 1000
"""A kubelet's default is 110; processes are lighter than containers."""


def capacity() -> Amounts:
    """Cores that we may use, bytes of memory, and how many pods we take."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cpu": Fraction(cores),
        "memory": Fraction(psutil.virtual_memory().total),
        "pods": Fraction(MOST_PODS),
    }


def node(name: str, address: str, amounts: Amounts, now: datetime) -> dict[str, Any]:
    """The Node object."""
    spelled = {resource: quantity.spell(amount) for resource, amount in amounts.items()}
    system, machine = platform.system().lower(), _architecture()
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": system, "kubernetes.io/arch": machine}
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
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": machine,
                "operatingSystem": system,
                "kernelVersion": platform.release(),
                "osImage": platform.platform(),
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "rallypoint-local",
            },
        },
    }


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
