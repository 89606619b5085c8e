"""The end of a run: the replica that failed first, its message and its last lines, and one row per replica."""

from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli import summary
from rallypoint.local.manifest import Row
from rallypoint.local.progress import Job, Progress, Replica

CREATED = "2026-01-01T12:00:00Z"
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "PyTorchJobFailed",
    "message": "it failed.",
    "lastTransitionTime": "2026-01-01T12:00:30Z",
}


def job(*conditions: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "default", "uid": "j", "creationTimestamp": CREATED}
    return {"metadata": metadata, "status": {"conditions": list(conditions), "startTime": CREATED}}


def pod(
    name: str, phase: str = "Running", state: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    owner = {"uid": "j", "name": "job", "controller": True}
    metadata = {
        "name": f"job-{name}",
        "namespace": "default",
        "uid": f"{name}-uid",
        "creationTimestamp": CREATED,
        "ownerReferences": [owner],
    }
    containers = [{"name": "pytorch", "state": state, **status}] if state else []
    return {
        "metadata": metadata,
        "spec": {"nodeName": "local", "containers": [{"name": "pytorch"}]},
        "status": {"phase": phase, "containerStatuses": containers},
    }


def ended(code: int, second: int = 10, message: str = "") -> dict[str, Any]:
    end = {"exitCode": code, "message": message, "finishedAt": f"2026-01-01T12:00:{second}Z"}
    return {"terminated": end}


def row(manifest: dict[str, Any]) -> Row:
    meta = manifest["metadata"]
    return Row(meta["namespace"], meta["name"], meta["uid"], 1, manifest)


@pytest.fixture
def progress() -> Progress:
    progress = Progress(several=False)
    progress.add("PyTorchJob", job())
    return progress


def folder_of(tmp_path: Path) -> summary.PodFolder:
    def folder(job: Job, replica: Replica, uid: str) -> Path:
        return tmp_path / uid

    return folder


def text(progress: Progress, tmp_path: Path, outcome: str = "Failed") -> str:
    return summary.text(progress, outcome, {"logs": "run/logs"}, folder_of(tmp_path), lambda path: path.name)


def write_log(tmp_path: Path, name: str, *runs: bytes) -> None:
    folder = tmp_path / f"{name}-uid" / "pytorch"
    folder.mkdir(parents=True)
    for attempt, data in enumerate(runs):
        (folder / f"{attempt}.log").write_bytes(data)


def test_the_summary_names_the_first_failure_with_its_message_and_last_lines(
    progress: Progress, tmp_path: Path
) -> None:
    progress.update_pod(None, row(pod("master-0", "Failed", ended(1, 12))))
    progress.update_pod(None, row(pod("worker-0", "Failed", ended(3, 10, "no GPU memory\n"))))
    progress.update_pod(None, row(pod("worker-1")))
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-0", b"step 1\n\n50%\r100%\r\n\x1b[31mValueError\x1b[0m: boom\n")

    assert text(progress, tmp_path) == (
        "\nPyTorchJob default/job: Failed after 30s\n"
        "  it failed.\n"
        "  worker-0 was the first to fail: container pytorch ended with exit code 3: no GPU memory\n"
        "  last lines of 0.log:\n"
        "    step 1\n"
        "    100%\n"
        "    ValueError: boom\n"
        "  master-0  Failed     restarts 0  exit code 1\n"
        "  worker-0  Failed     restarts 0  exit code 3 (no GPU memory)\n"
        "  worker-1  Stopped    restarts 0\n"
        "logs: run/logs\n"
    )


def test_failures_in_the_same_second_are_all_first(progress: Progress, tmp_path: Path) -> None:
    for index in range(5):
        progress.update_pod(None, row(pod(f"worker-{index}", "Failed", ended(1))))
    progress.update_job(None, row(job(FAILED)))
    shown = text(progress, tmp_path)

    assert shown.count("failed first, in the same second: ") == 3
    assert "  and 2 more\n" in shown


def test_a_pod_that_the_job_stopped_is_no_cause(progress: Progress, tmp_path: Path) -> None:
    stopped = pod("worker-1", "Failed", ended(143, 10))
    stopped["metadata"] |= {"deletionTimestamp": "2026-01-01T12:00:05Z", "deletionGracePeriodSeconds": 0}
    progress.update_pod(None, row(stopped))
    progress.update_pod(None, row(pod("worker-0", "Failed", ended(3, 20))))
    progress.update_job(None, row(job(FAILED)))

    assert "worker-0 was the first to fail: container pytorch ended with exit code 3\n" in text(
        progress, tmp_path
    )


def test_a_container_that_was_restarted_until_the_job_failed_is_named(
    progress: Progress, tmp_path: Path
) -> None:
    """The job ends by its backoffLimit, and its cleanup deletes the pod while the container runs again."""
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    crashing = pod("worker-0", "Running", waits, lastState=ended(3, 10, "bad data"), restartCount=1)
    again = pod("worker-0", "Running", {"running": {}}, lastState=ended(3, 10, "bad data"), restartCount=2)
    progress.update_pod(None, row(crashing))
    progress.update_pod(row(crashing), row(again))
    progress.update_pod(row(again), None)
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-0", b"one\n", b"two\n", b"three\n")
    shown = text(progress, tmp_path)

    assert (
        "  worker-0 was the first to fail: container pytorch ended with exit code 3: bad data; it was started again\n"
        in shown
    )
    assert "  last lines of 1.log:\n    two\n" in shown


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        pytest.param(
            b"sh: train: not found\n", "  last lines of 0.log:\n    sh: train: not found\n", id="log"
        ),
        pytest.param(b"a program was not found\n", "", id="the log says the same"),
    ],
)
def test_what_the_message_of_a_refused_job_says_is_not_repeated(
    progress: Progress, tmp_path: Path, log: bytes, lines: str
) -> None:
    for uid in ("worker-0-uid", "b"):
        failed = pod("worker-0", "Failed", ended(127))
        failed["metadata"]["uid"] = uid
        progress.update_pod(None, row(failed))
    (tmp_path / "b" / "pytorch").mkdir(parents=True)
    (tmp_path / "b" / "pytorch" / "0.log").write_bytes(log)
    shown = text(progress, tmp_path)

    assert shown.startswith(
        "\nPyTorchJob default/job: Refused\n"
        "  worker-0: container pytorch ended again with exit code 127: a program was not found; "
        f"correct the command, or install the program\n{lines}"
        "  worker-0  Failed "
    )


@pytest.mark.parametrize(
    ("last_line", "lines"),
    [
        pytest.param(
            b"no data\n",
            "  worker-0 failed again in the same way: container pytorch ended with exit code 3\n"
            "  last lines of 1.log:\n"
            "    no data\n",
            id="the same log",
        ),
        pytest.param(
            b"other\n",
            "  worker-0 failed first: container pytorch ended with exit code 3; it was started again\n"
            "  last lines of 0.log:\n"
            "    no data\n"
            "  worker-0 failed the job: container pytorch ended with exit code 3\n"
            "  last lines of 1.log:\n"
            "    other\n",
            id="another log",
        ),
    ],
)
def test_equal_failures_of_a_container_are_shown_once(
    progress: Progress, tmp_path: Path, last_line: bytes, lines: str
) -> None:
    again = pod("worker-0", "Running", {"running": {}}, lastState=ended(3, 10), restartCount=1)
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": ""}}
    crashing = pod("worker-0", "Running", waits, lastState=ended(3, 12), restartCount=1)
    progress.update_pod(None, row(again))
    progress.update_pod(row(again), row(crashing))
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-0", b"no data\n", last_line)
    shown = text(progress, tmp_path)

    assert lines in shown
    assert shown.count("exit code 3") == lines.count("exit code 3") + 1


def test_a_failed_run_is_named_if_only_its_restart_was_seen(progress: Progress, tmp_path: Path) -> None:
    again = pod("worker-0", "Running", {"running": {}}, lastState=ended(3, 10, "bad data"), restartCount=1)
    progress.update_pod(None, row(again))
    progress.update_pod(row(again), None)
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-0", b"one\n", b"two\n")
    shown = text(progress, tmp_path)

    assert "worker-0 was the first to fail: container pytorch ended with exit code 3: bad data" in shown
    assert "  last lines of 0.log:\n    one\n" in shown


def test_a_failed_pod_that_was_replaced_is_named_before_the_one_that_failed_the_job(
    progress: Progress, tmp_path: Path
) -> None:
    lost = pod("worker-1", "Failed", ended(137, 10))
    replacement = pod("worker-1")
    replacement["metadata"]["uid"] = "worker-1-new"
    progress.update_pod(None, row(pod("worker-0")))
    progress.update_pod(None, row(lost))
    progress.update_pod(row(lost), None)
    progress.update_pod(None, row(replacement))
    progress.update_pod(None, row(pod("worker-0", "Failed", ended(1, 20))))
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-1", b"out of memory\n")
    write_log(tmp_path, "worker-0", b"connection reset\n")

    assert text(progress, tmp_path).startswith(
        "\nPyTorchJob default/job: Failed after 30s\n"
        "  it failed.\n"
        "  worker-1 failed first: container pytorch ended with exit code 137, killed by SIGKILL; it was started again\n"
        "  last lines of 0.log:\n"
        "    out of memory\n"
        "  worker-0 failed the job: container pytorch ended with exit code 1\n"
        "  last lines of 0.log:\n"
        "    connection reset\n"
    )


@pytest.mark.parametrize("outcome", ["Timeout", "Interrupted"])
def test_a_run_that_was_stopped_shows_what_failed(progress: Progress, tmp_path: Path, outcome: str) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": ""}}
    progress.update_pod(None, row(pod("worker-0", "Running", waits, lastState=ended(3))))
    write_log(tmp_path, "worker-0", b"no data\n")
    shown = text(progress, tmp_path, outcome)

    assert (
        "  worker-0 was the first to fail: container pytorch ended with exit code 3\n"
        "  last lines of 0.log:\n"
        "    no data\n"
    ) in shown


def test_termination_messages_do_not_control_the_terminal(progress: Progress, tmp_path: Path) -> None:
    progress.update_pod(None, row(pod("worker-0", "Failed", ended(3, 10, "\x1b[31mred\x1b[0m"))))
    progress.update_job(None, row(job(FAILED)))
    shown = text(progress, tmp_path)

    assert "exit code 3: red\n" in shown
    assert "exit code 3 (red)\n" in shown
    assert "\x1b" not in shown


def test_a_job_that_succeeded_shows_no_failure(progress: Progress, tmp_path: Path) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": ""}}
    progress.update_pod(None, row(pod("worker-0", "Running", waits, lastState=ended(3))))
    progress.update_pod(None, row(pod("worker-0", "Succeeded", ended(0), restartCount=1)))
    progress.update_job(None, row(job({**FAILED, "type": "Succeeded", "message": "it is done."})))

    assert text(progress, tmp_path, "Succeeded") == (
        "\nPyTorchJob default/job: Succeeded after 30s\n  it is done.\n"
        "  worker-0  Succeeded  restarts 1\nlogs: run/logs\n"
    )


def test_many_replicas_in_the_same_state_share_a_row(progress: Progress, tmp_path: Path) -> None:
    progress.update_pod(None, row(pod("master-0", "Succeeded", ended(0))))
    for index in range(30):
        failed = ended(7) if index == 3 else ended(0)
        progress.update_pod(
            None, row(pod(f"worker-{index}", "Failed" if index == 3 else "Succeeded", failed))
        )
    progress.update_job(None, row(job(FAILED)))
    rows = [line.split("  ")[1] for line in text(progress, tmp_path).splitlines() if "restarts" in line]

    assert rows == ["master-0 … worker-2 (4)", "worker-3", "worker-4 … worker-29 (26)"]


def test_another_outcome_has_its_own_line(progress: Progress, tmp_path: Path) -> None:
    progress.update_pod(None, row(pod("worker-0")))

    assert text(progress, tmp_path, "Timeout").endswith(
        "  worker-0  Stopped    restarts 0\n\nTimeout\nlogs: run/logs\n"
    )


def test_the_json_document(progress: Progress, tmp_path: Path) -> None:
    progress.update_pod(None, row(pod("worker-0", "Failed", ended(3, 10, "bad data"))))
    progress.update_job(None, row(job(FAILED)))
    write_log(tmp_path, "worker-0", b"one\n")
    (report,) = summary.document(progress, "Failed", folder_of(tmp_path))
    (first,) = report.pop("firstFailures")
    folder = tmp_path / "worker-0-uid"

    assert (first["name"], first["container"], first["lastLines"]) == ("job-worker-0", "pytorch", ["one"])
    assert first["text"] == "container pytorch ended with exit code 3: bad data"
    assert first["log"] == str(folder / "pytorch" / "0.log")
    assert report == {
        "kind": "PyTorchJob",
        "namespace": "default",
        "name": "job",
        "condition": "Failed",
        "reason": "PyTorchJobFailed",
        "message": "it failed.",
        "durationSeconds": 30,
        "replicas": [
            {
                "name": "job-worker-0",
                "phase": "Failed",
                "detail": "exit code 3 (bad data)",
                "restarts": 0,
                "exitCode": 3,
                "logs": [str(folder)],
            }
        ],
    }
