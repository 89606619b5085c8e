"""The whole system under anything: users, nodes, a failing API server, and a controller that is killed at any moment.

The laws are asked at each change. When all faults are over and time has passed, each job must be where its pods and its spec put it,
and nothing must move any more. See controller/testing/laws.py.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import looptime
from aiohttp import web
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from structlog.testing import capture_logs
from typing_extensions import override

from api.labels import JOB_NAME, OPERATOR_NAME
from api.meta import PODS, SERVICES, Resource
from api.names import child_labels
from api.v1.pytorchjob import RESOURCE
from controller.kube.errors import ApiError
from controller.local.apiserver.front import Call
from controller.runtime.backoff import LONGEST_SECONDS
from controller.testing.builders import template
from controller.testing.faults import Cut as CutWatch
from controller.testing.faults import Delay, Fault, Refuse, Reset, Rule
from controller.testing.killing import Cut, Killer, Moment, undying
from controller.testing.laws import FOREIGN, Laws, has, is_finished, pod_names, replica_statuses
from controller.testing.stage import TESTER, UNWARMED, Stage, daytime, stage

T = TypeVar("T")

CALLS_A_MINUTE = 400
"""More than all that these jobs, users and faults can ask for in a minute of loop time."""
MOST_KILLS, MOST_FAULTS, MOST_INTERFERENCE = 3, 3, 2
"""A controller that is hindered all the time never gets to make a mistake."""
CALM_SECONDS = 40.0
"""Longer than a deadline and a TTL of these jobs take."""

NAMES = st.sampled_from(["one", "two"])
POLICIES = st.sampled_from(["Never", "OnFailure", "OnFailure", "Always", "ExitCode", "ExitCode"])
ANY = st.integers(0, 9)
SPECS = st.fixed_dictionaries(
    {
        "masters": st.integers(0, 1),
        "workers": st.integers(1, 3),
        "policy": POLICIES,
        "graceful": st.booleans(),
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
    }
)
CHANGES = st.one_of(
    st.none(),
    st.integers(1, 4).map(lambda workers: {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}),
    st.booleans().map(lambda suspend: {"runPolicy": {"suspend": suspend}}),
)
"""Of a spec; None deletes the job."""
LOST = (Reset(), Reset(committed=True), Delay(3), Delay(3, committed=True), Delay(40, committed=True))
REFUSED = (
    Refuse(409, "Conflict"),
    Refuse(429, "TooManyRequests", retry_after_seconds=1),
    Refuse(500, "InternalError"),
    Refuse(503, "ServiceUnavailable"),
    Refuse(403, "Forbidden", "exceeded quota"),
)
CREATES = [("create", "pods"), ("create", "services"), ("create", "events")]
DELETES = [("delete", "pods"), ("delete", "services")]
STATUS = ("patch", RESOURCE.plural)
WATCHES = st.sampled_from([RESOURCE.plural, "pods", "services"])
BREAKS = st.sampled_from([Refuse(503), Refuse(503), Refuse(410, "Expired")])


def failing(faults: Sequence[Fault], calls: Sequence[tuple[str, str]]) -> st.SearchStrategy[tuple[Rule, ...]]:
    """A rule, made anew each time it is drawn, because it counts."""
    drawn = st.tuples(st.sampled_from(faults), st.sampled_from(calls), st.integers(1, 4))
    return drawn.map(lambda one: (Rule(one[0], *one[1], times=one[2]),))


FAULTS = st.one_of(
    # The status apart from the others: what is lost of it is what the next pass may be wrong about.
    failing([*LOST, *REFUSED], [STATUS]),
    failing([*LOST, *REFUSED], CREATES),
    # A conflict would say that another object has the name by now.
    failing([*LOST, *REFUSED[1:]], DELETES),
    failing(LOST, [("get", ""), ("list", "")]),
)


class Guarded(Killer):
    """Notes a controller that calls without end, and shuts the door on it: loop time would never go on."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.killed = 0
        self._times: list[float] = []

    @override
    async def before(self, call: Call) -> web.Response | None:
        now = asyncio.get_running_loop().time()
        if call.user_agent != TESTER:
            self._times = [time for time in self._times if time > now - 60] + [now]
            if len(self._times) > CALLS_A_MINUTE and not self.broken:
                self.broken.append(f"{CALLS_A_MINUTE} calls in a minute, at last {call}")
            if self.broken:
                await asyncio.sleep(60)
        return await super().before(call)


