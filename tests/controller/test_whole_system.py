"""The whole system under arbitrary users, nodes, API server failures and kills of the controller.

The invariants are checked at each change. When all faults are over and time has passed, each job must be where its pods and its spec put it,
and nothing must move any more. See tests/support/invariants.py.
"""

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import looptime
import pytest
from aiohttp import web
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from structlog.testing import capture_logs
from typing_extensions import override

from api.labels import JOB_NAME, OPERATOR_NAME
from api.labels import SERVICES as SERVICES_MODE
from api.meta import CONFIG_MAPS, PODS, SERVICES, Resource
from api.names import child_labels
from controller.kube.client import Client
from controller.kube.errors import ApiError
from controller.policy.recovery import JITTER
from controller.policy.replacement import LONGEST_PAUSE_SECONDS
from controller.runtime.backoff import LONGEST_SECONDS
from rallypoint.local.apiserver.serving.interceptor import Call, Disconnect
from rallypoint.local.batch.jobs import Jobs
from tests.support.backups import Backup
from tests.support.builders import NOON, template
from tests.support.crash_injection import CrashInjector, CrashPoint, Moment, restarting_controller
from tests.support.failure_model import first_match
from tests.support.faults import Cut as CutWatch
from tests.support.faults import Delay, Drop, Fault, Refuse, Reset, Rule
from tests.support.harness import (
    DEFINITIONS,
    TEST_USER_AGENT,
    UNLIMITED_SETTINGS,
    Harness,
    definition,
    fake_clock,
    start_harness,
)
from tests.support.invariants import FOREIGN, TERMINAL, Invariants, has, is_finished, replica_statuses
from tests.support.workloads import ALL, JAX, PYTORCH, Workload

T = TypeVar("T")

pytestmark = pytest.mark.timeout(1800)

EXAMPLES = int(os.environ.get("WHOLE_SYSTEM_EXAMPLES", "0"))
"""How many random examples to draw, different ones for each ``--hypothesis-seed``; 0 draws the same few each time."""
CALLS_A_MINUTE = 400
"""More calls than these jobs, users and faults can cause in a minute of loop time."""
MOST_KILLS, MOST_FAULTS, MOST_INTERFERENCE = 3, 3, 2
"""Limits for each example; a controller that is disturbed all the time makes no progress."""
CALM_SECONDS = 40.0
"""Longer than the deadline and the TTL of these jobs together."""
REPAIR_SECONDS = 1130.0
"""Within this time a relist repairs a lost watch event, and the next one hands objects that were read by name back to the watch."""
RESTART_SECONDS = LONGEST_PAUSE_SECONDS * (1 + JITTER)
"""The longest pause before a job restarts as a whole."""
OUTAGE_SECONDS = 60.0
"""The duration of a restore of etcd: longer than any pause between two tries to reach the server."""

