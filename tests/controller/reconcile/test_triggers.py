"""The keys of jobs that changes of objects add to the queue."""

from typing import Any

import msgspec
import pytest

from api.batch import BatchJob
from api.children import Pod
from api.pod_problems import Trouble
from controller.domain import Key
from controller.reconcile.jobs import JobRow
from controller.reconcile.triggers import on_child, on_job
from controller.runtime.queue import Priority, Queue
from tests.support.builders import NOON, pod, pod_group, service

TRAIN = Key("ml", "train")


RECONCILED = b'{"conditions":[{"type":"Created"}]}'


def job(generation: int = 1, version: int = 1, status: bytes = b"null") -> JobRow:
    return JobRow(
        "ml",
        "train",
        "u",
        version,
        generation,
        False,
        b"{}",
        b"{}",
        status,
        has_conditions=status == RECONCILED,
    )


async def taken(queue: Queue[Key]) -> list[Key]:
    """All keys that are ready, in order."""
    keys = []
    while len(queue):
        keys.append((await queue.get())[0])
    return keys


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, job(), id="created"),
        pytest.param(job(), job(version=2), id="status changed"),
        pytest.param(job(), job(generation=2, version=2), id="spec changed"),
        pytest.param(job(), None, id="deleted"),
    ],
)
async def test_every_change_of_a_job_requests_a_reconcile(
    before: JobRow | None, after: JobRow | None
) -> None:
    queue = Queue[Key]()
    on_job(queue, before, after)

    assert await taken(queue) == [TRAIN]


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        pytest.param(None, job(), True, id="a new job ends it"),
        pytest.param(job(), job(generation=2), True, id="a new spec ends it"),
        pytest.param(job(), None, True, id="the end of the job ends it"),
        pytest.param(job(version=2), job(), True, id="a job that a restored server has reset ends it"),
        pytest.param(job(), job(version=2), False, id="a new status does not"),
    ],
)
async def test_only_urgent_changes_of_the_job_end_its_backoff(
    before: JobRow | None, after: JobRow | None, urgent: bool
) -> None:
    queue = Queue[Key]()
    queue.add_failed(TRAIN)

    on_job(queue, before, after)

    assert await taken(queue) == ([TRAIN] if urgent else [])


async def priority(queue: Queue[Key]) -> Priority:
    """Return the priority of the single ready key, found by the keys that precede it."""
    for priority in Priority:
        queue.add(Key("other", priority.name), priority=priority)
    order = await taken(queue)
    # Each of the others is behind the key if the key came to its level first.
    return Priority(1 - order.index(TRAIN))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, job(), Priority.NORMAL, id="a new one"),
        pytest.param(None, job(status=b"{}"), Priority.NORMAL, id="a new one with an empty status"),
        pytest.param(None, job(status=RECONCILED), Priority.BACKLOG, id="one that a restart finds"),
        pytest.param(
            job(), job(version=2, status=RECONCILED), Priority.NORMAL, id="one whose status changed"
        ),
        pytest.param(
            job(status=RECONCILED),
            job(generation=2, version=2, status=RECONCILED),
            Priority.NORMAL,
            id="one whose spec changed",
        ),
        pytest.param(job(status=RECONCILED), None, Priority.NORMAL, id="one that went"),
    ],
)
async def test_the_change_of_a_job_sets_the_priority_of_its_reconcile(
    before: JobRow | None, after: JobRow | None, expected: Priority
) -> None:
    queue = Queue[Key]()
    on_job(queue, before, after)

    assert await priority(queue) is expected


@pytest.mark.parametrize("child", [pod(), service(), pod_group()], ids=["a pod", "a Service", "a PodGroup"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda row: (None, row), Priority.BACKLOG, id="was there at the start"),
        pytest.param(
            lambda row: (row, msgspec.structs.replace(row, deleting=True)), Priority.HIGH, id="changed"
        ),
        pytest.param(lambda row: (row, None), Priority.HIGH, id="went"),
    ],
)
async def test_the_change_of_a_child_sets_the_priority_of_the_reconcile(
    child: Any, change: Any, expected: Priority
) -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, *change(child))

    assert await priority(queue) is expected


