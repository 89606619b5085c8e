"""Writes what a plan says of the job itself: its status, then the events, counts and log lines that report it, or its deletion."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import structlog

from controller.domain import Count, Event, Plan, Severity
from controller.kind import JobKind
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.debounce import longest_wait_seconds
from controller.reconcile.events import EventRecorder
from controller.reconcile.jobs import JobRow, differs_beside_status
from controller.reconcile.load import LoadedJob, Loader
from controller.reconcile.memory import UnrecordedWrite
from controller.reconcile.status import StatusChange, StatusWriter, status_change
from controller.reconcile.transitions import Transition, transitions
from controller.runtime.store import Store
from controller.telemetry.metrics.jobs import JobTotals

Counter = Callable[[JobKind[Any], str, Count], None]
"""Called for each increment of a job counter with the job's kind, its namespace, and what to count."""

log = structlog.get_logger()


class JobCommitter:
    """Writes the jobs of one kind."""

    def __init__(
        self,
        kind: JobKind[Any],
        client: Client,
        jobs: Store[JobRow],
        loader: Loader,
        events: EventRecorder,
        counter: Counter,
        totals: JobTotals,
    ) -> None:
        self._resource = kind.resource
        self._client = client
        self._jobs = jobs
        self._loader = loader
        self._events = events
        self._counter = counter
        self._totals = totals
        self._status = StatusWriter(client, kind.resource, jobs)

    @property
    def keeps_ledger(self) -> bool:
        """Whether the server stores which restarts have been counted."""
        return self._status.keeps_ledger

    async def write(self, loaded: LoadedJob, plan: Plan) -> float | None:
        """Write the status, then record its events and counts, and log the transitions of the job.

        Returns:
            The seconds until the next reconcile is due, None if nothing is left to do.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the status was not written, or its answer was lost.
        """
        row, memory = loaded.row, loaded.memory
        change = status_change(loaded.job, plan.status)
        if change and (wait := self._defer(loaded, plan, change)):
            self._record(loaded, plan, ())
            return wait
        steps = transitions(loaded.kind.resource.kind, loaded.job.status, plan)
        try:
            if change:
                await self._status.write(row, change)
        except errors.NotFound:
            self._jobs.remove(
                row
            )  # the job was deleted meanwhile, and the garbage collector deletes its children
            return 0
        except (errors.ServerError, aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError):
            memory.unrecorded = UnrecordedWrite(plan, steps)
            raise
        memory.unrecorded = None
        memory.status.clear()
        self._record(loaded, plan, steps)
        latest = self._jobs.get(row.namespace, row.name)
        if latest is not None and latest is not row and differs_beside_status(row, latest):
            return 0  # the writer has stored a newer version of the job, so its watch will not report that change
        return None

    async def write_again(self, loaded: LoadedJob, decide: Callable[[LoadedJob], Plan]) -> None:
        """Write a second status over the newest one, about errors of the children's writes."""
        latest = self._loader.reload(loaded)
        if latest is not None:
            await self.write(latest, decide(replace(latest, job=latest.as_planned())))

    def record_late(self, loaded: LoadedJob) -> None:
        """Record the events, counts and transitions of a status that was written although its response was lost."""
        unrecorded = loaded.memory.unrecorded
        if unrecorded is None:
            return
        status = unrecorded.plan.status
        if status is not None and status_change(loaded.job, status) is None:
            loaded.memory.unrecorded = None
            self._record(loaded, unrecorded.plan, unrecorded.transitions)

    async def delete(self, loaded: LoadedJob) -> None:
        """Delete the job in the version that the plan used: after a restore of the server the job may be unfinished again.

        Raises:
            ApiError: a Conflict if the server has it in another version.
        """
        kind, row, parent = loaded.kind, loaded.row, loaded.parent()
        deleted, failed = kind.ttl_event_reasons
        try:
            await self._client.delete(
                self._resource,
                row.namespace,
                row.name,
                uid=row.uid,
                resource_version=str(row.resource_version),
            )
        except errors.NotFound:
            self._jobs.remove(row)  # the watch may have lost the deletion event
            return
        except errors.Conflict:
            await self._loader.read(row)
            raise
        except errors.ApiError as error:
            self._events.record(parent, [Event(Severity.WARNING, failed, f"Error deleting: {error.message}")])
            raise
        log.info("job expired", ttl_seconds=loaded.job.spec.policy.ttl_seconds_after_finished)
        # A restored server may have the job again in the same version; then it must be deleted again.
        self._jobs.amend(row)
        self._events.record(parent, [Event(Severity.NORMAL, deleted, f"Deleted job: {row.name}")])
        self._counter(kind, row.namespace, Count.DELETED)

    def _defer(self, loaded: LoadedJob, plan: Plan, change: StatusChange) -> float:
        """Return the seconds that a changed status may wait, 0 if it is written now."""
        is_busy = self._client.limiter.is_congested
        longest = longest_wait_seconds(change, has_events=bool(plan.events), is_busy=is_busy)
        if not longest or plan.status is None:
            return 0.0
        return loaded.memory.status.defer(loaded.row.status, plan.status, longest)

    def _record(self, loaded: LoadedJob, plan: Plan, steps: Sequence[Transition]) -> None:
        for step in steps:
            pods = {"pods": step.pods} if step.pods else {}
            log.info(step.step, reason=step.reason, message=step.message, **pods)
        for event in self._events.record(loaded.parent(), plan.events):
            is_reported = any(event.message in step.message for step in steps)
            if event.severity is Severity.WARNING and event.once and not (event.similar or is_reported):
                log.info("job warning", reason=event.reason, message=event.message)
        if plan.restart_action:
            self._totals.count_job_restart(loaded.row.namespace, loaded.kind.framework, plan.restart_action)
        for count in plan.counts:
            if count is not Count.DELETED:
                self._counter(loaded.kind, loaded.row.namespace, count)
            if count is Count.FAILED:
                reason = plan.failure_reason or "other"
                self._totals.count_failure(loaded.row.namespace, loaded.kind.framework, reason)
