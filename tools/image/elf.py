"""What the image needs to know of ELF files (64-bit, little-endian): processor, libraries, and the part that is loaded.

Source: System V ABI, chapters 4 and 5; elf.h of the GNU C library.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MACHINES = {0x3E: "amd64", 0xB7: "arm64"}
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRING_TABLE = 1, 5


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int


def is_elf(content: bytes) -> bool:
    return content.startswith(b"\x7fELF")


def architecture(content: bytes) -> str:
    """Return the processor in Go's words, or its number in the ABI."""
    (machine,) = struct.unpack_from("<H", content, 18)
    is_supported = content[4:6] == b"\x02\x01"  # 64-bit, little-endian
    return _MACHINES.get(machine, f"machine {machine:#x}") if is_supported else "not 64-bit little-endian"


def needed(content: bytes) -> list[str]:
    """Return the names of the libraries that the dynamic linker loads with this file."""
    segments = _segments(content)
    dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC), None)
    if dynamic is None:
        return []
    entries = list(
        struct.iter_unpack("<QQ", content[dynamic.offset : dynamic.offset + dynamic.file_size // 16 * 16])
    )
    table = next(value for tag, value in entries if tag == _STRING_TABLE)
    strings = next(
        table - segment.address + segment.offset
        for segment in segments
        if segment.kind == _LOAD and 0 <= table - segment.address < segment.file_size
    )
    return [_string(content, strings + value) for tag, value in entries if tag == _NEEDED]


def loaded(content: bytes) -> bytes:
    """Return the file without what follows its last segment: debugging information, symbols and section headers.

    Neither the kernel nor the dynamic linker reads these. A file whose segments reach to its end is returned as it is.
    """
    start, sections = struct.unpack_from("<QQ", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    end = max(start + size * count, *(segment.offset + segment.file_size for segment in _segments(content)))
    if sections < end:
        return content
    header = bytearray(content[:64])
    struct.pack_into("<Q", header, 40, 0)
    struct.pack_into("<HH", header, 60, 0, 0)
    return bytes(header) + content[64:end]


def _segments(content: bytes) -> list[_Segment]:
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return list(_read(content, start, size, count))


def _read(content: bytes, start: int, size: int, count: int) -> Iterator[_Segment]:
    for index in range(count):
        yield _Segment(*struct.unpack_from("<IIQQQQQQ", content, start + index * size))


def _string(content: bytes, offset: int) -> str:
    return content[offset : content.index(b"\0", offset)].decode()
