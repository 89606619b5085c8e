"""Verdicts from pod counts, for kinds with a leader."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.domain import Counts, Verdict
from controller.kind.completion_rules import led_by
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import pytorch_job

NONE = Counts()
COUNT = st.integers(0, 4)
COUNTS = st.builds(Counts, COUNT, COUNT, COUNT, COUNT)


def judged(
    counts: Mapping[str, Counts],
    *,
    masters: int | None = 1,
    workers: int | None = 2,
    policy: str = "OnFailure",
    first_success_ends: bool = False,
) -> Verdict:
    fields = {"restartPolicy": policy}
    job = pytorch_job(masters=masters, workers=workers, master=fields, worker=fields)
    roles = PYTORCH.roles(job)
    return led_by(
        "Master",
        "PyTorchJob",
        job,
        roles,
        {name: counts.get(name, NONE) for name in roles},
        first_success_ends=first_success_ends,
    )


@pytest.mark.parametrize(
    ("master", "worker", "verdict"),
    [
        pytest.param(NONE, NONE, Verdict(), id="nothing runs yet"),
        pytest.param(NONE, Counts(active=2), Verdict(), id="workers without their master"),
        pytest.param(
            Counts(active=1), NONE, Verdict(running="PyTorchJob train is running."), id="the master runs"
        ),
        pytest.param(
            Counts(succeeded=1),
            Counts(active=2),
            Verdict(succeeded="PyTorchJob train is successfully completed."),
            id="the master is done, workers are not",
        ),
        pytest.param(
            Counts(succeeded=1),
            Counts(failed=2),
            Verdict(succeeded="PyTorchJob train is successfully completed."),
            id="success comes before failure",
        ),
        pytest.param(
            Counts(active=1),
            Counts(succeeded=2),
            Verdict(running="PyTorchJob train is running."),
            id="workers that are done decide nothing",
        ),
    ],
)
def test_with_a_master_the_master_decides(master: Counts, worker: Counts, verdict: Verdict) -> None:
    assert judged({"Master": master, "Worker": worker}) == verdict


@pytest.mark.parametrize(
    ("worker", "elastic", "verdict"),
    [
        pytest.param(NONE, False, Verdict(), id="nothing runs yet"),
        pytest.param(NONE, True, Verdict(), id="nothing runs yet, elastic"),
        pytest.param(
            Counts(active=1), False, Verdict(running="PyTorchJob ml/train is running."), id="one worker runs"
        ),
        pytest.param(
            Counts(active=1, succeeded=1),
            False,
            Verdict(running="PyTorchJob ml/train is running."),
            id="one of two is done",
        ),
        pytest.param(
            Counts(succeeded=2),
            False,
            Verdict(succeeded="PyTorchJob ml/train successfully completed."),
            id="all are done",
        ),
        pytest.param(
            Counts(active=1, succeeded=1),
            True,
            Verdict(succeeded="PyTorchJob ml/train successfully completed."),
            id="one of two is done, elastic",
        ),
    ],
)
def test_without_a_master_the_workers_decide(worker: Counts, elastic: bool, verdict: Verdict) -> None:
    assert judged({"Worker": worker}, masters=None, first_success_ends=elastic) == verdict


def test_a_succeeded_worker_does_not_end_a_job_with_a_master() -> None:
    counts = {"Master": Counts(active=1), "Worker": Counts(succeeded=1, active=1)}

    assert judged(counts, first_success_ends=True).succeeded == ""


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_a_failed_pod_restarts_the_job(policy: str) -> None:
    verdict = judged({"Master": Counts(active=1), "Worker": Counts(active=1, failed=1)}, policy=policy)

    assert verdict == Verdict(
        running="PyTorchJob train is running.",
        restarting="PyTorchJob train is restarting because 1 Worker replica(s) failed.",
    )


def test_a_failed_pod_fails_the_job_under_never() -> None:
    verdict = judged({"Master": Counts(active=1), "Worker": Counts(failed=2)}, policy="Never")

    assert verdict.failed == "PyTorchJob train is failed because 2 Worker replica(s) failed."
    assert verdict.restarting == ""


def test_a_vanished_pod_restarts_the_job() -> None:
    verdict = judged({"Master": Counts(active=1), "Worker": Counts(active=1, vanished=1)})

    assert verdict.restarting == "PyTorchJob train is restarting because 1 Worker replica(s) failed."


def test_failed_and_vanished_pods_are_counted_together() -> None:
    verdict = judged({"Worker": Counts(failed=1, vanished=1)})

    assert verdict.restarting == "PyTorchJob train is restarting because 2 Worker replica(s) failed."


def test_a_vanished_pod_does_not_fail_the_job_under_never() -> None:
    verdict = judged({"Master": Counts(active=1), "Worker": Counts(vanished=2)}, policy="Never")

    assert (verdict.failed, verdict.restarting) == ("", "")


def test_the_loss_of_the_master_is_reported_first() -> None:
    verdict = judged({"Master": Counts(failed=1), "Worker": Counts(failed=1)})

    assert verdict.restarting == "PyTorchJob train is restarting because 1 Master replica(s) failed."


def test_a_role_without_replicas_decides_nothing() -> None:
    assert judged({}, masters=None, workers=0) == Verdict()


def test_a_job_without_roles_has_no_verdict() -> None:
    assert judged({}, masters=None, workers=None) == Verdict()


@given(
    master=COUNTS,
    worker=COUNTS,
    masters=st.sampled_from([None, 1]),
    workers=st.sampled_from([None, 0, 1, 3]),
    policy=st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"]),
    elastic=st.booleans(),
)
def test_a_verdict_never_contradicts_itself(
    master: Counts, worker: Counts, masters: int | None, workers: int | None, policy: str, elastic: bool
) -> None:
    verdict = judged(
        {"Master": master, "Worker": worker},
        masters=masters,
        workers=workers,
        policy=policy,
        first_success_ends=elastic,
    )

    assert not (verdict.succeeded and (verdict.failed or verdict.running or verdict.restarting))
    assert not (verdict.failed and verdict.restarting)
    assert not (verdict.failed and policy != "Never")
    assert not (verdict.restarting and policy == "Never")
