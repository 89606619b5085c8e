"""The operator beside schedulers, and the proof that scenarios need it: ``pytest --without-operator tests/schedulers``.

    def test_a_job_runs(plane: ControlPlane, operator: Operator) -> None:
        with operator.running(plane, FLAGS):
            ...

With the option nothing runs in that block, waits end early, and a scenario that passes all the same is a failed test. ``-rx`` lists
what each scenario has missed.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import Process, ProcessFailed
from rallypoint.testing.service import STANDALONE, Service, in_cluster_service

ABSENT_SECONDS = 5.0
"""The timeout of each wait without the operator: schedulers need less for their own part."""
_FAILURES = (AssertionError, LookupError, OSError, ProcessFailed, TimeoutError, ValueError)
"""What a scenario raises when something is missing."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator of a session's tests."""

    is_absent: bool = False

    @contextmanager
    def running(
        self, plane: ControlPlane, flags: Sequence[str] = (), *, overlay: Path = STANDALONE
    ) -> Generator[Service]:
        """Run it as ``in_cluster_service`` does; an absent one is a Service that does not answer."""
        if not self.is_absent:
            with in_cluster_service(plane, flags, overlay=overlay) as service:
                yield service
            return
        with self.limited_waits(plane):
            yield Service(Process("absent", [], plane.directory / "logs" / "absent.log"), "127.0.0.1:1")

    @contextmanager
    def limited_waits(self, plane: ControlPlane) -> Generator[None]:
        """Let waits end early inside the block if the operator is absent."""
        plane.longest_wait_seconds = self.limit(plane.longest_wait_seconds)
        try:
            yield
        finally:
            plane.longest_wait_seconds = math.inf

    def limit(self, seconds: float) -> float:
        """Return the timeout of a wait that lasts this long beside the operator."""
        return ABSENT_SECONDS if self.is_absent else seconds


@contextmanager
def expected_failure() -> Generator[None]:
    """Report a scenario that fails as an expected failure, and one that passes as failed."""
    try:
        yield
    except _FAILURES as error:
        pytest.xfail(f"{type(error).__name__}: {error}".partition("\n")[0])
    pytest.fail("this scenario passes without the operator, so it proves nothing")
