"""From changes of jobs and pods to output: progress, lines, the screen, and the end of following."""

import asyncio
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from rallypoint.local import screen
from rallypoint.local.follow import MAX_LINE_BYTES, SETTLE_SECONDS, Follow, Lines
from rallypoint.local.manifest import Row
from rallypoint.local.progress import Change, Progress, Replica
from rallypoint.local.screen import TerminalScreen, TextScreen

NOW = datetime(2026, 1, 1, 12, 1, 5, tzinfo=UTC)
CREATED = "2026-01-01T12:00:00Z"


def job(*conditions: tuple[str, str], uid: str = "j", name: str = "job") -> dict[str, Any]:
    written = [
        {
            "type": kind,
            "status": value,
            "message": f"it is {kind}.",
            "lastTransitionTime": "2026-01-01T12:00:30Z",
        }
        for kind, value in conditions
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": CREATED},
        "status": {"conditions": written, "startTime": CREATED},
    }


def pod(
    name: str, phase: str = "Running", *, uid: str = "", owner: str = "j", **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "creationTimestamp": CREATED,
            "ownerReferences": [{"uid": owner, "name": "job", "controller": True}],
        },
        "spec": {"nodeName": "local", "containers": [{"name": "pytorch"}]},
        "status": {"phase": phase, **status},
    }


def row(manifest: dict[str, Any]) -> Row:
    meta = manifest["metadata"]
    return Row(meta["namespace"], meta["name"], meta["uid"], 1, manifest)


def ended(code: int) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "pytorch", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
        ]
    }


@pytest.fixture
def progress() -> Progress:
    progress = Progress(several=False)
    progress.add("PyTorchJob", job())
    return progress


@pytest.mark.parametrize(
    ("conditions", "state", "finished"),
    [
        pytest.param([], "New", False, id="none"),
        pytest.param([("Created", "True")], "Created", False, id="created"),
        pytest.param([("Created", "True"), ("Running", "True")], "Running", False, id="the last that holds"),
        pytest.param([("Running", "False"), ("Succeeded", "True")], "Succeeded", True, id="succeeded"),
        pytest.param(
            [("Failed", "True"), ("Created", "True")], "Failed", True, id="failed, whatever comes after"
        ),
        pytest.param([("Created", "True"), ("Suspended", "True")], "Suspended", False, id="suspended"),
    ],
)
def test_the_state_of_a_job(
    progress: Progress, conditions: list[tuple[str, str]], state: str, finished: bool
) -> None:
    progress.update_job(None, row(job(*conditions)))

    assert (progress.jobs["j"].state, progress.finished) == (state, finished)


def test_a_change_of_a_job_is_reported_once(progress: Progress) -> None:
    running = row(job(("Running", "True")))

    assert progress.update_job(None, running) == [Change("PyTorchJob job: Running (it is Running.)")]
    assert progress.update_job(running, running) == []


def test_a_deleted_job_is_over_and_keeps_its_result(progress: Progress) -> None:
    done = row(job(("Succeeded", "True")))
    progress.update_job(None, done)
    progress.update_job(done, None)

    assert (progress.finished, progress.succeeded) == (True, True)


def test_a_job_that_is_deleted_unfinished_has_not_succeeded(progress: Progress) -> None:
    progress.update_job(row(job()), None)

    assert (progress.jobs["j"].state, progress.finished, progress.succeeded) == ("Deleted", True, False)


def test_duration(progress: Progress) -> None:
    progress.update_job(None, row(job(("Failed", "True"))))

    assert progress.jobs["j"].duration_seconds == 30


def test_pods_of_other_owners_are_ignored(progress: Progress) -> None:
    assert progress.update_pod(None, row(pod("x", owner="other"))) == []
    assert progress.jobs["j"].replicas == {}


def test_a_replaced_pod_is_a_restart_of_its_replica(progress: Progress) -> None:
    first = row(pod("job-worker-0", "Failed", uid="1", **ended(143)))
    second = row(pod("job-worker-0", "Running", uid="2"))

    assert progress.update_pod(None, first) == [Change("worker-0: Failed (exit code 143)")]
    progress.update_pod(first, None)
    assert progress.update_pod(None, second) == [
        Change("worker-0: Running, started again 1 time", in_table=True)
    ]
    (replica,) = progress.jobs["j"].rows
    assert (replica.uids, replica.restarts, replica.over) == (["1", "2"], 1, False)


