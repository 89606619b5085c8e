"""Targets for the figures. A target whose case was not measured is left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.controlplane.scenario import FEWER_SERVICES

Results = Mapping[str, Any]
"""Case name → result."""


@dataclass(frozen=True, slots=True)
class Target:
    case: str
    figure: str
    maximum: float
    read: Callable[[Results], float]
    """Raises KeyError if the results lack the case or the figure."""


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    measured: float

    @property
    def is_met(self) -> bool:
        return self.measured <= self.target.maximum


def evaluate_targets(results: Results) -> list[Verdict]:
    """Evaluate each target that has a measured figure."""
    verdicts: list[Verdict] = []
    for target in TARGETS:
        try:
            verdicts.append(Verdict(target, target.read(results)))
        except KeyError:
            continue
    return verdicts


def ratios(result: Mapping[str, Any], figure: str, baseline_figure: str) -> list[float]:
    """Return the ratio of each run to the baseline after it; empty if there is no baseline or it lacks the figure."""
    pairs = zip(result["runs"], result["baseline"], strict=False)
    return [
        ours[figure] / baseline[baseline_figure] for ours, baseline in pairs if baseline.get(baseline_figure)
    ]


def _over_baseline(case: str, maximum: float) -> Target:
    def read(results: Results) -> float:
        pairs = ratios(results[case], "create_to_running_ms", "create_to_pods_running_ms")
        if not pairs:
            raise KeyError(case)
        return median(pairs)

    return Target(case, "create → Running in status, × baseline", maximum, read)


def _run(case: str, name: str, figure: str, maximum: float) -> Target:
    return Target(case, name, maximum, lambda results: _median(results[case]["runs"], figure))


def _worst(case: str, name: str, figure: str) -> Target:
    """A target of none in any run."""
    return Target(case, name, 0, lambda results: _maximum(results[case]["runs"], figure))


def _start(case: str, when: str, name: str, figure: str, maximum: float) -> Target:
    return Target(case, name, maximum, lambda results: _median(results[case][when], figure))


def _relative_to(case: str, other: str, name: str, figure: str, maximum: float) -> Target:
    """A target relative to another case of the same results."""
    return Target(
        case,
        name,
        maximum,
        lambda results: _median(results[case]["runs"], figure) / _median(results[other]["runs"], figure),
    )


def _idle(results: Results) -> float:
    starts = [run for result in results.values() for run in result.get("without", ())]
    return _median(starts, "rss_mib")


def _median(runs: Sequence[Mapping[str, float]], figure: str) -> float:
    if not runs:
        raise KeyError(figure)
    return median(run[figure] for run in runs)


def _maximum(runs: Sequence[Mapping[str, float]], figure: str) -> float:
    if not runs:
        raise KeyError(figure)
    return max(run[figure] for run in runs)


def _foreign_live(results: Results) -> float:
    grown = results["10000-foreign full"]["grown"]
    return float(grown["rss_after_mib"] - grown["rss_before_mib"])


def _foreign_started(results: Results) -> float:
    result = results["10000-foreign full"]
    return _median(result["with"], "rss_mib") - _median(result["without"], "rss_mib")


def _longest_callback(results: Results) -> float:
    found = [
        ms for result in results.values() for ms in result.get("callbacks", {}).get("cpu_ms", {}).values()
    ]
    if not found:
        raise KeyError("callbacks")
    return float(max(found))


TARGETS = (
    _over_baseline("1x256 full", 1.3),
    _over_baseline("100x8 full", 1.4),
    _over_baseline("500x2 full", 1.7),
    *(
        _run(f"1x{replicas} {events}", "API calls, whole life", "calls", maximum)
        for events, budget in (("compact", (22, 134, 518)), ("full", (38, 157, 541)))
        for replicas, maximum in zip((8, 64, 256), budget, strict=True)
    ),
    *(_over_baseline(f"100x8-{mode} compact", 1) for mode in FEWER_SERVICES),
    _over_baseline("1x64-mpi full", 1.5),
    _over_baseline("50x8-mpi full", 1.4),
    *(_run(f"1x{workers}-mpi full", "API calls, whole life", "calls", workers + 12) for workers in (8, 64)),
    _run("50x8-mpi full", "CPU per pod, ms", "controller_cpu_per_pod_ms", 1.5),
    _run("100x8 full", "CPU per pod, ms", "controller_cpu_per_pod_ms", 1.5),
    _run("500x2 full", "CPU per pod, ms", "controller_cpu_per_pod_ms", 2.5),
    _relative_to("100x8-mixed full", "100x8 full", "calls per job, × PyTorchJob's", "calls_per_job", 1.1),
    _relative_to(
        "100x8-mixed full", "100x8 full", "CPU per pod, × PyTorchJob's", "controller_cpu_per_pod_ms", 1.1
    ),
    _worst("200x2-quick full", "jobs without all conditions", "jobs_without_all_conditions"),
    _worst("200x2-quick full", "events missing", "events_missing"),
    Target("any", "RSS idle, MiB", 60, _idle),
    _start("10000-own full", "with", "RSS, started with them, MiB", "rss_mib", 80),
    Target(
        "10000-own full",
        "RSS of the controller that created them, MiB",
        80,
        lambda results: float(results["10000-own full"]["grown"]["rss_after_mib"]),
    ),
    Target("10000-foreign full", "RSS growth while they arrive, MiB", 2, _foreign_live),
    Target("10000-foreign full", "RSS of a start, above one without them, MiB", 2, _foreign_started),
    _start("1000-finished full", "with", "start → first pod, ms", "start_to_first_pod_ms", 1000),
    Target("all", "CPU of the longest callback, ms", 50, _longest_callback),
)
