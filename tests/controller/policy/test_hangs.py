"""When a job hangs, which pod is named, and which jobs are observed."""

from collections.abc import Mapping
from typing import Any

import pytest

from api.children import Pod
from api.job import RunPolicy
from api.progress import Progress
from controller.domain import Hang, Role, Snapshot
from controller.kinds.pytorch import PYTORCH
from controller.policy import hangs
from controller.policy.hangs import JobProgress, ObservedJob, Reading, RunningPod
from tests.support.builders import NOON, pod, pytorch_job

RUNNING = {"conditions": [{"type": "Running", "status": "True"}]}
ROLES = {"Worker": Role("Worker", 4, "Never", {}, "pytorch")}
DEADLINE = 100


def worker(index: int) -> RunningPod:
    return RunningPod("worker", f"train-worker-{index}", f"uid-{index}", f"node-{index}", "pytorch", NOON)


def progress(count: int = 3, **fields: Any) -> JobProgress:
    """Return a job of so many workers that is observed since 0."""
    given = Progress.model_validate(fields)
    pods = tuple(worker(index) for index in range(count))
    return JobProgress(ObservedJob("ml", "train", DEADLINE, given, 0, pods), 0.0)


def read(job: JobProgress, times: Mapping[int, float | None], at: float) -> None:
    """Read these workers at that time. Their newest lines have these times by the clocks of their nodes; None if they have no line."""
    for index, line in times.items():
        reading = Reading("") if line is None else Reading(str(line), line)
        job.pods[f"uid-{index}"].record(reading, at, at + 1)


def test_a_job_hangs_when_no_pod_has_written_for_the_deadline() -> None:
    job = progress()
    read(job, {0: 5, 1: 5, 2: 6}, 10)
    read(job, {0: 5, 1: 5, 2: 6}, 110)
    assert not job.is_hung

    read(job, {0: 5, 1: 5, 2: 6}, 111)

    assert job.is_hung


def test_one_pod_that_writes_is_enough() -> None:
    job = progress()
    read(job, {0: 5, 1: 5, 2: 6}, 10)
    read(job, {0: 5, 1: 5, 2: 200}, 200)

    assert not job.is_hung


def test_every_pod_must_write_if_the_job_says_so() -> None:
    job = progress(everyPod=True)
    read(job, {0: 5, 1: 5, 2: 6}, 10)
    read(job, {0: 5, 1: 200, 2: 200}, 200)

    assert job.is_hung
    assert job.hang({}).pod == "train-worker-0"
    assert job.hang({}).message == (
        "no line in the logs from train-worker-0 for 189 s; train-worker-0 is the only one"
    )


def test_a_pod_that_cannot_be_read_may_have_written() -> None:
    job = progress()
    read(job, {0: 5, 1: 5, 2: 6}, 10)
    for at in range(20, 1000, 10):
        read(job, {0: 5, 1: 5}, at)

    assert not job.is_hung


def test_pods_that_never_wrote_hang_too() -> None:
    job = progress()
    read(job, {0: None, 1: None, 2: None}, DEADLINE)

    assert job.is_hung
    assert job.hang({}).pod == "train-worker-0"


def test_the_pod_that_fell_silent_first_is_named() -> None:
    job = progress()
    read(job, {0: 90, 1: 40, 2: 91}, 95)
    read(job, {0: 90, 1: 40, 2: 91}, 200)

    found = job.hang({})

    assert (found.pod, found.role, found.node, found.uid) == ("train-worker-1", "worker", "node-1", "uid-1")
    assert (
        found.message
        == "no line in the logs from 3 pods for 104 s; train-worker-1 fell silent 50 s before the others"
    )


def test_a_pod_that_never_writes_much_is_not_named() -> None:
    job = progress(4)
    read(job, {0: 1000, 1: 1040, 2: 5, 3: None}, 0)
    read(job, {0: 1000, 1: 1040, 2: 5, 3: None}, 300)
    job.pods["uid-3"].at = 4

    assert job.hang({}).pod == "train-worker-0"


