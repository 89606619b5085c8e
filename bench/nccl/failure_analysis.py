"""Finds the rank that failed first in the logs of pods."""

import re
from collections.abc import Iterable

import orjson

from bench.nccl.worker.messages import PREFIX

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)")
_CODE = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)")
_MPI_RANK = re.compile(r"Process name:\s*\[\[\d+,\d+\],\s*(\d+)\]")
_MPI_CODE = re.compile(r"Exit code:\s*(\d+)")
_MPI_SIGNAL = re.compile(r"process rank (\d+) .*exited on signal (\d+)")


def silent_ranks(lines: Iterable[str]) -> list[str]:
    """Describe the ranks that ended without reporting an error; ranks that fail after them do report one."""
    reported, deaths, rank, is_root = set[int](), dict[int, str](), -1, False
    for line in (_COLOR.sub("", line) for line in lines):
        _, prefix, message = line.partition(PREFIX)
        if prefix and '"type":"error"' in message:
            reported.add(_rank_of(message))
        elif match := _MPI_SIGNAL.search(line):
            deaths[int(match[1])] = f"signal {match[2]}"
        elif _ROOT.search(line):
            is_root = True
        elif match := (is_root and _RANK.search(line)) or _MPI_RANK.search(line):
            rank, is_root = int(match[1]), True
        elif is_root and (match := _CODE.search(line) or _MPI_CODE.search(line)):
            deaths[rank], is_root = f"exit code {match[1]}", False
    return [f"rank {rank} has died: {how}" for rank, how in deaths.items() if rank not in reported]


def _rank_of(message: str) -> int:
    try:
        return int(orjson.loads(message)["rank"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return -1
