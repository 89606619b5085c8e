"""Breaking a rank on purpose."""

import os
import time
from functools import partial

import pytest

from bench.nccl.worker import fault_injection
from bench.nccl.worker.fault_injection import Drill


def test_only_the_rank_that_is_meant() -> None:
    task = {"drill": {"kind": "slow", "rank": 2}}

    assert fault_injection.of(task, 2) == Drill("slow")
    assert fault_injection.of(task, 1) == fault_injection.of({"drill": None}, 0) == Drill()


def test_what_each_does(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(time, "sleep", done.append)
    target = [5, 5]

    for kind in ("", "slow", "die", "corrupt"):
        drill = Drill(kind)
        drill.late(partial(done.append, kind))()
        drill.die_at(middle=False)
        drill.die_at(middle=True)
        drill.spoil(target)

    assert done == ["", fault_injection.LATE_SECONDS, "slow", "die", fault_injection.DIED, "corrupt"]
    assert target == [6, 5]
