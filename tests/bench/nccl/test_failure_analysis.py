"""The rank that failed first."""

from bench.nccl.failure_analysis import silent_ranks
from bench.nccl.worker.messages import PREFIX

TORCHRUN = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : pod-1
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 12)
  error_file: <N/A>
"""


def test_the_rank_without_an_error_failed_first() -> None:
    """The others lose their connection to it, report that, and end with 1."""
    logs = [
        *TORCHRUN.format(rank=3, code=86).splitlines(),
        PREFIX + '{"type":"error","rank":0,"why":"Connection closed by peer"}',
        *TORCHRUN.format(rank=0, code=1).splitlines(),
    ]

    assert silent_ranks(logs) == ["rank 3 has died: exit code 86"]


def test_a_colored_log() -> None:
    assert silent_ranks(
        ["\x1b[31m" + line + "\x1b[0m" for line in TORCHRUN.format(rank=2, code=-9).splitlines()]
    ) == ["rank 2 has died: exit code -9"]


def test_mpirun() -> None:
    line = "mpirun noticed that process rank 1 with PID 0 on node worker-0 exited on signal 9 (Killed)."

    assert silent_ranks([line]) == ["rank 1 has died: signal 9"]
    assert silent_ranks(["  Process name: [[62309,1],3]", "  Exit code:    86"]) == [
        "rank 3 has died: exit code 86"
    ]


def test_a_log_without_failures() -> None:
    assert (
        silent_ranks(
            ["epoch 1", PREFIX + '{"type":"error"'],
        )
        == []
    )