def test_a_deleted_pod_has_not_failed(progress: Progress) -> None:
    going = pod("job-worker-0")
    going["metadata"]["deletionTimestamp"] = CREATED
    done = {**going, "status": {"phase": "Failed", **ended(143)}}
    updates = [
        progress.update_pod(None, row(pod("job-worker-0"))),
        progress.update_pod(None, row(going)),
        progress.update_pod(None, row(done)),
        progress.update_pod(row(done), None),
    ]
    (replica,) = progress.jobs["j"].rows

    assert [changes.text for update in updates for changes in update] == [
        "worker-0: Running",
        "worker-0: Deleted",
    ]
    assert (replica.phase, replica.detail, replica.exit_code) == ("Deleted", "", None)


def test_a_pod_that_failed_before_its_deletion_has_failed(progress: Progress) -> None:
    failed = pod("job-worker-0", "Failed", **ended(3))
    going = {**failed, "metadata": {**failed["metadata"], "deletionTimestamp": CREATED}}
    for after in (row(failed), row(going), None):
        progress.update_pod(row(failed), after)
    (replica,) = progress.jobs["j"].rows

    assert (replica.phase, replica.detail, replica.exit_code) == ("Failed", "exit code 3", 3)


def test_container_restarts_count_as_well(progress: Progress) -> None:
    status: dict[str, Any] = {
        "containerStatuses": [{"name": "pytorch", "restartCount": 2, "state": {"running": {}}}]
    }
    progress.update_pod(None, row(pod("job-worker-0", "Running", uid="1", **status)))
    progress.update_pod(None, row(pod("job-worker-0", "Running", uid="2", **status)))

    assert progress.jobs["j"].replicas["job-worker-0"].restarts == 5


@pytest.mark.parametrize(
    ("states", "exit_code"),
    [
        pytest.param([{"running": {}}], None, id="running"),
        pytest.param([{"terminated": {"exitCode": 0}}, {"running": {}}], None, id="one of two has succeeded"),
        pytest.param([{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 0}}], 0, id="succeeded"),
        pytest.param([{"running": {}}, {"terminated": {"exitCode": 3}}], 3, id="one of two has failed"),
        pytest.param([], None, id="not started"),
    ],
)
@pytest.mark.parametrize("init", [True, False])
def test_the_exit_code_of_a_replica(states: list[dict[str, Any]], exit_code: int | None, init: bool) -> None:
    """An init container that has succeeded says nothing about the pod."""
    inits = [{"name": "init-pytorch", "state": {"terminated": {"exitCode": 0}}}] if init else []
    mains = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    manifest = pod("job-worker-0", initContainerStatuses=inits, containerStatuses=mains)

    assert Replica("job-worker-0", "worker-0", manifest, ["1"]).exit_code == exit_code


def test_replicas_are_in_natural_order(progress: Progress) -> None:
    for name in ("worker-10", "worker-2", "master-0"):
        progress.update_pod(None, row(pod(f"job-{name}")))

    assert [replica.short for replica in progress.jobs["j"].rows] == ["master-0", "worker-2", "worker-10"]


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        pytest.param({}, "", id="running"),
        pytest.param({"phase": "Failed", **ended(3)}, "exit code 3", id="failed"),
        pytest.param(
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {
                        "name": "compile",
                        "state": {"terminated": {"exitCode": 128, "message": "exec\nno gcc\n"}},
                    }
                ],
                "containerStatuses": [
                    {"name": "mpi", "state": {"waiting": {"reason": "PodInitializing"}}},
                ],
            },
            "compile: exit code 128 (no gcc)",
            id="an init container failed",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "no room"}, "Evicted, no room", id="evicted"
        ),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes",
                    }
                ],
            },
            "Unschedulable: 0/1 nodes",
            id="no room",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                    }
                ]
            },
            "CrashLoopBackOff: back-off 10s",
            id="held back",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {
                        "name": "compile",
                        "state": {
                            "waiting": {
                                "reason": "CrashLoopBackOff",
                                "message": "back-off 10s restarting failed container=compile pod=a_b(c)",
                            }
                        },
                        "lastState": {"terminated": {"exitCode": 1}},
                    }
                ],
            },
            "CrashLoopBackOff: back-off 10s restarting failed container=compile: exit code 1",
            id="an init container is held back",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}],
            },
            "",
            id="about to start",
        ),
    ],
)
def test_the_description_of_a_replica(status: dict[str, Any], detail: str) -> None:
    manifest = pod("job-worker-0")
    manifest["status"] |= status

    assert Replica("job-worker-0", "worker-0", manifest, ["1"]).detail == detail


def test_a_rejected_pod_ends_the_wait(progress: Progress) -> None:
    waits = {"waiting": {"reason": "Refused", "message": "volume v"}}
    changes = progress.update_pod(
        None, row(pod("job-worker-0", "Pending", containerStatuses=[{"name": "c", "state": waits}]))
    )

    assert changes == [Change("worker-0: Pending (Refused: volume v)")]
    assert (progress.finished, progress.succeeded) == (True, False)
    assert progress.jobs["j"].condition == {"type": "Refused", "message": "worker-0: volume v"}


