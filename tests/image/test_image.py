"""The image itself, for every architecture: the same from two clones, small, and started as a pod starts it. `make image-test`.

What runs are builds of the last commit.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.unprivileged_user import UIDS, command_as, uid_label
from tools.image import ImageError, build, oci
from tools.image.build import Sources
from tools.image.start import Container
from tools.packages import as_root

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = {"archive": 30_000_000, "unpacked": 85_000_000, "operator": 1_600_000}
"""Not much more than there is, so that growth is noticed. The operator's layer has its sources, a third of it, and their bytecode.

The operator imports all of it, except the agent, which it puts into pods, and ``python -m controller.crds``, 3 % of the layer.
"""
CREDENTIALS = "import os; print(os.getuid(), os.getgid())"
WRITE = "open('/opt/rallypoint/x', 'w')"
START = """\
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tools.image import oci
from tools.image.start import Container
with Container(*oci.read(Path({archive!r}))) as container:
    print(container.run("--version"))
"""
TRUST = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'] > 100)"


def clone_and_build(folder: Path, **variables: str) -> Path:
    """Build the image in a clone of this repository, in a process of its own; return the folder of the archives."""
    checkout = folder / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    command = [sys.executable, "-m", "tools.image", "build", "--output", str(folder / "out")]
    environment = {**os.environ, "PYTHONPATH": str(checkout), **variables}
    subprocess.run(command, cwd=checkout, env=environment, check=True)
    return folder / "out"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_and_build(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def summary(built: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((built / "image.json").read_text())
    return found


@pytest.fixture(scope="module")
def container(built: Path) -> Generator[Container]:
    """The image for amd64, as this user can run it."""
    with Container(*oci.read(built / "image-amd64.tar")) as container:
        yield container


def test_another_clone_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """In another folder, with another umask and time zone, a home of its own and nothing in the cache."""
    (tmp_path / "home").mkdir()
    before = os.umask(0o077)
    try:
        other = clone_and_build(
            tmp_path / "longer" / "path",
            HOME=str(tmp_path / "home"),
            XDG_CACHE_HOME=str(tmp_path / "home" / ".cache"),
            TZ="Pacific/Auckland",
            LC_ALL="C",
        )
    finally:
        os.umask(before)

    names = {path.name for path in built.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    assert [
        name for name in sorted(names) if (built / name).read_bytes() != (other / name).read_bytes()
    ] == []


def test_image_json_names_the_digests_of_the_archives(built: Path, summary: dict[str, Any]) -> None:
    for image in summary["images"]:
        archive = built / image["archive"]
        config, _ = oci.read(archive)
        assert config["architecture"] == image["architecture"]
        assert image["digest"].removeprefix("sha256:") in archive.read_bytes().decode(errors="replace")
        assert archive.stat().st_size == image["size_bytes"]
    assert {image["architecture"] for image in summary["images"]} == {"amd64", "arm64"}


def test_the_image_is_small(summary: dict[str, Any]) -> None:
    for image in summary["images"]:
        (operator,) = (layer for layer in image["layers"] if layer["name"] == "operator")
        assert image["size_bytes"] < LIMIT_BYTES["archive"]
        assert image["unpacked_bytes"] < LIMIT_BYTES["unpacked"]
        assert operator["size_bytes"] < LIMIT_BYTES["operator"]


def test_an_upgrade_pulls_the_layer_of_the_operator_only(
    summary: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "2000000000")
    found = build.sources(ROOT / "requirements" / "operator.txt", "", None, tmp_path)
    later = Sources(found.lock, found.wheel, found.metadata, "a later commit", found.epoch)

    (before, _), (after,) = (
        summary["images"],
        build.build(tmp_path / "out", later, ["amd64"], start=False)["images"],
    )

    assert before["digest"] != after["digest"]
    assert [layer["digest"] for layer in before["layers"][:2]] == [
        layer["digest"] for layer in after["layers"][:2]
    ]


def test_the_operator_starts_as_its_user(container: Container) -> None:
    assert "usage:" in container.run("--help")
    # The namespace of an ordinary user maps that user only.
    expected = "0 0\n" if as_root() is None else "65532 65532\n"
    assert container.run("-c", CREDENTIALS, entrypoint=["python"]) == expected


@pytest.mark.parametrize("uid", UIDS if os.geteuid() == 0 else (os.geteuid(),), ids=uid_label)
def test_an_ordinary_user_starts_it_too(uid: int, built: Path, tmp_path: Path) -> None:
    archive = shutil.copy(built / "image-amd64.tar", tmp_path)
    command = command_as(tmp_path, START.format(root=str(ROOT), archive=str(archive)), uid)

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("rallypoint-operator ")


def test_the_file_system_is_read_only(container: Container) -> None:
    with pytest.raises(ImageError, match="Read-only file system"):
        container.run("-c", WRITE, entrypoint=["python"])


def test_debians_certificate_authorities_are_trusted(container: Container) -> None:
    assert container.run("-c", TRUST, entrypoint=["python"]) == "True\n"
