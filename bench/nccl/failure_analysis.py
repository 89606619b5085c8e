"""Which rank was the first to die, from what is left in the logs of pods."""

import re
from collections.abc import Iterable

import orjson

from bench.nccl.worker.messages import MARK

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)")
_CODE = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)")
_MPI_RANK = re.compile(r"Process name:\s*\[\[\d+,\d+\],\s*(\d+)\]")
_MPI_CODE = re.compile(r"Exit code:\s*(\d+)")
_MPI_SIGNAL = re.compile(r"process rank (\d+) .*exited on signal (\d+)")


def silent(lines: Iterable[str]) -> list[str]:
    """Ranks that ended without a word, in words; whoever fails after them says what has met it."""
    spoke, died, rank, is_root = set[int](), dict[int, str](), -1, False
    for line in (_COLOUR.sub("", one) for one in lines):
        _, mark, told = line.partition(MARK)
        if mark and '"say":"error"' in told:
            spoke.add(_speaker(told))
        elif match := _MPI_SIGNAL.search(line):
            died[int(match[1])] = f"signal {match[2]}"
        elif _ROOT.search(line):
            is_root = True
        elif match := (is_root and _RANK.search(line)) or _MPI_RANK.search(line):
            rank, is_root = int(match[1]), True
        elif is_root and (match := _CODE.search(line) or _MPI_CODE.search(line)):
            died[rank], is_root = f"exit code {match[1]}", False
    return [f"rank {one} has died: {how}" for one, how in died.items() if one not in spoke]


def _speaker(told: str) -> int:
    try:
        return int(orjson.loads(told)["rank"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return -1
