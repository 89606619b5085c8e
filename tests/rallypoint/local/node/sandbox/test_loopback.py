"""Loopback isolation: replacements for a network namespace and a mount namespace."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from rallypoint.local.node.containers.environment import variables
from rallypoint.local.node.containers.launch import BaseEnvironment, launch, rejection, user_environment
from rallypoint.local.node.containers.process import Launch
from rallypoint.local.node.network.addresses import Addresses
from rallypoint.local.node.sandbox.loopback import Loopback, loopback_interface
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.setup import Mount

OWNER = [{"name": "job", "uid": "j", "controller": True}]


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    nothing_starts: Any = None
    loopback = Loopback(Addresses("127.9"), nothing_starts, tmp_path)
    yield loopback
    loopback.ports.close()


def pod(*, volumes_: list[dict[str, Any]] | None = None, **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "job-worker-0", "namespace": "default", "uid": "u", "ownerReferences": OWNER},
        "spec": {
            "containers": [{"name": "main", "image": "x", "command": ["run"], **container}],
            "volumes": volumes_ or [],
        },
    }


def started(
    loopback: Loopback, manifest: dict[str, Any], mounts: list[Mount] | None = None, **person: str
) -> Launch:
    container = manifest["spec"]["containers"][0]
    placement = Placement("local", loopback.node_address, loopback.pod_address(manifest), {})
    found = variables(manifest, container, placement, {})
    return launch(
        manifest,
        container,
        found,
        mounts or [],
        base=BaseEnvironment(person, str(Path.cwd())),
        isolation=loopback,
    )


def test_names_become_addresses_in_env_command_and_arguments(loopback: Loopback) -> None:
    env = [{"name": "MASTER_ADDR", "value": "job-master-0"}]
    manifest = pod(command=["run", "$(MASTER_ADDR):1"], args=["tcp://job-worker-1:2"], env=env)
    result = started(loopback, manifest)
    master = loopback.network.address_of(manifest, "job-master-0")
    worker = loopback.network.address_of(manifest, "job-worker-1")

    assert result.env["MASTER_ADDR"] == master
    assert result.argv == ["run", f"{master}:1", f"tcp://{worker}:2"]


def test_names_from_the_downward_api_are_not_replaced(loopback: Loopback) -> None:
    env = [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]

    result = started(loopback, pod(env=env), HOME="/job-master-0")

    assert (result.env["ME"], result.env["HOSTNAME"]) == ("job-worker-0", "job-worker-0")


def test_torch_uses_the_loopback_interface(loopback: Loopback) -> None:
    manifest = pod(env=[{"name": "GLOO_SOCKET_IFNAME", "value": "mine"}])
    result = started(loopback, manifest, TP_SOCKET_IFNAME="theirs")

    assert result.env["GLOO_SOCKET_IFNAME"] == "mine"
    assert result.env["TP_SOCKET_IFNAME"] == "theirs"
    assert result.env["NCCL_SOCKET_IFNAME"] == loopback_interface()
    assert result.env["PET_LOCAL_ADDR"] == loopback.pod_address(manifest)


def test_torchrun_of_an_elastic_job_opens_a_store_for_each_round(loopback: Loopback) -> None:
    name, elastic = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", {"name": "PET_RDZV_BACKEND", "value": "c10d"}
    results = [
        started(loopback, pod(env=env)).env.get(name)
        for env in ([elastic], [elastic, {"name": name, "value": "0"}], [{**elastic, "value": "etcd"}], [])
    ]

    assert results == ["1", "0", None, None]


def test_mount_paths_are_replaced_in_the_manifest(loopback: Loopback, tmp_path: Path) -> None:
    manifest = pod(
        command=["run", "--data=/data/x"], workingDir="/data", env=[{"name": "D", "value": "/data"}]
    )
    result = started(loopback, manifest, [Mount("v", "/data", tmp_path)])

    assert result.argv == ["run", f"--data={tmp_path}/x"]
    assert result.env["D"] == result.folder == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        pytest.param("src", Path.cwd() / "src", id="relative"),
        pytest.param("/srv", Path("/srv"), id="absolute"),
        pytest.param("", Path.cwd(), id="none"),
    ],
)
def test_a_relative_working_directory_starts_at_that_of_the_command(
    loopback: Loopback, given: str, folder: Path
) -> None:
    assert started(loopback, pod(workingDir=given)).folder == str(folder)


def test_the_environment_of_the_manifest_overrides_that_of_the_user(loopback: Loopback) -> None:
    result = started(loopback, pod(env=[{"name": "A", "value": "pod"}]), A="person", B="person")

    assert (result.env["A"], result.env["B"]) == ("pod", "person")


def test_a_manifest_cannot_name_another_pod(loopback: Loopback) -> None:
    result = started(loopback, pod(env=[{"name": "RALLYPOINT_POD", "value": "other"}]), RALLYPOINT_POD="up")

    assert result.env["RALLYPOINT_POD"] == "u"


SERVER = """
import os, socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        with server.accept()[0] as client:
            client.sendall(os.environ["RALLYPOINT_POD"].encode())