MAIN = 'process 7, running: python train.py\nThread 7 (active): "MainThread"\n'
WAITS = f"{MAIN}    all_reduce (torch/distributed.py:90)\n    main (train.py:20)"
LOADS = f"{MAIN}    read (data.py:12)\n    main (train.py:18)"
STOPPED = WAITS.replace("running", "stopped")


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        pytest.param([WAITS, WAITS, LOADS, WAITS], 2, id="another frame"),
        pytest.param([WAITS, STOPPED, WAITS, WAITS], 1, id="a stopped process"),
        pytest.param([WAITS, WAITS.replace("7", "99"), WAITS, WAITS], 0, id="another process number is no difference"),
        pytest.param([WAITS, LOADS, LOADS, WAITS], 0, id="two of each"),
        pytest.param([WAITS, LOADS, "", ""], 0, id="nothing to compare with"),
        pytest.param(["", "", "", ""], 0, id="no stacks"),
        pytest.param([WAITS, WAITS, WAITS, "no answer within 10 s"], 3, id="a pod that does not answer"),
    ],
)  # fmt: skip
def test_if_all_fell_silent_at_once_the_stack_that_differs_is_named(stacks: list[str], named: int) -> None:
    job = progress(4)
    read(job, {0: 90, 1: 91, 2: 90.5, 3: 91}, 95)
    read(job, {0: 90, 1: 91, 2: 90.5, 3: 91}, 200)

    found = job.hang({f"uid-{index}": text for index, text in enumerate(stacks) if text})

    assert found.pod == f"train-worker-{named}"


def test_equal_stacks_are_kept_once_those_of_the_named_pod_first() -> None:
    job = progress(4)
    read(job, dict.fromkeys(range(4), 90), 95)
    read(job, dict.fromkeys(range(4), 90), 200)

    deep = WAITS + "\n    again (train.py:9)" * 100
    found = job.hang({"uid-0": deep, "uid-1": deep, "uid-2": LOADS, "uid-3": deep})

    assert [pods for pods, _ in found.stacks] == [
        ("train-worker-2",),
        ("train-worker-0", "train-worker-1", "train-worker-3"),
    ]
    assert all(len(text) <= hangs.LONGEST_STACK for _, text in found.stacks)


def test_an_excerpt_has_the_main_threads_without_control_characters() -> None:
    dump = (
        "process 7, running: python \x1b[31mtrain.py\n"
        "Process 7: python -c import train\ntrain.run(key='secret')\nPython v3.13.1 (/usr/bin/python3.13)\n\n"
        'Thread 9 (idle): "Thread-1"\n    wait (threading.py:30)\n'
        'Thread 7 (active): "MainThread"\n    step (train.py:20)\n'
        "Thread 0x00007f (most recent call first):\n"
        '  File "pool.py", line 3 in work\n'
        "Current thread 0x00008f (most recent call first):\n"
        '  File "train.py", line 20 in step\n'
    )

    assert hangs.excerpt(dump).splitlines() == [
        "process 7, running: python train.py",
        'Thread 7 (active): "MainThread"',
        "    step (train.py:20)",
        "Current thread 0x00008f (most recent call first):",
        '  File "train.py", line 20 in step',
    ]


def test_the_only_thread_of_a_process_is_its_main_thread() -> None:
    dump = "process 7, sleeping: python\nThread 7 (idle)\n    step (train.py:4)\nprocess 8, sleeping: cat\n"

    assert hangs.excerpt(dump) == dump.rstrip()


def running(index: int = 0, role: str = "worker", **fields: Any) -> Pod:
    return pod(role, index, **{"running_since": NOON, **fields})


def observed(*pods: Pod, status: Mapping[str, Any] = RUNNING, **policy: Any) -> ObservedJob | None:
    run_policy = {"progressDeadlineSeconds": DEADLINE, **policy}
    job = pytorch_job(run_policy=run_policy, status=status)
    return hangs.observed(job, PYTORCH.roles(job), Snapshot(pods=pods))


def test_running_pods_are_observed() -> None:
    found = observed(running(role="master"), running(0), running(1, phase="Succeeded"))

    assert found is not None
    assert [(each.name, each.container) for each in found.pods] == [
        ("train-master-0", "pytorch"),
        ("train-worker-0", "pytorch"),
    ]


def test_only_the_named_roles_are_observed() -> None:
    found = observed(running(role="master"), running(0), progress={"roles": ["worker"]})

    assert found is not None
    assert [each.name for each in found.pods] == ["train-worker-0"]


def test_pods_that_restarts_in_place_have_kept_are_observed_from_the_end_of_the_pause() -> None:
    past = {"number": 1, "restartTime": "2026-01-01T12:00:00Z", "inPlace": True}
    status = {**RUNNING, "restarts": 2, "inPlaceRestarts": 2, "attempts": [past]}

    found = observed(running(0), status=status)

    assert found is not None
    assert (found.attempt, found.not_before) == (2, NOON)


