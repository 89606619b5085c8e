"""Finds out whether the API server stores the restartPolicyRules of containers: from Kubernetes 1.35 on.

Older ones refuse a pod with such a rule, so the version decides before the pod is created. It is read only for jobs that restart in place.

Source: Kubernetes, pkg/features/kube_features.go, ContainerRestartRules.
"""

import asyncio
import math
import re
from typing import Final

import orjson

from api import conditions
from controller.kube.client import Client
from controller.policy import in_place
from controller.reconcile.load import LoadedJob

READ_AGAIN_SECONDS: Final = 600.0
"""A cluster may be upgraded while the operator runs."""
FIRST_RELEASE: Final = (1, 35)


class RestartRules:
    """What the API server stores, as last read. If it is lost, as at a restart, it is read again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._read_at = -math.inf
        self.are_stored = False

    async def refresh(self, loaded: LoadedJob) -> bool:
        """Read the version if the job needs it and the last read is old.

        Returns:
            Whether this took time. Caches may have changed meanwhile.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the version is unknown.
        """
        job, now = loaded.job, asyncio.get_running_loop().time()
        if not in_place.is_requested(job.spec.policy) or conditions.is_finished(job.status):
            return False
        if now - self._read_at < READ_AGAIN_SECONDS:
            return False
        self.are_stored = release(await self._client.request("GET", "/version")) >= FIRST_RELEASE
        self._read_at = now
        return True


def release(answer: bytes) -> tuple[int, int]:
    """Return the major and the minor version. Some providers write the latter as ``36+``."""
    given = orjson.loads(answer)
    return _number(given["major"]), _number(given["minor"])


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
