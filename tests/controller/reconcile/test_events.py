"""Events of a job: the first children singly, then summaries, and no event twice."""

import pytest
from typing_extensions import override

from api.meta import PODS, SERVICES, VOLCANO_POD_GROUPS
from controller.domain import DEFAULT_MESSAGES, Event, EventMessages, Severity
from controller.kube.client import Client
from controller.reconcile import memory
from controller.reconcile.events import MOST_CHILD_EVENTS, EventRecorder
from controller.reconcile.memory import JobMemory
from controller.reconcile.parent import Parent
from controller.runtime.recorder import EventPriority, Recorder, Subject
from tests.support.builders import subject

JOB = subject()


class Listener(Recorder):
    """A recorder that stores its events."""

    def __init__(self, *, is_busy: bool = False) -> None:
        super().__init__(Client.__new__(Client))
        self._has_many_waiting = is_busy
        self.recorded: list[tuple[str, str]] = []
        self.similar: list[str] = []
        """What the reports that were heard are combined by."""

    @property
    @override
    def is_busy(self) -> bool:
        return self._has_many_waiting

    @override
    def record(
        self,
        subject: Subject,
        severity: str,
        reason: str,
        message: str,
        *,
        priority: EventPriority = EventPriority.STATE,
        similar: str = "",
    ) -> None:
        is_child = priority is EventPriority.CHILD
        assert is_child == reason.startswith("Successful"), "only what happens as it should can wait"
        assert (priority is EventPriority.REPORT) == bool(similar)
        self.recorded.append((reason, message))
        if similar:
            self.similar.append(similar)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def parent(job: Subject = JOB, event_messages: EventMessages = DEFAULT_MESSAGES) -> Parent:
    return Parent(job, JobMemory(job.uid), 1, event_messages)


@pytest.fixture
def job() -> Parent:
    return parent()


def exited(pod: str, once: str = "") -> Event:
    return Event(Severity.NORMAL, "ExitedWithCode", f"{pod} exited", once)


def test_full_events_report_each_of_the_first_children_at_once(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener)
    events.record_created(job, PODS, "a")
    events.record_created(job, SERVICES, "a")
    events.record_deleted(job, PODS, "a")
    events.record_deleted(job, VOLCANO_POD_GROUPS, "train")

    assert listener.recorded == [
        ("SuccessfulCreatePod", "Created pod: a"),
        ("SuccessfulCreateService", "Created service: a"),
        ("SuccessfulDeletePod", "Deleted pod: a"),
        ("SuccessfulDeletePodGroup", "Deleted PodGroup: train"),
    ]


def test_full_events_of_a_large_job_are_twenty_four(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener)
    for number in range(100):
        events.record_created(job, PODS, f"pod-{number}")
        events.record_created(job, SERVICES, f"pod-{number}")
    assert len(listener.recorded) == MOST_CHILD_EVENTS
    events.record_summaries(job.memory.events)

    ((reason, message),) = listener.recorded[MOST_CHILD_EVENTS:]
    assert reason == "SuccessfulCreateService"
    assert message.startswith("Created 89 services and 88 pods: pod-11, pod-12, ")


def test_while_many_events_wait_only_pods_have_an_event_each(job: Parent) -> None:
    listener = Listener(is_busy=True)
    events = EventRecorder(listener)
    for name in ("a", "b"):
        events.record_created(job, PODS, name)
        events.record_created(job, SERVICES, name)
    events.record_summaries(job.memory.events)

    assert listener.recorded == [
        ("SuccessfulCreatePod", "Created pod: a"),
        ("SuccessfulCreatePod", "Created pod: b"),
        ("SuccessfulCreateService", "Created 2 services: a, b"),
    ]


def test_the_event_budget_is_per_job_and_not_per_reconcile(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener)
    for number in range(MOST_CHILD_EVENTS + 1):
        events.record_created(job, PODS, f"pod-{number}")
        events.record_summaries(job.memory.events)
    events.record_created(job, PODS, "late")
    events.record_summaries(job.memory.events)

    assert listener.recorded[-1] == ("SuccessfulCreatePod", "Created pod: late")
    events.record_created(job, PODS, "a")
    events.record_created(job, PODS, "b")
    events.record_summaries(job.memory.events)
    assert listener.recorded[-1] == ("SuccessfulCreatePod", "Created 2 pods: a, b")


def test_compact_events_are_summarized_from_the_start(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener, compact=True)
    for name in ("a", "b"):
        events.record_created(job, PODS, name)
    assert listener.recorded == []
    events.record_summaries(job.memory.events)

    assert listener.recorded == [("SuccessfulCreatePod", "Created 2 pods: a, b")]
    events.record_summaries(job.memory.events)
    assert len(listener.recorded) == 1, "and tells it once"


