"""One job in memory: plans apply at once, and tests act as the kubelet and the user.

It replaces the API server, the caches and everything between them in tests of planning.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from api.batch import BATCH_JOBS, batch_job_from_json
from api.children import Exit, Pod, PodGroup, Service, pod_from_json, pod_group_from_json, service_from_json
from api.job import Job, JobStatus
from api.meta import PODS, SERVICES, Resource
from api.nodes import NodeState
from api.times import format_time
from controller.domain import (
    Child,
    Count,
    Deletion,
    Event,
    Failure,
    Hang,
    Key,
    Plan,
    Problem,
    Snapshot,
    TroubleKey,
    WriteMode,
)
from controller.kind import Options, Replicas
from controller.kinds.pytorch import PYTORCH
from controller.policy import troubles
from controller.policy.replacement import observed
from controller.reconcile.observe import rows_in_slots
from controller.reconcile.plan import decide
from controller.reconcile.status import status_change
from rallypoint.local.apiserver.patches.jsonpatch import merge
from tests.support.builders import NOON, pytorch_job

Step = Callable[["InMemoryCluster"], object]
"""A change of a job or its children."""

MAX_RECONCILES = 12
"""More reconciles than any change needs."""


class InMemoryCluster:
    """One job with its children. With ``graceful``, deleted pods that have started stay until ``go`` removes them."""

    def __init__(
        self,
        job: Job,
        *,
        kind: Replicas[Any] = PYTORCH,  # pyright: ignore[reportArgumentType] - as in ``kinds.ALL``
        options: Options | None = None,
        graceful: bool = False,
    ) -> None:
        self.kind = kind
        self.job = job
        self.now: datetime = NOON
        self.pods: dict[str, Pod] = {}
        self.services: dict[str, Service] = {}
        self.group: PodGroup | None = None
        self.queue: Mapping[str, Any] | None = None
        """The Volcano queue of the group as the controller has read it."""
        self.is_group_name_taken = False
        """Whether another owner's PodGroup has the job's name."""
        self.extras: dict[str, dict[str, Any]] = {}
        """Unwatched children by name; further children of the same name by ``Kind/name``."""
        self.batch_jobs: dict[str, dict[str, Any]] = {}
        self.batch_pods: list[Pod] = []
        self.node_topologies: dict[str, str] = {}
        """The topology of each node, by its name."""
        self.is_blocked = False
        """Whether somebody must act before missing children can be created."""
        self.nodes: dict[str, NodeState] = {}
        """The nodes that are not as they should be, by name."""
        self.nodes_error = ""
        """Why the controller cannot read nodes."""
        self.probed_uids: set[str] = set()
        """UIDs of pods whose probe has answered."""
        self.events: list[Event] = []
        self.counts: list[Count] = []
        self.created_pods: list[str] = []
        """Names of all pods created so far, in order."""
        self.is_deleted = False
        self.malformed: tuple[Problem, ...] = ()
        self.hang: Hang | None = None
        """What the monitor of the job's progress has found."""
        self.options = options or Options()
        self._graceful = graceful
        self._failures: Mapping[str, Failure] = {}
        self._troubles_since: Mapping[TroubleKey, datetime] = {}
        self._recorded_events: set[tuple[str, str]] = set()
        self._versions = 1

    @property
    def status(self) -> JobStatus:
        return self.job.status or JobStatus()

    @property
    def conditions(self) -> str:
        """Return the conditions in their order, such as ``Created T, Running F``."""
        return ", ".join(
            f"{condition.type} {condition.status[0]}" for condition in self.status.conditions or ()
        )

    @property
    def counters(self) -> dict[str, dict[str, Any]]:
        """Return the replica statuses in JSON names, without the selectors."""
        roles = self.status.to_wire().get("replicaStatuses", {})
        return {
            name: {key: value for key, value in counts.items() if key != "selector"}
            for name, counts in roles.items()
        }

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of the events so far."""
        return [event.reason for event in self.events]

    def decide(self) -> Plan:
        """Plan the next reconcile."""
        return decide(self.kind, self.job, self.observe(), self.now, self.options, self.malformed)

    def observe(self) -> Snapshot:
        """Return the children as planning reads them."""
        key = Key(self.job.metadata.namespace, self.job.metadata.name)
        self._failures = observed(self._failures, self.pods.values(), self.now)
        pods = (*self.pods.values(), *self.batch_pods)
        if troubles.has_reason_rules(self.job.spec.policy):
            self._troubles_since = troubles.observed(self._troubles_since, pods, self.now)
        return Snapshot(
            rows_in_slots(self.kind, key, self.pods.values()),
            rows_in_slots(self.kind, key, self.services.values()),
            self.group,
            tuple(batch_job_from_json(msgspec.json.encode(job)) for job in self.batch_jobs.values()),
            tuple(self.batch_pods),
            frozenset(self.probed_uids),
            self.node_topologies,
            self._failures,
            self.queue,
            nodes=self.nodes,
            nodes_error=self.nodes_error,
            is_blocked=self.is_blocked,
            troubles_since=self._troubles_since,
            hang=self.hang,
        )

    def step(self) -> Plan:
        """Plan one reconcile and apply it. Neither may change the spec, which all reconciles of a job share."""
        spec, planned = self.job.spec, self.job.spec.model_copy(deep=True)
        plan = self.decide()
        self.apply(plan)
        assert spec == planned
        return plan

    def settle(self) -> list[Plan]:
        """Reconcile until nothing is left to do; return the plans that did something.

        Raises:
            AssertionError: the reconciles do not end.
        """
        done: list[Plan] = []
        for _ in range(MAX_RECONCILES):
            if self.is_deleted or self.is_idle(self.decide()):
                return done
            done.append(self.step())
        raise AssertionError(
            f"after {MAX_RECONCILES} reconciles there is still something to do: {self.decide()}"
        )

    def is_idle(self, plan: Plan) -> bool:
        """Return whether the plan writes nothing and records no event."""
        written = status_change(self.job, plan.status) is not None
        acts = [
            *self._new(self._taken_by_server(plan.create)),
            *(
                deletion
                for deletion in plan.delete
                if deletion.uid or self._key(deletion.resource, deletion.name) in self.extras
            ),
        ]
        return not (written or acts or plan.counts or plan.delete_job or self._new_events(plan.events))

    def apply(self, plan: Plan) -> None:
        """Apply a plan."""
        for deletion in plan.delete:
            if deletion.resource == PODS:
                self._delete_pod(deletion.name, deletion.uid, is_forced=deletion.is_forced)
            elif deletion.resource == SERVICES:
                assert self.services.pop(deletion.name).uid == deletion.uid, (
                    f"{deletion.name} is another Service by now"
                )
            elif deletion.resource == BATCH_JOBS:
                self._delete_batch_job(deletion)
            elif self.group is not None and deletion.resource.kind == "PodGroup":
                assert self.group.uid == deletion.uid
                self.group = None
            else:
                self.extras.pop(self._key(deletion.resource, deletion.name), None)
        for child in self._new(self._taken_by_server(plan.create)):
            self._create(child)
        if plan.status is not None:
            self.job = self.job.model_copy(update={"status": plan.status})
        for event in plan.events:
            self.events += self._new_events([event])
            if event.once:
                self._recorded_events.add((event.reason, event.once))
        self.counts += plan.counts
        self.is_deleted = plan.delete_job

    def set_phase(
        self,
        phase: str,
        *names: str,
        code: int | None = None,
        started_at: datetime | None = None,
        exits: tuple[Exit, ...] = (),
        **fields: Any,
    ) -> None:
        """Set the phase of these pods as the kubelet does, by role and index such as ``worker-0``; of all without names.

        ``code`` is the exit code of the kind's container, ``started_at`` its start.
        """
        for name in self._named(names):
            if code is not None:
                exits = (Exit(self._container(name), code, started_at=started_at),)
            row = msgspec.structs.replace(self.pods[name], phase=phase, exits=exits, **fields)
            self.pods[name] = row

    def remove(self, *names: str) -> None:
        """Delete pods, as a user does."""
        for name in self._named(names):
            self._delete_pod(name, self.pods[name].uid)

    def admit(self, phase: str = "Inqueue", **spec: Any) -> None:
        """Set the PodGroup's phase and spec, as a gang scheduler does."""
        assert self.group is not None
        said = msgspec.json.encode({**msgspec.json.decode(self.group.spec), **spec})
        self.group = msgspec.structs.replace(self.group, phase=phase, spec=said)

    def launch(
        self,
        phase: str = "Running",
        code: int | None = None,
        restarts: int = 0,
        exits: tuple[Exit, ...] = (),
        **fields: Any,
    ) -> None:
        """Set the phase of the launcher's pod, as the Job controller and the kubelet do."""
        ((name, job),) = self.batch_jobs.items()
        assert not job["spec"].get("suspend"), f"{name} is suspended"
        row = Pod(
            self.job.metadata.namespace,
            f"{name}-x",
            f"{name}-x-uid",
            1,
            phase=phase,
            exits=exits if code is None else (Exit("mpi", code),),
            restarts=restarts,
            **fields,
        )
        self.batch_pods = [row]

    def end_batch(self, type_: str, *, reason: str = "", message: str = "", **status: Any) -> None:
        """Finish the launcher's Job as ``Complete`` or ``Failed``, as the Job controller does."""
        ((name, job),) = self.batch_jobs.items()
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        done = {"completionTime": now} if type_ == "Complete" else {}
        self.batch_jobs[name] = {**job, "status": {"startTime": now, **done, **status, "conditions": [ended]}}

    def go_batch(self) -> None:
        """Remove the launcher's Job that is being deleted, with its pods, as the garbage collector does."""
        ((name, job),) = self.batch_jobs.items()
        assert "deletionTimestamp" in job["metadata"], f"{name} is not being deleted"
        self.batch_jobs, self.batch_pods = {}, []

    def go(self, *names: str) -> None:
        """Remove pods, as the kubelet does when their containers have ended."""
        for name in self._named(names):
            del self.pods[name]

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def update_spec(self, job: Job) -> None:
        """Replace the spec of the job, as a user does."""
        self.job = job.model_copy(update={"status": self.job.status})

    def write(self, **status: Any) -> None:
        """Override fields of the status, in the names of the model."""
        self.job = self.job.model_copy(update={"status": self.status.model_copy(update=status)})

    def _container(self, pod: str) -> str:
        """Return the container of that pod whose exit code counts."""
        role = pod.removeprefix(f"{self.job.metadata.name}-").split("-")[0]
        return next(
            (known.container for known in self.kind.roles(self.job).values() if known.label == role), ""
        )

    def _named(self, names: Iterable[str]) -> list[str]:
        return [f"{self.job.metadata.name}-{name}" for name in names] or list(self.pods)

    def _taken_by_server(self, children: Sequence[Child]) -> Sequence[Child]:
        """Return no children while the server refuses one that must go first."""
        return () if self.is_group_name_taken and any(child.first for child in children) else children

    def _new(self, children: Iterable[Child]) -> list[Child]:
        return [child for child in children if not self._is_up_to_date(child)]

    def _is_up_to_date(self, child: Child) -> bool:
        """Return whether a child that planning does not read needs no write."""
        if child.write_mode in {WriteMode.CREATE, WriteMode.PATCH}:
            return False
        if child.write_mode is WriteMode.CHECK_NAME:
            return True
        there = self.extras.get(self._key(child.resource, child.name))
        if there is None:
            return child.write_mode is WriteMode.UPDATE_IF_PRESENT
        return child.flaw is not None or there == child.body()

    def _key(self, resource: Resource, name: str) -> str:
        is_first = name not in self.extras or self.extras[name]["kind"] == resource.kind
        return name if is_first else f"{resource.kind}/{name}"

    def _new_events(self, events: Iterable[Event]) -> list[Event]:
        return [
            event
            for event in events
            if not event.once or (event.reason, event.once) not in self._recorded_events
        ]

    def _create(self, child: Child) -> None:
        self._versions += 1
        if child.write_mode is WriteMode.CHECK_NAME:
            return
        body = child.body()
        if child.write_mode not in {WriteMode.CREATE, WriteMode.PATCH}:
            self.extras[self._key(child.resource, child.name)] = body
            return
        if child.write_mode is WriteMode.PATCH:
            self._change(child, body)
            return
        meta = {
            **body["metadata"],
            "namespace": self.job.metadata.namespace,
            "uid": f"uid-{self._versions}",
            "creationTimestamp": format_time(self.now),
            "resourceVersion": str(self._versions),
        }
        raw = msgspec.json.encode({**body, "metadata": meta, "status": {"phase": "Pending"}})
        if child.resource == PODS:
            assert child.name not in self.pods, f"{child.name} exists"
            self.pods[child.name] = pod_from_json(raw)
            self.created_pods.append(child.name)
        elif child.resource.kind == "PodGroup":
            assert self.group is None
            self.group = pod_group_from_json(raw)
        elif child.resource == BATCH_JOBS:
            assert child.name not in self.batch_jobs, f"{child.name} exists"
            self.batch_jobs[child.name] = {**body, "metadata": meta, "status": {}}
        else:
            assert child.name not in self.services, f"{child.name} exists"
            self.services[child.name] = service_from_json(raw)

    def _change(self, child: Child, patch: dict[str, Any]) -> None:
        if child.resource == BATCH_JOBS:
            self.batch_jobs[child.name] = merge(self.batch_jobs[child.name], patch)
            return
        assert self.group is not None
        spec = merge(msgspec.json.decode(self.group.spec), patch["spec"])
        self.group = msgspec.structs.replace(self.group, spec=msgspec.json.encode(spec))

    def _delete_batch_job(self, deletion: Deletion) -> None:
        job = self.batch_jobs[deletion.name]
        assert job["metadata"]["uid"] == deletion.uid, f"{deletion.name} is another Job by now"
        if self._graceful and deletion.is_foreground and self.batch_pods:
            now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            meta = {**job["metadata"], "deletionTimestamp": now}
            self.batch_jobs[deletion.name] = {**job, "metadata": meta}
            self.batch_pods = [msgspec.structs.replace(pod, deleting=True) for pod in self.batch_pods]
        else:
            del self.batch_jobs[deletion.name]
            self.batch_pods = []

    def _delete_pod(self, name: str, uid: str, *, is_forced: bool = False) -> None:
        if name in {pod.name for pod in self.batch_pods}:
            # The finalizer of its Job keeps it.
            self.batch_pods = [msgspec.structs.replace(pod, deleting=True) for pod in self.batch_pods]
            return
        pod = self.pods[name]
        assert pod.uid == uid, f"{name} is another pod by now"
        if self._graceful and pod.phase != "Pending" and not is_forced:
            self.pods[name] = msgspec.structs.replace(pod, deleting=True)
        else:
            del self.pods[name]


