"""Whether Kueue's built-in integration manages a kind; this operator then leaves its Workloads alone.

The configuration of Kueue is not readable for others, but its webhooks are: each kind has one, which checks nothing while the
integration is off. So the API server handles a change, without storing it, that no Workload's job may have.
"""

import asyncio
import math
from typing import Any, Final

import msgspec
import structlog

from api.workloads import PREBUILT
from controller.kind import ReplicaKind
from controller.kube import errors
from controller.kube.client import MERGE_PATCH, Client
from controller.reconcile.jobs import JobRow

FRESH_SECONDS: Final = 60.0
"""How long an answer counts. Kueue restarts when its configuration changes."""
DETECTED: Final = "Kueue built-in integration detected"
NOT_DETECTED: Final = "Kueue built-in integration not detected"

_NO_NAME: Final = "Not-A-Name"
"""A label value that is no name of an object."""

log = structlog.get_logger()


class BuiltinIntegration:
    """Kueue's integration for one kind. If what is remembered is lost, the API server is asked again."""

    def __init__(self, kind: ReplicaKind[Any], client: Client) -> None:
        self._kind = kind
        self._client = client
        self._lock = asyncio.Lock()
        self._checked_at = -math.inf
        self._is_on: bool | None = None

    async def is_on(self, row: JobRow) -> bool:
        """Return whether Kueue itself manages the kind.

        Args:
            row: a job of the kind, which the request changes without effect.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: this cannot be found out now.
        """
        async with self._lock:
            time = asyncio.get_running_loop().time
            if self._is_on is None or time() - self._checked_at >= FRESH_SECONDS:
                is_on = await self._ask(row)
                if is_on is not self._is_on:
                    message = DETECTED if is_on else NOT_DETECTED
                    log.info(message, kind=self._kind.resource.kind)
                self._is_on, self._checked_at = is_on, time()
            return self._is_on

    async def _ask(self, row: JobRow) -> bool:
        body = {"metadata": {"uid": row.uid, "labels": {PREBUILT: _NO_NAME}}}
        resource = self._kind.resource
        try:
            await self._client.request(
                "PATCH",
                resource.path(row.namespace, row.name),
                resource=resource.plural,
                params={"dryRun": "All"},
                body=msgspec.json.encode(body),
                content_type=MERGE_PATCH,
                group=row.namespace,
            )
        except (errors.Forbidden, errors.Invalid) as error:
            if PREBUILT not in error.message:  # RBAC, or another admission webhook
                raise
            return True
        return False
