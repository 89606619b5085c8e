"""Which pods are lost with their nodes, and which nodes new pods avoid."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from api.children import Exit
from api.failure_policy import FailurePolicy
from api.job import JobStatus, RunPolicy
from api.meta import PODS, SERVICES
from api.nodes import GONE_SECONDS, NodeInterest, NodeState
from controller.domain import Child, Plan, Role, Snapshot
from controller.policy import nodes
from controller.policy.recovery import failure_of
from tests.support.builders import NOON, pod

PATIENT = RunPolicy(node_lost_seconds=60)
BY_RULES = RunPolicy(failure_policy=FailurePolicy())
AVOIDING = RunPolicy(failure_policy=FailurePolicy(avoid_failed_nodes=True))
LONG_AGO, JUST_NOW = NOON - timedelta(seconds=30), NOON - timedelta(seconds=29)
FINISHED = JobStatus.model_validate({"conditions": [{"type": "Succeeded", "status": "True"}]})


def lost_pods(
    policy: RunPolicy, state: NodeState, status: JobStatus | None = None, **fields: Any
) -> list[str]:
    """Return the names of the pods that are lost if this is the state of the node of a worker."""
    pods = (pod("master", assigned_node="n0"), pod("worker", assigned_node="n1", **fields))
    found = nodes.with_losses(policy, status, Snapshot(pods, nodes={"n1": state}), NOON)
    return [pod.name for pod in found.pods if pod.lost_since]


@pytest.mark.parametrize(
    ("policy", "state", "is_lost"),
    [
        pytest.param(PATIENT, NodeState("n1", 59.9), False, id="silent for less than the owner's choice"),
        pytest.param(PATIENT, NodeState("n1", 60), True, id="silent for the owner's choice"),
        pytest.param(BY_RULES, NodeState("n1", 9999), False, id="silent, and the owner has chosen nothing"),
        pytest.param(BY_RULES, NodeState("n1", GONE_SECONDS - 1, is_gone=True), False, id="gone, perhaps to return"),
        pytest.param(BY_RULES, NodeState("n1", GONE_SECONDS, is_gone=True), True, id="gone for good"),
        pytest.param(BY_RULES, NodeState("n1", is_out_of_service=True), True, id="out of service"),
        pytest.param(BY_RULES, NodeState("n1", problems=("KernelDeadlock",)), False, id="with problems"),
        pytest.param(RunPolicy(), NodeState("n1", is_out_of_service=True), False, id="and the job does not ask"),
    ],
)  # fmt: skip
def test_a_pod_is_lost_on_evidence(policy: RunPolicy, state: NodeState, is_lost: bool) -> None:
    assert lost_pods(policy, state) == (["train-worker-0"] if is_lost else [])


@pytest.mark.parametrize(
    ("fields", "status", "is_lost"),
    [
        pytest.param({"phase": "Pending", "scheduled_at": LONG_AGO}, None, True, id="that has not started for long"),
        pytest.param({"phase": "Pending", "scheduled_at": JUST_NOW}, None, False, id="that came just now"),
        pytest.param({"phase": "Pending"}, None, False, id="that was created for the node"),
        pytest.param({"phase": "Pending", "deleting": True}, None, True, id="that terminates before it started"),
        pytest.param({"phase": "Running"}, FINISHED, False, id="that runs, of a finished job"),
        pytest.param({"phase": "Running", "deleting": True}, FINISHED, True, id="that terminates, of a finished job"),
        pytest.param({"phase": "Failed"}, None, False, id="that has failed"),
        pytest.param({"phase": "Failed", "deleting": True}, None, True, id="that has failed and terminates"),
    ],
)  # fmt: skip
def test_a_pod_is_lost_unless_it_shows_what_happened(
    fields: dict[str, Any], status: JobStatus | None, is_lost: bool
) -> None:
    assert bool(lost_pods(PATIENT, NodeState("n1", 60), status, **fields)) is is_lost


def test_a_lost_pod_counts_as_being_deleted() -> None:
    snapshot = Snapshot((pod(assigned_node="n1"),), nodes={"n1": NodeState("n1", 70)})

    found = nodes.with_losses(PATIENT, None, snapshot, NOON)

    assert [pod.deleting for pod in found.pods] == [True]
    assert found.pods[0].lost_since == NOON - timedelta(seconds=70)


def test_the_pod_of_a_batch_job_is_lost_too() -> None:
    launcher = pod("launcher", assigned_node="n1")
    snapshot = Snapshot(batch_pods=(launcher,), nodes={"n1": NodeState("n1", 70)})

    assert nodes.with_losses(PATIENT, None, snapshot, NOON).batch_pods[0].deleting


def test_a_lost_node_is_the_only_reason_and_its_silence_the_time_of_the_failure() -> None:
    role = Role("Worker", 1, "Never", {})
    snapshot = Snapshot((pod(assigned_node="n1"),), nodes={"n1": NodeState("n1", 70)})

    failure = failure_of(role, nodes.with_losses(PATIENT, None, snapshot, NOON).pods[0])

    assert failure is not None
    assert (failure.reason, failure.reasons) == ("NodeLost", frozenset({"NodeLost"}))
    assert failure.message.startswith("node n1 has been silent or not Ready for 60 s")
    assert failure.at == NOON - timedelta(seconds=70)


def test_a_pod_that_had_failed_keeps_its_reason() -> None:
    evicted = pod("worker", 0, "Failed", assigned_node="n1", deleting=True, reason="Evicted")
    snapshot = Snapshot((evicted,), nodes={"n1": NodeState("n1", 70)})

    assert nodes.with_losses(PATIENT, None, snapshot, NOON).pods[0].reason == "Evicted"


@pytest.mark.parametrize("seconds", [-1, 0, 29])
def test_a_node_is_not_lost_between_two_renewals_of_its_lease(seconds: int) -> None:
    (problem,) = nodes.problems(RunPolicy(node_lost_seconds=seconds))

    assert problem.field == "spec.runPolicy.nodeLostSeconds"
    assert f"Invalid value: {seconds}: must be at least 30" in problem.text


@pytest.mark.parametrize("seconds", [None, 30, 86400])
def test_other_times_are_valid(seconds: int | None) -> None:
    assert list(nodes.problems(RunPolicy(node_lost_seconds=seconds))) == []


RUNNING = pod("worker", 0, assigned_node="n0", ready=True)
UNREADY = pod("worker", 1, assigned_node="n1")
GOING = pod("worker", 2, assigned_node="n2", deleting=True)
DONE = pod("worker", 3, "Succeeded", assigned_node="n3")
STARTING = pod("worker", 4, "Pending", assigned_node="n4", scheduled_at=LONG_AGO)
WAITING = pod("worker", 5, "Pending")


@pytest.mark.parametrize(
    ("policy", "status", "nodes_of_pods", "suspects"),
    [
        pytest.param(PATIENT, None, {"n0", "n1", "n2", "n4"}, {"n1", "n2"}, id="about all of its nodes"),
        pytest.param(BY_RULES, None, {"n0", "n1", "n2", "n4"}, {"n2"}, id="about nodes of terminating pods"),
        pytest.param(PATIENT, FINISHED, {"n2"}, {"n2"}, id="only about those once it has finished"),
    ],
)
def test_a_job_asks(
    policy: RunPolicy, status: JobStatus | None, nodes_of_pods: set[str], suspects: set[str]
) -> None:
    seconds = policy.node_lost_seconds if status is None else None

    found = nodes.interest(policy, status, [RUNNING, UNREADY, GOING, DONE, STARTING, WAITING], NOON)

    assert found == NodeInterest(frozenset(nodes_of_pods), frozenset(suspects), seconds)


def created(
    policy: RunPolicy,
    affinity: Any = None,
    status: JobStatus | None = None,
    states: Mapping[str, NodeState] | None = None,
) -> Any:
    """Return the affinity with which a pod with that affinity is created."""
    spec = {"containers": [], **({"affinity": affinity} if affinity is not None else {})}
    plan = Plan(create=(Child(PODS, "w", lambda: {"metadata": {}, "spec": spec}),))
    after = nodes.applied(plan, policy, status, Snapshot(nodes=states or {}))
    return after.create[0].body()["spec"].get("affinity")


def after_failures(*names: str | None) -> JobStatus:
    attempts = [{"number": number, **({"node": name} if name else {})} for number, name in enumerate(names)]
    return JobStatus.model_validate({"attempts": attempts})


def not_on(*names: str) -> dict[str, Any]:
    return {
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names]
    }


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": ZONE}]}


def test_new_pods_avoid_the_nodes_of_earlier_failures_once_each() -> None:
    assert created(AVOIDING, status=after_failures("n1", None, "n2", "n1")) == required(not_on("n1", "n2"))


def test_each_alternative_of_the_template_avoids_them() -> None:
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}

    found = created(AVOIDING, required(ZONE, pinned, {}), after_failures("n1"))

    assert found == required(
        {**ZONE, **not_on("n1")}, {"matchFields": [*pinned["matchFields"], *not_on("n1")["matchFields"]]}, {}
    )


def test_other_affinities_stay() -> None:
    given = {"podAffinity": {"x": 1}, "nodeAffinity": PREFERRED}

    found = created(AVOIDING, given, after_failures("n1"))

    assert found["podAffinity"] == {"x": 1}
    assert found["nodeAffinity"] == {**PREFERRED, **required(not_on("n1"))["nodeAffinity"]}


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        pytest.param(BY_RULES, after_failures("n1"), id="the policy does not say so"),
        pytest.param(AVOIDING, after_failures(None), id="no failure has a node"),
        pytest.param(RunPolicy(), None, id="there is no policy"),
    ],
)
def test_pods_go_anywhere_if(policy: RunPolicy, status: JobStatus | None) -> None:
    assert created(policy, status=status) is None


def test_new_pods_avoid_lost_nodes_that_the_scheduler_still_takes_for_healthy() -> None:
    states = {
        "n1": NodeState("n1", 70),
        "n2": NodeState("n2", 65),
        "n3": NodeState("n3", 20),
        "n4": NodeState("n4", 90, is_gone=True),
    }

    assert created(PATIENT, states=states) == required(not_on("n2", "n1"))


def test_they_avoid_a_bounded_number_of_them() -> None:
    states = {f"n{number}": NodeState(f"n{number}", 60 + number) for number in range(100)}

    terms = created(PATIENT, states=states)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert len(terms["nodeSelectorTerms"][0]["matchFields"]) == nodes.MOST_AVOIDED


def test_children_that_are_no_pods_stay_as_they_are() -> None:
    plan = Plan(create=(Child(SERVICES, "w", dict),))

    assert nodes.applied(plan, AVOIDING, after_failures("n1"), Snapshot()).create[0].body() == {}


@pytest.mark.parametrize(
    ("policy", "status", "names"),
    [
        pytest.param(AVOIDING, None, {"n1"}, id="if it avoids them"),
        pytest.param(BY_RULES, None, set(), id="not if it does not avoid them"),
        pytest.param(AVOIDING, FINISHED, set(), id="not once it has finished"),
        pytest.param(AVOIDING, JobStatus(restarts=1), set(), id="not those of an earlier attempt"),
    ],
)
def test_a_job_reads_the_nodes_of_its_failures(
    policy: RunPolicy, status: JobStatus | None, names: set[str]
) -> None:
    failed, running = pod("worker", 0, "Failed", node="n1"), pod("worker", 1, node="n2")

    assert nodes.failed_nodes(policy, status, Snapshot((failed, running))) == names


def test_of_many_failures_the_nodes_of_the_first_ones_are_read() -> None:
    failed = [
        pod(
            "worker",
            index,
            "Failed",
            node=f"n{index}",
            exits=(Exit("pytorch", 1, finished_at=NOON - timedelta(seconds=index)),),
        )
        for index in range(3 * nodes.MOST_FAILED)
    ]
    unknown = pod("worker", 3 * nodes.MOST_FAILED, "Failed", node="unknown")

    found = nodes.failed_nodes(AVOIDING, None, Snapshot((unknown, *failed)))

    assert found == {f"n{index}" for index in range(2 * nodes.MOST_FAILED, 3 * nodes.MOST_FAILED)}