"""


@contextmanager
def server(uid: str, host: str, port: int = 0) -> Iterator[int]:
    """Run a program of a pod that answers each connection with the pod's UID; yield its port."""
    env = {**os.environ, "RALLYPOINT_POD": uid}
    command = [sys.executable, "-c", SERVER, host, str(port)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def pod_named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}}


async def answer(loopback: Loopback, name: str, port: int) -> str:
    with await loopback.connect(pod_named(name), port) as connection:
        return (await asyncio.get_running_loop().sock_recv(connection, 100)).decode()


@pytest.mark.looptime(False)
async def test_of_two_pods_that_listen_on_a_port_each_is_reached(loopback: Loopback) -> None:
    """At their own addresses, which is usual."""
    first, second = (loopback.pod_address(pod_named(name)) for name in ("first", "second"))
    with server("first", first) as port, server("second", second, port):
        assert [await answer(loopback, name, port) for name in ("first", "second")] == ["first", "second"]
        with pytest.raises(ConnectionRefusedError):
            await answer(loopback, "third", port)


@pytest.mark.looptime(False)
async def test_many_connections_search_the_processes_once(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process_iter() -> Iterator[psutil.Process]:
        searches.append(None)
        return all_processes()

    searches: list[None] = []
    all_processes = psutil.process_iter
    monkeypatch.setattr(psutil, "process_iter", process_iter)
    with server("first", "127.0.0.1") as port:
        assert {*await asyncio.gather(*(answer(loopback, "first", port) for _ in range(20)))} == {"first"}
        assert len(searches) == 1
    with pytest.raises(ConnectionRefusedError):
        await answer(loopback, "first", port)
    with server("first", "127.0.0.2", port):  # It is found as soon as it listens.
        assert await answer(loopback, "first", port) == "first"


def no_image(name: str) -> None:
    return None


def test_a_container_needs_a_command() -> None:
    assert rejection(pod(), no_image) == ""
    assert rejection(pod(command=None, args=["--epochs=1"]), no_image) == (
        'container "main" has no command; the command of image x is unknown, because images are not pulled; '
        "set command, or start with --image x=CONFIG"
    )


def test_python_is_the_interpreter_of_the_node() -> None:
    env = user_environment(
        {"PATH": "/usr/bin", "HOME": "/me", "KUBECONFIG": "/me/theirs"}, "/venv/bin/python"
    )

    assert env == {"PATH": "/venv/bin:/usr/bin", "HOME": "/me"}


EMPTY = [{"name": "v", "emptyDir": {}}]
AT_DATA = [{"name": "v", "mountPath": "/data"}]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(pod(volumes_=EMPTY), "", id="not mounted"),
        pytest.param(
            pod(volumes_=EMPTY, volumeMounts=AT_DATA, args=["/data/x"]), "", id="spelled in the arguments"
        ),
        pytest.param(
            pod(volumes_=EMPTY, volumeMounts=AT_DATA, env=[{"name": "D", "value": "/data"}]),
            "",
            id="spelled in env",
        ),
        pytest.param(
            pod(volumes_=EMPTY, volumeMounts=AT_DATA),
            'volume "v" cannot be mounted in container "main" at /data',
            id="spelled nowhere",
        ),
        pytest.param(
            pod(
                volumes_=[{"name": "v", "emptyDir": {"medium": "Memory"}}],
                volumeMounts=[{"name": "v", "mountPath": "/dev/shm"}],
            ),
            "",
            id="shared memory",
        ),
        pytest.param(
            pod(volumes_=[{"name": "v", "hostPath": {"path": "/data"}}], volumeMounts=AT_DATA),
            "",
            id="a host path at the same path",
        ),
        pytest.param(
            pod(volumes_=[{"name": "v", "nfs": {}}], volumeMounts=AT_DATA),
            'volume "v" is a nfs, which local mode does not provide',
            id="another kind of volume",
        ),
        pytest.param(
            pod(volumeMounts=AT_DATA), 'mounts volume "v", which the pod does not have', id="no such volume"
        ),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_rejected(
    loopback: Loopback, manifest: dict[str, Any], words: str
) -> None:
    reason = loopback.rejection(manifest)

    assert words in reason
    assert bool(words) == bool(reason)


def test_a_taken_port_is_replaced_in_the_manifest(loopback: Loopback) -> None:
    """MASTER_PORT belongs to MASTER_ADDR, and both pods of the job get the same value."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        taken = str(listener.getsockname()[1])
        env = [
            {"name": "MASTER_PORT", "value": taken},
            {"name": "MASTER_ADDR", "value": "job-master-0"},
            {"name": "OTHER_PORT", "value": taken},
        ]
        worker = started(loopback, pod(env=env, args=[f"job-master-0:{taken}", "--port=$(MASTER_PORT)"]))
        manifest = pod(env=env)
        manifest["metadata"]["name"] = "job-master-0"
        master = started(loopback, manifest)
    moved = worker.env["MASTER_PORT"]

    assert moved != taken
    assert master.env["MASTER_PORT"] == moved
    assert worker.env["OTHER_PORT"] == taken
    assert worker.argv == ["run", f"{worker.env['MASTER_ADDR']}:{moved}", f"--port={moved}"]


OWN_IP = {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def test_a_pods_own_address_has_the_port_that_others_find_it_by(loopback: Loopback) -> None:
    """Paddle's first pod is told of itself by address, the others by name; it serves at 127.0.0.1 alone."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        itself = f"$(POD_IP_DUMMY):{taken}"
        env = [OWN_IP, {"name": "PADDLE_MASTER", "value": itself}, {"name": "BIND", "value": itself}]
        first = started(loopback, pod(env=env))
        other = pod(env=[{"name": "PADDLE_MASTER", "value": f"job-worker-0:{taken}"}])
        other["metadata"]["name"] = "job-worker-1"
        second = started(loopback, other)
    address, port = second.env["PADDLE_MASTER"].split(":")

    assert port != str(taken)
    assert address == first.env["POD_IP_DUMMY"]
    assert first.env["BIND"] == f"{address}:{port}"
    assert first.env["PADDLE_MASTER"] == f"127.0.0.1:{port}"


def test_a_port_is_reserved_for_its_job_until_the_last_pod_ends(loopback: Loopback) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])

    def ports(*jobs: str) -> list[str]:
        return [started(loopback, job_pod(job, port)).argv[1].rpartition(":")[2] for job in jobs]

    first, second = ports("a", "b")
    loopback.network.put_pod(job_pod("a", port))
    loopback.discard(job_pod("a", port))
    assert (first, second != port, ports("a", "b")) == (port, True, [first, second])
    loopback.network.drop_pod(("default", "a-worker-0"))
    loopback.discard(job_pod("a", port))
    assert ports("c") == [port]


