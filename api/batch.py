"""Cached rows of batch/v1 Jobs, with the fields that their owner needs.

Source of the fields: the Kubernetes API, batch/v1.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from api.children import Meta, Owned, attempt_of, owned, time_of
from api.meta import Resource

BATCH_JOBS = Resource("batch", "v1", "Job", "jobs")


class BatchJob(Owned, frozen=True, gc=False):
    """One Job that runs a single pod to completion.

    ``failure`` is the reason and message of its failure. ``placement`` is set while the Job is suspended: the mutable
    parts of its pod template, as JSON.
    """

    suspended: bool = False
    started: bool = False
    """Whether its status has a start time; the template is immutable while it has one."""
    failures: int = 0
    """Failed pods, or restarts of one pod, so far."""
    complete: bool = False
    completed_at: datetime | None = None
    """The completion time, if there is one."""
    failure: tuple[str, str] | None = None
    ttl_seconds: int | None = None
    placement: bytes = b"{}"
    active_deadline_seconds: int | None = None
    attempt: int = 0
    """The attempt of its owner that it was created for, from its label."""

    @property
    def is_finished(self) -> bool:
        return self.complete or self.failure is not None


class _TemplateMeta(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _TemplateSpec(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None


class _Template(msgspec.Struct):
    metadata: _TemplateMeta = msgspec.field(default_factory=_TemplateMeta)
    spec: _TemplateSpec = msgspec.field(default_factory=_TemplateSpec)


class _Spec(msgspec.Struct, rename="camel"):
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    start_time: str | None = None
    completion_time: str | None = None
    failed: int = 0
    conditions: list[_Condition] | None = None


class _Job(msgspec.Struct):
    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Job).decode
_decode_template = msgspec.json.Decoder(_Template).decode


def batch_job_from_json(raw: bytes | memoryview | msgspec.Raw) -> BatchJob:
    """Decode a Job as the API server sends it.

    Raises:
        msgspec.DecodeError: this is not a Job.
    """
    job = _decode(raw)
    ends = {
        condition.type: condition for condition in job.status.conditions or () if condition.status == "True"
    }
    complete, failed = ends.get("Complete"), ends.get("Failed")
    return BatchJob(
        **owned(job.metadata),
        suspended=job.spec.suspend,
        started=job.status.start_time is not None,
        failures=job.status.failed,
        complete=complete is not None,
        completed_at=time_of(job.status.completion_time) or time_of(complete.last_transition_time)
        if complete
        else None,
        failure=(failed.reason, failed.message) if failed else None,
        ttl_seconds=job.spec.ttl_seconds_after_finished,
        active_deadline_seconds=job.spec.active_deadline_seconds,
        placement=_placement(job.spec.template) if job.spec.suspend else b"{}",
        attempt=attempt_of(job.metadata),
    )


def placement_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a pod template that a suspended Job may change, in the order and form of ``BatchJob.placement``."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    return {
        "metadata": {name: metadata.get(name) for name in ("labels", "annotations")},
        "spec": {name: spec.get(name) for name in ("nodeSelector", "tolerations", "schedulingGates")},
    }


def _placement(template: msgspec.Raw) -> bytes:
    return msgspec.json.encode(_decode_template(template))