@pytest.mark.parametrize(
    ("pods", "fields"),
    [
        pytest.param([], {}, id="no pods"),
        pytest.param([running(0), running(1, phase="Pending")], {}, id="a pod on its way, such as one whose image is pulled"),
        pytest.param([running(0), running(1, deleting=True)], {}, id="a pod that is being deleted"),
        pytest.param([running(0, running_since=None)], {}, id="a container that waits to restart"),
        pytest.param([running(0, attempt=1)], {}, id="a pod of a later attempt"),
        pytest.param([running(0)], {"status": {**RUNNING, "restarts": 1}}, id="a pod of an earlier attempt"),
        pytest.param([running(0)], {"suspend": True}, id="a job that is being suspended"),
        pytest.param([running(0)], {"status": {}}, id="a job that does not run yet"),
        pytest.param([running(0)], {"status": {"conditions": [{"type": "Running", "status": "False"}]}}, id="a finished job"),
        pytest.param([running(0)], {"progressDeadlineSeconds": None}, id="a job without a deadline"),
        pytest.param([running(0)], {"progress": {"logs": {"pattern": "("}}}, id="an invalid pattern in a job that runs already"),
    ],
)  # fmt: skip
def test_time_counts_only_while_all_pods_run(pods: list[Pod], fields: dict[str, Any]) -> None:
    assert observed(*pods, **fields) is None


@pytest.mark.parametrize(
    ("fields", "path", "text"),
    [
        pytest.param({"progressDeadlineSeconds": 9}, "progressDeadlineSeconds", "Invalid value: 9: must be at least 10", id="short"),
        pytest.param({"progress": {}}, "progressDeadlineSeconds", "Required value: must be set with progress", id="no deadline"),
        pytest.param({"progress": {"logs": {}, "annotation": "a"}}, "progress", "at most one of", id="two sources"),
        pytest.param({"progress": {"roles": ["Chief"]}}, "progress.roles[0]", "no such replica type", id="an unknown role"),
        pytest.param({"progress": {"roles": []}}, "progress.roles", "an empty list", id="no role"),
        pytest.param({"progress": {"logs": {"pattern": "(a"}}}, "progress.logs.pattern", "missing )", id="a pattern"),
        pytest.param({"progress": {"logs": {"pattern": r"(a)\1"}}}, "progress.logs.pattern", "not an RE2 expression", id="a back reference"),
        pytest.param({"progress": {"logs": {"pattern": "a" * 1025}}}, "progress.logs.pattern", "Too long", id="a long pattern"),
        pytest.param({"progress": {"annotation": "a b"}}, "progress.annotation", "name of an annotation", id="an annotation"),
        pytest.param({"progress": {"exec": {"command": []}}}, "progress.exec.command", "must have a command", id="no command"),
        pytest.param({"progress": {"stackSignal": "SIGKILL"}}, "progress.stackSignal", "SIGUSR1", id="a signal"),
    ],
)  # fmt: skip
def test_invalid_fields_are_named(fields: Mapping[str, Any], path: str, text: str) -> None:
    given = {"progressDeadlineSeconds": 60} if fields != {"progress": {}} else {}

    (problem,) = hangs.problems(RunPolicy.model_validate({**given, **fields}), ROLES)

    assert problem.field == f"spec.runPolicy.{path}"
    assert text in problem.text


def test_a_valid_policy_has_no_problems() -> None:
    fields = {"logs": {"pattern": r"step \d+"}, "roles": ["worker"], "stackSignal": "SIGUSR2"}
    policy = RunPolicy.model_validate({"progressDeadlineSeconds": 60, "progress": fields})

    assert [*hangs.problems(policy, ROLES)] == []


HANG = Hang("worker", "train-worker-1", "uid-1", "node-1", "no line in the logs")


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        pytest.param({"action": "RestartJob", "onReasons": ["NoProgress"]}, True, id="its reason"),
        pytest.param({"action": "RestartJob"}, True, id="a rule without requirements"),
        pytest.param({"action": "RestartJob", "roles": ["Worker"]}, True, id="its role"),
        pytest.param({"action": "RestartJob", "roles": ["Master"]}, False, id="another role"),
        pytest.param({"action": "RestartJob", "onReasons": ["OOMKilled"]}, False, id="another reason"),
        pytest.param({"action": "RestartPod"}, False, id="a pod alone does not end a hang"),
    ],
)
def test_rules_match_a_hang(rule: Mapping[str, Any], matches: bool) -> None:
    job = pytorch_job(run_policy={"failurePolicy": {"rules": [rule]}})

    assert (hangs.match(job, PYTORCH.roles(job), HANG) is not None) is matches