NAMES = st.sampled_from(["one", "two"])
ANY = st.integers(0, 9)
WORKLOADS = st.sampled_from(ALL)
RESTART = {"action": "RestartJob"}
FAILURE_RULES = st.fixed_dictionaries(
    {
        "action": st.sampled_from(
            ["RestartPod", "Ignore", "RestartJobAndIgnoreMaxRestarts", "RestartJob", "FailJob"]
        )
    },
    optional={
        "roles": st.just(["Worker"]),
        "onExitCodes": st.sampled_from(
            [{"operator": operator, "values": [1]} for operator in ("In", "NotIn")]
        ),
        "onReasons": st.just(["Deleted"]),
    },
)
RECOVERIES = st.one_of(
    st.fixed_dictionaries(
        {
            "failurePolicy": st.fixed_dictionaries(
                {"rules": st.lists(FAILURE_RULES, max_size=1).map(lambda rules: [*rules, RESTART])},
                optional={"maxRestarts": st.integers(0, 2)},
            )
        }
    ),
    st.fixed_dictionaries(
        {"failurePolicy": st.fixed_dictionaries({"rules": st.lists(FAILURE_RULES, min_size=1, max_size=2)})}
    ),
    st.just({"pendingTimeoutSeconds": 30}),
)
"""Instead of other limits, which would end most of these jobs before they restart."""
SPECS = st.fixed_dictionaries(
    {
        "heads": st.integers(0, 1),
        "workers": st.integers(1, 3),
        "aside": st.sampled_from([0, 0, 1]),
        "policy": ANY,
        "graceful": st.booleans(),
        "services": st.sampled_from(["per-replica", "per-replica", "addressed", "per-job"]),
        "run_policy": st.fixed_dictionaries(
            {},
            optional={
                "backoffLimit": st.sampled_from([0, 3, 6]),
                "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
                "ttlSecondsAfterFinished": st.sampled_from([0, 10]),
                "activeDeadlineSeconds": st.sampled_from([1, 20, 20]),
                "suspend": st.sampled_from([False, False, True]),
            },
        ),
        "recovery": st.one_of(RECOVERIES, RECOVERIES, st.just({})),
    }
)
SIMPLE_SPEC: dict[str, Any] = {
    "heads": 0,
    "workers": 1,
    "aside": 0,
    "policy": 0,
    "graceful": False,
    "services": "per-replica",
    "run_policy": {},
    "recovery": {},
}
CHANGES = st.one_of(
    st.none(),
    st.integers(1, 4),
    st.booleans().map(lambda suspend: {"runPolicy": {"suspend": suspend}}),
)
"""Changes of a spec; None deletes the job, a number sets the number of workers."""
KILL, RESTORE, REDEFINE = "kill", "restore", "redefine"
DISASTERS = st.sampled_from(
    [(), (KILL,), (KILL,), (RESTORE,), (RESTORE,), (REDEFINE,), (KILL, RESTORE), (KILL, RESTORE, REDEFINE)]
)
"""Disasters that an example may contain. Each of them hides or repairs other failures, so most examples have one at most."""
LOST = (Reset(), Reset(committed=True), Delay(3), Delay(3, committed=True), Delay(40, committed=True))
REFUSED = (
    Refuse(409, "Conflict"),
    Refuse(429, "TooManyRequests", retry_after_seconds=1),
    Refuse(500, "InternalError"),
    Refuse(503, "ServiceUnavailable"),
    Refuse(403, "Forbidden", "exceeded quota"),
)
CREATES = [("create", "pods"), ("create", "services"), ("create", "events"), ("create", "jobs")]
DELETES = [("delete", "pods"), ("delete", "services")]
STATUS = ("patch", "")
BREAKS = st.sampled_from([Refuse(503), Refuse(503), Refuse(410, "Expired")])


def failing(
    faults: Sequence[Fault], calls: Sequence[tuple[str, str]], subresource: str | None = None
) -> st.SearchStrategy[tuple[Rule, ...]]:
    """Draw a new rule each time, because rules count their matches."""
    drawn = st.tuples(st.sampled_from(faults), st.sampled_from(calls), st.integers(1, 4))
    return drawn.map(lambda values: (Rule(values[0], *values[1], subresource=subresource, times=values[2]),))


FAULTS = st.one_of(
    # Status writes get faults of their own: a lost status is what misleads the next reconcile.
    failing([*LOST, *REFUSED], [STATUS], "status"),
    failing([*LOST, *REFUSED], CREATES),
    # A conflict would say that another object has the name by now.
    failing([*LOST, *REFUSED[1:]], DELETES),
    failing(LOST, [("get", ""), ("list", "")]),
)


NEIGHBOR = "neighbor"
"""The name of the job of another kind, which only has to run."""
BATCH = "batch"
"""The user agent of the controller of batch Jobs, which gets no faults."""


