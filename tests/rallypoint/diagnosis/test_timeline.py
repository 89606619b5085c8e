"""The spans of a job's life, and its restarts. Times are seconds before now; the job was created 100 s ago."""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.diagnosis import JobSnapshot, LastLines, diagnose, timeline
from rallypoint.diagnosis.lifetimes import Lifetime, lifetimes
from rallypoint.diagnosis.snapshot import ArchivedPod
from tests.support.snapshots import (
    NOW,
    RUNNING,
    Object,
    at,
    container,
    ended,
    event,
    false,
    job,
    pod,
    true,
)


def spans(of: Object, *pods: Object, **known: Any) -> list[tuple[str, float, float]]:
    """Name, start and end of each span, in seconds before now."""
    found = timeline(JobSnapshot(of, NOW, pods=pods, **known)).spans
    for before, after in pairwise(found):
        assert before.end == after.start, "there are no gaps"
    return [
        (span.name, (NOW - span.start).total_seconds(), (NOW - (span.end or NOW)).total_seconds())
        for span in found
    ]


def restarts(of: Object, *pods: Object, **known: Any) -> list[tuple[str, float, str]]:
    found = timeline(JobSnapshot(of, NOW, pods=pods, **known)).restarts
    return [(restart.pod, (NOW - restart.at).total_seconds(), restart.text) for restart in found]


def alone(*conditions: Object, age: float = 100, **policy: Any) -> Object:
    """A job of one master."""
    return job(*conditions, workers=0, age=age, **policy)


def timed_pod(
    name: str = "j-master-0",
    /,
    phase: str = "Running",
    *,
    created: float = 95,
    scheduled: float | None = 90,
    started: float | None = 60,
    conditions: Sequence[Object] = (),
    **status: Any,
) -> Object:
    """A pod with the times of its life."""
    if scheduled is not None:
        conditions = [true("PodScheduled", since=scheduled), *conditions]
    if started is not None:
        status = {"containerStatuses": [container(running={"startedAt": at(started)})], **status}
    found = pod(name, phase, node="a" if scheduled else "", conditions=conditions, **status)
    found["metadata"] |= {"creationTimestamp": at(created), "uid": f"{name}-{created}"}
    return found


def test_a_running_job() -> None:
    found = spans(alone(RUNNING), timed_pod())

    assert found == [("creating", 100, 95), ("scheduling", 95, 90), ("starting", 90, 60), ("running", 60, 0)]


def test_the_slowest_pod_decides() -> None:
    found = spans(job(age=100), timed_pod(), timed_pod("j-worker-0", created=80, scheduled=40, started=10))

    assert found == [("creating", 100, 80), ("scheduling", 80, 40), ("starting", 40, 10), ("running", 10, 0)]


def test_missing_pods_are_being_created() -> None:
    assert spans(job(age=100), timed_pod()) == [("creating", 100, 0)]


def test_images_and_init_containers() -> None:
    master = timed_pod(conditions=[true("Initialized", since=75)])
    master["spec"]["initContainers"] = [{"name": "prepare"}]
    pulled = event(master, "Pulled", "Successfully pulled image", "Normal", ago=65)

    assert spans(alone(RUNNING), master, events=[pulled])[2:] == [
        ("initializing", 90, 75),
        ("pulling", 75, 65),
        ("starting", 65, 60),
        ("running", 60, 0),
    ]


@pytest.mark.parametrize("by_event", [True, False])
def test_an_image_that_is_being_pulled(by_event: bool) -> None:
    waiting = {} if by_event else {"reason": "ImagePullBackOff"}
    master = timed_pod("j-master-0", "Pending", started=None, containerStatuses=[container(waiting=waiting)])
    events = [event(master, "Pulling", "Pulling image", "Normal", ago=85)] if by_event else []

    assert spans(alone(), master, events=events)[-1] == ("pulling", 90, 0)


def test_a_rendezvous_lasts_until_all_pods_are_ready() -> None:
    found = spans(
        job(RUNNING, age=100),
        timed_pod(conditions=[true("Ready", since=20)]),
        timed_pod("j-worker-0", conditions=[true("Ready", since=60)]),
    )

    assert found[-2:] == [("rendezvous", 60, 20), ("running", 20, 0)]


def test_a_rendezvous_that_a_log_tells_of() -> None:
    waits = {("j-master-0", "pytorch"): LastLines(NOW, ("waiting for 2 workers",))}
    snapshot = JobSnapshot(alone(RUNNING), NOW, pods=[timed_pod()], last_lines=waits)

    assert spans(alone(RUNNING), timed_pod(), last_lines=waits)[-1] == ("rendezvous", 60, 0)
    assert {phase.name: (phase.done, phase.total) for phase in diagnose(snapshot).phases}["ready"] == (0, 1)


