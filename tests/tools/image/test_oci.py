"""OCI archives: what is written depends on the files only, and what is read is held against its digests."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from tools.image import ImageError, oci
from tools.image.files import File, Folder, Link, Tree
from tools.image.oci import Image, Layer

TREE: Tree = {
    "usr/bin/program": File(b"program", executable=True),
    "tmp": Folder(0o1777),
    "bin": Link("usr/bin"),
    "etc/" + "long" * 40: File(b"long"),
}
ANNOTATIONS = {"org.opencontainers.image.version": "1.0"}


def compress(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def image(architecture: str = "amd64", tree: Tree = TREE) -> Image:
    layer = Layer.of("base", tree, compress)
    return oci.assemble(architecture, [layer], {"User": "65532:65532"}, ANNOTATIONS, "2026-11-27T00:00:00Z")


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member))}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    oci.write(image(), tmp_path / "image.tar", "rallypoint:1.0")

    config, (layer,) = oci.read(tmp_path / "image.tar")

    assert layer == {**TREE, "usr": Folder(), "usr/bin": Folder(), "etc": Folder()}
    assert (config["architecture"], config["config"]["User"]) == ("amd64", "65532:65532")
    assert config["config"]["Labels"] == ANNOTATIONS


def test_the_digest_does_not_depend_on_the_order_of_files() -> None:
    assert image(tree=dict(reversed(TREE.items()))).digest == image().digest
    assert image(tree={**TREE, "etc/more": File(b"")}).digest != image().digest


def test_files_belong_to_root_and_have_no_time() -> None:
    layer = Layer.of("base", TREE, lambda content: content)

    with tarfile.open(fileobj=io.BytesIO(layer.content)) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 0)}
    assert {
        member.name: oct(member.mode) for member in members if member.isfile() or member.name == "tmp"
    } == {
        "etc/" + "long" * 40: "0o644",
        "tmp": "0o1777",
        "usr/bin/program": "0o755",
    }


def test_an_index_names_each_image_by_its_platform(tmp_path: Path) -> None:
    images = [image("amd64"), image("arm64")]

    digest = oci.write_index(images, tmp_path / "image.tar", "rallypoint:1.0", ANNOTATIONS)

    found = contents(tmp_path / "image.tar")
    (reference,) = json.loads(found["index.json"])["manifests"]
    index = json.loads(found[f"blobs/{digest.replace(':', '/')}"])
    assert reference["digest"] == digest
    assert reference["annotations"]["io.containerd.image.name"] == "docker.io/library/rallypoint:1.0"
    assert {entry["platform"]["architecture"]: entry["digest"] for entry in index["manifests"]} == {
        "amd64": images[0].digest,
        "arm64": images[1].digest,
    }


def test_a_changed_blob_is_refused(tmp_path: Path) -> None:
    original = image()
    changed = dict(original.blobs)
    changed[oci.digest(original.layers[0].content)] = compress(b"other")
    oci.write(
        Image("amd64", original.layers, changed, original.descriptor), tmp_path / "image.tar", "rallypoint"
    )

    with pytest.raises(ImageError, match="does not have its digest"):
        oci.read(tmp_path / "image.tar")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("rallypoint:1", "docker.io/library/rallypoint:1"),
        ("team/rallypoint:1", "docker.io/team/rallypoint:1"),
        ("registry.example/team/rallypoint:1", "registry.example/team/rallypoint:1"),
        ("localhost/rallypoint", "localhost/rallypoint"),
        ("registry:5000/rallypoint", "registry:5000/rallypoint"),
    ],
)
def test_a_short_name_gets_the_default_registry(name: str, full: str) -> None:
    assert oci.full_name(name) == full


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("text" * 400)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass

    for name in ("text.tar", "empty.tar"):
        with pytest.raises(ImageError, match=rf"{name} is no OCI archive"):
            oci.read(tmp_path / name)
