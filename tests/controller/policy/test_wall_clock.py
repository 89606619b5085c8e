"""The wall clock of jobs: its phases, and that they add up whatever happens and whatever the operator misses."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from api.children import Exit, Pod
from api.conditions import merge
from api.failure_policy import Attempt
from api.job import ConditionType, JobStatus, RunPolicy
from api.wall_clock import WallClock
from controller.kind import Options
from controller.policy.wall_clock import JobView, advanced, is_kept
from controller.reconcile.status import status_change
from tests.support.builders import NOON, pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster

RUNS = 100
RESTART: dict[str, Any] = {"rules": [{"action": "RestartJob"}]}


class ClockedCluster(InMemoryCluster):
    """A job of three pods whose kubelets report times, with the number of status writes."""

    def __init__(self, *, options: Options | None = None, **run_policy: Any) -> None:
        job = pytorch_job(run_policy={"failurePolicy": RESTART, **run_policy})
        job.metadata.creation_timestamp = NOON
        super().__init__(job, options=options)
        self.writes = 0

    def reconcile(self) -> None:
        """Reconcile until nothing is left to do, and count the status writes."""
        while not self.is_idle(plan := self.decide()):
            self.writes += status_change(self.job, plan.status) is not None
            self.apply(plan)

    def change(self, name: str, **fields: Any) -> None:
        self.pods[name] = msgspec.structs.replace(self.pods[name], **fields)

    def place(self, name: str) -> None:
        self.change(name, scheduled_at=self.now)

    def prepare(self, name: str) -> None:
        self.change(name, prepared_at=self.now)

    def start(self, name: str) -> None:
        self.change(name, phase="Running", pulled_at=self.now, running_since=self.now)

    def make_ready(self, name: str) -> None:
        self.change(name, ready=True, ready_at=self.now)

    def save(self, name: str) -> None:
        self.change(name, checkpoint_at=self.now)

    def end(self, name: str, code: int) -> None:
        started = self.pods[name].running_since
        exits = (Exit("pytorch", code, started_at=started, finished_at=self.now),)
        phase = "Failed" if code else "Succeeded"
        self.change(name, phase=phase, exits=exits, ready=False, ready_at=None, running_since=None)

    def run_all(self, seconds: float = 0) -> None:
        """Bring all pods to Ready, each stage ``seconds`` after the one before."""
        for step in (self.place, self.prepare, self.start, self.make_ready):
            self.wait(seconds)
            for name in self.pods:
                step(name)
        self.reconcile()

    def suspend(self, *, suspend: bool) -> None:
        spec = self.job.spec.model_copy(
            update={"run_policy": self.job.spec.policy.model_copy(update={"suspend": suspend})}
        )
        self.job = self.job.model_copy(update={"spec": spec})

    @property
    def clock(self) -> WallClock:
        assert self.status.wall_clock
        return self.status.wall_clock

    def parts(self) -> Counter[str]:
        """Return the seconds by phase up to now, as readers compute them."""
        return parts(self.status, self.now)


def parts(status: JobStatus, now: datetime) -> Counter[str]:
    clock = (status.wall_clock or WallClock()).to_wire()
    found = Counter({key: value for key, value in clock.items() if key.endswith("Seconds")})
    if clock and clock["phase"] != "Finished":
        assert status.wall_clock
        assert status.wall_clock.since
        found[f"{clock['phase'].lower()}Seconds"] += round((now - status.wall_clock.since).total_seconds())
    return found


def started(**run_policy: Any) -> ClockedCluster:
    cluster = ClockedCluster(**run_policy)
    cluster.reconcile()
    cluster.run_all(10)
    return cluster


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, False),
        ({"failurePolicy": RESTART}, True),
        ({"wallClock": True}, True),
        ({"wallClock": False, "failurePolicy": RESTART}, False),
    ],
)
def test_only_jobs_that_ask_for_it_have_a_clock(policy: dict[str, Any], expected: bool) -> None:
    assert is_kept(RunPolicy.model_validate(policy)) is expected


def test_a_start_is_split_by_the_times_of_pods() -> None:
    cluster = started()

    assert cluster.clock.phase == "Running"
    assert cluster.parts() == {
        "placingSeconds": 10,
        "startingSeconds": 10,
        "pullingSeconds": 10,
        "rendezvousSeconds": 10,
        "runningSeconds": 0,
    } | {key: 0 for key in cluster.parts() if key == "runningSeconds"}


def test_the_slowest_pod_decides() -> None:
    cluster = ClockedCluster()
    cluster.reconcile()
    first, *others = cluster.pods
    for step in (cluster.place, cluster.prepare, cluster.start, cluster.make_ready):
        step(first)
    cluster.reconcile()
    cluster.wait(100)
    for step in (cluster.place, cluster.prepare, cluster.start, cluster.make_ready):
        for name in others:
            step(name)
    cluster.reconcile()

    assert cluster.clock.phase == "Running"
    assert cluster.clock.placing_seconds == 100


def test_a_restart_is_recovery_from_the_failure_until_all_pods_run_again() -> None:
    cluster = started()
    cluster.wait(60)
    cluster.end("train-worker-0", 1)
    cluster.wait(5)
    cluster.reconcile()
    assert cluster.clock.phase == "Recovering"
    cluster.start("train-master-0")
    cluster.reconcile()
    assert cluster.clock.phase == "Recovering"
    cluster.run_all(10)

    assert cluster.clock.phase == "Running"
    assert (cluster.clock.running_seconds, cluster.clock.recovering_seconds) == (60, 35)
    assert cluster.clock.lost_seconds is None


def test_the_pause_of_a_restart_in_place_is_recovery() -> None:
    """The pods run all the time, and the commands in them begin again after a pause."""
    cluster = started()
    cluster.wait(60)
    attempt = Attempt(
        number=0, in_place=True, end_time=cluster.now, restart_time=cluster.now + timedelta(seconds=12)
    )
    restarted = {"restarts": 1, "in_place_restarts": 1, "attempts": [attempt]}
    view = JobView(
        cluster.status, tuple(cluster.pods.values()), 3, is_held=False, created=NOON, now=cluster.now
    )

    def status(type_: ConditionType) -> JobStatus:
        found = merge(cluster.status.conditions or (), type_, "True", "", "", view.now)
        return cluster.status.model_copy(update={**restarted, "conditions": found})

    failed = advanced(cluster.clock, replace(view, status=status(ConditionType.RESTARTING)))
    later = cluster.now + timedelta(seconds=20)
    again = advanced(failed, replace(view, status=status(ConditionType.RUNNING), now=later))

    assert (failed.phase, again.phase) == ("Recovering", "Running")
    assert (again.running_seconds, again.recovering_seconds) == (60, 12)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda cluster: cluster.end("train-worker-0", 1), id="by a failure"),
        pytest.param(lambda cluster: cluster.suspend(suspend=True), id="by a suspension"),
    ],
)
def test_work_after_the_last_checkpoint_is_lost(stop: Any) -> None:
    cluster = started()
    cluster.wait(60)
    cluster.save("train-master-0")
    cluster.wait(40)
    stop(cluster)
    cluster.reconcile()

    assert (cluster.clock.running_seconds, cluster.clock.lost_seconds) == (60, 40)


def test_a_later_attempt_without_a_checkpoint_is_lost_as_a_whole() -> None:
    cluster = started()
    cluster.save("train-master-0")
    for _ in range(2):
        cluster.end("train-worker-0", 1)
        cluster.reconcile()
        cluster.wait(20)
        cluster.reconcile()
        cluster.run_all()
        cluster.wait(30)

    cluster.end("train-worker-0", 1)
    cluster.reconcile()
    assert cluster.clock.lost_seconds == 60


def test_a_checkpoint_time_ahead_of_the_failure_loses_nothing() -> None:
    cluster = started()
    cluster.wait(60)
    cluster.change("train-master-0", checkpoint_at=cluster.now + timedelta(hours=1))
    cluster.end("train-worker-0", 1)
    cluster.reconcile()

    assert (cluster.clock.running_seconds, cluster.clock.lost_seconds) == (60, 0)


def test_success_loses_nothing_and_stops_the_clock() -> None:
    cluster = started()
    cluster.save("train-master-0")
    cluster.wait(60)
    cluster.end("train-master-0", 0)
    cluster.reconcile()
    ended = cluster.parts()
    cluster.wait(600)
    cluster.reconcile()

    assert cluster.clock.phase == "Finished"
    assert cluster.parts() == ended
    assert ended["runningSeconds"] == 60
    assert "lostSeconds" not in ended


def test_a_job_that_was_created_suspended_is_queued() -> None:
    cluster = ClockedCluster(suspend=True)
    cluster.wait(3)
    cluster.reconcile()
    cluster.wait(97)
    cluster.suspend(suspend=False)
    cluster.reconcile()

    assert (cluster.clock.phase, cluster.clock.queued_seconds) == ("Placing", 100)


def test_a_gang_is_queued_until_its_pods_are_created() -> None:
    cluster = ClockedCluster(options=Options(gang_scheduler="volcano"))
    cluster.reconcile()
    cluster.wait(50)
    cluster.admit()
    cluster.reconcile()
    cluster.run_all(10)

    assert cluster.clock.queued_seconds == 50
    assert cluster.clock.placing_seconds == 10


def test_an_outage_is_bridged_by_the_times_of_pods() -> None:
    cluster = started()
    cluster.wait(60)
    cluster.end("train-worker-0", 1)
    cluster.wait(300)
    cluster.reconcile()
    cluster.run_all(5)

    assert (cluster.clock.running_seconds, cluster.clock.recovering_seconds) == (60, 320 - 5)


def test_a_job_that_gets_a_clock_late_has_one_from_its_creation() -> None:
    cluster = ClockedCluster(wallClock=False)
    cluster.reconcile()
    cluster.run_all(10)
    assert cluster.status.wall_clock is None
    cluster.wait(60)
    policy = cluster.job.spec.policy.model_copy(update={"wall_clock": True})
    cluster.job.spec.run_policy = policy
    cluster.end("train-master-0", 0)
    cluster.reconcile()

    assert sum(cluster.parts().values()) == 100


class RandomHistory:
    """A random life of a job: its pods start, fail and are replaced, it is suspended, resumed and succeeds, and sometimes no operator runs.

    ``true`` has the seconds by phase, as somebody counts them who looks at every moment.
    """

    def __init__(self, seed: int, *, outages: bool, wall_clock: bool = True) -> None:
        self.random = Random(seed)
        self.outages = outages
        self.cluster = ClockedCluster(wallClock=wall_clock, suspend=self.random.random() < 0.2)
        self.is_down = False
        self.rendezvous = 0
        """How often the last pod became Ready."""
        self.true = Counter[str]()
        self._run_since: datetime | None = None
        self._recovers = self._reports = False
        self._saved: datetime | None = None
        self._ended: datetime | None = None

    def run(self, steps: int) -> None:
        self.cluster.reconcile()
        for _ in range(steps):
            self._wait(self.random.choice((0, 0, 1, 5, 60, 600)))
            if self._ended is None:
                self._act()
            if self.outages and self.random.random() < 0.2:
                self.is_down = not self.is_down
            if not self.is_down:
                self.cluster.reconcile()
            self._look()

    @property
    def age(self) -> float:
        """The seconds of the job's life."""
        return ((self.cluster.status.completion_time or self.cluster.now) - NOON).total_seconds()

    def _wait(self, seconds: int) -> None:
        """Pass the time; what is due by then, such as the end of a pause, happens at its end."""
        if phase := self._phase():
            self.true[phase] += seconds
        self.cluster.wait(seconds)
        if not self.is_down:
            self.cluster.reconcile()

    def _act(self) -> None:
        cluster, pods, chance = self.cluster, self.cluster.pods, self.random.random()
        if cluster.job.spec.policy.suspend:
            if chance < 0.5:
                cluster.suspend(suspend=False)
                self._wait(0)
                self._wait(1)  # so that no failure is in the second of the resumption
            return
        running = [name for name, pod in pods.items() if pod.phase == "Running"]
        if chance < 0.03:
            self.suspend()
        elif chance < 0.05 and len(running) == len(pods) > 0:
            cluster.end("train-master-0", 0)
            self._ended = cluster.now
        elif chance < 0.1 and running:
            cluster.end(self.random.choice(running), 1)
            self._stop()
            self._recovers = True
        elif chance < 0.2 and running:
            self._saved = cluster.now
            cluster.save(self.random.choice(running))
        else:
            self._start()

    def suspend(self) -> None:
        self.cluster.suspend(suspend=True)
        self._stop()
        self._recovers = False
        self._wait(0)

    def _start(self) -> None:
        """Let one or all pods reach the next stage."""
        cluster, pods = self.cluster, self.cluster.pods
        step, names = self.random.choice(
            [
                (cluster.place, [name for name, pod in pods.items() if not pod.scheduled_at]),
                (
                    cluster.prepare,
                    [name for name, pod in pods.items() if pod.scheduled_at and not pod.prepared_at],
                ),
                (
                    cluster.start,
                    [name for name, pod in pods.items() if pod.prepared_at and pod.phase == "Pending"],
                ),
                (
                    cluster.make_ready,
                    [name for name, pod in pods.items() if pod.phase == "Running" and not pod.ready],
                ),
            ]
        )
        for name in names if self.random.random() < 0.5 else names[:1]:
            step(name)
            self.rendezvous += all(pod.ready for pod in pods.values())

    def _stop(self) -> None:
        """Count the work that is in vain."""
        if self._run_since and not self._ended and (self._saved or self._reports):
            self._reports = True
            lost = self.cluster.now - max(self._saved or self._run_since, self._run_since)
            self.true["runningSeconds"] -= round(lost.total_seconds())
            self.true["lostSeconds"] += round(lost.total_seconds())
        self._run_since = self._saved = None

    def _look(self) -> None:
        """Note that the job runs."""
        pods = self.cluster.pods.values()
        is_whole = len(pods) == 3 and all(pod.phase == "Running" for pod in pods)
        if self._run_since is None and is_whole and (self._recovers or all(pod.ready for pod in pods)):
            self._run_since, self._recovers = self.cluster.now, False

    def _phase(self) -> str:
        if self._ended:
            return ""
        if self.cluster.job.spec.policy.suspend:
            return "queuedSeconds"
        if self._recovers:
            return "recoveringSeconds"
        if self._run_since:
            return "runningSeconds"
        phases = ("placingSeconds", "pullingSeconds", "startingSeconds", "rendezvousSeconds")
        found = (pod_phase(pod) for pod in self.cluster.pods.values())
        return min(found, key=phases.index, default=phases[0])


