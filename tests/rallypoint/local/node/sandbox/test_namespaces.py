"""Pods in Linux namespaces, through the sandbox daemon: paths, names, ports and termination."""

import asyncio
import fcntl
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.process import CapturedProcess, Launch, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.sandbox.client import DAEMON_PROGRAM
from rallypoint.local.node.sandbox.daemon.links import BRIDGE
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.sandbox.selection import IsolationMode, choose
from rallypoint.local.node.volumes.setup import Mount

pytestmark = pytest.mark.looptime(False)

PATH = os.environ["PATH"]
SIOCGIFHWADDR = 0x8927
"""The ioctl that reads the hardware address of an interface."""


@pytest.fixture
async def node(tmp_path: Path, isolations: list[IsolationMode]) -> AsyncIterator[Isolation]:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    chosen = await choose("namespaces", tmp_path)
    yield chosen.isolation
    await chosen.isolation.close()


class Bench:
    """Pods on ``node``."""

    def __init__(self, node: Isolation) -> None:
        self.node = node

    async def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        pod = {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {}},
            "spec": {"containers": [], **spec},
        }
        volumes = {
            volume["name"]: self.volume_path(pod, volume["name"]) for volume in spec.get("volumes", ())
        }
        await self.node.prepare(pod, volumes)
        return pod

    def volume_path(self, pod: dict[str, Any], volume: str) -> Path:
        path: Path = self.node.folder / pod["metadata"]["uid"] / volume
        path.mkdir(parents=True, exist_ok=True)
        return path

    async def start(
        self,
        pod: dict[str, Any],
        script: str,
        output: Callable[[bytes], None],
        *mounts: Mount,
        folder: str = "/",
    ) -> CapturedProcess:
        launch = self.node.adapt(pod, Launch(["sh", "-c", script], {"PATH": PATH}, folder, mounts))
        return await CapturedProcess.start(
            lambda streams: self.node.start(pod, "main", launch, streams), output
        )

    async def says(
        self, pod: dict[str, Any], script: str, *mounts: Mount, folder: str = "/"
    ) -> tuple[int, str]:
        output: list[bytes] = []
        process = await self.start(pod, script, output.append, *mounts, folder=folder)
        return await process.wait(), b"".join(output).decode()


