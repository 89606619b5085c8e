"""Verdicts from the pod counts of a v1 MPIJob; ``test_v1_reconcile`` tests its plans."""

import pytest

from controller.domain import Counts, Verdict
from controller.kinds.mpi.v1 import V1
from controller.kinds.mpi.v1spec import roles
from tests.support.mpi import v1_job

DOUBLED = "MPIJobFailed"
"""After the kind, which every reason begins with: what the original says, and alerts match."""


@pytest.mark.parametrize(
    ("policy", "launcher", "worker", "expected"),
    [
        pytest.param(
            "Never", Counts(), Counts(active=2), Verdict(reason=DOUBLED), id="the launcher does not run yet"
        ),
        pytest.param(
            "Never",
            Counts(active=1),
            Counts(),
            Verdict("MPIJob hvd is running.", reason=DOUBLED),
            id="workers do not count",
        ),
        pytest.param(
            "Never",
            Counts(succeeded=1),
            Counts(failed=1),
            Verdict(succeeded="MPIJob hvd is successfully completed."),
            id="the launcher succeeds",
        ),
        pytest.param(
            "Never",
            Counts(failed=1),
            Counts(active=2),
            Verdict(failed="MPIJob hvd is failed because 1 Launcher replica(s) failed.", reason=DOUBLED),
            id="the launcher fails",
        ),
        pytest.param(
            "OnFailure",
            Counts(active=1),
            Counts(active=1, failed=1),
            Verdict(
                running="MPIJob hvd is running.",
                failed="MPIJob hvd is failed because 1 Worker replica(s) failed.",
                reason=DOUBLED,
            ),
            id="a failed worker fails the job",
        ),
        pytest.param(
            "ExitCode",
            Counts(active=1),
            Counts(failed=2),
            Verdict(
                running="MPIJob hvd is running.",
                restarting="MPIJob hvd is restarting because 2 Worker replica(s) failed.",
                reason=DOUBLED,
            ),
            id="a retryable exit code restarts the job",
        ),
    ],
)
def test_the_completion_rule_decides(
    policy: str, launcher: Counts, worker: Counts, expected: Verdict
) -> None:
    of = v1_job({"restartPolicy": policy}, {"restartPolicy": policy})

    assert V1.completion_rule(of, roles(of), {"Launcher": launcher, "Worker": worker}) == expected
