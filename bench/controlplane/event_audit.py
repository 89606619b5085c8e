"""What is left to read when the jobs have ended: the conditions of each, and the events of each."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import EVENTS
from bench.controlplane.job_kinds import RESOURCES
from bench.controlplane.scenario import Jobs
from bench.controlplane.testbed import NAMESPACE, Rig

CONDITIONS = frozenset({"Created", "Running", "Succeeded"})
"""Of a job that has succeeded."""
_KIND = r"(?:\d+ )?(?:pod|service)s?"
_CREATED = re.compile(rf"Created ({_KIND}(?: and {_KIND})*): ")


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of all jobs together. Each child and each job's end is to be told of once."""

    jobs_without_all_conditions: int
    jobs_never_seen_running: int
    """Those that the watch never showed with ``Running`` being True; what no status says, nobody could act on."""
    children_expected: int
    children_told: int
    ends_expected: int
    ends_told: int
    events: int
    """How many there are."""

    @property
    def events_missing(self) -> int:
        """Children and ends of which no event tells."""
        return self.children_expected - self.children_told + self.ends_expected - self.ends_told


async def told(rig: Rig, scenario: Jobs) -> Told:
    """Asks the API server: a watch of all events would slow down what is measured."""
    jobs = [
        job for kind in RESOURCES for job in orjson.loads(await rig.client.list(kind, NAMESPACE))["items"]
    ]
    events = orjson.loads(await rig.client.list(EVENTS, NAMESPACE))["items"]
    return count(scenario, jobs, events, seen_running=len(rig.observer.with_condition("Running")))


def count(
    scenario: Jobs,
    jobs: Sequence[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    *,
    seen_running: int,
) -> Told:
    shown = [{one["type"] for one in job.get("status", {}).get("conditions", ())} for job in jobs]
    names = {job["metadata"]["name"] for job in jobs}
    reasons: Counter[str] = Counter()
    children = 0
    for event in events:
        if event["involvedObject"]["name"] not in names:
            continue  # of a job before
        reasons[event["reason"]] += 1
        if event["reason"] in {"SuccessfulCreatePod", "SuccessfulCreateService"}:
            children += created(event["message"])
    return Told(
        jobs_without_all_conditions=scenario.jobs - sum(types >= CONDITIONS for types in shown),
        jobs_never_seen_running=scenario.jobs - seen_running,
        children_expected=0 if scenario.mpi else 2 * scenario.pods,  # of MPIJobs no event tells of them
        children_told=children,
        ends_expected=scenario.jobs,
        ends_told=sum(reasons[f"{resource.kind}Succeeded"] for resource in RESOURCES),
        events=sum(reasons.values()),
    )


def created(message: str) -> int:
    """Of how many children an event tells: ``Created pod: a``, or ``Created 2 pods and 2 services: a, b``."""
    match = _CREATED.match(message)
    kinds = match[1].split(" and ") if match else []
    return sum(int(kind.split()[0]) if " " in kind else 1 for kind in kinds)
