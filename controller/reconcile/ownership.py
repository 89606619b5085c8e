"""Decides which controller manages a job, by ``spec.runPolicy.managedBy``."""

from typing import Any

import msgspec
import structlog

from api import conditions
from api.job import Job
from api.labels import KUEUE_PREFIX, MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from controller.domain import Event, Severity, shortened
from controller.kind import JobKind
from controller.kind.reasons import EventReason
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.events import EventRecorder
from controller.reconcile.load import LoadedJob
from controller.runtime.workers import ReconcileResult, Terminal

LONGEST_MANAGER = 128
"""Maximum length of ``managedBy`` in an event."""
CORRECTED_SECONDS = 1.0
"""How soon a job with a corrected managedBy is reconciled again, if its watch event does not come before."""

log = structlog.get_logger()


class Ownership:
    """Leaves jobs to other controllers, and corrects ``managedBy`` if it names the wrong Go operator."""

    def __init__(self, kind: JobKind[Any], client: Client, events: EventRecorder) -> None:
        self._kind = kind
        self._client = client
        self._events = events
        self._ours = {None, *(variant.managed_by for variant in kind.variants)}

    def is_other(self, loaded: LoadedJob) -> bool:
        """Return whether another controller manages the job."""
        return loaded.job.spec.policy.managed_by not in self._ours

    def needs_correction(self, loaded: LoadedJob) -> bool:
        """Return whether ``managedBy`` names the wrong Go operator and may be changed.

        Never for a job that Kueue may manage, because Kueue owns the spec of such a job. Training-operator reconciles a job without
        a manager.
        """
        manager = loaded.job.spec.policy.managed_by or MANAGED_BY_US
        return manager != loaded.kind.managed_by and not (
            conditions.is_finished(loaded.job.status)
            or is_queued(loaded.job)
            or loaded.memory.is_manager_corrected
        )

    async def leave(self, loaded: LoadedJob) -> ReconcileResult:
        """Leave the job to its controller, and add the annotations that the kind requires for that controller.

        A name other than MultiKueue's may be a mistake, so that no controller handles the job. An event reports that, because this operator
        must not write the status.

        Differs: the originals report nothing. See docs/reference/differences-from-training-operator.md.
        """
        kind, row, job = loaded.kind, loaded.row, loaded.job
        manager = job.spec.policy.managed_by
        if manager != MANAGED_BY_MULTIKUEUE:
            shown = shortened(str(manager), LONGEST_MANAGER)
            text = f'spec.runPolicy.managedBy is "{shown}": the job is left to that controller; this one is "{kind.managed_by}"'
            event = Event(
                Severity.NORMAL, f"{kind.resource.kind}{EventReason.LEFT_TO_ANOTHER}", text, once=text
            )
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
            return ReconcileResult()  # the job was deleted meanwhile
        except (errors.Forbidden, errors.Invalid) as error:
            # Invalid: a job that was stored before a rule of the definition, breaks it and has no status accepts no update.
            return ReconcileResult(failure=Terminal(f"annotations cannot be written: {error.message}"))
        return ReconcileResult()

    async def correct(self, loaded: LoadedJob) -> ReconcileResult:
        """Set ``managedBy`` to the Go operator of the job's flavor, so that the other one never starts a second launcher.

        The API server sets it from the version of the request that creates the job. It is wrong if a user has chosen the flavor,
        and missing if the CRD had no default yet. The correction comes first, and the next reconcile continues from there. A
        refusal does not block the job, because no Go operator works at the same time.

        Differs: each original knows one version. See decision 17.
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
    """Return whether Kueue may manage the job: a label or annotation names Kueue, or the job is suspended.

    With ``manageJobsWithoutQueueName``, Kueue also suspends a job without a queue, and writes nothing else to it.
    """
    keys = (*(job.metadata.labels or ()), *(job.metadata.annotations or ()))
    return bool(job.spec.policy.suspend) or any(key.startswith(KUEUE_PREFIX) for key in keys)
