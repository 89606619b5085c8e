"""Two controller processes with a real kube-apiserver and a stream of jobs: only one writes at any time.

The audit log says who wrote when. It is the server's word, whatever the two think of themselves.
"""

import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rallypoint.testing.audit import Call, calls, policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.service import Service, service
from tests.support.jobs import Jobs, job

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
USERS = ("one", "other")
LEASE = "leader_election_master_status"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(
        users=[administrator(user) for user in USERS],
        controllers=(),
        service_account_admission=False,
        audit_policy=policy(USERS),
        nodes=2,
    ) as running:
        running.apply_files(*(path for path in CRDS.glob("*.yaml") if path.name != "kustomization.yaml"))
        yield running


class Pair:
    """The one that leads, and the one that waits."""

    def __init__(self, plane: ControlPlane, leader: Service, waiting: Service) -> None:
        self.leader = leader
        self.waiting = waiting
        self._plane = plane

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.leader.process.pid, number)

    def ended(self) -> int | None:
        """Wait for the end of the one that has led; its exit status."""
        self._plane.processes.pop(self.leader.process.name, None)  # it may end
        self._plane.wait("its end", lambda: not self.leader.process.running, seconds=30)
        return self.leader.process.returncode

    def taken_over(self) -> None:
        self._plane.wait("the other to lead", lambda: self.waiting.metric(LEASE) == 1, seconds=40)


@contextmanager
def pair(plane: ControlPlane) -> Generator[Pair]:
    """The first of the users leads."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(service(plane, plane.kubeconfig(user), ["--leader-elect=true"]))
            for user in USERS
        )
        plane.wait("one to lead", lambda: first.metric(LEASE) == 1)
        assert second.metric(LEASE) == 0
        yield Pair(plane, first, second)


class Stream:
    """Jobs of a master and seven workers, one after the other."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self._plane = plane
        self._namespace = namespace
        self.jobs = Jobs(plane, namespace)
        self.names: list[str] = []

    def submit_until_work(self, count: int) -> None:
        """Return when the audit log has the first write to one of them: the leader is at work."""
        self.submit(count)
        self._plane.wait("work", lambda: any(writes(self._plane, self._namespace, user) for user in USERS))

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.names.append(f"job-{len(self.names)}")
            self.jobs.create(self.names[-1], job(workers=7))

    def all_run(self) -> None:
        for name in self.names:
            self.jobs.wait_for(name, "Running")

    def pods(self) -> list[str]:
        return sorted(f"{name}-{part}" for name in self.names for part in PARTS)


PARTS = ("master-0", *(f"worker-{index}" for index in range(7)))


def writes(plane: ControlPlane, namespace: str, user: str) -> list[Call]:
    assert plane.audit_log is not None
    return [
        call
        for call in calls(plane.audit_log)
        if (call.user, call.namespace) == (user, namespace) and call.is_write
    ]


def creates(plane: ControlPlane, namespace: str) -> list[Call]:
    """Of pods, refused ones too."""
    both = [call for user in USERS for call in writes(plane, namespace, user)]
    return [call for call in both if (call.verb, call.resource) == ("create", "pods")]


def made(plane: ControlPlane, namespace: str) -> Counter[str]:
    """Count the creates of each pod. A request of a killed process may fail and be repeated."""
    return Counter(call.name for call in creates(plane, namespace) if call.code == 201)


@pytest.mark.full
def test_a_paused_leader_changes_nothing_when_it_resumes(plane: ControlPlane) -> None:
    with pair(plane) as both:
        stream = Stream(plane, "stopped")
        stream.submit_until_work(5)
        both.kill(signal.SIGSTOP)
        stream.submit(5)
        both.taken_over()
        stream.submit(5)
        stream.all_run()
        before = writes(plane, "stopped", "one")
        both.kill(signal.SIGCONT)

        assert both.ended() == 1
        assert both.leader.log()[-1]["msg"] == "leader election lost, exiting"
        stream.submit(1)
        stream.all_run()

    ones, others = writes(plane, "stopped", "one"), writes(plane, "stopped", "other")
    late = ones[len(before) :]
    assert [call for call in late if call.code < 400] == [], (
        "the server rejects half-sent writes, see decision 14"
    )
    assert max(call.answered for call in before) < min(call.received for call in others)
    assert stream.jobs.names("pods") == stream.pods()
    assert made(plane, "stopped") == Counter(stream.pods())


def test_a_stopped_leader_hands_over_during_work(plane: ControlPlane) -> None:
    with pair(plane) as both:
        stream = Stream(plane, "handed")
        stream.submit_until_work(10)
        both.kill(signal.SIGTERM)
        stream.submit(10)
        both.taken_over()
        assert both.ended() == 0
        stream.all_run()

    ones, others = writes(plane, "handed", "one"), writes(plane, "handed", "other")
    assert max(call.answered for call in ones) < min(call.received for call in others)
    assert stream.jobs.names("pods") == stream.pods()
    assert made(plane, "handed") == Counter(stream.pods())
    assert len(creates(plane, "handed")) == len(stream.pods()), "none was tried twice"


def test_a_leader_that_is_killed_during_work_is_replaced(plane: ControlPlane) -> None:
    with pair(plane) as both:
        stream = Stream(plane, "killed")
        stream.submit_until_work(10)
        both.kill(signal.SIGKILL)
        stream.submit(5)
        assert both.ended() == -signal.SIGKILL
        both.taken_over()
        stream.all_run()

    ones, others = writes(plane, "killed", "one"), writes(plane, "killed", "other")
    assert max(call.answered for call in ones) < min(call.received for call in others)
    assert stream.jobs.names("pods") == stream.pods()
    assert set(made(plane, "killed").values()) == {1}
