"""Silent pods while others wait in a rendezvous."""

from datetime import timedelta

import pytest

from rallypoint.diagnosis import Cause, JobSnapshot, LastLines, diagnose
from tests.support.snapshots import NOW, RUNNING, Object, at, container, job, pod

WAITS = "Timed out after 61 seconds waiting for clients. 3/4 clients joined."


def running(name: str, *, ago: float = 300) -> Object:
    return pod(name, "Running", containerStatuses=[container(running={"startedAt": at(ago)})])


def said(line: str, *, ago: float) -> LastLines:
    return LastLines(NOW - timedelta(seconds=ago), (line,))


NOTHING = LastLines(None, ())


def silent(*pods: Object, **lines: LastLines) -> list[Cause]:
    last = {(name.replace("_", "-"), "pytorch"): found for name, found in lines.items()}
    found = diagnose(JobSnapshot(job(RUNNING), NOW, pods=pods, last_lines=last))
    return [cause for cause in found.causes if "logged nothing" in cause.text]


def test_pods_that_have_logged_nothing_are_named() -> None:
    found = silent(
        running("j-master-0"),
        running("j-worker-0"),
        running("j-worker-1", ago=200),
        running("j-worker-2", ago=100),
        j_master_0=said(WAITS, ago=5),
        j_worker_0=said("Waiting in store based barrier to initialize process group for rank: 1", ago=3),
        j_worker_1=NOTHING,
        j_worker_2=NOTHING,
    )

    assert found == [
        Cause(
            ("j-worker-1", "j-worker-2"),
            f"has logged nothing since it started, while j-master-0 and 1 more wait for other ranks ({WAITS})",
            NOW - timedelta(seconds=200),
            blocks=False,
            next_step="see what its program does: rallypoint exec j-worker-1 -n n -- ps -ef (needs permission for pods/exec)",
            step_when_deleted="",
        )
    ]


def test_a_pod_that_stopped_logging_before_the_others_waited_is_named() -> None:
    (cause,) = silent(
        running("j-master-0"),
        running("j-worker-0"),
        j_master_0=said(WAITS, ago=5),
        j_worker_0=said("loading data", ago=250),
    )

    assert cause.text.startswith("has logged nothing more, while j-master-0 waits for other ranks")
    assert cause.since == NOW - timedelta(seconds=250)


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        pytest.param(running("j-worker-0"), said("step 3", ago=1), id="it logs"),
        pytest.param(running("j-worker-0", ago=10), NOTHING, id="it has only just started"),
        pytest.param(running("j-worker-0"), None, id="its log is unknown"),
        pytest.param(pod("j-worker-0", "Pending"), NOTHING, id="it does not run"),
    ],
)
def test_other_pods_are_not_named(found: Object, lines: LastLines | None) -> None:
    known = {} if lines is None else {"j_worker_0": lines}

    assert silent(running("j-master-0"), found, j_master_0=said(WAITS, ago=5), **known) == []


def test_a_pod_that_still_logs_something_else_contradicts_a_rendezvous() -> None:
    names = ("j-master-0", "j-worker-0", "j-worker-1")
    lines = {"j_master_0": said(WAITS, ago=5), "j_worker_0": said("step 3", ago=1), "j_worker_1": NOTHING}

    assert silent(*map(running, names), **lines) == []


def test_a_pod_that_does_not_run_explains_the_wait() -> None:
    pods = (running("j-master-0"), running("j-worker-0"), pod("j-worker-1", containerStatuses=[]))

    assert silent(*pods, j_master_0=said(WAITS, ago=5), j_worker_0=NOTHING) == []


def test_silence_alone_proves_nothing() -> None:
    assert (
        silent(
            running("j-master-0"), running("j-worker-0"), j_master_0=said("step 3", ago=5), j_worker_0=NOTHING
        )
        == []
    )


def test_workers_of_an_mpi_job_always_say_nothing() -> None:
    found = diagnose(
        JobSnapshot(
            {**job(RUNNING), "kind": "MPIJob"},
            NOW,
            pods=[running("j-launcher"), running("j-worker-0")],
            last_lines={
                ("j-launcher", "pytorch"): said("waiting for 1 worker", ago=5),
                ("j-worker-0", "pytorch"): NOTHING,
            },
        )
    )

    assert not any("logged nothing" in cause.text for cause in found.causes)


@pytest.mark.parametrize(
    "line",
    [
        "[c10d] The client socket has failed to connect to [train-master-0]:23456 (errno: 111 - Connection refused).",
        "/job:jax_worker/replica:0/task:2",
        "I tensorflow/core/distributed_runtime/master.cc:221] CreateSession still waiting for response from worker: /job:ps/replica:0/task:0",
        "server not ready, wait 3 sec to retry... not ready endpoints:['10.0.0.1:6171']",
        "Expected 8 threads to join the rendezvous, but not all of them arrived on time.",
        "waiting for 2 more workers",
        "Waiting for 3/4 ranks",
        "rank 0 waits until all 4 peers have joined",
    ],
)
def test_lines_of_waiting_programs(line: str) -> None:
    assert silent(
        running("j-master-0"), running("j-worker-0"), j_master_0=said(line, ago=5), j_worker_0=NOTHING
    )


@pytest.mark.parametrize(
    "line",
    [
        "epoch 1",
        "await something",
        "waiting for data",
        "worker 3 done",
        "[c10d] The client socket has failed to connect to [::1]:29500 (errno: 97 - Address family not supported by protocol).",
        "[c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not supported).",
        "task name: resize",
        "waiting for all data loader workers",
        "waiting for 4 data loader workers",
        "waiting for the checkpoint upload to finish on 1 node",
    ],
)
def test_lines_of_other_programs(line: str) -> None:
    assert not silent(
        running("j-master-0"), running("j-worker-0"), j_master_0=said(line, ago=5), j_worker_0=NOTHING
    )