def unable(message: str, restarts: int = 1, **container: Any) -> dict[str, Any]:
    """A pod whose container was started ``restarts`` times again and never found its program."""
    manifest = pod("job-worker-0", "Running")
    manifest["spec"]["containers"] = [{"name": "pytorch", **container}]
    last = {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    state = {"name": "pytorch", "restartCount": restarts, "state": waits, "lastState": last}
    manifest["status"]["containerStatuses"] = [state]
    return manifest


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        pytest.param(
            ["train"], "; install it in the environment of this command, or use its path", id="a name"
        ),
        pytest.param(
            ["./train"],
            "; relative paths start at the folder in which this command runs",
            id="a relative path",
        ),
        pytest.param(["/opt/train"], "", id="an absolute path"),
    ],
)
def test_a_program_that_is_missing_again_ends_the_wait(
    progress: Progress, command: list[str], hint: str
) -> None:
    first, second = (
        row(unable("exec: no such file", 0, command=command)),
        row(unable("exec: no such file", command=command)),
    )
    progress.update_pod(None, first)
    assert not progress.finished
    progress.update_pod(first, second)

    assert (progress.finished, progress.succeeded) == (True, False)
    assert progress.jobs["j"].condition == {
        "type": "Refused",
        "message": f"worker-0: container pytorch cannot start: exec: no such file{hint}",
    }


def test_a_missing_folder_ends_the_wait(progress: Progress) -> None:
    waits = {"waiting": {"reason": "CreateContainerError", "message": "chdir to cwd: no such file"}}
    progress.update_pod(
        None, row(pod("job-worker-0", "Pending", containerStatuses=[{"name": "c", "state": waits}]))
    )

    assert progress.jobs["j"].condition["message"] == (
        "worker-0: container c cannot start: chdir to cwd: no such file; create the folder, or change workingDir"
    )


def test_a_run_can_wait_for_a_missing_program() -> None:
    progress = Progress(several=False, waits=True)
    progress.add("PyTorchJob", job())
    progress.update_pod(None, row(unable("exec: no such file")))

    assert not progress.finished


def test_lines_are_whole(progress: Progress) -> None:
    printed: list[str] = []
    lines = Lines(lambda pod, container, line: printed.append(line))
    manifest = pod("a")
    for piece in (b"on", b"e\ntwo\r\n50%\r100", b"%\nwithout end", b"", b"again\n"):
        lines.add(manifest, "c", piece)

    assert printed == ["one", "two", "100%", "without end", "again"]


def test_lines_of_containers_do_not_mix() -> None:
    printed: list[str] = []
    lines = Lines(lambda pod, container, line: printed.append(f"{container} {line}"))
    for container, piece in (("a", b"1"), ("b", b"2\n"), ("a", b"3\n")):
        lines.add(pod("x"), container, piece)

    assert printed == ["b 2", "a 13"]


def test_a_line_without_end_comes_in_parts() -> None:
    printed: list[str] = []
    lines = Lines(lambda pod, container, line: printed.append(line))
    lines.add(pod("x"), "c", b"x" * (MAX_LINE_BYTES + 1))

    assert len(printed) == 1


def text_follow(progress: Progress, stop: asyncio.Event | None = None) -> tuple[Follow, io.StringIO]:
    text = io.StringIO()
    return Follow(progress, TextScreen(text.write), stop or asyncio.Event()), text


def test_output_is_prefixed(progress: Progress) -> None:
    follow, text = text_follow(progress)
    init = pod("job-worker-0")
    init["spec"]["initContainers"] = [
        {"name": "prepare", "command": ["sh"]},
        {
            "name": "init-pytorch",
            "command": ["sh", "-c", "for i in $(seq 9); do nslookup job-master-0; done"],
        },
    ]
    follow._lines.add(pod("job-master-0"), "pytorch", b"hello\n")
    follow._lines.add(init, "prepare", b"preparing\n")
    follow._lines.add(init, "init-pytorch", b"waiting\n")
    follow._lines.add(pod("x", owner="other"), "pytorch", b"not ours\n")

    assert text.getvalue() == "[master-0] hello\n[worker-0/prepare] preparing\n"


def test_a_log_that_loses_output_is_reported(progress: Progress) -> None:
    follow, text = text_follow(progress)
    follow._note_loss(pod("job-master-0"), "pytorch", "No space left on device")
    follow._note_loss(pod("x", owner="other"), "pytorch", "No space left on device")

    assert text.getvalue() == "master-0: the log is incomplete: No space left on device\n"


