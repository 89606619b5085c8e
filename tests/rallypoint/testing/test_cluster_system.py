"""Programs that are unpacked into a folder and not installed."""

import subprocess
from pathlib import Path

from rallypoint.testing.cluster.system import wrap


def test_a_program_finds_its_libraries_in_a_moved_cache(tmp_path: Path) -> None:
    root, moved = tmp_path / "root", tmp_path / "moved"
    libraries, program = root / "usr" / "lib" / "any" / "libseccomp.so.2", root / "usr" / "sbin" / "runc"
    for file in (libraries, program, root / "bin" / "runc"):
        file.parent.mkdir(parents=True, exist_ok=True)
    libraries.touch()
    program.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n')
    program.chmod(0o755)

    wrap(root, "runc")
    root.rename(moved)
    output = subprocess.run(
        [moved / "bin" / "runc", "a b"], check=True, capture_output=True, text=True
    ).stdout

    assert output == f"{moved}/usr/lib/any a b\n"
