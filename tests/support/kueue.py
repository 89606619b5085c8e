"""A model of Kueue as a job observes it: what it reads, what it patches, and when it considers quota free.

``Kueue`` also binds the pods to nodes and takes their scheduling gates away, as its topology ungater and the scheduler do, and lets
deleted pods go, as a kubelet does.

Source: kueue, pkg/controller/jobs/kubeflow, pkg/controller/jobframework, pkg/podset and pkg/controller/tas/topology_ungater.go.
"""

import asyncio
import contextlib
import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from api.meta import PODS
from controller.kind import ReplicaKind
from controller.kube.client import Client
from controller.kube.errors import Conflict, Invalid, NotFound
from controller.reconcile.status import merge_patch
from rallypoint.local.apiserver.patches.jsonpatch import merge

Object = dict[str, Any]
Kind = ReplicaKind[Any]

TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
_IN_METADATA = ("labels", "annotations")
_IN_SPEC = ("nodeSelector", "tolerations", "schedulingGates")


@dataclass(frozen=True, slots=True)
class Flavor:
    """What an admission adds to the pod template of each role."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: tuple[Object, ...] = ()
    gates: tuple[str, ...] = ()

    def apply_to(self, template: Object) -> Object:
        """Return the template with all fields of the flavor; its own fields stay.

        Raises:
            ValueError: the template says otherwise, and Kueue would give the workload up.
        """
        metadata, spec = template.get("metadata") or {}, template["spec"]
        added = {
            "labels": _union(metadata.get("labels"), self.labels),
            "annotations": _union(metadata.get("annotations"), self.annotations),
            "nodeSelector": _union(spec.get("nodeSelector"), self.node_selector),
            "tolerations": [*(spec.get("tolerations") or ()), *self.tolerations],
            "schedulingGates": [
                *(spec.get("schedulingGates") or ()),
                *({"name": gate} for gate in self.gates),
            ],
        }
        return {
            **template,
            "metadata": metadata | {key: added[key] for key in _IN_METADATA if added[key]},
            "spec": spec | {key: added[key] for key in _IN_SPEC if added[key]},
        }


@dataclass(slots=True)
class Workload:
    """What Kueue remembers of one job: its pod sets as they were when it came."""

    kind: Kind
    pod_sets: dict[str, tuple[int, Object]]
    """Count and template of each role."""
    specs: list[Object]
    """What the job's spec was after each write of Kueue's; the first is of generation 1."""
    flavors: dict[int, Flavor] = field(default_factory=dict)
    """What was admitted, by the generation of the job that said so."""

    def admitted(self, job: Object, flavor: Flavor) -> Object:
        """The job as it is to be once it is admitted."""
        return self._with(
            job, {role: flavor.apply_to(template) for role, (_, template) in self.pod_sets.items()}, False
        )

    def evicted(self, job: Object) -> Object:
        """The job as it is to be once it is stopped: what was added is taken away again."""
        return self._with(job, {role: template for role, (_, template) in self.pod_sets.items()}, True)

    def is_equivalent(self, job: Object) -> bool:
        """Whether the job's pod sets are those of the workload; if they are not, Kueue evicts it."""
        flavor = self.flavors.get(job["metadata"]["generation"])
        wanted = {
            role: (count, flavor.apply_to(template) if flavor else template)
            for role, (count, template) in self.pod_sets.items()
        }
        return pod_sets(self.kind, job) == wanted

    def _with(self, job: Object, templates: Mapping[str, Object], suspend: bool) -> Object:
        """The job with the five fields of these templates, all else as it is."""
        changed = copy.deepcopy(job)
        changed["spec"]["runPolicy"]["suspend"] = suspend
        for role, template in templates.items():
            own = changed["spec"][self.kind.replicas_field][role]["template"]
            for part, keys in (("metadata", _IN_METADATA), ("spec", _IN_SPEC)):
                for key in keys:
                    own.setdefault(part, {}).pop(key, None)
                own[part] |= {key: template[part][key] for key in keys if key in template.get(part, {})}
        return changed


