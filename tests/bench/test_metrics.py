"""The measurement of metrics: its jobs are those that it describes."""

import asyncio
import sys

from prometheus_client import CollectorRegistry
from typing_extensions import override

from bench.metrics import POD_BYTES, PODS_PER_JOB, fill, measure_reconciles, measure_series
from controller.reconcile.job_history import JobHistory
from controller.telemetry.metrics.jobs import JobSample, JobTotals

BY_NAMESPACE = 5 + 6 + 4 + 4 + 9 + 6 + 2 + 8 + 2
"""Series of a namespace and framework: counters, states, pods, one resource, failures, restarts of pods and of jobs, wall clock, and the ages."""
BY_FRAMEWORK = 5 * (22 + 3)
"""Series of a framework: buckets, the infinite one, sum and count of each phase."""


def test_series_and_memory() -> None:
    figures = measure_series(60, 5, ("pytorch", "jax"))

    assert figures["series"] == 2 * (5 * BY_NAMESPACE + BY_FRAMEWORK)
    assert figures["exposition_mib"] > 0
    assert figures["memory_after_idle_mib"] < figures["memory_mib"]


def test_memory_contains_what_is_kept_of_each_job_and_pod() -> None:
    """Its sample and history share nothing with those of other jobs."""
    small, large = (measure_series(jobs, 1, ("pytorch",))["memory_mib"] for jobs in (1000, 3000))
    replicas, amounts = (0, 2, 0, 0), (0, 0, 16, 0)
    requests = (("nvidia.com/gpu", amounts),)
    sample = JobSample("team", "pytorch", "running", replicas, requests)
    kept = (sample, replicas, requests, requests[0], amounts, JobHistory())

    assert (large - small) * 2**20 / 2000 > sum(map(sys.getsizeof, kept)) + PODS_PER_JOB * POD_BYTES


class RecordingTotals(JobTotals):
    """Records what is reported."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.samples: list[JobSample] = []

    @override
    def put(self, uid: str, sample: JobSample) -> None:
        self.samples.append(sample)


def test_jobs_share_no_tuples() -> None:
    totals = RecordingTotals()
    fill(totals, 50, 5, ("pytorch",))

    amounts = [sample.requests[0][1] for sample in totals.samples]
    assert len({id(sample.replicas) for sample in totals.samples}) == 50
    assert len(set(map(id, amounts))) == 50


def test_reconciles_of_running_jobs_find_nothing_to_do() -> None:
    figures = asyncio.run(measure_reconciles(2, rounds=1))

    assert figures["reconcile_us"] > 0
    assert 0 < figures["memory_bytes_per_job"] < 10_000
