"""Messages in single lines."""

import os

import pytest

from bench.nccl.worker.messages import PREFIX, emit


def test_a_message_is_a_single_write_of_a_single_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bytes]] = []
    monkeypatch.setattr(os, "write", lambda *call: written.append(call))

    emit("point", times_us=[1.5])

    assert written == [(1, f'\n{PREFIX}{{"type":"point","times_us":[1.5]}}\n'.encode())]