def pending_cluster(policy: str = "OnFailure", *, graceful: bool = False, **fields: Any) -> InMemoryCluster:
    """Return a cluster with a PyTorchJob, a master and two workers of that restart policy, and all its pods."""
    role = {"restartPolicy": policy}
    given: dict[str, Any] = {"master": role, "worker": role, **fields}
    cluster = InMemoryCluster(pytorch_job(**given), graceful=graceful)
    cluster.settle()
    return cluster


def running_cluster(policy: str = "OnFailure", *, graceful: bool = False, **fields: Any) -> InMemoryCluster:
    """Return such a cluster whose pods run."""
    cluster = pending_cluster(policy, graceful=graceful, **fields)
    cluster.set_phase("Running")
    cluster.settle()
    return cluster


def phase(phase: str, *names: str, **fields: Any) -> Step:
    """Return the change of these pods to that phase."""
    return lambda cluster: cluster.set_phase(phase, *names, **fields)


def run_policy(**fields: Any) -> Step:
    """Return the change of the job to that run policy."""
    return lambda cluster: cluster.update_spec(pytorch_job(run_policy=fields))


def workers(count: int, **fields: Any) -> Step:
    """Return the change of the job to that many workers."""
    return lambda cluster: cluster.update_spec(pytorch_job(workers=count, **fields))
