"""One node: power on, power off, run programs in it, kill its own programs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rallypoint.testing.cluster import cgroups, configs, network
from rallypoint.testing.cluster.inside import Inside
from rallypoint.testing.cluster.layout import HOST, PREFIX, NodeLayout
from rallypoint.testing.controlplane.process import Process

_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
_ENTER = 'for group in "$@"; do [ "$group" = -- ] && break; echo $$ > "$group/cgroup.procs"; shift; done; shift; exec "$@"'
_UP_SECONDS = 10.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Node:
    """A kubelet, containerd and kube-proxy in a machine of their own, as it looks to them.

    ``programs`` is the folder with the compiled ones; ``system`` where runc and nft are. ``kubeconfigs`` are for ``kubelet`` and
    ``kube-proxy``. ``others`` are the nodes whose pods it reaches.
    """

    def __init__(
        self,
        layout: NodeLayout,
        others: Sequence[NodeLayout],
        *,
        programs: Path,
        system: Mapping[str, Path],
        kubeconfigs: Mapping[str, Path],
        ca: Path,
    ) -> None:
        self.layout = layout
        self.name = layout.name
        self._programs = programs
        self._path = f"{programs}:{system['nft'].parent}:{_PATH}"
        for folder in (layout.folder, layout.log, layout.config, layout.config / "cni"):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_configs(system["runc"], ca, kubeconfigs)
        self._inside(others).write(layout.config / "inside.json")
        self._process: Process | None = None

    def power_on(self) -> None:
        """Return when its programs have started; the node becomes Ready later."""
        groups = cgroups.make(self.name)
        module = "rallypoint.testing.cluster.inside"
        first = [sys.executable, "-m", module, str(self.layout.config / "inside.json")]
        command = ["unshare", *_NAMESPACES, "--fork", "--kill-child=KILL", *first]
        self._process = Process(
            self.name,
            ["sh", "-c", _ENTER, "sh", *map(str, groups), "--", *command],
            self.layout.log / "node.log",
            {**os.environ, "PATH": self._path},
        )
        self._process.start()
        network.plug(self.layout, self._first())

    def power_off(self) -> None:
        """Kill the node at once; its disk stays."""
        if self._process is not None:
            self._process.stop(grace_seconds=0)
            self._process = None
            cgroups.remove(self.name)

    def kill(self, program: str) -> None:
        """Kill one of its programs; the node restarts it a second later."""
        self.run("sh", "-c", f"kill -9 $(cat /run/pids/{program})")

    def load(self, *archives: Path) -> None:
        """Import images from files into its containerd."""
        for archive in archives:
            self.run("ctr", "-n", "k8s.io", "images", "import", str(archive))

    def run(self, *command: str) -> str:
        """Run a program in the node and return its output.

        Raises:
            subprocess.CalledProcessError: it fails; ``stderr`` says why.
        """
        enter = ["nsenter", "-t", str(self._first()), "-m", "-p", "-u", "-i", "-n", "-C"]
        done = subprocess.run(
            [*enter, *command],
            env={**os.environ, "PATH": self._path},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def _first(self) -> int:
        """Return the number that its first process has on this machine."""
        assert self._process is not None, f"{self.name} is off"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        deadline = time.monotonic() + _UP_SECONDS
        while not (found := children.read_text().split()):
            self._process.check()
            assert time.monotonic() < deadline, f"{self.name} has no process"
            time.sleep(0.01)
        return int(found[0])

    def _write_configs(self, runc: Path, ca: Path, kubeconfigs: Mapping[str, Path]) -> None:
        config = self.layout.config
        (config / "containerd.toml").write_text(configs.containerd(self._programs, runc, self.layout))
        (config / "cni" / "10-pods.conflist").write_text(configs.cni(self.layout))
        (config / "kubelet-config.yaml").write_text(configs.kubelet(self.layout, ca))
        (config / "kube-proxy-config.yaml").write_text(configs.kube_proxy(self.layout))
        (config / "resolv.conf").write_text(f"nameserver {HOST}\n")
        for name, kubeconfig in kubeconfigs.items():
            shutil.copy(kubeconfig, config / f"{name}.yaml")

    def _inside(self, others: Sequence[NodeLayout]) -> Inside:
        return Inside(
            name=self.name,
            address=self.layout.address,
            prefix=PREFIX,
            gateway=HOST,
            routes={other.pods: other.address for other in others},
            cgroups={
                hierarchy.mount.name: hierarchy.option for hierarchy in cgroups.ours() if hierarchy.option
            },
            sysctls=configs.SYSCTLS,
            programs=self._commands(),
            log=str(self.layout.log),
            pids="/run/pids",
        )

    def _commands(self) -> dict[str, list[str]]:
        layout, config = self.layout, self.layout.config
        return {
            "containerd": ["containerd", f"--config={config / 'containerd.toml'}"],
            "kubelet": [
                "kubelet",
                f"--config={config / 'kubelet-config.yaml'}",
                f"--kubeconfig={config / 'kubelet.yaml'}",
                f"--root-dir={layout.folder / 'kubelet'}",
                "--cert-dir=/run/kubelet-pki",
                f"--hostname-override={layout.name}",
                f"--node-ip={layout.address}",
            ],
            "kube-proxy": ["kube-proxy", f"--config={config / 'kube-proxy-config.yaml'}"],
        }