def test_a_queue() -> None:
    queued = alone(RUNNING, false("Suspended", since=70))
    workload = {
        "metadata": {"name": "w", "uid": "w", "creationTimestamp": at(99)},
        "status": {"conditions": [true("Admitted", since=71)]},
    }
    master = timed_pod(created=69, scheduled=68, started=60)

    assert spans(queued, master, workloads=[workload])[:2] == [("queued", 100, 70), ("creating", 70, 69)]
    phases = diagnose(JobSnapshot(queued, NOW, pods=[master], workloads=[workload])).phases
    assert [(phase.name, phase.at) for phase in phases[1:3]] == [
        ("queued", NOW - timedelta(seconds=99)),
        ("admitted", NOW - timedelta(seconds=71)),
    ]


def test_a_job_that_waits_in_a_queue() -> None:
    waits = alone(true("Suspended", since=99), suspend=True)
    waits["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}

    assert spans(waits) == [("queued", 100, 0)]


def test_each_suspension_is_known_from_events() -> None:
    paused = alone(RUNNING, false("Suspended", since=30))
    events = [
        event(paused, reason, "", "Normal", ago=ago, kind="PyTorchJob")
        for reason, ago in [("PyTorchJobSuspended", 50), ("PyTorchJobResumed", 30)]
    ]
    before = timed_pod(created=95, scheduled=95, started=90)
    gone = [
        event(before, reason, "", "Normal", ago=ago)
        for reason, ago in [("Scheduled", 95), ("Started", 90), ("Killing", 49)]
    ]
    again = timed_pod(created=29, scheduled=28, started=20)
    for found in gone:
        found["firstTimestamp"] = found["lastTimestamp"]

    assert spans(paused, again, events=[*events, *gone]) == [
        ("creating", 100, 95),
        ("starting", 95, 90),
        ("running", 90, 50),
        ("suspended", 50, 30),
        ("creating", 30, 29),
        ("scheduling", 29, 28),
        ("starting", 28, 20),
        ("running", 20, 0),
    ]
    assert restarts(paused, again, events=[*events, *gone]) == []


def test_a_container_that_was_started_in_place() -> None:
    status = container(running={"startedAt": at(15)}, last=ended(137, ago=25), restarts=1)
    master = timed_pod(containerStatuses=[status])
    started = event(master, "Started", "", "Normal", ago=15) | {"firstTimestamp": at(60)}

    assert spans(alone(RUNNING), master, events=[started])[-3:] == [
        ("running", 60, 25),
        ("restarting", 25, 15),
        ("running", 15, 0),
    ]
    assert restarts(alone(RUNNING), master) == [
        ("j-master-0", 25, "container pytorch ended with exit code 137, killed by SIGKILL")
    ]


def test_a_replaced_pod_that_only_events_know() -> None:
    running = alone(RUNNING)
    first, second = timed_pod(created=95), timed_pod(created=38, scheduled=37, started=30)
    events = [
        event(first, "Scheduled", "", "Normal", ago=95),
        event(first, "Started", "", "Normal", ago=80),
        event(
            running,
            "ExitedWithCode",
            "Pod: n.j-master-0 exited with code 3",
            "Normal",
            ago=40,
            kind="PyTorchJob",
        ),
    ]

    assert spans(running, second, events=events) == [
        ("creating", 100, 95),
        ("starting", 95, 80),
        ("running", 80, 40),
        ("restarting", 40, 30),
        ("running", 30, 0),
    ]
    assert restarts(running, second, events=events) == [("j-master-0", 40, "ended with exit code 3")]
    phases = {
        phase.name: phase
        for phase in diagnose(JobSnapshot(running, NOW, pods=[second], events=events)).phases
    }
    assert (phases["restarted"].done, phases["restarted"].at) == (1, NOW - timedelta(seconds=40))


def test_a_replaced_pod_that_only_the_archive_knows() -> None:
    archived = ArchivedPod("j-master-0", "first", *(NOW - timedelta(seconds=ago) for ago in (95, 95, 50)))
    second = timed_pod(created=48, scheduled=48, started=47)

    assert spans(alone(RUNNING), second, archived_pods=[archived]) == [
        ("creating", 100, 95),
        ("running", 95, 50),
        ("restarting", 50, 47),
        ("running", 47, 0),
    ]


def deleted(found: Object, *, ago: float) -> ArchivedPod:
    """A pod that local mode knows by its last status."""
    created = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    return ArchivedPod(
        found["metadata"]["name"],
        found["metadata"]["uid"],
        created,
        last_state=found,
        deleted=NOW - timedelta(seconds=ago),
    )


def test_the_archive_knows_the_restarts_before_the_last_one() -> None:
    """Each restart shows as long as the job, not only until the next one."""
    status = container(
        waiting={"reason": "CrashLoopBackOff"}, last={**ended(1, ago=20), "startedAt": at(24)}, restarts=2
    )
    crashing = timed_pod(containerStatuses=[status])
    started, *runs = (
        (NOW - timedelta(seconds=start), NOW - timedelta(seconds=end))
        for start, end in ((95, 95), (60, 56), (45, 40), (24, 20))
    )
    uid = crashing["metadata"]["uid"]
    archived = ArchivedPod("j-master-0", uid, started[0], runs[0][0], runs={"pytorch": runs})

    assert spans(alone(RUNNING), crashing, archived_pods=[archived])[-6:] == [
        ("running", 60, 56),
        ("restarting", 56, 45),
        ("running", 45, 40),
        ("restarting", 40, 24),
        ("running", 24, 20),
        ("restarting", 20, 0),
    ]
    assert restarts(alone(RUNNING), crashing, archived_pods=[archived]) == [
        ("j-master-0", 56, "container pytorch ended"),
        ("j-master-0", 40, "container pytorch ended"),
        ("j-master-0", 20, "container pytorch ended with exit code 1"),
    ]


def test_restarts_and_waits_stay_when_the_pods_are_deleted() -> None:
    """The job fails 5 s ago, when one pod is in a crash loop, one runs, and one has no node."""
    of = job(RUNNING, workers=2, age=100)
    failed = job(true("Failed", since=5), workers=2, age=100)
    crashing = timed_pod(
        containerStatuses=[
            container(
                waiting={"reason": "CrashLoopBackOff"},
                last={**ended(1, ago=20), "startedAt": at(30)},
                restarts=2,
            )
        ]
    )
    runs = timed_pod("j-worker-0", scheduled=70, started=40)
    waits = timed_pod("j-worker-1", "Pending", scheduled=None, started=None)
    before, after = (job(it, workers=1, age=100) for it in (RUNNING, true("Failed", since=5)))

    assert spans(before, crashing, runs)[-2:] == [("running", 30, 20), ("restarting", 20, 0)]
    assert restarts(failed, archived_pods=[deleted(found, ago=4) for found in (crashing, runs, waits)]) == (
        restarts(of, crashing, runs, waits)
    )
    gone = [deleted(found, ago=4) for found in (crashing, runs)]
    assert spans(after, archived_pods=gone) == [
        *spans(before, crashing, runs)[:-1],
        ("restarting", 20, 5),
    ]
    assert spans(failed, archived_pods=[*gone, deleted(waits, ago=4)])[-1] == ("restarting", 20, 5)
    assert ("scheduling", 95, 20) in spans(failed, archived_pods=[*gone, deleted(waits, ago=4)])


def test_a_pod_that_runs_until_its_deletion_did_not_fail() -> None:
    """The one that the operator stopped ended with 143, after its deletion was requested."""
    stopped = timed_pod(
        "j-master-0",
        "Failed",
        containerStatuses=[container(terminated={**ended(143, ago=38), "startedAt": at(60)})],
    )
    stopped["metadata"] |= {"deletionTimestamp": at(10), "deletionGracePeriodSeconds": 30}
    second = timed_pod(created=37, scheduled=37, started=30)

    assert restarts(alone(RUNNING), second, archived_pods=[deleted(stopped, ago=37)]) == [
        ("j-master-0", 38, "was replaced")
    ]


def test_a_deleted_pod_that_never_had_a_node_waited_for_one() -> None:
    waits = timed_pod(created=95, scheduled=None, started=None)
    refused = event(waits, "FailedScheduling", "0/1 nodes are available", ago=50)
    refused["firstTimestamp"] = at(94)

    assert spans(alone(true("Failed", since=10)), events=[refused]) == [
        ("creating", 100, 94),
        ("scheduling", 94, 10),
    ]


def test_pods_of_an_earlier_job_of_the_same_name_do_not_count() -> None:
    earlier = event(timed_pod(created=300), "Started", "", "Normal", ago=300)

    assert spans(alone(RUNNING), timed_pod(), events=[earlier])[0] == ("creating", 100, 95)


def test_a_launcher_waits_for_its_workers() -> None:
    mpi = alone()
    mpi["kind"] = "MPIJob"
    mpi["spec"] = {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 1}}}

    assert spans(mpi, timed_pod("j-worker-0", created=95, scheduled=90, started=60)) == [
        ("creating", 100, 95),
        ("scheduling", 95, 90),
        ("starting", 90, 60),
        ("awaiting launcher", 60, 0),
    ]