class Guarded(CrashInjector):
    """Record a controller that calls in a loop and delay it, because loop time would stand still otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: list[str] = []
        self.killed = 0
        self.is_away = False
        """Whether only the test reaches the server."""
        self._times: list[float] = []

    @override
    async def before(self, call: Call) -> web.Response | None:
        if self.is_away and call.user_agent != TEST_USER_AGENT:
            raise Disconnect
        if call.user_agent == BATCH:
            return None
        now = asyncio.get_running_loop().time()
        if call.user_agent != TEST_USER_AGENT:
            self._times = [time for time in self._times if time > now - 60] + [now]
            if len(self._times) > CALLS_A_MINUTE and not self.violations:
                self.violations.append(f"{CALLS_A_MINUTE} calls in a minute, at last {call}")
            if self.violations:
                await asyncio.sleep(60)
        return await super().before(call)

    @override
    async def after(self, call: Call) -> None:
        if self.is_away and call.user_agent != TEST_USER_AGENT:
            raise Disconnect
        if call.user_agent != BATCH:
            await super().after(call)

    @override
    async def passes(self, call: Call, frame: bytes) -> bool:
        return call.user_agent == BATCH or await super().passes(call, frame)


class Timed(asyncio.Queue[Any]):
    """A queue that records when each change arrived."""

    @override
    def put_nowait(self, item: Any) -> None:
        super().put_nowait((asyncio.get_running_loop().time(), item))


class World(RuleBasedStateMachine):
    """An embedded API server for each example; each rule runs the loop for as long as its own requests take."""

    harness: Harness
    injector: Guarded
    job_invariants: Invariants
    workload: Workload
    kinds: dict[Workload, Invariants]
    """The kinds that the controller serves: the kind of the jobs and, in some examples, the kind of their neighbor."""

    def __init__(self) -> None:
        super().__init__()
        # So many idle turns of the loop before its time jumps: a request over a real socket may need some under load.
        self.loop = looptime.new_event_loop(start=0, noop_cycles=32)
        self.closing = contextlib.AsyncExitStack()
        self.changes = Timed()
        self.logs: list[Any] = []
        self.away_seconds = 0.0
        self.interference = 0
        self.ahead_seconds = 0.0
        """Offset of the controller's clock from the server's."""
        self.loses_events = False
        self.disasters: Sequence[str] = ()
        self.redefined: list[Workload] = []
        """The kinds whose definitions have been deleted, and with them all their jobs."""
        self.is_restored = False
        """Whether the server has been set back to a backup."""
        self.backup: tuple[Backup, list[Invariants]] | None = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run_until_complete(work)
        finally:
            self.process_changes()

    def discard_changes(self) -> None:
        while not self.changes.empty():
            self.changes.get_nowait()

    def process_changes(self) -> None:
        """Check the invariants against the changes so far."""
        while not self.changes.empty():
            time, (_, change) = self.changes.get_nowait()
            for invariants in self.kinds.values():
                invariants.time = NOON + timedelta(seconds=time)
                invariants.record(change.type, change.entry.object)

    @initialize(
        workload=WORKLOADS,
        has_neighbor=st.booleans(),
        first_spec=SPECS,
        second_spec=st.none() | SPECS,
        initial_failures=st.lists(FAULTS, max_size=3),
        prompt=st.booleans(),
        disasters=DISASTERS,
    )
    def begin(
        self,
        workload: Workload,
        has_neighbor: bool,
        first_spec: dict[str, Any],
        second_spec: dict[str, Any] | None,
        initial_failures: list[Any],
        prompt: bool,
        disasters: Sequence[str],
    ) -> None:
        """With ``prompt`` nodes, pods run as soon as they are made and end as soon as they are deleted."""
        self.disasters = disasters
        self.logs = self.closing.enter_context(capture_logs())
        clock = self.closing.enter_context(fake_clock(lambda: self.ahead_seconds))
        self.workload, self.job_invariants, self.injector = workload, Invariants(workload), Guarded()
        self.kinds = {workload: self.job_invariants}
        if has_neighbor:
            other = PYTORCH if workload is JAX else JAX
            self.kinds[other] = Invariants(other, self.job_invariants.deleted_by_others)
        resources = [served_workload.resource for served_workload in self.kinds]
        served = replace(UNLIMITED_SETTINGS, enable_scheme=tuple(resource.kind for resource in resources))

        async def enter() -> None:
            self.harness = await self.closing.enter_async_context(
                start_harness(crds=resources, faults=self.injector, clock=clock, seed=0, history=64)
            )
            self.harness.server.store.listeners.append(self.changes)
            if prompt:
                self.run_in_background(self.nodes())
            if workload.has_launcher_job:
                client = Client(self.harness.connection, user_agent=BATCH)
                self.run_in_background(Jobs(await self.closing.enter_async_context(client), now=clock).run())
            await self.closing.enter_async_context(
                restarting_controller(
                    self.harness, self.injector, served, between=lambda: asyncio.sleep(self.away_seconds)
                )
            )

        self.do(enter())
        for failure in initial_failures:
            self.a_call_fails(failure)
        self.submit("one", first_spec)
        if second_spec is not None:
            self.submit("two", second_spec)
        if has_neighbor:
            self.submit_neighbor()
        if RESTORE in disasters:
            self.a_backup_is_made()
        if prompt:
            self.do(asyncio.sleep(1))

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self.closing.push_async_callback(ended, asyncio.create_task(work))

    # The user.

    # Preconditions count only on what the test itself decides: what the system has done until then depends on how busy the machine is, and
    # Hypothesis refuses examples that draw other rules when they are repeated. A rule without a subject does nothing.

    @rule(spec=SPECS)
    def a_job_is_submitted(self, spec: dict[str, Any]) -> None:
        for name in [name for name in ("one", "two") if name not in self.jobs()][:1]:
            self.submit(name, spec)

    def submit(self, name: str, spec: dict[str, Any]) -> None:
        workload = self.workload
        counts = {workload.head: 1 if workload.needs_head else spec["heads"], workload.aside: spec["aside"]}
        roles = {role: counts.get(role, spec["workers"]) for role in workload.roles}
        policy = workload.policies[spec["policy"] % len(workload.policies)]
        placement = {"nodeName": "node-0"} if spec["graceful"] else {}
        run_policy = spec["run_policy"] | spec["recovery"]
        if spec["recovery"]:
            run_policy.pop("backoffLimit", None)
            run_policy.pop("activeDeadlineSeconds", None)
        annotations = {SERVICES_MODE: spec["services"]} if workload.has_services else {}
        self.create(workload, name, workload.spec(roles, policy, run_policy, **placement), annotations)

    def submit_neighbor(self) -> None:
        neighbor = [*self.kinds][-1]
        self.create(neighbor, NEIGHBOR, neighbor.spec({"Worker": 2}, "Never", {}), {})

    def create(
        self, workload: Workload, name: str, spec: dict[str, Any], annotations: dict[str, str]
    ) -> None:
        resource = workload.resource
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "annotations": annotations},
            "spec": spec,
        }
        self.try_to(self.harness.create(resource, body))

    @rule(name=NAMES, change=CHANGES)
    def a_job_is_changed(self, name: str, change: dict[str, Any] | int | None) -> None:
        """Scale, suspend, resume or delete a job."""
        match change:
            case None:
                self.job_invariants.deleted_by_others |= {
                    job["metadata"]["uid"] for job_name, job in self.jobs().items() if job_name == name
                }
                self.try_to(self.harness.delete(self.workload.resource, name))
            case int():
                roles = {self.workload.replicas_field: {"Worker": {"replicas": change}}}
                self.change_job(name, {"spec": roles})
            case _:
                self.change_job(name, {"spec": change})

    @rule(at=ANY, resource=st.sampled_from([PODS, SERVICES]), grace=st.sampled_from([None, 0]))
    def a_child_is_deleted(self, at: int, resource: Resource, grace: int | None) -> None:
        for name in self.pick(self.own(resource), at):
            self.job_invariants.deleted_by_others.add(self.own(resource)[name]["metadata"]["uid"])
            self.try_to(self.harness.delete(resource, name, grace_period_seconds=grace))

    @precondition(lambda self: self.interference < MOST_INTERFERENCE)
    @rule(
        job=NAMES,
        role=ANY,
        resource=st.sampled_from([None, PODS, SERVICES]),
        by_reference=st.booleans(),
    )
    def another_client_interferes(
        self, job: str, role: int, resource: Resource | None, by_reference: bool
    ) -> None:
        """Label the job, or create an object with the labels of a child and either its name or its owner reference."""
        self.interference += 1
        if resource is None:
            self.change_job(job, {"metadata": {"labels": {"note": str(role)}}})
            return
        workload = self.workload
        name = sorted(workload.roles)[role % len(workload.roles)].lower()
        labels = {**child_labels(workload.controller, job, name, 0), FOREIGN: "true"}
        spec = template()["spec"] if resource == PODS else {"ports": [{"port": 80}]}
        metadata: dict[str, Any] = {"name": f"{job}-{name}-0", "labels": labels}
        if by_reference:
            owner = self.jobs().get(job, {"metadata": {"uid": "unknown"}})
            reference = {
                "apiVersion": workload.resource.api_version,
                "kind": workload.resource.kind,
                "name": job,
                "controller": True,
            }
            references = [{**reference, "uid": owner["metadata"]["uid"]}]
            metadata |= {"name": f"{job}-{name}-of", "ownerReferences": references}
        body = {"metadata": metadata, "spec": spec}
        self.try_to(self.harness.create(resource, {"apiVersion": "v1", "kind": resource.kind, **body}))

    # The nodes.

    async def nodes(self) -> None:
        changes_of_pods: asyncio.Queue[Any] = asyncio.Queue()
        self.harness.server.store.listeners.append(changes_of_pods)
        while True:
            _, change = await changes_of_pods.get()
            obj = change.entry.object
            if change.type == "DELETED" or obj["kind"] != PODS.kind or FOREIGN in obj["metadata"]["labels"]:
                continue
            name = obj["metadata"]["name"]
            with contextlib.suppress(ApiError):
                if "deletionTimestamp" in obj["metadata"]:
                    await self.terminate(obj)
                elif obj["status"]["phase"] == "Pending":
                    await self.harness.set_phase(
                        "Running", name, container=obj["spec"]["containers"][0]["name"]
                    )

    @rule()
    def all_pods_run(self) -> None:
        for pod in self.pods_in("Pending"):
            self.try_to(self.harness.set_phase("Running", pod, container=self.workload.container))

    @rule(at=ANY, code=st.sampled_from([0, 1, 137, 137]))
    def a_pod_ends(self, at: int, code: int) -> None:
        for pod in self.pick(self.pods_in("Running"), at):
            self.end(pod, code)

    @rule(name=NAMES, code=st.sampled_from([0, 137]))
    def all_pods_of_a_job_end(self, name: str, code: int) -> None:
        for pod in self.pods_in("Running"):
            if pod.startswith(f"{name}-"):
                self.end(pod, code)

    def end(self, pod: str, code: int) -> None:
        phase = "Failed" if code else "Succeeded"
        self.try_to(self.harness.set_phase(phase, pod, code=code, container=self.workload.container))

    @rule(at=ANY, code=st.sampled_from([1, 137]))
    def all_pods_run_and_one_fails(self, at: int, code: int) -> None:
        """Otherwise a job seldom runs and fails as often as it may restart."""
        self.all_deleted_pods_go()
        self.do(asyncio.sleep(1))
        self.all_pods_run()
        self.do(asyncio.sleep(1))
        self.a_pod_ends(at, code)

    @rule()
    def all_deleted_pods_go(self) -> None:
        for pod in self.own(PODS).values():
            if "deletionTimestamp" in pod["metadata"]:
                self.try_to(self.terminate(pod))

    async def terminate(self, pod: dict[str, Any]) -> None:
        """Remove a deleted pod; of a pod with a finalizer, report that its containers have ended, as kubelets do."""
        metadata = pod["metadata"]
        if metadata.get("finalizers"):
            if pod["status"]["phase"] not in TERMINAL:
                await self.harness.set_phase(
                    "Failed", metadata["name"], code=137, container=self.workload.container
                )
        else:
            await self.harness.delete(PODS, metadata["name"], uid=metadata["uid"], grace_period_seconds=0)

    # Failures.

    @rule(failure=FAULTS)
    def a_call_fails(self, failure: tuple[Rule, ...]) -> None:
        if sum(rule.met < (rule.times or 0) for rule in self.injector.rules) < MOST_FAULTS:
            self.injector.rules += failure

    @rule(at=ANY, response=BREAKS, times=st.integers(1, 4))
    def a_watch_breaks(self, at: int, response: Refuse, times: int) -> None:
        """The watch breaks at its next event. It resumes after 1 s to 20 s, or its resource version has expired."""
        if any(isinstance(rule.fault, CutWatch) and not rule.met for rule in self.injector.rules):
            return
        plural = self.watched(at)
        self.injector.rules += [
            Rule(CutWatch(), "watch", plural, times=1),
            Rule(response, "watch", plural, times=times),
        ]

    @rule(at=ANY, type_=st.sampled_from(["ADDED", "MODIFIED", "MODIFIED", "DELETED"]))
    def an_event_is_lost(self, at: int, type_: str) -> None:
        """The watch loses its next event of that type and continues."""
        if not self.is_losing():
            self.lose(self.watched(at), type_)

    @rule(at=ANY, code=st.sampled_from([0, 137]))
    def a_pod_changes_unobserved(self, at: int, code: int) -> None:
        """A pod starts or ends, and the watch loses the event."""
        if self.is_losing():
            return
        running = self.pods_in("Running")
        for pod in self.pick(self.pods_in("Pending") | running, at):
            self.lose(PODS.plural, "MODIFIED")
            if pod in running:
                self.end(pod, code)
            else:
                self.try_to(self.harness.set_phase("Running", pod, container=self.workload.container))

    def lose(self, plural: str, type_: str) -> None:
        self.loses_events = True
        begin = f'{{"type":"{type_}"'.encode()
        self.injector.rules.append(Rule(Drop(), "watch", plural, containing=begin, times=1))

    def is_losing(self) -> bool:
        return any(isinstance(rule.fault, Drop) and not rule.met for rule in self.injector.rules)

    @rule(seconds=st.sampled_from([3600.0, -3600.0, 300.0, -300.0, 0.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        """The clock of the controller changes; that of the server does not."""
        self.ahead_seconds = seconds

    @precondition(lambda self: RESTORE in self.disasters)
    @rule()
    def a_backup_is_made(self) -> None:
        self.process_changes()
        self.backup = (
            Backup.of(self.harness.server.store),
            [invariants.copy_state() for invariants in self.kinds.values()],
        )

    @precondition(lambda self: self.backup is not None)
    @rule(ahead=st.sampled_from([1, 5, 200]))
    def the_backup_is_restored(self, ahead: int) -> None:
        """The server is down meanwhile. Other clients reach it first and may write past the old resource version."""
        assert self.backup is not None
        backup, then = self.backup
        store = self.harness.server.store
        reached = store.revision

        async def restore_server() -> None:
            self.injector.is_away = True
            store.close_watchers()
            await asyncio.sleep(OUTAGE_SECONDS)
            self.process_changes()
            backup.restore(self.harness.server)
            self.discard_changes()
            for invariants, remembered in zip(self.kinds.values(), then, strict=True):
                invariants.restore(remembered)
            store.revision = max(reached, store.revision) + ahead
            await self.harness.create(
                CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "later-"}}
            )

        self.do(restore_server())
        self.injector.is_away = False
        self.is_restored = True

    @precondition(lambda self: REDEFINE in self.disasters)
    @rule(at=ANY)
    def a_definition_is_deleted(self, at: int) -> None:
        """All jobs of the kind go with its definition. Other kinds must continue."""
        workload = [*self.kinds][at % len(self.kinds)]
        if not self.is_defined(workload):
            return
        for (kind, _), job in self.job_invariants.now.items():
            if kind == workload.resource.kind:
                self.job_invariants.deleted_by_others.add(job["metadata"]["uid"])
        self.redefined.append(workload)
        self.try_to(self.harness.delete(DEFINITIONS, definition_name(workload)))

    @rule()
    def all_definitions_are_installed(self) -> None:
        for workload in self.kinds:
            if not self.is_defined(workload):
                self.try_to(self.harness.define([definition(workload.resource)]))

    def is_defined(self, workload: Workload) -> bool:
        collection = self.harness.server.store.collection(f"{DEFINITIONS.group}/{DEFINITIONS.plural}")
        return ("", definition_name(workload)) in collection.entries

    def watched(self, at: int) -> str:
        return self.workload.watched[at % len(self.workload.watched)].plural

    @precondition(lambda self: KILL in self.disasters and self.injector.killed < MOST_KILLS)
    @rule(
        after=st.one_of(
            st.integers(0, 40), st.builds(CrashPoint, st.integers(1, 20), st.sampled_from(Moment))
        ),
        away=st.sampled_from([0.0, 0.1, 20.0]),
    )
    def the_controller_is_killed(self, after: int | CrashPoint, away: float) -> None:
        """Kill the controller after some iterations of the loop or at one of its next calls; it stays down for a while."""

        async def turn(times: int) -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.injector.killed += 1
        for invariants in self.kinds.values():
            invariants.forgets_removed_pods = True
        self.away_seconds = away
        if isinstance(after, CrashPoint):
            self.injector.add_point(CrashPoint(self.injector.call_count + after.number, after.moment))
        else:
            self.do(turn(after))
            self.injector.crash()

    @rule(seconds=st.sampled_from([0.001, 0.1, 1.0, 5.0, 50.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "injector"):
            assert [invariants.violations for invariants in self.kinds.values()] == [[] for _ in self.kinds]
            assert self.injector.violations == []
        assert not [line for line in self.logs if "exc_info" in line]

    @override
    def teardown(self) -> None:
        try:
            if hasattr(self, "harness"):
                self.recover()
                self.nothing_is_broken()
                self.jobs_have_their_expected_state()
                self.the_neighbor_has_its_pods()
                self.no_calls_are_made()
                self.nothing_is_broken()
        finally:
            self.do(self.closing.aclose())
            self.loop.close()

    def recover(self) -> None:
        """End all faults, delete foreign objects and let nodes remove deleted pods.

        Deleted definitions are installed again and get a job. A backup that was made is restored.
        """
        if self.backup is not None and not self.is_restored:
            self.the_backup_is_restored(5)
        self.injector.rules.clear()
        self.injector.clear_points()
        self.all_definitions_are_installed()
        if self.workload in self.redefined and "one" not in self.jobs():
            self.submit("one", SIMPLE_SPEC)
        if len(self.kinds) > 1 and not self.neighbors():
            self.submit_neighbor()
        for (kind, name), obj in list(self.job_invariants.now.items()):
            if FOREIGN in (obj["metadata"].get("labels") or {}):
                self.job_invariants.deleted_by_others.add(obj["metadata"]["uid"])
                self.do(self.harness.delete(PODS if kind == PODS.kind else SERVICES, name))
        repair = (REPAIR_SECONDS,) if self.loses_events else ()
        for seconds in (*repair, LONGEST_SECONDS + 5, RESTART_SECONDS, 5, 5, CALM_SECONDS):
            self.do(asyncio.sleep(seconds))
            self.all_deleted_pods_go()

    def jobs_have_their_expected_state(self) -> None:
        workload = self.workload
        for name, job in self.jobs().items():
            there, support = self.children(name), workload.support_names(name)
            pods, services = (
                {child for kind, child in there - support if kind == resource.kind}
                for resource in (PODS, SERVICES)
            )
            policy = job["spec"].get("runPolicy", {})
            if is_finished(job):
                self.end_is_recorded(job)
                if policy.get("cleanPodPolicy") == "All":
                    assert (pods, services) == (set(), set())
            elif policy.get("suspend"):
                assert has(job, "Suspended")
                assert (pods, services) == (set(), set())
            else:
                assert "activeDeadlineSeconds" not in policy
                assert "pendingTimeoutSeconds" not in policy or not self.pending_pods(name)
                self.no_failure_waits_for_its_rule(name, policy)
                assert pods == workload.pod_names(name, job["spec"])
                mode = (job["metadata"].get("annotations") or {}).get(SERVICES_MODE, "")
                assert services == workload.service_names(name, job["spec"], mode)
                assert support <= there
                self.counters_are_those_of_the_pods(job)
            self.restarts_are_counted(job)
        assert {pod["metadata"]["labels"][JOB_NAME] for pod in self.own(PODS).values()} <= self.jobs().keys()

    def pending_pods(self, job: str) -> list[str]:
        return [name for name in self.pods_in("Pending") if name.startswith(f"{job}-")]

    def no_failure_waits_for_its_rule(self, job: str, policy: dict[str, Any]) -> None:
        """Of the pods that exist, none has a failure that ends the attempt or the job by the model of the rules."""
        rules = policy.get("failurePolicy", {}).get("rules", [])
        for name, pod in self.pods_in("Failed").items():
            if not name.startswith(f"{job}-") or not rules:
                continue
            role = next(role for role in self.workload.roles if role.lower() == self.workload.role_of(pod))
            ends = [
                {"name": status["name"], "code": status["state"]["terminated"]["exitCode"], "reason": ""}
                for status in pod["status"].get("containerStatuses") or ()
            ]
            at = first_match(rules, {"role": role, "state": "Failed", "containers": ends})
            assert at is None or rules[at]["action"] in {"RestartPod", "Ignore"}, (name, rules)

    def the_neighbor_has_its_pods(self) -> None:
        """This holds whatever happens to the other kind."""
        workload = [*self.kinds][-1]
        for name, job in self.neighbors().items():
            assert not is_finished(job)
            job_uid = job["metadata"]["uid"]
            pods = {
                name
                for (kind, name), obj in self.job_invariants.now.items()
                if kind == PODS.kind
                and job_uid in {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}
            }
            assert pods == workload.pod_names(name, job["spec"])

    def children(self, job: str) -> set[tuple[str, str]]:
        """Return kinds and names of the children of a job, without the pods of its batch Job."""
        job_uid = self.job_invariants.now[self.workload.resource.kind, job]["metadata"]["uid"]
        return {
            key
            for key, obj in self.job_invariants.now.items()
            if FOREIGN not in (obj["metadata"].get("labels") or {})
            and job_uid in {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}
        }

    def end_is_recorded(self, job: dict[str, Any]) -> None:
        policy = job["spec"].get("runPolicy", {})
        if self.workload.has_launcher_job:
            return  # the end has its batch Job's reason, and the TTL is that one's
        assert "completionTime" in job["status"]
        assert policy.get("suspend") or "ttlSecondsAfterFinished" not in policy
        uid = job["metadata"]["uid"]
        assert (
            self.injector.killed
            or uid in self.job_invariants.restored_jobs
            or self.job_invariants.end_event_counts[uid] == 1
        )

    def counters_are_those_of_the_pods(self, job: dict[str, Any]) -> None:
        for role, counters in replica_statuses(job).items():
            role_pods = [
                pod
                for pod in self.own(PODS).values()
                if pod["metadata"]["labels"][JOB_NAME] == job["metadata"]["name"]
                and self.workload.role_of(pod) == role.lower()
            ]
            running = sum(pod["status"]["phase"] == "Running" for pod in role_pods)
            assert counters.get("active", 0) == running

    def restarts_are_counted(self, job: dict[str, Any]) -> None:
        """Each replaced failed pod counts once, and no other pod counts."""
        if "backoffLimit" not in job["spec"].get("runPolicy", {}) or self.workload.has_launcher_job:
            return
        if job["metadata"]["uid"] in self.job_invariants.restored_jobs:
            return
        for role, counters in replica_statuses(job).items():
            key = job["metadata"]["uid"], role.lower()
            assert (
                self.job_invariants.replaced[key]
                <= counters.get("restarts", 0)
                <= self.job_invariants.failed[key]
            )

    def no_calls_are_made(self) -> None:
        self.injector.calls.clear()
        self.do(asyncio.sleep(CALM_SECONDS))
        # Relists, and reads of uncached objects, are infrequent.
        uncached = {resource.plural for resource, _ in self.workload.support}
        calls = [
            call
            for call in self.harness.calls
            if call.verb != "watch"
            and (call.verb, call.namespace) != ("list", "")
            and not (call.verb == "get" and call.plural in uncached)
        ]
        assert calls == []

    def try_to(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a call of a user or node, which may come too late or be rejected."""
        with contextlib.suppress(ApiError):
            self.do(work)

    def change_job(self, name: str, change: dict[str, Any]) -> None:
        self.try_to(self.harness.change(self.workload.resource, name, change))

    def jobs(self) -> dict[str, dict[str, Any]]:
        kind = self.workload.resource.kind
        return {name: job for (job_kind, name), job in self.job_invariants.now.items() if job_kind == kind}

    def neighbors(self) -> dict[str, dict[str, Any]]:
        """The neighbor, by name, if there is one."""
        kind = [*self.kinds][-1].resource.kind
        found = self.job_invariants.now.get((kind, NEIGHBOR))
        return {NEIGHBOR: found} if found else {}

    def own(self, resource: Resource) -> dict[str, dict[str, Any]]:
        """The controller's objects, by name."""
        return {
            name: obj
            for (kind, name), obj in self.job_invariants.now.items()
            if kind == resource.kind
            and (obj["metadata"].get("labels") or {}).get(OPERATOR_NAME) == self.workload.controller
            and FOREIGN not in obj["metadata"]["labels"]
        }

    def pods_in(self, phase: str) -> dict[str, dict[str, Any]]:
        return {name: pod for name, pod in self.own(PODS).items() if pod["status"]["phase"] == phase}

    def pick(self, objects: dict[str, Any], at: int) -> list[str]:
        """One of the names, or none if there is none."""
        names = sorted(objects)
        return [names[at % len(names)]] if names else []


def definition_name(workload: Workload) -> str:
    return f"{workload.resource.plural}.{workload.resource.group}"


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


# A failure is shown as found: shrinking and explaining it would take longer than a test may take.
World.TestCase.settings = settings(
    max_examples=EXAMPLES or 120,
    stateful_step_count=40,
    deadline=None,
    derandomize=not EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
TestWorld = World.TestCase
