"""A profile from stacks of py-spy."""

import shutil
import sys
from pathlib import Path

import pytest

from bench.controlplane import profile
from bench.controlplane.profile import ProfilerUnavailable, package_of, summarize_stacks

MAIN = "main (controller/__main__.py:1)"
SEND = "Client.request (controller/kube/client.py:160)"
HTTP = "ClientSession._request (aiohttp/client.py:558)"
STACKS = [
    f"{MAIN};{SEND};{HTTP};write (libc.so.6) 3",
    f"{MAIN};{SEND};{HTTP} 1",
    f"{MAIN};run (uvloop/__init__.py:38);read (libc.so.6) 2",
    f"{MAIN};{SEND};{SEND} 4",
    f"{MAIN};run (uvloop/__init__.py:38);epoll_pwait (libc.so.6) 90",
    "Thread.run (threading.py:971);_worker (concurrent/futures/thread.py:69);0x7f8ac7ca3f16 (libc.so.6) 90",
]


def test_waiting_does_not_count() -> None:
    assert summarize_stacks(STACKS).samples == 10


def test_own_time_is_the_innermost_functions() -> None:
    assert summarize_stacks(STACKS).own == {
        SEND: 40,
        "write (libc.so.6)": 30,
        "read (libc.so.6)": 20,
        HTTP: 10,
    }


def test_c_code_counts_for_the_package_that_calls_it() -> None:
    assert summarize_stacks(STACKS).parts == {"aiohttp": 40, "controller/kube": 40, "uvloop": 20}


def test_a_function_twice_on_the_stack_counts_once_and_the_outermost_never() -> None:
    assert summarize_stacks(STACKS).inclusive == {SEND: 80, HTTP: 40, "run (uvloop/__init__.py:38)": 20}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (SEND, "controller/kube"),
        (HTTP, "aiohttp"),
        ("SSLObject.read (ssl.py:912)", "ssl"),
        ("run (controller/app.py:3)", "controller/app"),
    ],
)
def test_the_package_of_a_function(function: str, expected: str) -> None:
    assert package_of(function) == expected


def test_a_missing_profiler_is_reported_with_its_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert shutil.which("py-spy") is None

    with pytest.raises(ProfilerUnavailable, match=r"pip install \./deploy/operator '\.\[testing\]'"):
        profile.py_spy_path()
