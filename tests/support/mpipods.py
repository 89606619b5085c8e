"""Pods of MPI jobs as both operators make them, by hand: a launcher, workers, and the objects that these mount."""

import asyncio
import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from api.meta import CONFIG_MAPS, PODS, SECRETS, SERVICES, Resource
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.local_harness import LocalHarness, phase, start_local_harness

Transport: TypeAlias = Literal["ssh", "kubectl"]
"""ssh as in v2beta1, kubectl as in v1."""
Implementation: TypeAlias = Literal["openmpi", "mpich"]
Json: TypeAlias = dict[str, Any]

NAME, LAUNCHER = "pi", "pi-launcher"
SLOTS = 2
KUBEXEC = '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"'
OPERATORS = {"ssh": "mpi-operator", "kubectl": "mpijob-controller"}
SSHD = ("/usr/sbin/sshd", "-De")
FILES = ("hostfile", "kubexec.sh")
KEYS = {"id_rsa": "ssh-privatekey", "id_rsa.pub": "ssh-publickey", "authorized_keys": "ssh-publickey"}


@dataclass(frozen=True, slots=True)
class MpiJob:
    """A job named ``pi``: what it is made of, in the order of creation."""

    command: Sequence[str]
    """Of the launcher."""
    transport: Transport = "ssh"
    implementation: Implementation = "openmpi"
    workers: int = 3
    sshd: Sequence[str] = SSHD
    keys: tuple[str, str] = ("private", "public")
    keys_at: str = "/root/.ssh"
    labels: Mapping[str, str] | None = None
    """In the place of the usual ones."""
    tmpdir: str = "/tmp"
    """The folder of Open MPI's sessions. Their names consist of host and user, so that jobs of one name must not share it."""

    def objects(self) -> Iterator[tuple[Resource, Json]]:
        yield (
            CONFIG_MAPS,
            {**_meta("pi-config"), "data": {"hostfile": self._hostfile(), "kubexec.sh": KUBEXEC}},
        )
        if self.transport == "ssh":
            private, public = (base64.b64encode(key.encode()).decode() for key in self.keys)
            data = {"ssh-privatekey": private, "ssh-publickey": public}
            yield SECRETS, {**_meta("pi-ssh"), "type": "kubernetes.io/ssh-auth", "data": data}
            spec = {"clusterIP": "None", "selector": self._labels()}
            yield SERVICES, {**_meta(NAME), "spec": spec}
        for index in range(self.workers):
            yield PODS, self._worker(index)
        yield PODS, self._launcher()

    def _hostfile(self) -> str:
        hosts = (f"pi-worker-{index}" for index in range(self.workers))
        if self.transport == "ssh":
            hosts = (f"{host}.pi.default.svc" for host in hosts)
        slots = f" slots={SLOTS}" if self.implementation == "openmpi" else f":{SLOTS}"
        return "".join(f"{host}{slots}\n" for host in hosts)

    def _labels(self) -> dict[str, str]:
        operator = OPERATORS[self.transport]
        usual = {"training.kubeflow.org/operator-name": operator, "training.kubeflow.org/job-name": NAME}
        return dict(self.labels or usual)

    def _worker(self, index: int) -> Json:
        if self.transport == "ssh":
            container = {"name": "w", "command": list(self.sshd), "volumeMounts": [self._key_mount()]}
            return self._pod(f"pi-worker-{index}", container, [self._key_volume()], named=True)
        container = {"name": "w", "command": ["sleep"], "args": ["365d"], "volumeMounts": [_CONFIG_MOUNT]}
        return self._pod(f"pi-worker-{index}", container, [_config(["kubexec.sh"])])

    def _launcher(self) -> Json:
        container: Json = {"name": "l", "command": list(self.command), "env": _env(self._env())}
        if self.transport == "ssh":
            container["volumeMounts"] = [self._key_mount(), _CONFIG_MOUNT]
            return self._pod(LAUNCHER, container, [self._key_volume(), _config(FILES)], named=True)
        container["volumeMounts"] = [_KUBECTL_MOUNT, _CONFIG_MOUNT]
        delivery = {
            "name": "kubectl-delivery",
            "image": "kubeflow/kubectl-delivery:latest",
            "env": _env({"TARGET_DIR": "/opt/kube", "NAMESPACE": "default"}),
            "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
        }
        volumes = [{"name": "mpi-job-kubectl", "emptyDir": {}}, _config(FILES)]
        return self._pod(LAUNCHER, container, volumes, initContainers=[delivery])

    def _env(self) -> dict[str, str]:
        agent, file = "/etc/mpi/kubexec.sh", "/etc/mpi/hostfile"
        if self.implementation == "openmpi":
            shared = {"OMPI_MCA_orte_default_hostfile": file, "OMPI_MCA_orte_tmpdir_base": self.tmpdir}
            if self.transport == "kubectl":
                return {"OMPI_MCA_plm_rsh_agent": agent, **shared}
            base = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true"}
            return {**base, **shared, "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"}
        if self.transport == "kubectl":
            return {"HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": agent, "HYDRA_HOST_FILE": file}
        return {"HYDRA_HOST_FILE": file, "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"}

    def _pod(
        self, name: str, container: Json, volumes: list[Json], *, named: bool = False, **spec: Any
    ) -> Json:
        if named:
            searches = {"searches": ["pi.default.svc.cluster.local"]}
            spec |= {"hostname": name, "subdomain": NAME, "dnsConfig": searches}
        meta = _meta(name)
        meta["metadata"]["labels"] = self._labels()
        containers = [{"image": "none", **container}]
        return {
            **meta,
            "spec": {"restartPolicy": "Never", "containers": containers, "volumes": volumes, **spec},
        }

    def _key_volume(self) -> Json:
        mode = {"defaultMode": 0o600} if self.keys_at == "/root/.ssh" else {}
        items = [{"key": key, "path": path} for path, key in KEYS.items()]
        return {"name": "ssh-auth", "secret": {"secretName": "pi-ssh", "items": items, **mode}}

    def _key_mount(self) -> Json:
        return {"name": "ssh-auth", "mountPath": self.keys_at}


