"""When a job is reported to the metrics. What is reported: tests/controller/test_job_metrics.py."""

from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from api.children import Pod
from controller.kinds.pytorch import PYTORCH
from controller.reconcile.job_metrics import JobMetrics
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.load import LoadedJob
from controller.reconcile.memory import JobMemory
from controller.reconcile.observe import Sources, owner_uid
from controller.runtime.store import Store
from controller.telemetry.metrics.jobs import JobSample, JobTotals
from tests.support.builders import NOON, UID, pod, pytorch_job


class RecordingTotals(JobTotals):
    """Records what is reported."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.samples: list[JobSample] = []

    @override
    def put(self, uid: str, sample: JobSample) -> None:
        self.samples.append(sample)
        super().put(uid, sample)


class ReportedJob:
    """A running job with one worker, as its reconciles report it."""

    def __init__(self) -> None:
        self.totals = RecordingTotals()
        self.pods = Store[Pod](owner_uid)
        self.pods.put(pod(resource_version=2))
        self._metrics = JobMetrics(self.totals, Sources(self.pods), lambda: NOON)
        self._memory = JobMemory(UID)

    def report(self, version: int = 1, **status: Any) -> None:
        """Report the job at that resourceVersion."""
        job = pytorch_job(masters=None, workers=1)
        body = orjson.loads(orjson.dumps(job.to_wire()))
        body["metadata"]["resourceVersion"] = str(version)
        body["status"] = status
        row: JobRow = job_from_json(orjson.dumps(body))
        loaded = LoadedJob(PYTORCH, row, job, (), self._memory, is_first=False)
        self._metrics.begin(loaded)
        self._metrics.record(loaded, row)


@pytest.fixture
def job() -> ReportedJob:
    job = ReportedJob()
    job.report()
    assert len(job.totals.samples) == 1
    return job


def test_a_reconcile_that_finds_nothing_new_reports_nothing(job: ReportedJob) -> None:
    job.report()

    assert len(job.totals.samples) == 1


def test_a_new_version_of_the_job_is_reported(job: ReportedJob) -> None:
    job.report(version=7)

    assert len(job.totals.samples) == 2


def test_a_new_version_of_a_pod_is_reported(job: ReportedJob) -> None:
    job.pods.put(pod(phase="Failed", resource_version=3))
    job.report()

    assert [sample.replicas for sample in job.totals.samples] == [(0, 1, 0, 0), (0, 0, 0, 1)]


def test_a_job_that_left_the_totals_is_reported_again(job: ReportedJob) -> None:
    """Its kind was not served for a while."""
    job.totals.discard(UID)
    job.report()

    assert len(job.totals.samples) == 2


def test_the_wall_clock_is_reported(job: ReportedJob) -> None:
    clock = {"phase": "Running", "since": "1970-01-01T00:01:00Z", "pullingSeconds": 7, "lostSeconds": 2}
    job.report(version=2, wallClock=clock)
    job.report(version=3, wallClock={**clock, "phase": "Finished"})

    *_, running, finished = job.totals.samples
    assert running.clock == finished.clock == (0, 0, 7, 0, 0, 0, 2, 0)
    assert (running.clock_phase, running.clock_since, finished.clock_phase) == ("running", 60, "")


def test_a_job_without_a_wall_clock_has_none(job: ReportedJob) -> None:
    assert [(sample.clock, sample.clock_phase) for sample in job.totals.samples] == [((), "")]


@pytest.mark.parametrize("clock", [{}, {"since": "soon"}, {"phase": "Idle", "since": "1970-01-01T00:01:00Z"}])
def test_a_wall_clock_that_cannot_be_read_is_no_phase(job: ReportedJob, clock: dict[str, Any]) -> None:
    job.report(version=2, wallClock=clock)

    assert job.totals.samples[-1].clock_phase == ""
