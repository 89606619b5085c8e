"""A real cluster that a test starts, uses and stops."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

from rallypoint.testing.cluster import cgroups, configs, images, machine, network, system
from rallypoint.testing.cluster.layout import HOST, NodeLayout
from rallypoint.testing.cluster.node import Node
from rallypoint.testing.controlplane import ControlPlane, Unavailable, User, binaries
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.controlplane.flags import KUBELET_CLIENT
from rallypoint.testing.controlplane.programs import NODE

_FOLDER = "cluster-"
_PLANE = "plane"
"""A link in that folder to the control plane's folder, which is in memory."""
_DNS = "coredns"
_PROXY = "system:kube-proxy"
_CONTROLLERS = (
    "*",
    "serviceaccount-controller",
)  # the second is among the first; it says that pods need accounts
_API_SERVER = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
_READY_SECONDS = 120.0


class Cluster:
    """A control plane, real nodes, DNS and images, until ``stop``. One at a time on a machine.

    Raises:
        Unavailable: this is not Linux as root, another cluster runs, or a program cannot be found, downloaded or compiled.
    """

    def __init__(self, nodes: int = 2, *, say: binaries.Say = binaries.say_on_stderr) -> None:
        self._count = nodes
        self.say = say
        self._cleanup = ExitStack()
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plane.kubeconfig()

    def start(self) -> None:
        """Return when all nodes are Ready and have the images."""
        programs = binaries.ensure([*NODE, "kubectl"], say=self.say)
        tools = system.ensure()
        self.kubectl_program = programs["kubectl"]
        try:
            self._prepare()
            self._start_plane()
            self._start_dns(programs[_DNS])
            self._start_nodes(programs["kubelet"].parent, tools)
            self._load(images.make(self.folder / "images", programs["kubectl"], say=self.say))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and remove what is left. Callable more than once."""
        self._cleanup.close()

    def check(self) -> None:
        """Raise ``ProcessFailed`` unless the control plane runs. Nodes may be off."""
        for process in self.plane.processes.values():
            process.check()

    def kubectl(self, *arguments: str, document: str | None = None) -> str:
        """Run kubectl as administrator and return its output; ``document`` is its input.

        Raises:
            subprocess.CalledProcessError: it fails; ``stderr`` says why.
        """
        command = [str(self.kubectl_program), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=document).stdout

    def is_ready(self, name: str) -> bool:
        """Return whether the control plane reports this node as Ready."""
        node = (
            self.plane.request("GET", f"/api/v1/nodes/{name}")
            if self.plane.has(f"/api/v1/nodes/{name}")
            else {}
        )
        conditions = node.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _prepare(self) -> None:
        self._cleanup.enter_context(_alone(0.0))
        _remove_remains()
        machine.check()
        self.folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=cache()))
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._cleanup.callback(network.take_up)
        network.lay()

    def _start_plane(self) -> None:
        users = [User(f"system:node:{layout.name}", groups=("system:nodes",)) for layout in self._layouts()]
        self.plane = ControlPlane(
            users=[*users, User(_PROXY), administrator(_DNS)],
            controllers=_CONTROLLERS,
            scheduler=True,
            api_server_flags=_API_SERVER,
            address=HOST,
            say=self.say,
        )
        self._cleanup.enter_context(self.plane)
        (self.folder / _PLANE).symlink_to(self.plane.directory)
        self.plane.apply(_granted(KUBELET_CLIENT, "system:kubelet-api-admin"))

    def _start_dns(self, program: Path) -> None:
        corefile = self.plane.directory / "Corefile"
        corefile.write_text(configs.corefile(self.plane.kubeconfig(_DNS)))
        self._cleanup.enter_context(self.plane.running(_DNS, [program, "-conf", corefile]))

    def _start_nodes(self, programs: Path, tools: Mapping[str, Path]) -> None:
        started = time.monotonic()
        layouts = self._layouts()
        for layout in layouts:
            user = f"system:node:{layout.name}"
            node = Node(
                layout,
                [other for other in layouts if other != layout],
                programs=programs,
                system=tools,
                kubeconfigs={
                    "kubelet": self.plane.kubeconfig(user),
                    "kube-proxy": self.plane.kubeconfig(_PROXY),
                },
                ca=self.plane.authority.path,
            )
            self.nodes[layout.name] = node
            self._cleanup.callback(node.power_off)
            node.power_on()
        self.plane.wait("nodes Ready", lambda: all(map(self.is_ready, self.nodes)), seconds=_READY_SECONDS)
        self.say(f"  nodes Ready: {time.monotonic() - started:.0f} s")

    def _load(self, archives: list[Path]) -> None:
        started = time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load(*archives), self.nodes.values()))
        self.say(f"  images loaded: {time.monotonic() - started:.0f} s")

    def _layouts(self) -> list[NodeLayout]:
        return [NodeLayout(index, self.folder / f"node-{index}") for index in range(1, self._count + 1)]


def _granted(user: str, role: str) -> dict[str, Any]:
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def cache() -> Path:
    """Return the folder for what clusters keep on disk, beside the programs."""
    return binaries.cache_directory().parent


def check() -> None:
    """Raise ``Unavailable`` if this machine allows no cluster, or one runs."""
    with _alone(0.0):
        machine.check()


def sweep(wait_seconds: float) -> None:
    """Removes what a cluster has left that could not end by itself; waits for one that is ending.

    Raises:
        Unavailable: a cluster still runs.
    """
    with _alone(wait_seconds):
        _remove_remains()


def _remove_remains() -> None:
    network.take_up()
    cgroups.remove_all()
    for folder in cache().glob(f"{_FOLDER}*/"):
        shutil.rmtree((folder / _PLANE).resolve(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone(wait_seconds: float) -> Generator[None]:
    """Hold the lock of this machine's cluster and write this process's number into it; the kernel releases it when the holder dies."""
    deadline = time.monotonic() + wait_seconds
    with _lock_file() as lock:
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise Unavailable(f"a cluster runs on this machine: {_described(lock)}")
            time.sleep(0.1)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def holder() -> psutil.Process | None:
    """Return the process that runs a cluster on this machine; it may be starting or ending."""
    with _lock_file() as lock, suppress(psutil.NoSuchProcess):
        return None if _locked(lock) else _written(lock)
    return None


def _described(lock: IO[str]) -> str:
    try:
        process = _written(lock)
        return f"process {process.pid}, {' '.join(process.cmdline())}" if process else "it is starting"
    except psutil.NoSuchProcess:
        return "it is ending"


def _written(lock: IO[str]) -> psutil.Process | None:
    """Return the process whose number is in the file, if there is one."""
    lock.seek(0)
    number = lock.read()
    return psutil.Process(int(number)) if number else None


def _lock_file() -> IO[str]:
    cache().mkdir(parents=True, exist_ok=True)
    return (cache() / ".cluster.lock").open("a+")


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