def test_a_finished_job_ends_with_its_end() -> None:
    done = alone(true("Succeeded", since=10))
    over = timed_pod("j-master-0", "Succeeded", containerStatuses=[container(terminated=ended(0, ago=12))])

    assert spans(done, over)[-2:] == [("starting", 90, 50), ("running", 50, 10)]


def test_a_finished_job_without_pods() -> None:
    assert spans(alone(true("Succeeded", since=10))) == [("active", 100, 10)]


def test_a_job_that_ends_within_a_second_has_no_spans() -> None:
    assert spans(alone(true("Failed", since=100))) == []


def pods_of_large_job(count: int) -> JobSnapshot:
    """A job of that many workers, each of which replaced a pod that only events know and one that only the archive knows."""
    names = [f"j-worker-{index}" for index in range(count)]
    workers = [timed_pod(name, created=40, scheduled=30, started=20) for name in names]
    events = [event(timed_pod(name, created=60), "Started", "", "Normal", ago=60) for name in names]
    archived = [
        ArchivedPod(name, f"first-{name}", *(NOW - timedelta(seconds=ago) for ago in (95, 90, 80)))
        for name in names
    ]
    of = job(RUNNING, workers=count, age=100)
    return JobSnapshot(of, NOW, pods=[timed_pod(), *workers], events=events, archived_pods=archived)