def test_with_several_jobs_output_is_prefixed_with_the_job() -> None:
    progress = Progress(several=True)
    progress.add("PyTorchJob", job())
    follow, text = text_follow(progress)
    follow._lines.add(pod("job-master-0"), "pytorch", b"hello\n")

    assert text.getvalue() == "[job/master-0] hello\n"


async def test_following_ends_when_all_jobs_have_and_their_pods_too(progress: Progress) -> None:
    follow, _ = text_follow(progress)
    loop = asyncio.get_running_loop()
    follow._pod_changed(None, row(pod("job-worker-0")))
    following = asyncio.create_task(follow.until_finished())
    await asyncio.sleep(60)
    assert not following.done()
    follow._job_changed(None, row(job(("Succeeded", "True"))))
    await asyncio.sleep(1)
    assert not following.done(), "the worker may still be writing"
    follow._pod_changed(None, row(pod("job-worker-0", "Succeeded")))
    await following

    assert loop.time() == pytest.approx(61, abs=0.5)


async def test_running_pods_delay_the_end_only_briefly(progress: Progress) -> None:
    follow, _ = text_follow(progress)
    follow._pod_changed(None, row(pod("job-worker-0")))
    follow._job_changed(None, row(job(("Succeeded", "True"))))
    await follow.until_finished()

    assert asyncio.get_running_loop().time() == pytest.approx(SETTLE_SECONDS, abs=0.5)


async def test_following_ends_when_it_is_stopped(progress: Progress) -> None:
    stop = asyncio.Event()
    follow, _ = text_follow(progress, stop)
    following = asyncio.create_task(follow.until_finished())
    await asyncio.sleep(10)
    stop.set()
    await following

    assert not progress.finished


def test_what_stopping_does_to_jobs_and_pods_is_no_result(progress: Progress) -> None:
    stop = asyncio.Event()
    follow, text = text_follow(progress, stop)
    running = row(pod("job-worker-0"))
    follow._pod_changed(None, running)
    stop.set()
    follow._pod_changed(running, row(pod("job-worker-0", "Failed", **ended(143))))
    follow._job_changed(None, row(job(("Failed", "True"))))

    assert text.getvalue() == "worker-0: Running\n"
    assert not progress.finished


def test_the_table_shows_each_replica(progress: Progress) -> None:
    progress.update_pod(None, row(pod("job-master-0")))
    progress.update_pod(None, row(pod("job-worker-0", "Failed", **ended(3))))
    console = Console(file=io.StringIO(), width=100)
    console.print(screen.replica_table(progress, NOW))
    shown = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]

    assert shown == [
        ["replica", "phase", "restarts", "node", "age"],
        ["master-0", "Running", "0", "local", "1m05s"],
        ["worker-0", "Failed", "exit", "code", "3", "0", "local", "1m05s"],
    ]


def test_the_table_says_what_a_replica_waits_for(progress: Progress) -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'configmap "c" not found'}
    state = {"name": "pytorch", "restartCount": 0, "state": {"waiting": waiting}}
    progress.update_pod(None, row(pod("job-master-0", "Pending", containerStatuses=[state])))
    console = Console(file=io.StringIO(), width=100)
    console.print(screen.replica_table(progress, NOW))

    assert 'Pending  CreateContainerConfigError: configmap "c" not found' in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_large_table_lists_unusual_replicas_first(progress: Progress) -> None:
    for index in range(50):
        progress.update_pod(None, row(pod(f"job-worker-{index}", "Pending" if index == 49 else "Running")))
    console = Console(file=io.StringIO(), width=100)
    console.print(screen.replica_table(progress, NOW))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    assert lines[1].startswith("worker-49")
    assert lines[-1].startswith("… and 26 more")


def test_a_terminal_shows_output_above_the_table(progress: Progress) -> None:
    progress.update_pod(None, row(pod("job-worker-0")))
    text = io.StringIO()
    with TerminalScreen(Console(file=text, force_terminal=True, width=100), progress, lambda: NOW) as shown:
        shown.output("worker-0", "loss \x1b[31m0.1\x1b[0m [not markup]")
        shown.note("PyTorchJob job: Running")
        shown.note("worker-0: Running", in_table=True)
        shown.refresh()
    written = text.getvalue()

    assert "[not markup]" in written
    assert "worker-0: Running" not in written
    assert written.index("[worker-0]") < written.index("PyTorchJob job: Running") < written.index("replica")


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (65, "1m05s"), (3725, "1h02m")])
def test_durations_are_short(seconds: float, text: str) -> None:
    assert screen.format_seconds(seconds) == text
