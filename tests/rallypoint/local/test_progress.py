"""The job under which a pod is shown, and its name."""

from typing import Any

import pytest

from rallypoint.local.manifest import Row
from rallypoint.local.progress import Progress, short_name

JOB = {"kind": "MPIJob", "metadata": {"namespace": "ml", "name": "pi", "uid": "job"}, "status": {}}


def pod(name: str, owner: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"namespace": "ml", "name": name, "uid": name, "ownerReferences": [owner], **metadata}
    return {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}}


def by_batch(job: str = "pi", namespace: str = "ml") -> dict[str, Any]:
    """A pod that the controller of batch Jobs has made."""
    owner = {"kind": "Job", "name": f"{job}-launcher", "uid": "batch", "controller": True}
    marks = {"training.kubeflow.org/job-name": job}
    names = {"generateName": f"{job}-launcher-", "labels": marks, "namespace": namespace}
    return pod(f"{job}-launcher-x7k2p", owner, **names)


OWN = pod("pi-worker-0", {"kind": "MPIJob", "name": "pi", "uid": "job", "controller": True})


@pytest.mark.parametrize(
    ("manifest", "is_ours"),
    [
        pytest.param(OWN, True, id="its own"),
        pytest.param(pod("pi-worker-0", {"uid": "other", "controller": True}), False, id="another job's"),
        pytest.param(pod("pi-worker-0", {"uid": "job"}), False, id="whose controller it is not"),
        pytest.param(by_batch(), True, id="its batch Job's"),
        pytest.param(by_batch("e"), False, id="a batch Job's of another job"),
        pytest.param(by_batch(namespace="other"), False, id="a batch Job's in another namespace"),
    ],
)
def test_the_job_of_a_pod(manifest: dict[str, Any], is_ours: bool) -> None:
    progress = Progress(several=False)
    progress.add("MPIJob", JOB)

    assert (progress.job_of(manifest) is not None) is is_ours


def test_the_short_name_of_a_pod() -> None:
    progress = Progress(several=True)
    progress.add("MPIJob", JOB)
    job = progress.jobs["job"]
    for manifest in (OWN, by_batch()):
        meta = manifest["metadata"]
        progress.update_pod(None, Row("ml", meta["name"], meta["uid"], 1, manifest))

    assert [short_name(job, shown) for shown in (OWN, by_batch())] == ["worker-0", "launcher"]
    assert [progress.prefix(job, shown.short) for shown in job.rows] == ["pi/launcher", "pi/worker-0"]


def container_pod(name: str, container: dict[str, Any], uid: str = "", **status: Any) -> Row:
    """A pod of the job with one container, which has this status."""
    owner = {"kind": "MPIJob", "name": "pi", "uid": "job", "controller": True}
    manifest = pod(name, owner, uid=uid or name)
    manifest["spec"]["containers"] = [{"name": "c", **container}]
    manifest["status"] = {"phase": "Running", "containerStatuses": [{"name": "c", **status}]}
    return Row("ml", name, uid or name, 1, manifest)


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def state_after(*pods: Row) -> str:
    """The state and the message of the job after these versions of pods."""
    progress = Progress(several=False)
    progress.add("MPIJob", JOB)
    for row in pods:
        progress.update_pod(None, row)
    job = progress.jobs["job"]
    return f"{job.state}: {job.condition.get('message', '')}"


def test_a_program_is_missing_after_two_failed_starts() -> None:
    error = 'exec: "train": executable file not found in $PATH'
    first, second = (
        container_pod(
            "pi-worker-0",
            {"command": ["train"]},
            state=ended(128, "StartError", error),
            restartCount=restarts,
        )
        for restarts in (0, 1)
    )

    assert state_after(first, first) == "New: "
    assert state_after(first, second) == (
        f"Refused: worker-0: container c cannot start: {error}; install it in the environment of this command, or use its path"
    )