class World(RuleBasedStateMachine):
    """One embedded API server for one example; each rule runs the loop for as long as its own requests take."""

    on: Stage
    front: Guarded

    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop(start=0, noop_cycles=8)
        self.closing = contextlib.AsyncExitStack()
        self.laws = Laws()
        self.changes: asyncio.Queue[Any] = asyncio.Queue()
        self.logs: list[Any] = []
        self.away_seconds = 0.0
        self.interference = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run_until_complete(work)
        finally:
            while not self.changes.empty():
                _, change = self.changes.get_nowait()
                self.laws.take(change.type, change.entry.object)

    @initialize(one=SPECS, two=st.none() | SPECS, weather=st.lists(FAULTS, max_size=3), prompt=st.booleans())
    def begin(
        self, one: dict[str, Any], two: dict[str, Any] | None, weather: list[Any], prompt: bool
    ) -> None:
        """With ``prompt`` nodes, pods run as soon as they are made and end as soon as they are deleted."""
        self.logs = self.closing.enter_context(capture_logs())
        clock = self.closing.enter_context(daytime())
        self.front = Guarded()

        async def enter() -> None:
            self.on = await self.closing.enter_async_context(
                stage(faults=self.front, clock=clock, seed=0, history=64)
            )
            self.on.server.store.listeners.append(self.changes)
            if prompt:
                nodes = asyncio.create_task(self.nodes())
                self.closing.push_async_callback(ended, nodes)
            await self.closing.enter_async_context(
                undying(self.on, self.front, UNWARMED, between=lambda: asyncio.sleep(self.away_seconds))
            )

        self.do(enter())
        for failure in weather:
            self.something_fails(failure)
        self.submit("one", one)
        if two is not None:
            self.submit("two", two)
        if prompt:
            self.do(asyncio.sleep(1))

    # The user.

    @precondition(lambda self: len(self.jobs()) < 2)
    @rule(spec=SPECS)
    def a_job_is_submitted(self, spec: dict[str, Any]) -> None:
        self.submit(next(name for name in ("one", "two") if name not in self.jobs()), spec)

    def submit(self, name: str, spec: dict[str, Any]) -> None:
        pod = template()
        if spec["graceful"]:
            pod["spec"]["nodeName"] = "node-0"
        roles = {
            role: {"replicas": count, "restartPolicy": spec["policy"], "template": pod}
            for role, count in (("Master", spec["masters"]), ("Worker", spec["workers"]))
            if count
        }
        body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": {"name": name}}
        self.try_to(
            self.on.create(
                RESOURCE, {**body, "spec": {"pytorchReplicaSpecs": roles, "runPolicy": spec["run_policy"]}}
            )
        )

    @precondition(lambda self: self.jobs())
    @rule(name=NAMES, change=CHANGES)
    def a_job_is_changed(self, name: str, change: dict[str, Any] | None) -> None:
        """Scaled, suspended, resumed or deleted."""
        if change is not None:
            self.change_job(name, {"spec": change})
        else:
            self.try_to(self.on.delete(RESOURCE, name))

    @precondition(lambda self: self.own(PODS))
    @rule(at=ANY, resource=st.sampled_from([PODS, SERVICES]), grace=st.sampled_from([None, 0]))
    def a_child_is_deleted(self, at: int, resource: Resource, grace: int | None) -> None:
        for name in self.one_of(self.own(resource), at):
            self.laws.excused.add(self.own(resource)[name]["metadata"]["uid"])
            self.try_to(self.on.delete(resource, name, grace_period_seconds=grace))

    @precondition(lambda self: self.interference < MOST_INTERFERENCE)
    @rule(
        job=NAMES,
        role=st.sampled_from(["master", "worker"]),
        resource=st.sampled_from([None, PODS, SERVICES]),
        by_reference=st.booleans(),
    )
    def somebody_interferes(self, job: str, role: str, resource: Resource | None, by_reference: bool) -> None:
        """Writes a label to the job, or makes what has a child's labels and either its name or its reference."""
        self.interference += 1
        if resource is None:
            self.change_job(job, {"metadata": {"labels": {"note": role}}})
            return
        labels = {**child_labels("pytorchjob-controller", job, role, 0), FOREIGN: "true"}
        spec = template()["spec"] if resource == PODS else {"ports": [{"port": 80}]}
        metadata: dict[str, Any] = {"name": f"{job}-{role}-0", "labels": labels}
        if by_reference:
            owner = self.jobs().get(job, {"metadata": {"uid": "nobody"}})
            reference = {
                "apiVersion": RESOURCE.api_version,
                "kind": RESOURCE.kind,
                "name": job,
                "controller": True,
            }
            references = [{**reference, "uid": owner["metadata"]["uid"]}]
            metadata |= {"name": f"{job}-{role}", "ownerReferences": references}
        body = {"metadata": metadata, "spec": spec}
        self.try_to(self.on.create(resource, {"apiVersion": "v1", "kind": resource.kind, **body}))

    # The nodes.

    async def nodes(self) -> None:
        news: asyncio.Queue[Any] = asyncio.Queue()
        self.on.server.store.listeners.append(news)
        while True:
            _, change = await news.get()
            obj = change.entry.object
            if change.type == "DELETED" or obj["kind"] != PODS.kind or FOREIGN in obj["metadata"]["labels"]:
                continue
            name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
            with contextlib.suppress(ApiError):
                if "deletionTimestamp" in obj["metadata"]:
                    await self.on.delete(PODS, name, uid=uid, grace_period_seconds=0)
                elif obj["status"]["phase"] == "Pending":
                    await self.on.become("Running", name)

    @precondition(lambda self: self.pods_in("Pending"))
    @rule()
    def all_pods_run(self) -> None:
        for pod in self.pods_in("Pending"):
            self.try_to(self.on.become("Running", pod))

    @precondition(lambda self: self.pods_in("Running"))
    @rule(at=ANY, code=st.sampled_from([0, 1, 137, 137]))
    def a_pod_ends(self, at: int, code: int) -> None:
        for pod in self.one_of(self.pods_in("Running"), at):
            self.end(pod, code)

    @precondition(lambda self: self.pods_in("Running"))
    @rule(name=NAMES, code=st.sampled_from([0, 137]))
    def all_pods_of_a_job_end(self, name: str, code: int) -> None:
        for pod in self.pods_in("Running"):
            if pod.startswith(f"{name}-"):
                self.end(pod, code)

    def end(self, pod: str, code: int) -> None:
        self.try_to(self.on.become("Failed" if code else "Succeeded", pod, code=code))

    @precondition(lambda self: any("deletionTimestamp" in pod["metadata"] for pod in self.own(PODS).values()))
    @rule()
    def all_deleted_pods_go(self) -> None:
        for name, pod in self.own(PODS).items():
            if "deletionTimestamp" in pod["metadata"]:
                self.try_to(self.on.delete(PODS, name, grace_period_seconds=0))

    # The weather.

    @precondition(lambda self: sum(one.met < (one.times or 0) for one in self.front.rules) < MOST_FAULTS)
    @rule(failure=FAULTS)
    def something_fails(self, failure: tuple[Rule, ...]) -> None:
        self.front.rules += failure

    @precondition(
        lambda self: not any(isinstance(one.fault, CutWatch) and not one.met for one in self.front.rules)
    )
    @rule(plural=WATCHES, refusal=BREAKS, times=st.integers(1, 4))
    def a_watch_breaks(self, plural: str, refusal: Refuse, times: int) -> None:
        """At its next event. It comes back after 1 s to 20 s, or has lost its place."""
        self.front.rules += [
            Rule(CutWatch(), "watch", plural, times=1),
            Rule(refusal, "watch", plural, times=times),
        ]

    @precondition(lambda self: self.front.killed < MOST_KILLS)
    @rule(
        after=st.one_of(st.integers(0, 40), st.builds(Cut, st.integers(1, 20), st.sampled_from(Moment))),
        away=st.sampled_from([0.0, 0.1, 20.0]),
    )
    def the_controller_is_killed(self, after: int | Cut, away: float) -> None:
        """After so many turns of the loop, so at any await, or at one of its next calls; and it is away for a while."""

        async def turn(times: int) -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.front.killed += 1
        self.away_seconds = away
        if isinstance(after, Cut):
            self.front.cut(Cut(self.front.reached + after.number, after.moment))
        else:
            self.do(turn(after))
            self.front.kill()

    @rule(seconds=st.sampled_from([0.001, 0.1, 1.0, 5.0, 50.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.laws.broken == []
        if hasattr(self, "front"):
            assert self.front.broken == []
        assert not [line for line in self.logs if "exc_info" in line]

    @override
    def teardown(self) -> None:
        try:
            if hasattr(self, "on"):
                self.all_is_well()
                self.nothing_is_broken()
                self.jobs_are_where_they_belong()
                self.all_is_quiet()
                self.nothing_is_broken()
        finally:
            self.do(self.closing.aclose())
            self.loop.close()

    def all_is_well(self) -> None:
        """The faults are over, what somebody else had taken is free, and nodes end what is deleted."""
        self.front.rules.clear()
        self.front.forgive()
        for (kind, name), obj in list(self.laws.now.items()):
            if FOREIGN in (obj["metadata"].get("labels") or {}):
                self.laws.excused.add(obj["metadata"]["uid"])
                self.do(self.on.delete(PODS if kind == PODS.kind else SERVICES, name))
        for seconds in (LONGEST_SECONDS + 5, 5, 5, CALM_SECONDS):
            self.do(asyncio.sleep(seconds))
            self.all_deleted_pods_go()

    def jobs_are_where_they_belong(self) -> None:
        for name, job in self.jobs().items():
            pods, services = (
                {
                    child
                    for child, one in self.own(resource).items()
                    if one["metadata"]["labels"][JOB_NAME] == name
                }
                for resource in (PODS, SERVICES)
            )
            policy = job["spec"].get("runPolicy", {})
            if is_finished(job):
                assert "completionTime" in job["status"]
                assert policy.get("suspend") or "ttlSecondsAfterFinished" not in policy
                assert self.front.killed or self.laws.ends_told[job["metadata"]["uid"]] == 1
                if policy.get("cleanPodPolicy") == "All":
                    assert (pods, services) == (set(), set())
            elif policy.get("suspend"):
                assert has(job, "Suspended")
                assert (pods, services) == (set(), set())
            else:
                assert "activeDeadlineSeconds" not in policy
                assert (pods, services) == (pod_names(name, job["spec"]),) * 2
                self.counters_are_those_of_the_pods(job)
            self.restarts_are_counted(job)
        assert {one["metadata"]["labels"][JOB_NAME] for one in self.own(PODS).values()} <= self.jobs().keys()

    def counters_are_those_of_the_pods(self, job: dict[str, Any]) -> None:
        for role, told in replica_statuses(job).items():
            own = [
                one
                for name, one in self.own(PODS).items()
                if name.startswith(f"{job['metadata']['name']}-{role.lower()}-")
            ]
            running = sum(one["status"]["phase"] == "Running" for one in own)
            assert told.get("active", 0) == running

    def restarts_are_counted(self, job: dict[str, Any]) -> None:
        """Each failed pod once that was replaced, and none that has not failed."""
        if "backoffLimit" not in job["spec"].get("runPolicy", {}):
            return
        for role, told in replica_statuses(job).items():
            key = job["metadata"]["uid"], role.lower()
            assert self.laws.replaced[key] <= told.get("restarts", 0) <= self.laws.failed[key]

    def all_is_quiet(self) -> None:
        self.front.calls.clear()
        self.do(asyncio.sleep(CALM_SECONDS))
        relist = "list", ""
        calls = [one for one in self.on.calls if one.verb != "watch" and (one.verb, one.namespace) != relist]
        assert calls == []

    def try_to(self, work: Coroutine[Any, Any, Any]) -> None:
        """What users and nodes want may come too late, or be refused."""
        with contextlib.suppress(ApiError):
            self.do(work)

    def change_job(self, name: str, change: dict[str, Any]) -> None:
        self.try_to(self.on.change(RESOURCE, name, change))

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {name: job for (kind, name), job in self.laws.now.items() if kind == RESOURCE.kind}

    def own(self, resource: Resource) -> dict[str, dict[str, Any]]:
        """The controller's objects, by name."""
        return {
            name: obj
            for (kind, name), obj in self.laws.now.items()
            if kind == resource.kind
            and OPERATOR_NAME in (obj["metadata"].get("labels") or {})
            and FOREIGN not in obj["metadata"]["labels"]
        }

    def pods_in(self, phase: str) -> dict[str, dict[str, Any]]:
        return {name: pod for name, pod in self.own(PODS).items() if pod["status"]["phase"] == phase}

    def one_of(self, objects: dict[str, Any], at: int) -> list[str]:
        """One of the names, or none if there is none."""
        names = sorted(objects)
        return [names[at % len(names)]] if names else []


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


World.TestCase.settings = settings(
    max_examples=140,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestWorld = World.TestCase