def lines_of(snapshot: JobSnapshot) -> int:
    """The number of lines that the timeline executes: a measure of its time that does not depend on the machine."""
    lines = 0

    def count(frame: FrameType, kind: str, argument: Any) -> Any:
        nonlocal lines
        lines += kind == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        diagnose(snapshot)
    finally:
        sys.settrace(before)
    return lines


def test_the_work_is_linear_in_the_number_of_pods() -> None:
    assert lines_of(pods_of_large_job(200)) < 5 * lines_of(pods_of_large_job(50))


def test_lifetimes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = []

    def counted(snapshot: JobSnapshot) -> list[Lifetime]:
        snapshots.append(snapshot)
        return lifetimes(snapshot)

    monkeypatch.setattr(sys.modules["rallypoint.diagnosis.timeline"], "lifetimes", counted)
    diagnose(pods_of_large_job(1))

    assert len(snapshots) == 1


def test_pods_after_the_end_do_not_count() -> None:
    """The clock of the API server may be behind that of the operator."""
    done = alone(true("Succeeded", since=50))

    assert spans(done, timed_pod(created=40, scheduled=30, started=20)) == [("creating", 100, 50)]


seconds = st.none() | st.integers(-20, 130)
generated_pods = st.lists(
    st.builds(
        lambda name, phase, created, scheduled, started, ended, restarted: timed_pod(
            name,
            phase,
            created=created,
            scheduled=scheduled,
            started=started,
            **_ended(started, ended, restarted),
        ),
        st.sampled_from(["j-master-0", "j-worker-0", "j-worker-1", "j-launcher-abcde"]),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        st.integers(-20, 130),
        seconds,
        seconds,
        seconds,
        st.booleans(),
    ),
    max_size=5,
)


def _ended(started: int | None, end: int | None, restarted: bool) -> dict[str, Any]:
    if end is None:
        return {}
    last = {**ended(1, ago=end), "startedAt": at(started if started is not None else end)}
    status = container(running={"startedAt": at(end - 5)}, last=last, restarts=1)
    return {"containerStatuses": [status if restarted else container(terminated=last)]}


@given(
    generated_pods,
    st.sampled_from([(), (RUNNING,), (true("Suspended", since=40),), (false("Suspended", since=40),)]),
    st.none() | st.integers(0, 100),
)
def test_spans_cover_the_life_of_the_job_whatever_its_pods_say(
    pods: list[Object], conditions: tuple[Object, ...], end: int | None
) -> None:
    finished = (true("Failed", since=end),) if end is not None else ()

    found = spans(job(*conditions, *finished, age=100), *pods)

    if end == 100:
        assert found == []
    else:
        assert (found[0][1], found[-1][2]) == (100, end or 0)
        assert all(start > stop for _, start, stop in found)
        assert all(before[0] != after[0] for before, after in pairwise(found))
