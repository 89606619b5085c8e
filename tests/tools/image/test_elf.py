"""Reading ELF files: processor, libraries, and the loaded part, which Python imports like the whole file."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools.image import elf

MODULE = importlib.util.find_spec("msgspec._core")
LOAD = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("msgspec._core", sys.argv[1])
print(importlib.util.module_from_spec(spec))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiled modules are ELF files on Linux")


@pytest.fixture(scope="module")
def content() -> bytes:
    """A compiled module with symbols and section headers."""
    assert MODULE is not None
    assert MODULE.origin is not None
    return Path(MODULE.origin).read_bytes()


def patched(content: bytes, offset: int, value: bytes) -> bytes:
    return content[:offset] + value + content[offset + len(value) :]


def test_the_processor_is_that_of_the_header(content: bytes) -> None:
    assert elf.architecture(patched(content, 18, b"\x3e\0")) == "amd64"
    assert elf.architecture(patched(content, 18, b"\xb7\0")) == "arm64"
    assert elf.architecture(patched(content, 18, b"\xf3\0")) == "machine 0xf3"
    assert elf.architecture(patched(content, 4, b"\x01")) == "not 64-bit little-endian"


def test_a_module_needs_the_c_library(content: bytes) -> None:
    assert "libc.so.6" in elf.needed(content)
    assert all(name.startswith(("lib", "ld-")) for name in elf.needed(content))


def test_the_loaded_part_is_smaller_and_can_be_imported(content: bytes, tmp_path: Path) -> None:
    part = elf.loaded(content)
    path = tmp_path / "module.so"
    path.write_bytes(part)

    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)

    assert len(part) < len(content)
    assert "msgspec._core" in done.stdout
    assert elf.needed(part) == elf.needed(content)


def test_the_loaded_part_of_a_loaded_part_is_itself(content: bytes) -> None:
    assert elf.loaded(elf.loaded(content)) == elf.loaded(content)
