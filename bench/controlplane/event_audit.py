"""After the jobs have ended: whether their conditions and events are complete."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import EVENTS
from bench.controlplane.job_kinds import RESOURCES
from bench.controlplane.scenario import Jobs
from bench.controlplane.testbed import NAMESPACE, Testbed

CONDITIONS = frozenset({"Created", "Running", "Succeeded"})
"""Conditions of a job that succeeded."""
_KIND = r"(?:\d+ )?(?:pod|service)s?"
_CREATED = re.compile(rf"Created ({_KIND}(?: and {_KIND})*): ")


@dataclass(frozen=True, slots=True)
class EventAudit:
    """Conditions and events of all jobs. Each child and each end of a job needs one event."""

    jobs_without_all_conditions: int
    jobs_never_observed_running: int
    """Jobs that the watch never showed with ``Running`` True: no client could react to it."""
    children_expected: int
    children_with_event: int
    ends_expected: int
    ends_with_event: int
    events: int
    """Number of events."""

    @property
    def events_missing(self) -> int:
        """Children and ends without an event."""
        return self.children_expected - self.children_with_event + self.ends_expected - self.ends_with_event


async def audit_events(testbed: Testbed, scenario: Jobs) -> EventAudit:
    """List jobs and events now: a watch of all events would slow down the measurement."""
    jobs = [
        job for kind in RESOURCES for job in orjson.loads(await testbed.client.list(kind, NAMESPACE))["items"]
    ]
    events = orjson.loads(await testbed.client.list(EVENTS, NAMESPACE))["items"]
    return audit(scenario, jobs, events, running_jobs=len(testbed.observer.with_condition("Running")))


def audit(
    scenario: Jobs,
    jobs: Sequence[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    *,
    running_jobs: int,
) -> EventAudit:
    shown = [{condition["type"] for condition in job.get("status", {}).get("conditions", ())} for job in jobs]
    names = {job["metadata"]["name"] for job in jobs}
    reasons: Counter[str] = Counter()
    children = 0
    for event in events:
        if event["involvedObject"]["name"] not in names:
            continue  # of an earlier job
        reasons[event["reason"]] += 1
        if event["reason"] in {"SuccessfulCreatePod", "SuccessfulCreateService"}:
            children += created_children(event["message"])
    return EventAudit(
        jobs_without_all_conditions=scenario.jobs - sum(types >= CONDITIONS for types in shown),
        jobs_never_observed_running=scenario.jobs - running_jobs,
        children_expected=0
        if scenario.mpi
        else scenario.pods + scenario.services,  # an MPIJob has no events for its children
        children_with_event=children,
        ends_expected=scenario.jobs,
        ends_with_event=sum(reasons[f"{resource.kind}Succeeded"] for resource in RESOURCES),
        events=sum(reasons.values()),
    )


def created_children(message: str) -> int:
    """Return the number of children in ``Created pod: a`` or ``Created 2 pods and 2 services: a, b``."""
    match = _CREATED.match(message)
    kinds = match[1].split(" and ") if match else []
    return sum(int(kind.split()[0]) if " " in kind else 1 for kind in kinds)