async def submit(harness: LocalHarness, job: MpiJob, *, waits: bool = False) -> None:
    """Create the job's objects; with ``waits``, its launcher only when the names of all workers resolve.

    A real ssh client asks for a name once. The launchers that an operator makes are started again after that.
    """
    *others, launcher = job.objects()
    for resource, manifest in others:
        await harness.create(resource, manifest)
    for index in range(job.workers if waits else 0):
        await harness.wait_for(f"{NAME}-worker-{index}", _is_ready)
    await harness.create(*launcher)


async def _run(folder: Path, isolation: IsolationMode, enough: str, job: MpiJob, *, real_ssh: bool) -> None:
    async with start_local_harness(folder, isolation, real_ssh=real_ssh) as harness:
        await submit(harness, job, waits=real_ssh)
        if enough:
            await harness.wait_for_log(LAUNCHER, enough)
            end = ""
        else:
            end = phase(await harness.wait_for_end(LAUNCHER))
        sys.stdout.write(f"{await harness.log(LAUNCHER)}\n{end}\n")


def main() -> None:
    """Run a job, described by JSON in the first argument, in a local cluster of its own; print the launcher's log and phase.

    With ``enough``, a line of that log, return after that line and not at the launcher's end.
    """
    options = json.loads(sys.argv[1])
    folder, isolation = Path(options.pop("folder")), options.pop("isolation")
    enough, real_ssh = options.pop("enough", ""), options.pop("real_ssh", False)
    job = MpiJob(**options, tmpdir=str(folder.parent))
    asyncio.run(_run(folder, isolation, enough, job, real_ssh=real_ssh))


_CONFIG_MOUNT: Json = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}
_KUBECTL_MOUNT: Json = {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"}


def _meta(name: str) -> Json:
    return {"metadata": {"name": name}}


def _config(files: Sequence[str]) -> Json:
    modes = {"hostfile": 0o444}
    items = [{"key": file, "path": file, "mode": modes.get(file, 0o555)} for file in files]
    return {"name": "mpi-job-config", "configMap": {"name": "pi-config", "items": items}}


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _env(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]
