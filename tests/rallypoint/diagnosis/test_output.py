"""What a diagnosis says of the progress of a job that runs without a known problem."""

from datetime import timedelta
from typing import Any

import pytest

from rallypoint.diagnosis import NO_CAUSE, JobSnapshot, LastLines, diagnose
from tests.support.snapshots import CREATED, NOW, RUNNING, Object, at, container, ended, job, pod, true

RUNS = "The job is running, and its objects show no problem; "
NOTHING = LastLines(None, ())


def running(name: str, *, ago: float = 900, **fields: Any) -> Object:
    return pod(name, "Running", containerStatuses=[container(running={"startedAt": at(ago)}, **fields)])


def printed(ago: float) -> LastLines:
    return LastLines(NOW - timedelta(seconds=ago), ("step 3",))


def summary(*pods: Object, of: Object | None = None, **lines: Any) -> str:
    last_lines = {(name.replace("_", "-"), "pytorch"): last for name, last in lines.items()}
    found = job(RUNNING, workers=len(pods) - 1) if of is None else of
    return diagnose(JobSnapshot(found, NOW, pods=pods, last_lines=last_lines)).summary


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        pytest.param(
            620, "j-worker-0 has printed nothing, the others nothing for 10 min.", id="all are silent"
        ),
        pytest.param(5, "j-worker-0 has printed nothing.", id="another one prints"),
    ],
)
def test_a_pod_that_has_printed_nothing_is_named(ago: float, text: str) -> None:
    pods = (running("j-master-0"), running("j-worker-0"), running("j-worker-1"))

    assert (
        summary(*pods, j_master_0=printed(ago), j_worker_0=NOTHING, j_worker_1=printed(ago + 50))
        == RUNS + text
    )


def test_several_silent_pods_are_counted() -> None:
    pods = [running(f"j-worker-{number}") for number in range(5)]

    nothing: dict[str, Any] = {f"j_worker_{number}": NOTHING for number in range(5)}
    text = summary(*pods, **nothing)
    assert text == f"{RUNS}its pods have printed nothing since the start, 15 min ago."
    text = summary(*pods, **{**nothing, "j_worker_0": printed(8000)})
    assert text == (
        f"{RUNS}j-worker-1, j-worker-2, j-worker-3 and 1 more have printed nothing, the others nothing for 2 h."
    )
    assert summary(pods[0], j_worker_0=NOTHING).endswith(
        "j-worker-0 has printed nothing since the start, 15 min ago."
    )


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        pytest.param(running("j-worker-0"), {"j_worker_0": printed(5)}, id="it prints"),
        pytest.param(running("j-worker-0"), {}, id="its log was not read"),
        pytest.param(running("j-worker-0", ago=20), {"j_worker_0": NOTHING}, id="it has just started"),
        pytest.param(
            running("j-worker-0", restarts=1, last=ended(1)), {"j_worker_0": NOTHING}, id="it was restarted"
        ),
    ],
)
def test_logs_tell_of_progress_otherwise(found: Object, lines: dict[str, Any]) -> None:
    text = summary(running("j-master-0"), found, j_master_0=printed(5), **lines)

    assert text == f"{RUNS}see its logs for progress."


def test_a_silence_of_less_than_a_minute_has_no_age() -> None:
    """The text would change with each read."""
    text = summary(running("j-master-0", ago=45), j_master_0=NOTHING)

    assert text == f"{RUNS}j-master-0 has printed nothing since the start."


def test_an_old_last_line_says_how_old() -> None:
    assert summary(running("j-master-0"), j_master_0=printed(125)) == (
        f"{RUNS}see its logs for progress (last line 2 min ago)."
    )


def test_workers_of_an_mpi_job_only_run_sshd() -> None:
    mpi = {**job(RUNNING), "kind": "MPIJob"}
    pods = (running("j-launcher-abcde"), running("j-worker-0"))

    text = summary(*pods, of=mpi, j_launcher_abcde=printed(5), j_worker_0=NOTHING)
    assert text == f"{RUNS}see its logs for progress."


def test_a_rendezvous_is_left_to_the_notes() -> None:
    waits = LastLines(NOW - timedelta(seconds=300), ("waiting for 2 workers",))
    pods = (running("j-master-0"), running("j-worker-0"))

    assert summary(*pods, j_master_0=waits, j_worker_0=NOTHING) == (
        "The job is running, and its objects show no problem."
    )


def test_other_states() -> None:
    assert summary(of=job(true("Succeeded"))) == "The job succeeded."
    assert summary(of=job(CREATED)) == NO_CAUSE