def test_other_failures_are_no_failed_starts() -> None:
    failed = container_pod("pi-worker-0", {}, state=ended(3), restartCount=0)
    not_started = container_pod("pi-worker-0", {}, state=ended(128, "StartError", "busy"), restartCount=1)

    assert state_after(failed, not_started) == "New: "


@pytest.mark.parametrize(
    ("code", "container", "message"),
    [
        pytest.param(127, {}, "a program was not found", id="a shell finds no program"),
        pytest.param(126, {}, "a program cannot be executed", id="a shell cannot execute it"),
        pytest.param(
            2,
            {"command": ["python3", "-u", "-W", "error", "none.py", "--lr", "1"], "workingDir": "/data"},
            "its script /data/none.py does not exist",
            id="Python finds no script",
        ),
        pytest.param(
            2, {"command": ["/opt/bin/python", __file__]}, "", id="Python runs a script that exists"
        ),
        pytest.param(2, {"command": ["python", "-m", "none"]}, "", id="a module"),
        pytest.param(2, {"command": ["train", "none.py"]}, "", id="another program"),
        pytest.param(
            2,
            {"command": ["python", "/etc/cfg/a.py"], "volumeMounts": [{"mountPath": "/etc/cfg"}]},
            "",
            id="a script in a volume",
        ),
        pytest.param(1, {"command": ["python", "none.py"]}, "", id="another exit code"),
    ],
)
def test_an_exit_code_that_says_that_a_program_is_missing(
    code: int, container: dict[str, Any], message: str
) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    first = container_pod("pi-worker-0", container, state=ended(code), restartCount=0)
    second = container_pod("pi-worker-0", container, state=waits, lastState=ended(code), restartCount=1)

    assert state_after(first) == "New: "
    assert message in state_after(first, second)
    assert state_after(first, second).startswith("Refused: " if message else "New: ")


def test_a_failed_start_counts_if_only_its_restart_was_seen() -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    again = container_pod("pi-worker-0", {}, state={"running": {}}, lastState=ended(127), restartCount=1)
    second = container_pod("pi-worker-0", {}, state=waits, lastState=ended(127), restartCount=1)

    assert state_after(again) == "New: "
    assert state_after(again, again) == "New: "
    assert state_after(again, second).startswith(
        "Refused: worker-0: container c ended again with exit code 127"
    )


def test_a_refusal_is_shown_once_and_at_once_if_other_jobs_go_on() -> None:
    first = container_pod("pi-worker-0", {}, state=ended(127), restartCount=0)
    second = container_pod("pi-worker-0", {}, state=ended(127), restartCount=1)
    again = container_pod("pi-worker-0", {}, state={"running": {}}, lastState=ended(127), restartCount=2)
    shown = {}
    for several in (False, True):
        progress = Progress(several=several)
        progress.add("MPIJob", JOB)
        changes = [progress.update_pod(None, row) for row in (first, second, again, second)]
        shown[several] = [
            change.text for version in changes for change in version if "Refused" in change.text
        ]

    assert shown == {
        False: [],
        True: [
            (
                "MPIJob pi: Refused (worker-0: container c ended again with exit code 127: "
                "a program was not found; correct the command, or install the program)"
            )
        ],
    }


def test_failed_starts_of_a_replaced_pod_count() -> None:
    first, second = (
        container_pod("pi-worker-0", {}, uid, state=ended(127), restartCount=0) for uid in ("a", "b")
    )

    assert state_after(first, second).startswith("Refused: worker-0: container c ended again")


def test_a_missing_folder_ends_the_job_unless_another_pod_may_create_it() -> None:
    error = {"waiting": {"reason": "CreateContainerError", "message": "chdir: no such folder"}}
    waiting = container_pod("pi-worker-0", {}, state=error)
    other = container_pod("pi-worker-1", {}, state={"running": {}})

    assert state_after(waiting).startswith("Refused: worker-0: container c cannot start: chdir")
    assert state_after(waiting, other) == "New: "
