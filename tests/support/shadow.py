"""Jobs as a shadow observes them: what another operator has made of them, and planning with a defect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from api.job import Job
from controller.domain import Child, Plan, Problem, Role, Snapshot, WriteMode
from controller.kind import Options
from controller.reconcile.plan import decide
from controller.shadow.compare import Observed, required_children
from tests.support.in_memory_cluster import InMemoryCluster

Object = dict[str, Any]
Mutation = Callable[[Plan, Job, Snapshot], Plan]


def observed(cluster: InMemoryCluster, *, kind: Any = None) -> Observed:
    """Return the job with its children as an operator without defects has made them; ``kind`` compares them."""
    seen = Observed(
        cluster.kind, cluster.job, cluster.malformed, cluster.observe(), {}, cluster.now, cluster.options
    )
    uids = {
        **{("Pod", pod.name): pod.uid for pod in cluster.pods.values()},
        **{("Service", service.name): service.uid for service in cluster.services.values()},
        **{("Job", name): body["metadata"]["uid"] for name, body in cluster.batch_jobs.items()},
    }
    children: dict[tuple[str, str], Object] = {}
    for (what, name), child in required_children(seen).items():
        uid = uids.get((what, name))
        is_uncached = child.write_mode not in {WriteMode.CREATE, WriteMode.PATCH}
        if uid or (is_uncached and name in cluster.extras):
            body = orjson.loads(orjson.dumps(child.body()))
            body["metadata"]["uid"] = uid or f"{what}-{name}"
            children[what, name] = body
    return replace(seen, kind=kind or cluster.kind, children=children)


@dataclass(frozen=True)
class Defective:
    """A kind whose plans have a defect."""

    kind: Any
    mutate: Mutation
    found_problems: Sequence[Problem] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)

    @property
    def flow(self) -> "Defective":
        return self

    def decide(
        self, job: Job, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan:
        return self.mutate(decide(self.kind, job, snapshot, now, options, malformed), job, snapshot)

    def problems(self, job: Job, options: Options) -> Sequence[Problem]:
        return self.found_problems

    def first_pods(self, job: Job, options: Options) -> Iterator[tuple[Role, Mapping[str, Any]]]:
        return iter(())


def body(kind: str, change: Callable[[Object], object], name: str = "") -> Mutation:
    """Return the mutation that changes the bodies of the created children of one kind in place, or the one of that name."""

    def mutate(plan: Plan, job: Job, snapshot: Snapshot) -> Plan:
        def changed(child: Child) -> Child:
            if child.resource.kind != kind or (name and child.name != name):
                return child
            return replace(child, body=lambda: _changed(child.body(), change))

        return replace(plan, create=tuple(map(changed, plan.create)))

    return mutate


def container(change: Callable[[Object], object]) -> Callable[[Object], object]:
    """Return the change of a pod's first container."""
    return lambda pod: change(pod["spec"]["containers"][0])


def env(name: str, value: str | None) -> Callable[[Object], object]:
    """Return the change of a pod that sets a variable, or removes it."""

    def change(pod: Object) -> None:
        first = pod["spec"]["containers"][0]
        rest = [variable for variable in first.get("env") or () if variable["name"] != name]
        first["env"] = rest if value is None else [*rest, {"name": name, "value": value}]

    return change


def status(change: Callable[[Object], object]) -> Mutation:
    """Return the mutation that changes the JSON of the planned status in place."""

    def mutate(plan: Plan, job: Job, snapshot: Snapshot) -> Plan:
        if plan.status is None:
            return plan
        wire = plan.status.to_wire()
        change(wire)
        return replace(plan, status=type(plan.status).model_validate(wire))

    return mutate


def condition(wire: Object, type_: str) -> Object:
    """Return the condition of that type, which is added if it is missing."""
    conditions: list[Object] = wire.setdefault("conditions", [])
    found = next((own for own in conditions if own["type"] == type_), None)
    if found is None:
        found = {"type": type_, "status": "True", "reason": f"PyTorchJob{type_}"}
        conditions.append(found)
    return found


def _changed(value: Mapping[str, Any], change: Callable[[Object], object]) -> Object:
    copy: Object = orjson.loads(orjson.dumps(value))
    change(copy)
    return copy
