"""A controller that is killed before or after any of its calls restarts an MPIJob exactly as often as its policy says."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from api.batch import BATCH_JOBS
from api.labels import RESTART_ATTEMPT
from api.meta import PODS
from api.mpijob import RESOURCE, Flavor
from rallypoint.local.batch.jobs import Jobs
from tests.support import fake_time
from tests.support.actors import conditions
from tests.support.crash_injection import (
    CrashInjector,
    CrashPoint,
    Moment,
    crash_every,
    restarting_controller,
)
from tests.support.harness import UNLIMITED_SETTINGS, Harness, fake_clock, start_harness
from tests.support.history import History, record_history
from tests.support.mpi import container

JOB = RESOURCE
"""The watched version; ``spec.flavor`` says which behavior a job has."""
SETTINGS = replace(UNLIMITED_SETTINGS, enable_scheme=(RESOURCE.kind,))
FLAVORS = pytest.mark.parametrize("flavor", [Flavor.V2BETA1, Flavor.V1ALPHA2])
EXPECTED = {
    "conditions": "Created T, Running F, Failed T",
    "attempts": ["0 launcher RestartJob", "1 worker-1 RestartJob"],
    "restarts": (1, 1),
    "created": {"launcher": 2, "worker-0": 2, "worker-1": 2, "Job": 2},
    "most launchers": 1,
}


def manifest(flavor: Flavor) -> dict[str, Any]:
    template = {"spec": {"containers": [container()]}}
    policy = {"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "RestartJob"}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": "pi"},
        "spec": {"flavor": flavor, "mpiReplicaSpecs": roles, "runPolicy": policy},
    }


class Script:
    """The user and the kubelet of the job ``pi``."""

    def __init__(self, harness: Harness, history: History) -> None:
        self._harness = harness
        self._history = history

    def pods(self, attempt: int) -> dict[str, Mapping[str, Any]]:
        """Return the pods of an attempt that are not being deleted, by name."""
        return {
            name: obj
            for (kind, name), obj in self._history.now.items()
            if kind == PODS.kind
            and obj["metadata"]["labels"][RESTART_ATTEMPT] == str(attempt)
            and "deletionTimestamp" not in obj["metadata"]
        }

    def job_conditions(self) -> str:
        return conditions(self._history.now.get((JOB.kind, "pi"), {}))

    async def run(self, attempt: int) -> None:
        """Run the pods of an attempt once it is complete, and wait until the job runs."""
        await self._history.until(f"attempt {attempt}", lambda: len(self.pods(attempt)) == 3)
        await self._harness.set_phase("Running", *self.pods(attempt), container="mpi")
        await self._history.until("a running job", lambda: "Running T" in self.job_conditions())

    async def fail(self, attempt: int, role: str) -> None:
        (name,) = [name for name in self.pods(attempt) if name.startswith(f"pi-{role}")]
        await self._harness.set_phase("Failed", name, code=3, container="mpi")

    async def whole(self, flavor: Flavor) -> None:
        await self._harness.create(JOB, manifest(flavor))
        await self.run(0)
        await self.fail(0, "launcher")
        await self.run(1)
        await self.fail(1, "worker-1")
        await self._history.until("the end", lambda: "Failed T" in self.job_conditions())
        await self._history.until("the launcher's end", self._has_launcher_ended)

    def _has_launcher_ended(self) -> bool:
        return "Failed T" in conditions(self._history.now.get((BATCH_JOBS.kind, "pi-launcher"), {}))


async def live(flavor: Flavor, injector: CrashInjector) -> History:
    with fake_clock() as clock:
        async with (
            start_harness(faults=injector, clock=clock, crds=(RESOURCE,)) as harness,
            record_history(harness.client, harness.namespace, (PODS, BATCH_JOBS, JOB)) as history,
        ):
            batch = asyncio.create_task(Jobs(harness.client, now=clock).run())
            try:
                async with restarting_controller(harness, injector, SETTINGS):
                    await Script(harness, history).whole(flavor)
                    await harness.settle(20)
            finally:
                batch.cancel()
                await asyncio.gather(batch, return_exceptions=True)
    return history


def lived(flavor: Flavor, injector: CrashInjector) -> History:
    loop = fake_time.new_event_loop()
    try:
        return loop.run_until_complete(live(flavor, injector))
    finally:
        loop.close()


def outcome(history: History) -> dict[str, Any]:
    job = history.latest[JOB.kind, "pi"]
    status = job["status"]
    created: Counter[str] = Counter()
    for (kind, name), times in history.created.items():
        if kind in {PODS.kind, BATCH_JOBS.kind}:
            created[_short(name) if kind == PODS.kind else kind] += times
    return {
        "conditions": conditions(job),
        "attempts": [
            f"{attempt['number']} {_short(attempt['pod'])} {attempt['action']}"
            for attempt in status["attempts"]
        ],
        "restarts": (status["restarts"], status["restartsCountTowardsMax"]),
        "created": dict(created),
        "most launchers": _most_launchers(history),
    }


def _short(pod: str) -> str:
    return "launcher" if pod.startswith("pi-launcher") else pod.removeprefix("pi-")


def _most_launchers(history: History) -> int:
    """Return how many pods of launchers existed at one time, at most."""
    there: set[str] = set()
    most = 0
    for type_, obj in history.changes:
        name = obj["metadata"]["name"]
        if obj["kind"] == PODS.kind and name.startswith("pi-launcher"):
            there = there - {name} if type_ == "DELETED" else there | {name}
            most = max(most, len(there))
    return most


@FLAVORS
def test_a_job_restarts_as_often_as_its_policy_says(flavor: Flavor) -> None:
    assert outcome(lived(flavor, CrashInjector())) == EXPECTED


@crash_every(6, full=1)
@FLAVORS
@pytest.mark.parametrize("moment", Moment)
def test_a_controller_killed_at_any_call_reaches_the_same_end(
    flavor: Flavor, moment: Moment, every: int
) -> None:
    for number in itertools.count(1, every):
        injector = CrashInjector(CrashPoint(number, moment))
        try:
            history = lived(flavor, injector)
            if injector.call_count < number:
                break
            assert outcome(history) == EXPECTED
        except BaseException as error:
            error.add_note(f"killed {moment} call {number}: {injector.crashed_calls}")
            raise
