"""Faults of one rank."""

import os
import time
from functools import partial

import pytest

from bench.nccl.worker import fault_injection
from bench.nccl.worker.fault_injection import Fault


def test_only_the_named_rank_has_the_fault() -> None:
    task = {"fault": {"kind": "slow", "rank": 2}}

    assert fault_injection.fault_of(task, 2) == Fault("slow")
    assert fault_injection.fault_of(task, 1) == fault_injection.fault_of({"fault": None}, 0) == Fault()


def test_the_effect_of_each_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(time, "sleep", done.append)
    target = [5, 5]

    for kind in ("", "slow", "die", "corrupt"):
        fault = Fault(kind)
        fault.delay(partial(done.append, kind))()
        fault.die_at(middle=False)
        fault.die_at(middle=True)
        fault.corrupt(target)

    assert done == [
        "",
        fault_injection.DELAY_SECONDS,
        "slow",
        "die",
        fault_injection.FAULT_EXIT_CODE,
        "corrupt",
    ]
    assert target == [6, 5]