def job_pod(job: str, port: str) -> dict[str, Any]:
    manifest = pod(args=[f"{job}-master-0:{port}"])
    owners = [{"name": job, "uid": job, "controller": True}]
    manifest["metadata"] |= {"name": f"{job}-worker-0", "uid": job, "ownerReferences": owners}
    return manifest


def test_command_and_arguments_know_all_variables(loopback: Loopback) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "JOB", "value": "job"}]
    manifest = pod(command=["sh", "-c"], args=["echo $(A) $HOME $$(A) $(JOB)-master-0"], env=env)
    master = loopback.network.address_of(manifest, "job-master-0")

    assert started(loopback, manifest).argv == ["sh", "-c", f"echo 1 $HOME $(A) {master}"]


MPI = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "job"}


def mpi_pod(**container: Any) -> dict[str, Any]:
    manifest = pod(volumes_=[{"name": "mpi-job-config", "configMap": {"name": "c"}}], **container)
    manifest["metadata"]["labels"] = MPI
    return manifest


def test_paths_of_mounts_are_replaced_in_files(loopback: Loopback, tmp_path: Path) -> None:
    """Of those that mean the same in all containers of the pod."""
    manifest = mpi_pod(volumeMounts=[{"name": "mpi-job-config", "mountPath": "/etc/mpi"}])
    file = loopback.rewrite(manifest, "#!/bin/sh\nexec /etc/mpi/kubexec.sh /opt/mpi\n")

    assert file == f"#!/bin/sh\nexec {tmp_path}/u/mpi-job-config/kubexec.sh /opt/mpi\n"
    manifest["spec"]["initContainers"] = [
        {"name": "i", "volumeMounts": [{"name": "mpi-job-config", "mountPath": "/etc/mpi", "subPath": "x"}]}
    ]
    assert loopback.rewrite(manifest, "/etc/mpi/x") == "/etc/mpi/x"


def test_slots_after_a_host_are_not_a_port(loopback: Loopback) -> None:
    manifest = mpi_pod()
    hosts = loopback.rewrite(manifest, "".join(f"job-worker-{i}.job.default.svc:2\n" for i in range(3)))

    assert hosts == "".join(
        f"{loopback.network.address_of(manifest, f'job-worker-{i}')}:2\n" for i in range(3)
    )


def test_mounts_of_an_mpi_operator_are_always_accepted(loopback: Loopback) -> None:
    mounts = [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    manifest = mpi_pod(volumeMounts=mounts)
    other = pod(volumes_=manifest["spec"]["volumes"], volumeMounts=mounts)

    assert loopback.rejection(manifest) == ""
    assert "cannot be mounted" in loopback.rejection(other)


def test_open_mpi_has_its_own_session_folder(loopback: Loopback) -> None:
    assert "OMPI_MCA_btl" not in started(loopback, pod()).env
    assert started(loopback, mpi_pod()).env["OMPI_MCA_orte_tmpdir_base"].endswith("/u/.mpi")


@pytest.mark.parametrize(
    ("person", "is_root", "allowed"), [({}, True, "1"), ({}, False, None), ({"A": ""}, True, "1")]
)
def test_mpirun_is_allowed_to_run_as_root(person: dict[str, str], is_root: bool, allowed: str | None) -> None:
    env = user_environment(person, "/bin/python", is_root=is_root)

    assert env.get("OMPI_ALLOW_RUN_AS_ROOT") == env.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == allowed
