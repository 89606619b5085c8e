"""A Lease as a lock: its holder, and the changes that a holder writes.

The times in a Lease are for people and for monitoring; the election does not use them. Source: client-go, tools/leaderelection/resourcelock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import orjson

from api.labels import HANDOVER
from api.meta import LEASES

RELEASED_SECONDS = 1
"""The leaseDurationSeconds of a released Lease: clients that read only the duration may take it immediately, too."""


class Lease(msgspec.Struct, frozen=True):
    """A Lease as read from the server; ``body`` is the whole object."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    holder: str
    """Empty if nobody holds it."""
    duration_seconds: float
    """Seconds for which its holder holds it after its last change; 0 if the Lease does not say."""
    body: dict[str, Any]

    def handover(self) -> dict[str, int]:
        """Return the latest change that the last holder knew, by resource; empty unless the holder has released the Lease with it.

        Other clients keep the annotation when they take the Lease, so it counts only with the ``renewTime`` of its release.
        """
        spec: dict[str, Any] = self.body.get("spec") or {}
        text: str = (self.body["metadata"].get("annotations") or {}).get(HANDOVER, "")
        try:
            handover = _decode_handover(text)
        except msgspec.DecodeError:
            return {}
        is_current = not self.holder and handover.released_at == spec.get("renewTime")
        return handover.latest_changes if is_current else {}


class _Handover(msgspec.Struct, rename="camel"):
    released_at: str
    latest_changes: dict[str, int]


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Object).decode
_decode_handover = msgspec.json.Decoder(_Handover).decode


def lease_from_json(raw: bytes | msgspec.Raw) -> Lease:
    """Parse the Lease in an answer or in a watch event.

    Raises:
        msgspec.DecodeError, ValueError: this is not a Lease.
    """
    decoded, body = _decode(raw), orjson.loads(memoryview(raw))
    body["metadata"].pop("managedFields", None)
    return Lease(
        namespace=decoded.metadata.namespace,
        name=decoded.metadata.name,
        uid=decoded.metadata.uid,
        resource_version=int(decoded.metadata.resource_version),
        holder=decoded.spec.holder_identity or "",
        duration_seconds=decoded.spec.lease_duration_seconds or 0,
        body=body,
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """The candidate, the Lease that it wants to hold, and the seconds for which each renewal is valid."""

    namespace: str
    name: str
    identity: str
    duration_seconds: float

    def made(self, now: datetime) -> bytes:
        """Return a new Lease with this candidate as its holder."""
        metadata = {"name": self.name, "namespace": self.namespace}
        spec = {**self._spec(now), "acquireTime": _micro_time(now), "leaseTransitions": 0}
        return orjson.dumps(
            {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        )

    def held(self, lease: Lease, now: datetime) -> bytes:
        """Return the Lease with this candidate as its holder. The server accepts it only if the Lease has not changed."""
        old: dict[str, Any] = lease.body.get("spec") or {}
        taken = {"acquireTime": _micro_time(now), "leaseTransitions": (old.get("leaseTransitions") or 0) + 1}
        spec = {**old, **self._spec(now), **(taken if lease.holder != self.identity else {})}
        return orjson.dumps({**lease.body, "spec": spec})

    def released(self, lease: Lease, now: datetime, latest_changes: Mapping[str, int]) -> bytes:
        """Return the Lease without a holder. ``latest_changes`` are for the next one."""
        at = _micro_time(now)
        handover = msgspec.json.encode(_Handover(at, dict(latest_changes))).decode()
        annotations = {**(lease.body["metadata"].get("annotations") or {}), HANDOVER: handover}
        metadata = {**lease.body["metadata"], "annotations": annotations}
        unheld = {
            "holderIdentity": "",
            "leaseDurationSeconds": RELEASED_SECONDS,
            "acquireTime": at,
            "renewTime": at,
        }
        spec = {**(lease.body.get("spec") or {}), **unheld}
        return orjson.dumps({**lease.body, "metadata": metadata, "spec": spec})

    def _spec(self, now: datetime) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self.duration_seconds),
            "renewTime": _micro_time(now),
        }


def _micro_time(at: datetime) -> str:
    """Format a time as MicroTime: always with six digits of a second, which Go's clients require."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
