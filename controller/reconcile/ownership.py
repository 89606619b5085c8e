"""Whose job it is: this operator's or another controller's, by ``spec.runPolicy.managedBy``."""

from typing import Any

import msgspec
import structlog

from api import conditions
from api.job import Job
from api.labels import KUEUE_PREFIX, MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from controller.domain import Event, Severity, shortened
from controller.kind import JobKind
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.events import EventRecorder
from controller.reconcile.load import LoadedJob
from controller.runtime.workers import ReconcileResult, Terminal

LONGEST_MANAGER = 128
"""Characters of ``managedBy`` that an event quotes."""
CORRECTED_SECONDS = 1.0
"""After so long a job is reconciled again whose managedBy was set, if its watch event does not come before."""

log = structlog.get_logger()


class Ownership:
    """Leaves jobs to other controllers, and corrects ``managedBy`` where it names the wrong Go operator."""

    def __init__(self, kind: JobKind[Any], client: Client, events: EventRecorder) -> None:
        self._kind = kind
        self._client = client
        self._events = events
        self._ours = {None, *(variant.managed_by for variant in kind.variants)}

    def is_other(self, loaded: LoadedJob) -> bool:
        """Whether another controller manages the job."""
        return loaded.job.spec.policy.managed_by not in self._ours

    def needs_correction(self, loaded: LoadedJob) -> bool:
        """Whether ``managedBy`` names the wrong Go operator, and may be changed.

        Never for a job that Kueue may manage: the spec of such a job is Kueue's to change. Training-operator takes a job that names no
        manager for its own.
        """
        manager = loaded.job.spec.policy.managed_by or MANAGED_BY_US
        return manager != loaded.kind.managed_by and not (
            conditions.is_finished(loaded.job.status)
            or is_queued(loaded.job)
            or loaded.memory.is_manager_corrected
        )

    async def leave(self, loaded: LoadedJob) -> ReconcileResult:
        """Leave the job to its controller, and write what the kind wants that one to know into the job's annotations.

        A name that is not MultiKueue's may be a mistake that leaves the job to no controller. An event says so: the status is not ours to
        write.

        Differs: the originals say nothing. See docs/reference/differences-from-training-operator.md.
        """
        kind, row, job = loaded.kind, loaded.row, loaded.job
        manager = job.spec.policy.managed_by
        if manager != MANAGED_BY_MULTIKUEUE:
            shown = shortened(str(manager), LONGEST_MANAGER)
            text = f'spec.runPolicy.managedBy is "{shown}": the job is left to that controller; this one is "{kind.managed_by}"'
            event = Event(Severity.NORMAL, f"{kind.resource.kind}LeftToAnother", text, once=text)
            self._events.record(loaded.parent(), [event])
        existing = job.metadata.annotations or {}
        missing = {
            key: value for key, value in self._kind.required_annotations(job).items() if key not in existing
        }
        if not missing:
            return ReconcileResult()
        body = msgspec.json.encode({"metadata": {"uid": row.uid, "annotations": missing}})
        try:
            await self._client.patch(self._kind.resource, row.namespace, row.name, body)
        except (errors.NotFound, errors.Conflict):
            return ReconcileResult()  # the job went meanwhile
        except errors.Forbidden as error:
            return ReconcileResult(failure=Terminal(f"annotations cannot be written: {error.message}"))
        return ReconcileResult()

    async def correct(self, loaded: LoadedJob) -> ReconcileResult:
        """Set ``managedBy`` to the Go operator whose job it is, lest the other one starts a second launcher one day.

        The API server fills it in by the version of the request that creates the job. It is wrong where somebody has chosen the flavor,
        and missing where the definition had no default yet. It comes before all else, and the next reconcile goes on from there; a
        refusal keeps the job from nothing, as no Go operator works beside this one.

        Differs: the originals know one version each. See decision 17.
        """
        row, manager = loaded.row, loaded.kind.managed_by
        metadata = {"uid": row.uid, "resourceVersion": str(row.resource_version)}
        change = {"metadata": metadata, "spec": {"runPolicy": {"managedBy": manager}}}
        try:
            await self._client.patch(
                self._kind.resource, row.namespace, row.name, msgspec.json.encode(change)
            )
        except errors.NotFound:
            return ReconcileResult()
        except errors.Conflict:
            return ReconcileResult(CORRECTED_SECONDS)
        except (errors.Forbidden, errors.Invalid) as error:
            log.warning("managedBy cannot be corrected", managed_by=manager, error=error.message)
        else:
            log.info("managedBy corrected", managed_by=manager)
        loaded.memory.is_manager_corrected = True
        return ReconcileResult(CORRECTED_SECONDS)


def is_queued(job: Job) -> bool:
    """Whether Kueue may manage the job: one of its labels or annotations says so, or the job is suspended.

    Kueue suspends a job without a queue, too, if it is set up to (``manageJobsWithoutQueueName``), and writes nothing else into it.
    """
    keys = (*(job.metadata.labels or ()), *(job.metadata.annotations or ()))
    return bool(job.spec.policy.suspend) or any(key.startswith(KUEUE_PREFIX) for key in keys)
