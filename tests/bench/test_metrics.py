"""The measurement of metrics: its jobs are those that it describes."""

import asyncio

from bench.metrics import measure_reconciles, measure_series

BY_NAMESPACE = 5 + 6 + 4 + 4 + 8 + 6 + 1
"""Series of a namespace and framework: counters, states, pods, one resource, failures, restarts, and the age."""
BY_FRAMEWORK = 5 * (22 + 3)
"""Series of a framework: buckets, the infinite one, sum and count of each phase."""


def test_series_and_memory() -> None:
    figures = measure_series(60, 5, ("pytorch", "jax"))

    assert figures["series"] == 2 * (5 * BY_NAMESPACE + BY_FRAMEWORK)
    assert figures["exposition_mib"] > 0
    assert figures["memory_after_idle_mib"] < figures["memory_mib"]


def test_reconciles_of_running_jobs_find_nothing_to_do() -> None:
    figures = asyncio.run(measure_reconciles(2, rounds=1))

    assert figures["reconcile_us"] > 0
    assert 0 < figures["memory_bytes_per_job"] < 10_000
