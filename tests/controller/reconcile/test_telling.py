"""What is told of a job: the first children one by one, the rest and the compact form in sums, the same thing once."""

import pytest
from typing_extensions import override

from api.meta import PODS, SERVICES, VOLCANO_POD_GROUPS
from controller.domain import Event, Severity, Voice
from controller.kube.client import Client
from controller.reconcile import telling
from controller.reconcile.telling import ONE_BY_ONE, Teller
from controller.runtime.recorder import EventPriority, Recorder, Subject
from rallypoint.testing.builders import subject

JOB = subject()


class Listener(Recorder):
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(Client.__new__(Client))
        self.heard: list[tuple[str, str]] = []
        self.similar: list[str] = []
        """What the reports that were heard are combined by."""

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
        self.heard.append((reason, message))
        if similar:
            self.similar.append(similar)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def exited(pod: str, once: str = "") -> Event:
    return Event(Severity.NORMAL, "ExitedWithCode", f"{pod} exited", once)


def test_in_full_each_of_the_first_children_is_told_at_once(listener: Listener) -> None:
    teller = Teller(listener)
    teller.created(JOB, PODS, "a")
    teller.created(JOB, SERVICES, "a")
    teller.deleted(JOB, PODS, "a")
    teller.deleted(JOB, VOLCANO_POD_GROUPS, "train")

    assert listener.heard == [
        ("SuccessfulCreatePod", "Created pod: a"),
        ("SuccessfulCreateService", "Created service: a"),
        ("SuccessfulDeletePod", "Deleted pod: a"),
        ("SuccessfulDeletePodGroup", "Deleted PodGroup: train"),
    ]


def test_in_full_a_large_job_has_twenty_four(listener: Listener) -> None:
    teller = Teller(listener)
    for number in range(100):
        teller.created(JOB, PODS, f"pod-{number}")
        teller.created(JOB, SERVICES, f"pod-{number}")
    assert len(listener.heard) == ONE_BY_ONE
    teller.sum_up(JOB)

    ((reason, message),) = listener.heard[ONE_BY_ONE:]
    assert reason == "SuccessfulCreateService"
    assert message.startswith("Created 89 services and 88 pods: pod-11, pod-12, ")


def test_the_budget_is_that_of_the_job_and_not_of_the_pass(listener: Listener) -> None:
    teller = Teller(listener)
    for number in range(ONE_BY_ONE + 1):
        teller.created(JOB, PODS, f"pod-{number}")
        teller.sum_up(JOB)
    teller.created(JOB, PODS, "late")
    teller.sum_up(JOB)

    assert listener.heard[-1] == ("SuccessfulCreatePod", "Created pod: late")
    teller.created(JOB, PODS, "a")
    teller.created(JOB, PODS, "b")
    teller.sum_up(JOB)
    assert listener.heard[-1] == ("SuccessfulCreatePod", "Created 2 pods: a, b")


def test_compact_sums_up_from_the_start(listener: Listener) -> None:
    teller = Teller(listener, compact=True)
    for name in ("a", "b"):
        teller.created(JOB, PODS, name)
    assert listener.heard == []
    teller.sum_up(JOB)

    assert listener.heard == [("SuccessfulCreatePod", "Created 2 pods: a, b")]
    teller.sum_up(JOB)
    assert len(listener.heard) == 1, "and tells it once"


def test_what_is_left_to_sum_up_of_all_jobs(listener: Listener) -> None:
    teller = Teller(listener, compact=True)
    other = subject("other", uid="uid-2")
    teller.created(JOB, PODS, "a")
    teller.deleted(JOB, PODS, "b")
    teller.created(other, PODS, "c")
    teller.sum_up_all()

    assert [message for _, message in listener.heard] == [
        "Created pod: a",
        "Deleted pod: b",
        "Created pod: c",
    ]
    teller.sum_up_all()
    assert len(listener.heard) == 3


