"""Images as files: what containerd is told of their layers is what is in them."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from controller.testing.cluster.archive import Image, write


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def written(tmp_path: Path, **image: Any) -> tarfile.TarFile:
    for name in ("lower", "upper"):
        (tmp_path / name / "etc").mkdir(parents=True)
        (tmp_path / name / "etc" / name).write_text(name)
    layers = (tmp_path / "lower", tmp_path / "upper")
    return tarfile.open(write(Image("registry.local/x:1", layers, **image), tmp_path / "image.tar"))


def test_layers_are_named_in_order_and_by_their_digests(tmp_path: Path) -> None:
    with written(tmp_path) as archive:
        (manifest,) = json.loads(read(archive, "manifest.json"))
        config = json.loads(read(archive, manifest["Config"]))
        digests = [f"sha256:{hashlib.sha256(read(archive, name)).hexdigest()}" for name in manifest["Layers"]]

    assert manifest["RepoTags"] == ["registry.local/x:1"]
    assert config["rootfs"]["diff_ids"] == digests
    assert len(set(digests)) == 2


def test_all_files_belong_to_root(tmp_path: Path) -> None:
    with written(tmp_path) as archive, tarfile.open(fileobj=archive.extractfile("1.tar")) as layer:
        assert {member.name for member in layer} == {"etc", "etc/upper"}
        assert {(member.uid, member.gid) for member in layer} == {(0, 0)}


def test_what_a_container_starts_is_in_the_configuration(tmp_path: Path) -> None:
    told = {"entrypoint": ("python", "-m", "x"), "environment": {"A": "1"}, "user": "65532:65532"}
    with written(tmp_path, **told) as archive:
        config = json.loads(read(archive, "config.json"))["config"]

    assert config == {"User": "65532:65532", "Env": ["A=1"], "Entrypoint": ["python", "-m", "x"], "Cmd": []}
