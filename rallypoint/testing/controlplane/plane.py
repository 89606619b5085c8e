"""A control plane that a test starts, sends requests to, and stops."""

import math
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from controller.kube.tls import client_context
from rallypoint.testing.controlplane import binaries, flags
from rallypoint.testing.controlplane.access import User, administrator, kubeconfig, token_file, write_private
from rallypoint.testing.controlplane.certificates import Authority, token_key
from rallypoint.testing.controlplane.process import Process, ProcessFailed, ReservedPort
from rallypoint.testing.controlplane.requests import Refused, Requests

ADMIN = "admin"
_COMPONENTS = ("kube-controller-manager", "kube-scheduler", "kwok")
_SERVICE_NAME = "kubernetes.default.svc"
_UP_SECONDS = 90.0
_POLL_SECONDS = 0.05
_MEMORY = Path("/dev/shm")


class ControlPlane:
    """etcd and kube-apiserver on loopback over TLS, with RBAC, until ``stop``.

    Args:
        users: who else may talk to it besides ``admin``; each has a token and a kubeconfig.
        controllers: those that kube-controller-manager runs; none, and it is not started.
        service_account_admission: whether pods need the ServiceAccount that they name to exist. With it, pods without
            a name need ``default``, which ``serviceaccount-controller`` makes.
        audit_policy: YAML of an audit policy; what it selects is written to ``audit_log``.
        audit_log: default is a file in the control plane's own folder, which goes with it.
        nodes: simulated nodes, on which pods run without containers.
        stages: a file of kwok's Stages that says what these pods and nodes go through, instead of running at once.
        scheduler: whether kube-scheduler runs; without it a pod stays where ``spec.nodeName`` puts it.
        api_server_flags: passed on to kube-apiserver.
        controller_manager_flags: passed on to kube-controller-manager.
        feature_gates: as ``--feature-gates``, of kube-apiserver, kube-controller-manager and kube-scheduler.
        address: of this machine, where requests are served. Another than loopback can be reached from real nodes.
        key_identifiers: whether certificates have key identifiers; those of some managed clusters have none.
    """

    def __init__(
        self,
        *,
        users: Sequence[User] = (),
        controllers: Sequence[str] = flags.TEST_CONTROLLERS,
        service_account_admission: bool = True,
        audit_policy: str = "",
        audit_log: Path | None = None,
        nodes: int = 0,
        stages: Path | None = None,
        scheduler: bool = False,
        api_server_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        feature_gates: str = "",
        address: str = flags.LOOPBACK,
        key_identifiers: bool = True,
        say: binaries.Say = binaries.say_on_stderr,
    ) -> None:
        components = {name: administrator(f"rallypoint:{name}") for name in _COMPONENTS}
        self._components = components
        self.users = {user.name: user for user in (administrator(ADMIN), *users)}
        self.audit_log = audit_log
        self.processes: dict[str, Process] = {}
        self._controllers = tuple(controllers)
        self._disabled = () if service_account_admission else ("ServiceAccount",)
        self._audit_policy = audit_policy
        self._nodes = nodes
        self._stages = stages
        self._scheduler = scheduler
        self._gates = (f"--feature-gates={feature_gates}",) if feature_gates else ()
        self._api_server_flags = (*self._gates, *api_server_flags)
        self._controller_manager_flags = (*self._gates, *controller_manager_flags)
        self._address = address
        self._key_identifiers = key_identifiers
        self._say = say
        self._cleanup = ExitStack()
        self.longest_wait_seconds = math.inf
        """Shortens the timeouts of ``wait``, for tests of what does not happen."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when requests are served and the namespace ``default`` exists.

        Raises:
            Unavailable: a program cannot be found, downloaded or compiled.
            ProcessFailed: a program ended, or was not ready in time.
        """
        programs = binaries.ensure(self._program_names(), say=self._say)
        try:
            self._prepare()
            self._start_server(programs)
            self._start_components(programs)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every program and remove the control plane's folder. Callable more than once."""
        self._cleanup.close()

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Return the kubeconfig file of a user."""
        path = self.directory / "kubeconfigs" / f"{user.replace(':', '_')}.yaml"
        if not path.exists():
            known = self.users | {component.name: component for component in self._components.values()}
            text = kubeconfig(self.server, self.authority.pem, known[user].token, user=user)
            write_private(path, text)
        return path

    def etcd_context(self) -> ssl.SSLContext:
        """Return a TLS context for requests to ``etcd_server`` with the API server's certificate."""
        context = client_context(cafile=str(self._files.ca))
        context.load_cert_chain(self._files.etcd_client.certificate, self._files.etcd_client.key)
        return context

    def service_account_folder(self, namespace: str, name: str, *, seconds: int = 3607) -> Path:
        """Create and return a folder like the one that the kubelet mounts into pods of a ServiceAccount, which must exist.

        3607 seconds is what the API server mounts by default.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"{namespace}_{name}-", dir=self.directory))
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        write_private(folder / "token", self.request("POST", path, body)["status"]["token"])
        write_private(folder / "ca.crt", self.authority.pem)
        write_private(folder / "namespace", namespace)
        return folder

    def request(self, method: str, path: str, body: Any = None, *, user: str = ADMIN) -> Any:
        """Send one request and return the parsed JSON of the answer; a PATCH is a merge patch.

        Raises:
            Refused: with the status code and the server's message.
        """
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._requests(self.users[user].token).send(method, path, body, content_type=content_type)

    def has(self, path: str) -> bool:
        """Return whether a GET of this path succeeds."""
        try:
            self.request("GET", path)
        except (OSError, Refused):
            return False
        return True

    def apply(self, *documents: Any) -> None:
        """Makes the cluster hold these objects, by server-side apply, in this order.

        Returns when objects of the CustomResourceDefinitions among them can be created.
        """
        requests = self._requests(self.users[ADMIN].token)
        for document in documents:
            requests.apply(document)
            if document["kind"] == "CustomResourceDefinition":
                self._wait_served(document)

    def apply_files(self, *paths: Path) -> None:
        """Call ``apply`` for all documents of these YAML files."""
        for path in paths:
            self.apply(
                *(
                    document
                    for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
                    if document
                )
            )

    def wait(self, what: str, holds: Callable[[], bool], *, seconds: float = _UP_SECONDS) -> None:
        """Returns when ``holds`` does.

        Raises:
            ProcessFailed: it did not in time, or a program of the control plane has ended meanwhile.
        """
        self._wait(what, holds, min(seconds, self.longest_wait_seconds))

    def _wait(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            for process in self.processes.values():
                process.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {p.name}\n{p.tail()}" for p in self.processes.values())
                raise ProcessFailed(f"{what} not after {seconds:.0f} s\n{tails}")
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def running(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        ready: Callable[[Process], bool] = lambda process: True,
        seconds: float = 120.0,
    ) -> Generator[Process]:
        """Run another program until the end of the block, which begins when the program is ready. ``wait`` fails when it ends.

        Raises:
            ProcessFailed: it ends before it is ready, or is not ready in time.
        """
        process = Process(name, command, self.directory / "logs" / f"{name}.log", environment)
        process.start()
        try:
            self.processes[name] = process
            self._wait(f"{name} ready", lambda: ready(process), seconds)
            yield process
        finally:
            self.processes.pop(name, None)
            process.stop()

    def _program_names(self) -> list[str]:
        optional = {
            "kube-controller-manager": bool(self._controllers),
            "kube-scheduler": self._scheduler,
            "kwok": self._nodes > 0,
        }
        return ["etcd", "kube-apiserver", *(name for name, wanted in optional.items() if wanted)]

    def _prepare(self) -> None:
        """Create the folder with keys, tokens and logs: readable by this user alone, in memory if possible."""
        parent = _MEMORY if _MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="rallypoint-controlplane-", dir=parent))
        self._cleanup.callback(shutil.rmtree, self.directory, ignore_errors=True)
        for name in ("pki", "logs", "kubeconfigs"):
            (self.directory / name).mkdir()
        pki = self.directory / "pki"
        self.authority = Authority(pki, key_identifiers=self._key_identifiers)
        users = [*self.users.values(), *self._components.values()]
        self._files = flags.Files(
            ca=self.authority.path,
            serving=self.authority.issue(
                "server", addresses=[self._address, flags.KUBERNETES_SERVICE], names=[_SERVICE_NAME]
            ),
            etcd_client=self.authority.issue("etcd-client"),
            kubelet_client=self.authority.issue(flags.KUBELET_CLIENT),
            token_key=token_key(pki / "service-accounts.key"),
            tokens=write_private(pki / "tokens.csv", token_file(users)),
        )

    def _start_server(self, programs: dict[str, Path]) -> None:
        port, etcd_port, peer_port = (
            self._reserve(address) for address in (self._address, flags.LOOPBACK, flags.LOOPBACK)
        )
        self.server = f"https://{self._address}:{port}"
        self.etcd_server = f"https://{flags.LOOPBACK}:{etcd_port}"
        data = self.directory / "etcd"
        self._run("etcd", flags.etcd(programs["etcd"], data, self._files, etcd_port, peer_port))
        command = flags.kube_apiserver(
            programs["kube-apiserver"],
            self._files,
            self._address,
            port,
            etcd_port,
            audit=self._audit(),
            disabled_admission_plugins=self._disabled,
            extra=self._api_server_flags,
        )
        self._run("kube-apiserver", command)
        self.wait("kube-apiserver ready", self._serves)

    def _start_components(self, programs: dict[str, Path]) -> None:
        if self._controllers:
            name = "kube-controller-manager"
            config = self._component_kubeconfig(name)
            command = flags.kube_controller_manager(
                programs[name], config, self._files, self._controllers, self._controller_manager_flags
            )
            self._run(name, command)
        if self._scheduler:
            name = "kube-scheduler"
            config = self._component_kubeconfig(name)
            self._run(name, flags.kube_scheduler(programs[name], config, self._gates))
        if self._nodes:
            self._run("kwok", flags.kwok(programs["kwok"], self._component_kubeconfig("kwok"), self._stages))
            self.apply(*(_node(index) for index in range(self._nodes)))
            self.wait("simulated nodes ready", self._nodes_ready)
        self.wait("namespace default ready", self._default_ready)

    def _audit(self) -> flags.Audit | None:
        if not self._audit_policy:
            return None
        if self.audit_log is None:
            self.audit_log = self.directory / "audit.log"
        policy = write_private(self.directory / "audit-policy.yaml", self._audit_policy)
        return flags.Audit(policy, self.audit_log)

    def _reserve(self, address: str) -> int:
        port = ReservedPort(address)
        self._cleanup.callback(port.release)
        return port.number

    def _run(self, name: str, command: Sequence[str | Path]) -> None:
        process = Process(name, command, self.directory / "logs" / f"{name}.log")
        process.start()
        self.processes[name] = process
        self._cleanup.callback(process.stop)

    def _serves(self) -> bool:
        return self.has("/readyz") and self.has("/api/v1/namespaces/default")

    def _wait_served(self, definition: Any) -> None:
        paths = _collections(definition["spec"])
        self.wait(f"{definition['metadata']['name']} served", lambda: all(map(self.has, paths)))

    def _default_ready(self) -> bool:
        """Return whether pods can be created in the namespace ``default``."""
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        return "serviceaccount-controller" not in self._controllers or self.has(account)

    def _nodes_ready(self) -> bool:
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        ready = [
            condition["status"] == "True"
            for node in nodes
            for condition in node.get("status", {}).get("conditions", [])
            if condition["type"] == "Ready"
        ]
        return len(ready) == self._nodes and all(ready)

    def _requests(self, token: str) -> Requests:
        return Requests(self.server, self._files.ca, token)

    def _component_kubeconfig(self, component: str) -> Path:
        return self.kubeconfig(self._components[component].name)


def _collections(spec: Any) -> list[str]:
    """Return the list paths of a CustomResourceDefinition, one for each served version."""
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1" for version in versions]


def _node(index: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{index}", "labels": {"type": "kwok"}},
        "status": {"allocatable": _CAPACITY, "capacity": _CAPACITY},
    }


_CAPACITY = {"cpu": "1k", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "10k", "nvidia.com/gpu": "64"}
