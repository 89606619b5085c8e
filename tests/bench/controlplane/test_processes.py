"""CPU time and memory of the test process."""

import os

from bench.controlplane.processes import cpu_ms, peak_rss_mib, reset_peak_rss, rss_mib


def test_work_takes_cpu_time() -> None:
    before = cpu_ms(os.getpid())
    sum(range(10_000_000))

    assert cpu_ms(os.getpid()) > before


def test_the_peak_is_at_least_the_resident_memory() -> None:
    reset_peak_rss(os.getpid())

    assert peak_rss_mib(os.getpid()) >= 0.9 * rss_mib(os.getpid()) > 1
