"""Parts of volumes: where a container's mounts are."""

from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.volumes.container_mounts import mounts
from rallypoint.local.node.volumes.references import Unresolved
from rallypoint.local.node.volumes.setup import Mount, Volume


def mounted(volume: Volume, pinned: Path, **mount: Any) -> Mount:
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/x", **mount}]}
    (found,) = mounts(container, {"v": volume}, {"POD": "a", "UP": "..", "ROOT": "/etc"}, pinned)
    return found


def test_a_whole_volume(tmp_path: Path) -> None:
    assert mounted(Volume(tmp_path), tmp_path / "pin") == Mount("v", "/x", tmp_path, False, tmp_path)


@pytest.mark.parametrize(
    ("mount", "part"),
    [
        ({"subPath": "part"}, "part"),
        ({"subPath": "$(POD)"}, "$(POD)"),
        ({"subPathExpr": "logs/$(POD)"}, "logs/a"),
        ({"subPathExpr": "$$(POD)"}, "$(POD)"),
    ],
)
def test_a_part_is_made_when_it_is_missing(tmp_path: Path, mount: dict[str, str], part: str) -> None:
    found = mounted(Volume(tmp_path), tmp_path / "pin", **mount)

    assert found.source == tmp_path / part
    assert found.source.is_dir()


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ({"subPath": "../x"}, "leaves its volume"),
        ({"subPathExpr": "$(UP)/x"}, "leaves its volume"),
        ({"subPathExpr": "$(ROOT)/x"}, "leaves its volume"),
        ({"subPath": "link/x"}, 'failed to prepare subPath for volumeMount "v" of container "main"'),
        ({"subPath": "loop/x"}, "failed to prepare subPath"),
        ({"subPathExpr": "$(NONE)"}, 'missing value for "NONE"'),
    ],
)
def test_a_part_that_cannot_be_had(tmp_path: Path, mount: dict[str, str], words: str) -> None:
    (tmp_path / "outside").mkdir()
    volume = tmp_path / "v"
    volume.mkdir()
    (volume / "link").symlink_to(tmp_path / "outside")
    (volume / "loop").symlink_to("loop")
    with pytest.raises(Unresolved) as raised:
        mounted(Volume(volume), tmp_path / "pin", **mount)

    assert words in str(raised.value)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_part_of_a_filled_volume_stays_what_it_was(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    (volume / "dir").mkdir(parents=True)
    (volume / "dir" / "file").write_text("old")
    (volume / "dir" / "file").chmod(0o440)
    filled = Volume(volume, is_projected=True)
    file = mounted(filled, tmp_path / "pin", subPath="dir/file").source
    folder = mounted(filled, tmp_path / "other", subPath="dir").source
    (volume / "dir" / "file").unlink()
    (volume / "dir" / "file").write_text("new")

    assert (file.read_text(), (folder / "file").read_text()) == ("old", "old")
    assert file.stat().st_mode & 0o777 == 0o440
    assert mounted(filled, tmp_path / "pin", subPath="dir/file").source.read_text() == "new"


def test_either_side_may_refuse_writes(tmp_path: Path) -> None:
    assert mounted(Volume(tmp_path, read_only=True), tmp_path / "pin").read_only
    assert mounted(Volume(tmp_path), tmp_path / "pin", readOnly=True).read_only


def test_what_is_in_memory_is_made_where_it_is_seen(tmp_path: Path) -> None:
    found = mounted(Volume(tmp_path, in_memory=True), tmp_path / "pin", subPath="part")

    assert found.source == tmp_path / "part"
    assert not found.source.exists()