@pytest.mark.parametrize("child", [pod(), service(), pod_group()], ids=["a pod", "a Service", "a PodGroup"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda row: (None, row), id="came"),
        pytest.param(lambda row: (row, msgspec.structs.replace(row, deleting=True)), id="is being deleted"),
        pytest.param(lambda row: (row, None), id="went"),
    ],
)
async def test_a_change_of_a_child_requests_a_reconcile_of_its_job(child: Any, change: Any) -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, *change(child))

    assert await taken(queue) == [TRAIN]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(pod(), pod(resource_version=2), id="only its resource version changed"),
        pytest.param(
            pod_group(message="2/3 tasks"),
            pod_group(message="1/3 tasks"),
            id="only the scheduler's text changed",
        ),
        pytest.param(None, pod(owner_kind=""), id="it has no owner"),
        pytest.param(None, pod(owner_kind="TFJob"), id="its owner's kind is not served"),
        pytest.param(None, None, id="it never existed"),
    ],
)
async def test_an_irrelevant_change_of_a_child_requests_nothing(
    before: Pod | None, after: Pod | None
) -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, before, after)

    assert await taken(queue) == []


def troubled(version: int, message: str, similar: str = "PodScheduled", reason: str = "Unschedulable") -> Pod:
    return pod(resource_version=version, troubles=(Trouble(reason, message, similar),))


async def test_what_only_metrics_read_requests_nothing() -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, pod(), pod(scheduled_at=NOON, disruption="DeletionByPodGC"))

    assert await taken(queue) == []


async def test_a_changed_message_of_the_same_trouble_requests_nothing() -> None:
    queue = Queue[Key]()
    before = troubled(1, "0/5 nodes are available: 5 Insufficient cpu")
    on_child({"PyTorchJob": queue}, before, troubled(2, "0/6 nodes are available: 1 node(s) had a taint"))

    assert await taken(queue) == []


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(troubled(2, "m", reason="SchedulingGated"), id="another reason"),
        pytest.param(troubled(2, "m", similar="pytorch no image"), id="another type"),
        pytest.param(pod(resource_version=2), id="no trouble any more"),
        pytest.param(
            msgspec.structs.replace(troubled(2, "other"), phase="Failed"), id="another change beside it"
        ),
    ],
)
async def test_another_trouble_requests_a_reconcile(after: Pod) -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, troubled(1, "m"), after)

    assert await taken(queue) == [TRAIN]


async def test_a_child_adds_its_job_to_the_queue_of_the_kind() -> None:
    ours, theirs = Queue[Key](), Queue[Key]()
    on_child({"PyTorchJob": ours, "JAXJob": theirs}, None, pod(owner_kind="JAXJob"))

    assert (await taken(ours), await taken(theirs)) == ([], [TRAIN])


@pytest.mark.parametrize(
    ("before", "after", "owners"),
    [
        pytest.param({}, {"owner_name": "", "owner_kind": ""}, ["train"], id="the one that loses it"),
        pytest.param({"owner_name": "", "owner_kind": ""}, {}, ["train"], id="the one that gets it"),
        pytest.param({}, {"owner_name": "other"}, ["train", "other"], id="both"),
    ],
)
async def test_a_child_that_changes_owners_requests_reconciles_of_both(
    before: dict[str, Any], after: dict[str, Any], owners: list[str]
) -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, service(**before), service(**after, resource_version=2))

    assert await taken(queue) == [Key("ml", name) for name in owners]


async def test_a_change_of_the_phase_of_a_pod_requests_a_single_reconcile() -> None:
    queue = Queue[Key]()
    on_child({"PyTorchJob": queue}, pod(phase="Pending"), pod(phase="Running", resource_version=2))

    assert await taken(queue) == [TRAIN]


async def test_a_grandchild_requests_a_reconcile_of_the_job() -> None:
    """A grandchild is, for example, a pod of a batch Job that the job owns."""
    queue = Queue[Key]()
    batch = BatchJob(
        "ml", "train-launcher", "batch", 1, owner_kind="PyTorchJob", owner_name="train", owner_uid="u"
    )
    row = pod(owner_kind="Job", owner_name="train-launcher", owner_uid="batch")
    on_child({"PyTorchJob": queue}, None, row, lambda _: batch)
    assert await taken(queue) == [TRAIN]

    on_child({"PyTorchJob": queue}, None, row, lambda _: None)
    assert await taken(queue) == []


@pytest.mark.parametrize("any_change", [True, False])
async def test_a_change_outside_of_the_row_requests_a_reconcile_only_on_demand(any_change: bool) -> None:
    """It is news where rows are of metadata alone, and a heartbeat elsewhere."""
    queue = Queue[Key](group=lambda key: key.namespace)
    before = service("worker", 0, job="train")
    after = msgspec.structs.replace(before, resource_version=before.resource_version + 1)

    on_child({"PyTorchJob": queue}, before, after, any_change=any_change)

    assert bool(await taken(queue)) is any_change