def test_summaries_are_recorded_once_for_each_job(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener, compact=True)
    other = parent(subject("other", uid="uid-2"))
    events.record_created(job, PODS, "a")
    events.record_deleted(job, PODS, "b")
    events.record_created(other, PODS, "c")
    for memory_ in (job.memory, other.memory):
        events.record_summaries(memory_.events)

    assert [message for _, message in listener.recorded] == [
        "Created pod: a",
        "Deleted pod: b",
        "Created pod: c",
    ]
    for memory_ in (job.memory, other.memory):
        events.record_summaries(memory_.events)
    assert len(listener.recorded) == 3


def test_compact_events_report_each_reason_once_with_a_count(listener: Listener, job: Parent) -> None:
    events = [exited("a"), exited("b"), Event(Severity.NORMAL, "PyTorchJobSucceeded", "done")]
    EventRecorder(listener, compact=True).record(job, events)

    assert listener.recorded == [("ExitedWithCode", "a exited (and 1 more)"), ("PyTorchJobSucceeded", "done")]


@pytest.mark.parametrize("compact", [False, True])
def test_an_event_with_a_once_key_is_recorded_once(listener: Listener, job: Parent, compact: bool) -> None:
    events = EventRecorder(listener, compact=compact)
    for once in ("a", "a", "b"):
        events.record(job, [exited("pod", once)])
    assert len(listener.recorded) == 2

    other = parent(subject(uid="uid-2"))
    events.record(other, [exited("pod", "a")])
    assert len(listener.recorded) == 3, "another job of that name is another job"


def test_many_failing_jobs_do_not_evict_each_other(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "REMEMBERED_EVENTS", 2)
    events = EventRecorder(listener)
    jobs = [parent(subject(f"job-{n}", uid=f"uid-{n}")) for n in range(5)]
    for job in jobs + jobs:
        events.record(job, [exited("a", "a"), exited("b", "b")])

    assert len(listener.recorded) == 10


def test_what_is_remembered_is_bounded(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "REMEMBERED_EVENTS", 2)
    events, job = EventRecorder(listener), parent()
    for once in ("a", "b", "c", "a", "c"):
        events.record(job, [exited("pod", once)])

    assert len(listener.recorded) == 4


def test_a_failure_event_has_the_message_of_the_original(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener, compact=True)
    events.record_failure(job, "Create", PODS, "no")
    events.record_failure(job, "Delete", SERVICES, "no")

    assert listener.recorded == [
        ("FailedCreatePod", "Error creating: no"),
        ("FailedDeleteService", "Error deleting: no"),
    ]


def test_pod_events_are_combined_and_job_events_are_not(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener)
    image = Event(Severity.WARNING, "ErrImagePull", "pod-7: no image", similar="pytorch no image")
    events.record(job, [image, Event(Severity.NORMAL, "PyTorchJobSucceeded", "done")])

    assert listener.similar == ["pytorch no image"]
    assert len(listener.recorded) == 2


def test_failures_that_differ_in_numbers_are_combined(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener)
    for index, used in ((7, 10), (123, 9)):
        text = (
            f'pods "train-worker-{index}" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu={used}'
        )
        events.record_failure(job, "Create", PODS, text)

    assert len(set(listener.recorded)) == 2
    assert len(set(listener.similar)) == 1


def test_compact_events_of_the_same_reason_are_combined(listener: Listener, job: Parent) -> None:
    events = EventRecorder(listener, compact=True)
    texts = ("manifest unknown", "timeout")
    for text in texts:
        events.record(job, [Event(Severity.WARNING, "ErrImagePull", text, similar=text)])

    assert [message for _, message in listener.recorded] == list(texts)
    assert len(set(listener.similar)) == 1


def test_a_kind_can_have_its_own_messages(listener: Listener) -> None:
    """Suppressed events do not use up the budget."""
    event_messages = EventMessages(
        done=lambda verb, kind, name: (
            Event(Severity.NORMAL, "SuccessfulOwn", name) if kind == "Pod" else None
        ),
        failed=lambda verb, kind, words: Event(Severity.WARNING, "Own", words) if kind == "Pod" else None,
    )
    events, job = EventRecorder(listener), parent(event_messages=event_messages)
    for number in range(MOST_CHILD_EVENTS):
        events.record_created(job, SERVICES, f"s-{number}")
    events.record_created(job, PODS, "a")
    events.record_failure(job, "Create", PODS, "no")
    events.record_failure(job, "Create", SERVICES, "no")

    assert listener.recorded == [
        ("SuccessfulOwn", "a"),
        ("Own", "no"),
        ("FailedCreateService", "Error creating: no"),
    ]
