"""Files that change all at once: readers find either the ones before or the ones after, as in a kubelet's volumes.

The visible names are links into ``..data``, a link to a folder of this moment, which is replaced by renaming.

Source: Kubernetes, pkg/volume/util/atomic_writer.go.
"""

import secrets
import shutil
from pathlib import Path

from rallypoint.local.node.volumes.payload import Files

DATA = "..data"


def write(folder: Path, files: Files) -> bool:
    """Have ``folder`` hold exactly ``files``; whether anything had to be changed."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    before = data.readlink() if data.is_symlink() else None
    if before is not None and _holds(folder / before, files):
        return False
    now = folder / f"..{secrets.token_hex(6)}"
    _fill(now, files)
    visible = {path.partition("/")[0] for path in files}
    draft = folder / "..data_tmp"
    draft.unlink(missing_ok=True)
    draft.symlink_to(now.name)
    draft.rename(data)
    for name in visible:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != DATA and entry.name not in visible:
            entry.unlink()
    if before is not None:
        shutil.rmtree(folder / before, ignore_errors=True)
    return True


def _fill(folder: Path, files: Files) -> None:
    folder.mkdir()
    for path, file in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
        place.chmod(file.mode)


def _holds(folder: Path, files: Files) -> bool:
    there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return there.keys() == {str(Path(path)) for path in files} and all(
        there[str(Path(path))].stat().st_mode & 0o7777 == file.mode
        and there[str(Path(path))].read_bytes() == file.data
        for path, file in files.items()
    )