def pod_phase(pod: Pod) -> str:
    if pod.phase == "Running":
        return "rendezvousSeconds"
    if pod.prepared_at:
        return "pullingSeconds"
    return "startingSeconds" if pod.scheduled_at else "placingSeconds"


@pytest.mark.parametrize("runs", [RUNS, pytest.param(10 * RUNS, marks=pytest.mark.full)])
def test_the_phases_add_up_to_the_age_of_the_job_in_random_histories(runs: int) -> None:
    """Without outages each of them is right, too."""
    for seed in range(runs):
        history = RandomHistory(seed, outages=seed % 2 == 0)
        for _ in range(4):
            history.run(8)
            found = history.cluster.parts()
            assert sum(found.values()) == history.age, f"seed {seed}: {found} of {history.age} s"
            assert min(found.values(), default=0) >= 0, f"seed {seed}: {found}"
        if not history.outages:
            history.suspend()  # so that the status is written
            assert +history.cluster.parts() == +history.true, f"seed {seed}"


def test_the_clock_costs_no_status_write_except_at_the_end_of_a_rendezvous() -> None:
    for seed in range(RUNS):
        with_clock, without = (RandomHistory(seed, outages=True, wall_clock=is_on) for is_on in (True, False))
        for history in (with_clock, without):
            history.run(30)
        assert with_clock.cluster.writes <= without.cluster.writes + with_clock.rendezvous, f"seed {seed}"
