"""Which operators are found, what each does, and which of them would write to the same jobs."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from rallypoint.cli.check.findings import Before, Finding, Level
from rallypoint.cli.check.operators import (
    LEASE_ID,
    LeaseState,
    Operator,
    find_operators,
    flags_of,
    lease_findings,
    lease_state,
    operator_findings,
    our_operator,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
OURS, GO, MPI = ("python", "-m", "controller"), ("/manager",), ()


def workload(
    command: tuple[str, ...] = OURS,
    *arguments: str,
    image: str = "registry/rallypoint:1.0.0",
    namespace: str = "rallypoint-system",
    name: str = "training-operator",
    replicas: int | None = 1,
    ready: int = 1,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    variable = {"name": "MY_POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    container = {"image": image, "command": list(command), "args": list(arguments), "env": [variable]}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": labels or {}}, "spec": {"containers": [container]}},
        },
        "status": {"replicas": ready, "readyReplicas": ready},
    }


def one(*arguments: Any, **options: Any) -> Operator:
    (found,) = find_operators([workload(*arguments, **options)])
    return found


def go(*arguments: str, namespace: str = "kubeflow", **options: Any) -> Operator:
    return one(
        GO, *arguments, image="ghcr.io/kubeflow/training-v1/training-operator", namespace=namespace, **options
    )


def mpi(*arguments: str, **options: Any) -> Operator:
    options = {"namespace": "mpi-operator", "name": "mpi-operator", **options}
    return one(MPI, "-alsologtostderr", *arguments, image="mpioperator/mpi-operator:0.8.0", **options)


def lease(namespace: str, name: str = LEASE_ID, holder: str = "a", age: float = 1.0) -> LeaseState:
    return LeaseState(namespace, name, holder, 15.0, NOW - timedelta(seconds=age))


def found(
    *operators: Operator, leases: tuple[LeaseState, ...] = (), before: Before | None = None
) -> list[Finding]:
    return list(operator_findings(operators, leases, before, NOW, "1.0.0"))


def texts(findings: list[Finding], level: Level) -> list[str]:
    return [finding.text for finding in findings if finding.level is level]


LEADING = "--leader-elect=true"


@pytest.mark.parametrize(
    ("body", "program"),
    [
        pytest.param(workload(), "Rallypoint", id="our command"),
        pytest.param(workload(()), "Rallypoint", id="our image"),
        pytest.param(workload((), image="x/training-operator:v1"), "training-operator", id="image"),
        pytest.param(
            workload(image="x/training-operator:v1"), "Rallypoint", id="our command in an image of that name"
        ),
        pytest.param(workload((), image="mpioperator/mpi-operator:0.8.0"), "mpi-operator", id="mpi-operator"),
        pytest.param(
            workload((), image="mirror:5000/mpi-operator@sha256:0"), "mpi-operator", id="port and digest"
        ),
        pytest.param(workload((), image="gcr.io/tf_operator:v1.1"), "tf-operator", id="tf-operator"),
        pytest.param(
            workload(GO, image="own/build:1", labels={"control-plane": "kubeflow-training-operator"}),
            "training-operator",
            id="labels",
        ),
        pytest.param(
            workload((), image="own/build:1", labels={"app": "mpi-operator"}), "mpi-operator", id="mpi labels"
        ),
    ],
)
def test_an_operator_is_recognized(body: dict[str, Any], program: str) -> None:
    assert [operator.program for operator in find_operators([body])] == [program]


def test_a_sidecar_does_not_hide_the_operator() -> None:
    body = workload(OURS, LEADING, labels={"control-plane": "kubeflow-training-operator"})
    body["spec"]["template"]["spec"]["containers"].insert(0, {"image": "istio/proxyv2:1"})

    (operator,) = find_operators([body])
    assert (operator.program, operator.image) == ("Rallypoint", "registry/rallypoint:1.0.0")
    assert operator.leases != frozenset()


def test_other_workloads_are_no_operators() -> None:
    bodies = [workload((), image=image) for image in ("nginx", "x/kueue:v1", "kubeflow/trainer-controller:2")]

    assert find_operators(bodies) == []


def test_flags_have_one_or_two_dashes_and_their_values_may_follow() -> None:
    container = {
        "args": ["-leader-elect", "--namespace", "$(NS)", "--enable-scheme=A", "-enable-scheme=B", "-v=4"]
    }

    assert flags_of(container, {"NS": "team"}) == {
        "leader-elect": ["true"],
        "namespace": ["team"],
        "enable-scheme": ["A", "B"],
        "v": ["4"],
    }


def test_the_leases_of_each_operator() -> None:
    assert one(OURS, LEADING).leases == {
        ("rallypoint-system", LEASE_ID),
        ("rallypoint-system", "mpi-operator"),
    }
    flags = ("--leader-election-namespace=kubeflow", "--lock-namespace=mpi", "--leader-election-id=x")
    assert one(OURS, LEADING, *flags).leases == {("kubeflow", "x"), ("mpi", "mpi-operator")}
    assert one(OURS, LEADING, "--enable-scheme=TFJob").leases == {("rallypoint-system", LEASE_ID)}
    assert one(OURS).leases == go().leases == frozenset()
    assert go("--leader-elect").leases == {("kubeflow", LEASE_ID)}
    assert mpi().leases == {("mpi-operator", "mpi-operator")}
    assert mpi("--lock-namespace", "kubeflow").leases == {("kubeflow", "mpi-operator")}


def test_the_kinds_and_the_namespace_that_flags_choose() -> None:
    only = one(OURS, "--enable-scheme=tfjob", "--namespace=$(MY_POD_NAMESPACE)")

    assert (set(only.kinds), only.watched) == ({"TFJob"}, "rallypoint-system")
    assert "MXJob" not in one().kinds
    assert mpi().kinds == {"MPIJob"}
    assert go("--enable-scheme=MPIJob").kinds == {"MPIJob"}


SHARED = ("--leader-election-namespace=kubeflow", "--lock-namespace=mpi-operator")


@pytest.mark.parametrize(
    ("first", "second", "both_write"),
    [
        pytest.param(one(OURS, LEADING), go(), True, id="no Lease"),
        pytest.param(one(OURS, LEADING), go("--leader-elect"), True, id="Leases of two namespaces"),
        pytest.param(one(OURS, LEADING, *SHARED), go("--leader-elect"), False, id="one Lease"),
        pytest.param(one(OURS, LEADING, *SHARED), go(), True, id="one Lease, which the other ignores"),
        pytest.param(
            one(OURS, LEADING, namespace="kubeflow"), go("--leader-elect"), False, id="one namespace"
        ),
        pytest.param(one(OURS, LEADING), mpi(), True, id="mpi-operator's namespace"),
        pytest.param(one(OURS, LEADING, *SHARED), mpi(), False, id="mpi-operator's Lease"),
        pytest.param(one(OURS, LEADING, "--enable-scheme=TFJob"), mpi(), False, id="other kinds"),
        pytest.param(one(OURS, "--namespace=a"), go("--namespace=b"), False, id="other namespaces"),
        pytest.param(one(OURS, "--namespace=a"), go(), True, id="one of all namespaces"),
        pytest.param(one(OURS, LEADING, "--shadow"), go(), False, id="a shadow"),
        pytest.param(one(OURS, LEADING), go(replicas=0, ready=0), False, id="a stopped one"),
        pytest.param(one(OURS, LEADING), go(replicas=0, ready=1), True, id="one whose pods still run"),
        pytest.param(one(OURS, LEADING), one(OURS, LEADING, namespace="other"), True, id="two of ours"),
        pytest.param(go(), mpi(), True, id="two Go operators for MPIJobs"),
    ],
)
def test_two_writers_are_a_blocker(first: Operator, second: Operator, *, both_write: bool) -> None:
    blockers = texts(found(first, second), Level.BLOCKER)

    assert [("both write to" in text) for text in blockers] == ([True] if both_write else [])


def test_no_remedy_makes_a_second_writer() -> None:
    """Remedies of blockers stop something; those before a switch stop the Go operator or share its Lease."""
    ours = [one(OURS), one(OURS, LEADING), one(OURS, LEADING, replicas=3, ready=0)]
    others = [go(), go("--leader-elect"), mpi(), go(replicas=0, ready=0)]
    for mine, other, before in product(ours, others, [None, *Before]):
        for finding in found(mine, other, before=before):
            assert "--replicas=1" not in finding.remedy
            assert "kubectl apply" not in finding.remedy
            if "both write" in finding.text:
                assert "stop" in finding.remedy


def test_a_go_operator_before_the_switch() -> None:
    (without,) = texts(found(go(), before=Before.SWITCH), Level.WARNING)
    (with_lease,) = [f for f in found(mpi(), before=Before.SWITCH) if f.level is Level.WARNING]

    assert "without a Lease" in without
    assert "--lock-namespace=mpi-operator" in with_lease.remedy
    assert "upgrade-from-mpi-operator.md#run-both-at-once" in with_lease.remedy
    assert texts(found(go(replicas=0, ready=0), before=Before.SWITCH), Level.WARNING) == []


def test_our_operator_before_the_way_back() -> None:
    (finding,) = [f for f in found(one(OURS, LEADING), before=Before.BACK) if f.level is Level.WARNING]

    assert "--replicas=0" in finding.remedy
    assert texts(found(one(OURS, LEADING, replicas=0, ready=0), before=Before.BACK), Level.WARNING) == []
    assert texts(found(one(OURS, LEADING, "--shadow"), before=Before.BACK), Level.WARNING) == []


def test_replicas_that_are_not_ready() -> None:
    assert "no replica is ready" in texts(found(one(OURS, LEADING, replicas=2, ready=0)), Level.BLOCKER)[0]
    assert "1 of 2 replicas" in texts(found(one(OURS, LEADING, replicas=2, ready=1)), Level.WARNING)[0]
    assert texts(found(one(OURS, LEADING, replicas=2, ready=2)), Level.WARNING) == []


def test_replicas_without_leader_election_write_at_once() -> None:
    assert "--leader-elect is not set" in texts(found(one(OURS, replicas=2, ready=2)), Level.BLOCKER)[0]
    assert texts(found(one(OURS)), Level.BLOCKER) == []
    assert texts(found(one(OURS, "--shadow", replicas=2, ready=2)), Level.BLOCKER) == []


def test_another_version_than_that_of_the_command() -> None:
    old = one(OURS, LEADING, image="registry/rallypoint:0.9.0")

    assert "runs version 0.9.0" in texts(found(old), Level.WARNING)[0]
    assert texts(found(old, before=Before.UPGRADE), Level.WARNING) == []
    assert texts(found(one(OURS, LEADING, image="rallypoint@sha256:0")), Level.WARNING) == []


def test_no_operator() -> None:
    (none,) = found()
    (beside_go,) = [finding for finding in found(go()) if finding.level is Level.WARNING]

    assert "no Rallypoint operator" in none.text
    assert "install it" in none.remedy
    assert "install it" not in beside_go.remedy  # a second writer
    assert texts(found(before=Before.SWITCH), Level.WARNING) == []


def test_what_an_operator_does_now() -> None:
    leading, waiting = lease("kubeflow", holder="training-operator-1_2"), lease("kubeflow", holder="other_2")

    def activity(operator: Operator, *leases: LeaseState) -> str:
        return texts(found(operator, leases=leases), Level.OK)[0].rpartition("; ")[2]

    assert activity(go("--leader-elect"), leading).startswith("runs and holds its Lease")
    assert "held by other_2" in activity(go("--leader-elect"), waiting)
    assert activity(go("--leader-elect")) == "nobody holds its Lease"
    assert "without leader election" in activity(go())
    assert activity(go(replicas=0, ready=0)) == "is stopped (0 replicas)"
    assert activity(one(OURS, "--shadow")) == "runs as a shadow and writes nothing"


def test_a_lease_without_a_known_operator() -> None:
    elsewhere = lease("kubeflow", holder="laptop_1")

    assert "laptop_1 holds" in texts(found(one(OURS, LEADING), leases=(elsewhere,)), Level.BLOCKER)[0]
    assert "laptop_1 holds" in texts(found(leases=(elsewhere,), before=Before.SWITCH), Level.WARNING)[0]
    other_kinds = one(OURS, LEADING, "--enable-scheme=TFJob")
    unrelated = lease("mpi", "mpi-operator", "laptop_1")
    assert texts(found(other_kinds, leases=(unrelated,)), Level.BLOCKER) == []
    old = lease("kubeflow", holder="laptop_1", age=60)
    assert texts(found(one(OURS, LEADING), leases=(old,)), Level.BLOCKER) == []


def test_an_expired_lease_and_a_wrong_clock() -> None:
    operator = one(OURS, LEADING)
    fresh, expired = lease("rallypoint-system"), lease("rallypoint-system", age=60)
    ahead = lease("rallypoint-system", age=-60)
    behind = LeaseState(*expired.key, "a", 15.0, expired.renewed, is_changing=True)

    def level(state: LeaseState) -> list[tuple[str, Level]]:
        return [(finding.check, finding.level) for finding in lease_findings([state], [operator], NOW)]

    assert level(fresh) == [("leases", Level.OK)]
    assert level(expired) == [("leases", Level.WARNING)]
    assert level(ahead) == level(behind) == [("clock", Level.WARNING)]
    assert level(lease("rallypoint-system", holder="")) == []
    assert level(lease("elsewhere", age=60)) == []


def test_a_lease_object_is_read() -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T11:59:50.000000Z"}
    state = lease_state({"metadata": {"namespace": "n", "name": "l"}, "spec": spec})

    assert (state.key, state.holder, state.age_seconds(NOW)) == (("n", "l"), "a", 10.0)
    assert lease_state({"metadata": {"namespace": "n", "name": "l"}}).is_held(NOW) is False


def test_our_operator_is_rather_the_one_that_writes() -> None:
    shadow, writer = one(OURS, "--shadow", namespace="a"), one(OURS, namespace="b")

    assert our_operator([go(), shadow, writer]) is writer
    assert our_operator([shadow, writer], "a") is shadow
    assert our_operator([go()]) is None
