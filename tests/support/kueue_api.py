"""Kueue's API on the embedded API server, and its scheduler, which the test plays: it admits and evicts.

tests/schedulers/test_kueue_integration.py shows that the real Kueue does the same.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from api.meta import PODS, Resource
from api.times import format_time
from api.workloads import RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from tests.support.builders import NOON
from tests.support.definitions import open_definition
from tests.support.harness import Harness
from tests.support.invariants import has

Object = dict[str, Any]
AT = format_time(NOON)
WAITS = 300
"""Maximum number of times that ``until`` checks its condition."""


class KueueScheduler:
    """Admits and evicts the Workloads of the harness's namespace."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    async def install(self, flavor: Mapping[str, Any] | None = None) -> None:
        """Install the API, and a flavor ``spot`` with this spec."""
        resources = (WORKLOADS, RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES)
        await self._harness.define(map(open_definition, resources))
        await self.create(RESOURCE_FLAVORS, "spot", spec=dict(flavor or {"nodeLabels": {"instance": "spot"}}))

    async def create(self, resource: Resource, name: str, **fields: Any) -> None:
        """Create a cluster-scoped object."""
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            **fields,
        }
        await self._harness.create(resource, body)

    async def workloads(self) -> list[Object]:
        return await self._harness.items(WORKLOADS)

    async def workload(self) -> Object:
        """Return the only Workload."""
        (found,) = await self.workloads()
        return found

    async def admit(self) -> None:
        """Reserve quota for the only Workload, and admit it."""
        workload = await self.workload()
        names = [pod_set["name"] for pod_set in workload["spec"]["podSets"]]
        admission = {
            "clusterQueue": "cluster",
            "podSetAssignments": [{"name": name, "flavors": {"cpu": "spot"}} for name in names],
        }
        changes = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
        await self._write(workload, changes, "Admitted", admission=admission)

    async def evict(self, reason: str = "Preempted") -> None:
        await self._write(await self.workload(), {"Evicted": "True"}, reason)

    async def _write(self, workload: Object, changes: Mapping[str, str], reason: str, **status: Any) -> None:
        before = (workload.get("status") or {}).get("conditions") or []
        kept = [own for own in before if own["type"] not in changes]
        made = [
            {"type": type_, "status": value, "reason": reason, "message": reason, "lastTransitionTime": AT}
            for type_, value in changes.items()
        ]
        change = {"status": {"conditions": [*kept, *made], **status}}
        await self._harness.change(WORKLOADS, workload["metadata"]["name"], change, "status")

    async def has(self, condition: str) -> bool:
        """Return whether there is one Workload, and a condition of it is True."""
        found = await self.workloads()
        return len(found) == 1 and has(found[0], condition)

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: it does not hold for a long time.
        """
        for _ in range(WAITS):
            if await holds():
                return
            await self._harness.settle(0.2)
        pods = await self._harness.names(PODS)
        raise AssertionError(
            f"waited for {what}: {await self.workloads()}, {pods}, {await self._harness.job()}"
        )