def names(folder: Path | str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


@pytest.fixture
def bench(node: Isolation) -> Bench:
    return Bench(node)


async def test_a_pod_has_its_own_name_and_address(bench: Bench) -> None:
    pod = await bench.pod("a")
    address = bench.node.pod_address(pod)
    ask = "hostname; cat /etc/hostname; python3 -c \"import socket; print(socket.gethostbyname('a'))\""

    assert await bench.says(pod, ask) == (0, f"a\na\n{address}\n")
    assert socket.gethostname() != "a"


async def test_volumes_are_at_their_paths_and_the_machine_is_unchanged(bench: Bench, tmp_path: Path) -> None:
    """At a path that does not exist, below one that does, in the root, and inside another volume."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own").write_text("own")
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "inner", "emptyDir": {}}]
    pod = await bench.pod("a", volumes=volumes)
    (bench.volume_path(pod, "v") / "f").write_text("f")
    (bench.volume_path(pod, "inner") / "g").write_text("g")
    paths = [f"{tmp_path}/there/new/deep", "/nowhere-else/v", "/etc/nowhere-else"]
    mounts = [Mount("v", path, bench.volume_path(pod, "v")) for path in paths]
    inner = Mount("inner", "/nowhere-else/v/inner", bench.volume_path(pod, "inner"))
    ask = f"cat {' '.join(f'{path}/f' for path in paths)} /nowhere-else/v/inner/g {tmp_path}/there/own; echo x > /nowhere-else/v/x"

    assert await bench.says(pod, ask, *mounts, inner) == (0, "fffgown")
    assert (bench.volume_path(pod, "v") / "x").read_text() == "x\n"
    assert not any("nowhere-else" in names(folder) for folder in ("/", "/etc"))
    assert names(tmp_path / "there") == ["own"]


async def test_a_file_can_be_mounted_over_a_file_and_where_none_is(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    pod = await bench.pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    file = bench.volume_path(pod, "v") / "f"
    file.write_text("new")
    mounts = [Mount("v", f"{tmp_path}/{name}", file) for name in ("old", "none")]

    assert await bench.says(pod, f"cat {tmp_path}/old {tmp_path}/none", *mounts) == (0, "newnew")
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize(
    ("volume", "read_only"),
    [
        pytest.param({"name": "v", "emptyDir": {}}, True, id="as the mount wants it"),
        pytest.param({"name": "v", "configMap": {"name": "c"}}, False, id="as a ConfigMap always is"),
        pytest.param({"name": "v", "secret": {"secretName": "c"}}, False, id="as a Secret always is"),
    ],
)
async def test_a_volume_is_read_only(bench: Bench, volume: dict[str, Any], read_only: bool) -> None:
    pod = await bench.pod("a", volumes=[volume])
    mount = Mount("v", "/nowhere-else", bench.volume_path(pod, "v"), read_only)
    code, said = await bench.says(pod, "touch /nowhere-else/x", mount)

    assert (code, "Read-only file system" in said) == (1, True)


async def test_memory_volumes_are_shared_within_a_pod_only(bench: Bench) -> None:
    volumes = [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    a, b = await bench.pod("a", volumes=volumes), await bench.pod("b", volumes=volumes)
    at = "/nowhere-else"
    await bench.says(a, f"echo 1 > {at}/x; echo 2 > /dev/shm/x", Mount("m", at, bench.volume_path(a, "m")))
    other = Mount("m", "/other", bench.volume_path(a, "m"))

    assert await bench.says(a, "cat /other/x /dev/shm/x", other) == (0, "1\n2\n")
    assert (await bench.says(b, "cat /dev/shm/x"))[0] == 1
    assert names(bench.volume_path(a, "m")) == []
    code, said = await bench.says(a, "head -c 2M /dev/zero > /other/y", other)
    assert (code, "No space left" in said) == (1, True)


async def test_a_folder_of_a_volume_in_memory(bench: Bench) -> None:
    pod = await bench.pod("a", volumes=[{"name": "m", "emptyDir": {"medium": "Memory"}}])
    inside = Mount("m", "/nowhere-else", bench.volume_path(pod, "m") / "sub" / "path")

    assert await bench.says(pod, "echo 1 > /nowhere-else/x; cat /nowhere-else/x", inside) == (0, "1\n")


async def test_pods_reach_each_other_and_can_use_the_same_port(bench: Bench) -> None:
    first, second, client = [await bench.pod(name) for name in ("one", "two", "client")]
    serve = (
        "exec python3 -c \"import socket; s = socket.create_server(('0.0.0.0', 80)); print('up', flush=True)\n"
        'while True: c, _ = s.accept(); c.sendall(socket.gethostname().encode()); c.close()"'
    )
    running = []
    for pod in (first, second):
        up: asyncio.Queue[bytes] = asyncio.Queue()
        running.append(await bench.start(pod, serve, up.put_nowait))
        await up.get()
    addresses = [bench.node.pod_address(pod) for pod in (first, second)]
    ask = (
        f"import socket\nfor a in {addresses}: print(socket.create_connection((a, 80), 10).recv(9).decode())"
    )

    assert await bench.says(client, f'python3 -c "{ask}"') == (0, "one\ntwo\n")
    for process in running:
        process.send(signal.SIGTERM)
        assert await process.wait() == 143


async def test_the_hardware_address_of_the_bridge_never_changes(bench: Bench) -> None:
    expected = "02:00:" + ":".join(f"{int(part):02x}" for part in bench.node.node_address.split("."))
    with await bench.node.socket() as inside:
        assert hardware_address(inside) == expected
        for name in "abc":
            await bench.pod(name)
            assert hardware_address(inside) == expected


def hardware_address(inside: socket.socket) -> str:
    """Return the hardware address of the bridge, in the network namespace of the socket."""
    found = fcntl.ioctl(inside, SIOCGIFHWADDR, struct.pack("256s", BRIDGE.encode()))
    return found[18:24].hex(":")


async def test_the_machine_has_no_access_to_the_network_of_pods(bench: Bench) -> None:
    pod = await bench.pod("a")
    code, links = await bench.says(pod, "cd /proc/net; cat dev")

    assert (code, "eth0" in links) == (0, True)
    assert not any(
        address.address == bench.node.pod_address(pod)
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
    )


async def test_a_command_enters_a_container_that_runs(bench: Bench) -> None:
    pod = await bench.pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    up = asyncio.Event()
    mount = Mount("v", "/nowhere-else", bench.volume_path(pod, "v"))
    script = "echo here > /nowhere-else/f; echo up; exec sleep 1000"
    main = await bench.start(pod, script, lambda _: up.set(), mount)
    await up.wait()
    said: list[bytes] = []

    async def enter(script: str) -> CapturedProcess:
        launch = Launch(["sh", "-c", script], {"PATH": PATH}, "/nowhere-else")
        return await CapturedProcess.start(
            lambda streams: bench.node.enter(pod, "main", launch, streams), said.append
        )

    assert await (await enter("cat f; hostname; exit 5")).wait() == 5
    assert b"".join(said) == b"here\na\n"
    stays = await enter("exec sleep 1000")
    main.send(signal.SIGKILL)
    assert await main.wait() == 137
    assert await stays.wait() == 137
    with pytest.raises(CannotStart):
        await enter("true")


async def test_a_terminal_controls_what_enters(bench: Bench) -> None:
    pod = await bench.pod("a")
    main = await bench.start(pod, "exec sleep 1000", lambda _: None)
    ours, its = os.openpty()
    launch = Launch(["sh", "-c", "echo line > /dev/tty"], {"PATH": PATH}, "/")
    process = await bench.node.enter(pod, "main", launch, Streams(its, its, its, terminal=True))
    os.close(its)

    assert await process.wait() == 0
    assert os.read(ours, 100) == b"line\r\n"
    os.close(ours)
    main.send(signal.SIGKILL)
    await main.wait()


@pytest.mark.parametrize(
    ("argv", "folder", "words"),
    [
        pytest.param(["nosuch"], "/", "executable file not found in $PATH", id="no program"),
        pytest.param(["true"], "/nowhere-else", "no such file or directory", id="no folder"),
        pytest.param(["/etc/passwd"], "/", "permission denied", id="no permission"),
    ],
)
async def test_a_failed_start_is_named(bench: Bench, argv: list[str], folder: str, words: str) -> None:
    pod = await bench.pod("a")
    with pytest.raises(CannotStart) as raised:
        await bench.node.start(pod, "main", Launch(argv, {"PATH": PATH}, folder), Streams(0, 1, 2))

    assert words in str(raised.value)


async def test_a_mount_that_is_impossible_is_named(bench: Bench) -> None:
    pod = await bench.pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    with pytest.raises(CannotStart) as raised:
        await bench.says(pod, "true", Mount("v", "/etc/passwd", bench.volume_path(pod, "v")))

    assert str(raised.value) == "mount /etc/passwd: Not a directory"


async def test_everything_of_a_container_ends_with_it(bench: Bench, left: Callable[[], list[str]]) -> None:
    pod = await bench.pod("a")
    process = await bench.start(pod, "setsid sleep 1000 & sleep 1000 & exit 3", lambda _: None)

    assert await process.wait() == 3
    assert not any("sleep 1000" in line for line in left())


async def test_everything_ends_with_the_daemon(bench: Bench) -> None:
    """Killing the daemon kills its processes and ends all waits."""
    pod = await bench.pod("a")
    process = await bench.start(pod, "exec sleep 1000", lambda _: None)
    (daemon,) = (child for child in psutil.Process().children() if DAEMON_PROGRAM in child.cmdline())
    (first,) = daemon.children()
    (sleeper,) = first.children()
    daemon.kill()

    assert await process.wait() == 137
    psutil.wait_procs([first, sleeper], timeout=30)
    assert not first.is_running()
    assert not sleeper.is_running()
    with pytest.raises(CannotStart):
        await bench.says(pod, "true")


async def test_a_cancelled_wait_kills_first(bench: Bench, left: Callable[[], list[str]]) -> None:
    pod = await bench.pod("a")
    process = await bench.start(pod, "exec sleep 1000", lambda _: None)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert not any("sleep 1000" in line for line in left())


async def test_a_recreated_pod_keeps_its_address(bench: Bench) -> None:
    addresses = []
    for _ in range(2):
        pod = await bench.pod("a")
        addresses.append(bench.node.pod_address(pod))
        assert (await bench.says(pod, "true"))[0] == 0
        bench.node.release(pod)
        bench.node.discard(pod)

    assert addresses[0] == addresses[1]


async def test_an_incomplete_preparation_is_repeated(bench: Bench) -> None:
    pod = await bench.pod("a")
    await bench.node.prepare(pod, {})

    assert await bench.says(pod, "hostname") == (0, "a\n")


async def test_devices_and_the_termination_message_file_are_available(bench: Bench, tmp_path: Path) -> None:
    pod = await bench.pod("a")
    words = tmp_path / "words"
    words.touch()
    ask = "test -c /dev/null && echo gone > /dev/null && echo said > /dev/termination-log"

    assert await bench.says(pod, ask, Mount("words", "/dev/termination-log", words)) == (0, "")
    assert words.read_text() == "said\n"
    assert "termination-log" not in names("/dev")


async def test_a_missing_volume_is_rejected(bench: Bench) -> None:
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}

    assert bench.node.rejection(pod) == 'container "main" mounts volume "v", which the pod does not have'


async def test_nothing_of_the_manifest_is_rewritten(bench: Bench) -> None:
    pod = await bench.pod("a")
    found = {"A": Variable("A", "job-master-0:1 /data")}
    mounts = [Mount("v", "/data", Path("/elsewhere"))]

    assert bench.node.variables(pod, found, mounts) == {"A": "job-master-0:1 /data"}
    assert bench.node.paths("/data", mounts) == "/data"
    assert bench.node.rewrite(pod, "job-master-0") == "job-master-0"


async def test_egress_reaches_addresses_outside_of_the_machine(
    tmp_path: Path, isolations: list[IsolationMode]
) -> None:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    out = (await choose("namespaces", tmp_path, egress=True)).isolation
    bench = Bench(out)
    pod = await bench.pod("a")
    # The machine's own loopback stands for the world: the proxy connects from there.
    ask = f"env -u no_proxy -u NO_PROXY python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}').read())\""
    said = await bench.says(pod, ask)
    await out.close()
    server.close()

    assert said == (0, "b'data'\n")
