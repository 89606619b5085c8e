"""Images as archive files: the manifest describes their layers."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from rallypoint.testing.cluster.archive import Image, write


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def written(tmp_path: Path, **image: Any) -> tarfile.TarFile:
    """Two images with a common layer; the second has another layer above it, and ``image`` are its fields."""
    for name in ("lower", "upper"):
        (tmp_path / name / "etc").mkdir(parents=True)
        (tmp_path / name / "etc" / name).write_text(name)
    lower = Image("registry.local/x:1", (tmp_path / "lower",))
    upper = Image("registry.local/y:1", (tmp_path / "lower", tmp_path / "upper"), **image)
    return tarfile.open(write([lower, upper], tmp_path / "images.tar"))


def test_layers_are_named_in_order_and_by_their_digests(tmp_path: Path) -> None:
    with written(tmp_path) as archive:
        for manifest in json.loads(read(archive, "manifest.json")):
            config = json.loads(read(archive, manifest["Config"]))
            digests = [hashlib.sha256(read(archive, name)).hexdigest() for name in manifest["Layers"]]
            assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]


def test_a_shared_layer_is_stored_once(tmp_path: Path) -> None:
    with written(tmp_path) as archive:
        lower, upper = json.loads(read(archive, "manifest.json"))
        names = archive.getnames()

    assert (lower["RepoTags"], upper["RepoTags"]) == (["registry.local/x:1"], ["registry.local/y:1"])
    assert upper["Layers"][:1] == lower["Layers"]
    assert [name for name in names if name.endswith(".tar")] == upper["Layers"]


def test_all_files_belong_to_root(tmp_path: Path) -> None:
    with written(tmp_path) as archive:
        _, upper = json.loads(read(archive, "manifest.json"))
        with tarfile.open(fileobj=archive.extractfile(upper["Layers"][1])) as layer:
            assert {member.name for member in layer} == {"etc", "etc/upper"}
            assert {(member.uid, member.gid) for member in layer} == {(0, 0)}


def test_the_configuration_contains_the_process_of_a_container(tmp_path: Path) -> None:
    process = {"entrypoint": ("python",), "command": ("x.py",), "environment": {"A": "1"}}
    with written(tmp_path, **process, user="65532:65532", folder="/x") as archive:
        _, manifest = json.loads(read(archive, "manifest.json"))
        config = json.loads(read(archive, manifest["Config"]))["config"]

    assert config == {
        "User": "65532:65532",
        "Env": ["A=1"],
        "Entrypoint": ["python"],
        "Cmd": ["x.py"],
        "WorkingDir": "/x",
    }