class Kueue:
    """Writes jobs and places pods in one namespace, after a short while each time."""

    def __init__(self, client: Client, namespace: str, chance: random.Random) -> None:
        self._client = client
        self._namespace = namespace
        self._chance = chance
        self.workloads: dict[str, Workload] = {}
        """By the name of the job."""

    async def create(self, kind: Kind, job: Object) -> None:
        """The user creates a job, and Kueue's webhook suspends it."""
        body = merge(job, {"spec": {"runPolicy": {"suspend": True}}})
        stored = _parsed(await self._client.create(kind.resource, self._namespace, orjson.dumps(body)))
        self.workloads[job["metadata"]["name"]] = Workload(kind, pod_sets(kind, stored), [stored["spec"]])

    async def admit(self, job: Object, flavor: Flavor) -> None:
        workload = self.workloads[job["metadata"]["name"]]
        workload.flavors[len(workload.specs) + 1] = flavor
        await self._write(workload, job, workload.admitted(job, flavor))

    async def evict(self, job: Object) -> None:
        workload = self.workloads[job["metadata"]["name"]]
        await self._write(workload, job, workload.evicted(job))

    async def bind(self, pod: Object) -> None:
        """Let a new pod get to a node, if it lives that long."""
        name = pod["metadata"]["name"]
        await asyncio.sleep(self._chance.uniform(0, 0.05))
        with contextlib.suppress(NotFound, Conflict, Invalid):  # gone, or another of that name by now
            if pod["spec"].get("schedulingGates"):
                node = {"kubernetes.io/hostname": "node-0"}
                change = {
                    "metadata": {"uid": pod["metadata"]["uid"]},
                    "spec": {"schedulingGates": None, "nodeSelector": node},
                }
                await self._client.patch(PODS, self._namespace, name, orjson.dumps(change))
            target = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": pod["metadata"]["uid"]},
            }
            body = orjson.dumps({**target, "target": {"kind": "Node", "name": "node-0"}})
            await self._client.create(PODS, self._namespace, body, name=name, subresource="binding")

    async def finish_deletion(self, pod: Object) -> None:
        """Let a pod that is being deleted go: that very one."""
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        meta = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(
                PODS, self._namespace, meta["name"], uid=meta["uid"], grace_period_seconds=0
            )

    async def end(self, pod: str) -> None:
        """Let a running pod succeed, if it is still there."""
        change = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
        with contextlib.suppress(NotFound):
            await self._client.patch(PODS, self._namespace, pod, orjson.dumps(change))

    async def _write(self, workload: Workload, before: Object, after: Object) -> None:
        body = orjson.dumps(merge_patch(before, after))
        name = before["metadata"]["name"]
        answer = await self._client.patch(workload.kind.resource, self._namespace, name, body)
        workload.specs.append(_parsed(answer)["spec"])


def pod_sets(kind: Kind, job: Object) -> dict[str, tuple[int, Object]]:
    """What Kueue reads of a job: how many pods of which template, by role."""
    specs = job["spec"][kind.replicas_field]
    return {
        role: (role_spec.get("replicas", 1), role_spec["template"])
        for role, role_spec in copy.deepcopy(specs).items()
    }


def is_active(job: Object) -> bool:
    """Whether the job still holds quota."""
    roles = job.get("status", {}).get("replicaStatuses") or {}
    return any(role.get("active") for role in roles.values())


def _union(own: Mapping[str, str] | None, added: Mapping[str, str]) -> dict[str, str]:
    own = own or {}
    if conflicts := {key for key in own.keys() & added.keys() if own[key] != added[key]}:
        raise ValueError(f"the template has its own {', '.join(sorted(conflicts))}")
    return {**own, **added}


def _parsed(answer: bytes) -> Object:
    value: Object = orjson.loads(answer)
    return value
