"""A folder as an image: what a container sees, and what it does not change."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.containers.images import BadImage, Image, Images, command_line, named
from rallypoint.local.node.containers.launch import BaseEnvironment, image_environment
from rallypoint.local.node.containers.process import CapturedProcess
from rallypoint.local.node.sandbox.client import NoNamespaces
from rallypoint.local.node.sandbox.selection import IsolationMode, choose
from rallypoint.local.node.volumes.manager import CONFIG_MAPS
from rallypoint.testing.rootfs import build
from tests.support.local_harness import LocalHarness, phase, start_local_harness

PERSON = {"A": "person"}
MACHINE = BaseEnvironment(PERSON, "/home/person")

pytestmark = pytest.mark.looptime(False)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return build(tmp_path / "im,age:root")


@pytest.fixture
async def harness(
    tmp_path: Path, image: Path, isolations: list[IsolationMode]
) -> AsyncIterator[LocalHarness]:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    async with start_local_harness(
        tmp_path, "namespaces", images=Images({"small": Image.read(image)})
    ) as harness:
        yield harness


async def said(harness: LocalHarness, script: str, name: str = "a", **container: Any) -> str:
    await harness.pod(name, "sh", "-c", script, image="small", **container)
    await harness.wait_for_end(name)
    return await harness.log(name)


async def test_a_container_reads_its_image_and_writes_do_not_change_it(
    harness: LocalHarness, image: Path
) -> None:
    script = "cat /etc/release; echo x > /etc/release; mkdir /new; cat /etc/release; ls /home /usr/bin/env 2>/dev/null; pwd"

    assert await said(harness, script) == "small\nx\n/\n"
    assert (image / "etc" / "release").read_text() == "small\n"
    assert not (image / "new").exists()
    assert await said(harness, "cat /etc/release", "b") == "small\n"


async def test_the_environment_of_the_user_is_not_inherited(harness: LocalHarness) -> None:
    variables = dict(line.partition("=")[::2] for line in (await said(harness, "env")).splitlines())
    given = ("KUBERNETES_", "CUDA_", "NVIDIA_")

    assert variables["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert variables["HOSTNAME"] == "a"
    assert {name for name in variables if not name.startswith(given)} <= {
        *("PATH", "HOME", "HOSTNAME", "RALLYPOINT_POD"),
        *("PWD", "OLDPWD", "SHLVL", "_"),  # A shell's own.
    }


async def test_every_container_has_devices_and_file_systems(harness: LocalHarness) -> None:
    script = (
        "cat /etc/hostname; head -c 3 /dev/zero > /dev/shm/x && echo shm; [ -d /proc/self ] && echo proc; "
        "[ -d /sys/kernel ] && echo sys; echo last > /dev/termination-log; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace"
    )

    assert await said(harness, script) == "a\nshm\nproc\nsys\ndefault"
    pod = await harness.wait_for_end("a")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "last\n"
    assert "kubernetes.default.svc" in await said(harness, "cat /etc/hosts", "b")


async def test_volumes_are_at_their_paths(harness: LocalHarness) -> None:
    """Through a link of the image's own, which must not lead to the machine's."""
    await harness.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "value"}})
    volumes = [
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "m", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [
        {"name": "c", "mountPath": "/var/run/config"},
        {"name": "m", "mountPath": "/new/deep/memory", "subPath": "part"},
    ]
    script = "cat /run/config/key; touch /run/config/x || echo ' ro'; echo m > /new/deep/memory/x; cat /new/deep/memory/x"
    await harness.pod(
        *("a", "sh", "-c", script),
        image="small",
        volumeMounts=mounts[:2] + mounts[3:],
        spec={"volumes": volumes},
    )
    await harness.wait_for_end("a")
    lines = (await harness.log("a")).splitlines()

    assert lines[0].startswith("value")
    assert "Read-only file system" in "".join(lines)
    assert lines[-1] == "m"


async def test_a_working_directory_is_made(harness: LocalHarness) -> None:
    assert await said(harness, "pwd; touch x && echo mine", workingDir="/srv/deep") == "/srv/deep\nmine\n"


async def test_a_restarted_container_has_an_unchanged_image(harness: LocalHarness) -> None:
    script = "[ -f /tmp/been ] && echo found; touch /tmp/been; exit 1"
    await harness.pod("a", "sh", "-c", script, image="small:latest", spec={"restartPolicy": "OnFailure"})
    await harness.wait_for(
        "a",
        lambda pod: (
            "CrashLoopBackOff" in str((pod["status"].get("containerStatuses") or [{}])[0].get("state"))
        ),
    )

    assert await harness.log("a") == ""


async def test_a_command_enters(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "echo inside > /tmp/x; echo up; exec sleep 1000", image="small")
    await harness.wait_for_log("a", "up")
    written: list[bytes] = []
    pod = await harness.wait_for("a", phase)
    command = ["sh", "-c", "cat /tmp/x; pwd"]
    entered = await CapturedProcess.start(
        lambda streams: harness.node.enter(pod, "main", command, streams), written.append
    )

    assert await entered.wait() == 0
    assert b"".join(written) == b"inside\n/\n"


async def test_pods_with_other_images_run_on_the_machine(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", "ls /usr/bin/env", image="other")
    await harness.wait_for_end("a")

    assert await harness.log("a") == "/usr/bin/env\n"


async def test_a_program_missing_in_the_image(harness: LocalHarness) -> None:
    await harness.pod("a", "python3", image="small")
    pod = await harness.wait_for_end("a")

    assert 'exec: "python3"' in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]


async def test_images_need_namespaces(tmp_path: Path, image: Path) -> None:
    with pytest.raises(NoNamespaces, match="needs --isolation namespaces"):
        await choose("loopback", tmp_path, images=Images({"small": Image(image)}))


async def test_a_folder_that_cannot_be_a_root_is_rejected(
    tmp_path: Path, isolations: list[IsolationMode]
) -> None:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    with pytest.raises(NoNamespaces, match="/nosuch cannot be the file system of image small"):
        await choose("namespaces", tmp_path, images=Images({"small": Image(Path("/nosuch"))}))


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("h:5000/a", "h:5000/a:latest"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_a_name_without_a_tag_means_latest(name: str, full: str) -> None:
    assert named(name) == full


def test_the_home_folder_comes_from_the_image(image: Path, tmp_path: Path) -> None:
    assert Image(image).environment(0, PERSON)["HOME"] == "/root"
    assert Image(image).environment(7, PERSON)["HOME"] == "/"
    assert Image(tmp_path).environment(0, PERSON)["HOME"] == "/"


def test_a_config_without_a_folder_runs_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"Env": ["B=2"]}))
    base = image_environment(Image.read(tmp_path / "config.json"), 0, MACHINE)

    assert base.env == {"A": "person", "B": "2"}
    assert base.folder == MACHINE.folder


CONFIG = {"Entrypoint": ["/entry"], "Cmd": ["serve"], "Env": ["A=1", "PATH=/opt/bin"], "WorkingDir": "/work"}


def with_config(folder: Path, config: Any) -> Image:
    folder.mkdir()
    folder.with_name(f"{folder.name}.json").write_text(json.dumps(config))
    return Image.read(folder)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({}, ["/entry", "serve"], id="neither command nor args"),
        pytest.param({"args": ["x"]}, ["/entry", "x"], id="args replace those of the image"),
        pytest.param({"command": ["c"]}, ["c"], id="a command drops those of the image"),
        pytest.param({"command": ["c"], "args": ["x"]}, ["c", "x"], id="both"),
    ],
)
def test_the_command_line_is_combined_as_in_a_cluster(
    tmp_path: Path, container: dict[str, Any], expected: list[str]
) -> None:
    assert command_line(container, with_config(tmp_path / "image", CONFIG)) == expected


@pytest.mark.parametrize("wrapped", [False, True], ids=["the config alone", "a whole image configuration"])
def test_variables_and_working_directory_come_from_the_config(tmp_path: Path, wrapped: bool) -> None:
    image = with_config(tmp_path / "image", {"config": CONFIG} if wrapped else CONFIG)
    base = image_environment(image, 0, MACHINE)

    assert base.env == {"PATH": "/opt/bin", "HOME": "/", "A": "1"}
    assert base.folder == "/work"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ([], "Expected `object`"),
        ({"Entrypoint": "sh"}, r"\$.Entrypoint"),
        ({"Env": ["A"]}, "Env: 'A' is not NAME=VALUE"),
    ],
    ids=["no object", "an entrypoint in one string", "a variable without a value"],
)
def test_an_invalid_config_is_rejected_with_its_file_and_field(tmp_path: Path, config: Any, why: str) -> None:
    with pytest.raises(BadImage, match=rf"image\.json: .*{why}"):
        with_config(tmp_path / "image", config)


@pytest.mark.parametrize("config", [None, {}], ids=["unknown", "without one"])
def test_arguments_alone_need_a_known_entrypoint(tmp_path: Path, config: Any) -> None:
    known = with_config(tmp_path / "image", config) if config is not None else Image()

    assert command_line({"args": ["x"]}, known) == (["x"] if config is not None else [])


async def test_a_container_without_a_command_runs_the_command_of_its_image(
    tmp_path: Path, isolations: list[IsolationMode]
) -> None:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    folder = build(tmp_path / "image")
    (folder / "work").mkdir()
    config = {"Entrypoint": ["sh", "-c"], "Cmd": ["pwd; echo $A"], "Env": ["A=1"], "WorkingDir": "/work"}
    folder.with_name("image.json").write_text(json.dumps(config))
    async with start_local_harness(
        tmp_path / "run", "namespaces", images=Images({"small": Image.read(folder)})
    ) as harness:
        await harness.pod("a", image="small", command=None)
        await harness.wait_for_end("a")

        assert await harness.log("a") == "/work\n1\n"