def test_compact_tells_one_of_each_reason_and_how_many_more(listener: Listener) -> None:
    events = [exited("a"), exited("b"), Event(Severity.NORMAL, "PyTorchJobSucceeded", "done")]
    Teller(listener, compact=True).happened(JOB, events)

    assert listener.heard == [("ExitedWithCode", "a exited (and 1 more)"), ("PyTorchJobSucceeded", "done")]


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_told_once_is_not_told_again(listener: Listener, compact: bool) -> None:
    teller = Teller(listener, compact=compact)
    for once in ("a", "a", "b"):
        teller.happened(JOB, [exited("pod", once)])
    assert len(listener.heard) == 2

    other = subject(uid="uid-2")
    teller.happened(other, [exited("pod", "a")])
    assert len(listener.heard) == 3, "another job of that name is another job"


def test_many_jobs_in_trouble_do_not_make_each_other_forgotten(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "REMEMBERED", 2)
    teller = Teller(listener)
    jobs = [subject(f"job-{n}", uid=f"uid-{n}") for n in range(5)]
    for job in jobs + jobs:
        teller.happened(job, [exited("a", "a"), exited("b", "b")])

    assert len(listener.heard) == 10


def test_what_is_remembered_is_bounded(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "REMEMBERED", 2)
    teller = Teller(listener)
    for once in ("a", "b", "c", "a", "c"):
        teller.happened(JOB, [exited("pod", once)])

    assert len(listener.heard) == 4


def test_a_failure_is_told_in_the_words_of_the_original(listener: Listener) -> None:
    teller = Teller(listener, compact=True)
    teller.failed(JOB, "Create", PODS, "no")
    teller.failed(JOB, "Delete", SERVICES, "no")

    assert listener.heard == [
        ("FailedCreatePod", "Error creating: no"),
        ("FailedDeleteService", "Error deleting: no"),
    ]


def test_what_pods_report_is_combined_and_the_state_of_the_job_is_not(listener: Listener) -> None:
    teller = Teller(listener)
    image = Event(Severity.WARNING, "ErrImagePull", "pod-7: no image", similar="pytorch no image")
    teller.happened(JOB, [image, Event(Severity.NORMAL, "PyTorchJobSucceeded", "done")])

    assert listener.similar == ["pytorch no image"]
    assert len(listener.heard) == 2


def test_failures_that_differ_in_numbers_are_combined(listener: Listener) -> None:
    teller = Teller(listener)
    for index, used in ((7, 10), (123, 9)):
        text = (
            f'pods "train-worker-{index}" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu={used}'
        )
        teller.failed(JOB, "Create", PODS, text)

    assert len(set(listener.heard)) == 2
    assert len(set(listener.similar)) == 1


def test_in_compact_form_all_reports_of_a_reason_are_combined(listener: Listener) -> None:
    teller = Teller(listener, compact=True)
    texts = ("manifest unknown", "timeout")
    for text in texts:
        teller.happened(JOB, [Event(Severity.WARNING, "ErrImagePull", text, similar=text)])

    assert [message for _, message in listener.heard] == list(texts)
    assert len(set(listener.similar)) == 1


def test_a_job_that_is_gone_is_forgotten(listener: Listener) -> None:
    teller = Teller(listener, compact=True)
    teller.created(JOB, PODS, "a")
    teller.forget(JOB.uid)
    teller.sum_up(JOB)

    assert listener.heard == []


def test_a_kind_has_words_of_its_own(listener: Listener) -> None:
    """What it keeps silent about takes nothing of what may be told."""
    voice = Voice(
        done=lambda verb, kind, name: (
            Event(Severity.NORMAL, "SuccessfulOwn", name) if kind == "Pod" else None
        ),
        failed=lambda verb, kind, words: Event(Severity.WARNING, "Own", words) if kind == "Pod" else None,
    )
    teller = Teller(listener)
    for number in range(ONE_BY_ONE):
        teller.created(JOB, SERVICES, f"s-{number}", voice)
    teller.created(JOB, PODS, "a", voice)
    teller.failed(JOB, "Create", PODS, "no", voice)
    teller.failed(JOB, "Create", SERVICES, "no", voice)

    assert listener.heard == [
        ("SuccessfulOwn", "a"),
        ("Own", "no"),
        ("FailedCreateService", "Error creating: no"),
    ]
