"""Checks whether this machine allows nodes, before anything is created."""

import os
import subprocess

from rallypoint.testing.cluster import cgroups, network
from rallypoint.testing.controlplane import Unavailable


class Unsuitable(Unavailable):
    """The machine does not allow nodes, whatever is installed."""


_PROBE = "probe"
_NAMESPACES = ("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork")
_INSIDE = """
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run && cd /run && mkdir lower upper work whole &&
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work whole && ip link set lo up
"""


def check() -> None:
    """Try the changes that a cluster makes to this machine, and undo them. No cluster may run meanwhile.

    Raises:
        Unsuitable: this machine does not allow them, or a system tool is missing.
    """
    if os.geteuid() != 0:
        raise Unsuitable("nodes mount file systems and create network devices, which requires root")
    try:
        network.take_up()
        network.lay()
        cgroups.make(_PROBE)
        subprocess.run([*_NAMESPACES, "sh", "-ec", _INSIDE], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", "")).strip()
        raise Unsuitable(f"root cannot create nodes on this machine: {said or error}") from error
    finally:
        cgroups.remove(_PROBE)
        network.take_up()
