"""Counts of the active, succeeded, failed and vanished pods of a role."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.children import Pod
from api.job import ReplicaStatus
from controller.domain import Counts, Role
from controller.policy.count import by_role, counts, slots
from tests.support.builders import pod

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown", "")


def worker(replicas: int) -> Role:
    return Role(name="Worker", replicas=replicas, restart_policy="OnFailure", template={})


def counted(*pods: Pod, replicas: int = 1, **before: int) -> Counts:
    role = worker(replicas)
    return counts(role, slots(role, by_role(pods)), ReplicaStatus(**before) if before else None, "pytorch")


def test_children_by_role_and_index() -> None:
    first, second, master = pod(index=1), pod(index=0), pod("master")

    assert by_role([first, master, second]) == {"worker": {1: first, 0: second}, "master": {0: master}}


@pytest.mark.parametrize(
    ("phase", "deleting", "expected"),
    [
        pytest.param("Pending", False, Counts(), id="a pending pod is not counted"),
        pytest.param("Unknown", False, Counts(), id="a pod of unknown phase is not counted"),
        pytest.param("Running", False, Counts(active=1), id="a running pod is active"),
        pytest.param("Running", True, Counts(failed=1, leaving=1), id="a terminating running pod has failed"),
        pytest.param("Pending", True, Counts(), id="a terminating pending pod is not counted"),
        pytest.param("Succeeded", False, Counts(succeeded=1), id="a succeeded pod"),
        pytest.param("Succeeded", True, Counts(succeeded=1), id="a terminating succeeded pod"),
        pytest.param("Failed", False, Counts(failed=1), id="a failed pod"),
        pytest.param("Failed", True, Counts(failed=1), id="a terminating failed pod is counted once"),
    ],
)
def test_a_pod_is_counted_by_phase_and_deletion(phase: str, deleting: bool, expected: Counts) -> None:
    assert counted(pod(phase=phase, deleting=deleting)) == expected


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(pod("master"), id="another role"),
        pytest.param(pod(index=1), id="an index beyond the replicas"),
        pytest.param(pod(index=-1), id="no index"),
    ],
)
def test_a_pod_without_a_slot_is_not_counted(stranger: Pod) -> None:
    assert counted(stranger) == Counts()


@pytest.mark.parametrize(
    ("pods", "before", "vanished"),
    [
        pytest.param([], {"active": 1}, 1, id="it was active and is missing"),
        pytest.param([], {}, 0, id="it was never there"),
        pytest.param([], {"active": 0, "failed": 1}, 0, id="it had failed before it went"),
        pytest.param([pod(phase="Pending")], {"active": 1}, 0, id="its slot has another pod"),
        pytest.param([pod(phase="Succeeded")], {"active": 1}, 0, id="it has succeeded"),
        pytest.param([pod(phase="Failed")], {"active": 1}, 0, id="it has failed"),
    ],
)
def test_an_active_pod_that_disappears_has_vanished(
    pods: list[Pod], before: dict[str, int], vanished: int
) -> None:
    assert counted(*pods, **before).vanished == vanished


@pytest.mark.parametrize(
    ("observed", "before", "vanished"),
    [
        pytest.param(pod(phase="Failed"), {"active": 1}, 0, id="the active one has failed"),
        pytest.param(pod(phase="Succeeded"), {"active": 1}, 0, id="the active one has succeeded"),
        pytest.param(pod(phase="Failed"), {"active": 1, "failed": 1}, 1, id="another had failed before"),
        pytest.param(
            pod(phase="Succeeded"), {"active": 1, "succeeded": 1}, 1, id="another had succeeded before"
        ),
        pytest.param(pod(phase="Running"), {"active": 2}, 1, id="both were active"),
    ],
)
def test_a_slot_without_a_pod_has_vanished_if_its_pod_was_active(
    observed: Pod, before: dict[str, int], vanished: int
) -> None:
    assert counted(observed, replicas=2, **before).vanished == vanished


@pytest.mark.parametrize(
    ("pods", "completed"),
    [
        pytest.param([pod(phase="Succeeded", code=0)], True, id="the first has succeeded"),
        pytest.param([pod(index=1, phase="Succeeded", code=0)], False, id="another one has"),
        pytest.param([pod(phase="Running", code=0)], False, id="its sidecar still runs"),
        pytest.param([pod(phase="Succeeded")], False, id="the exit of its container is unknown"),
        pytest.param([pod(phase="Succeeded", code=1)], False, id="its container failed"),
        pytest.param(
            [pod(phase="Succeeded", code=0, container="sidecar")], False, id="another container ended"
        ),
        pytest.param([], False, id="there is no container"),
    ],
)
def test_the_first_replica_completes_when_its_main_container_exits_with_zero(
    pods: list[Pod], completed: bool
) -> None:
    assert counted(*pods, replicas=2).first_completed is completed


def test_scaling_up_counts_no_vanished_pod() -> None:
    running = [pod(index=0), pod(index=1)]

    assert counted(*running, replicas=4, active=2) == Counts(active=2)


def test_scaling_down_counts_no_vanished_or_failed_pod() -> None:
    pods = [pod(index=0), pod(index=1, deleting=True)]

    assert counted(*pods, replicas=1, active=2) == Counts(active=1)


@given(
    phases=st.lists(st.tuples(st.sampled_from(PHASES), st.booleans()), max_size=5),
    replicas=st.integers(0, 5),
    active=st.integers(0, 5),
    failed=st.integers(0, 5),
)
def test_no_slot_is_counted_twice(
    phases: list[tuple[str, bool]], replicas: int, active: int, failed: int
) -> None:
    pods = [pod(index=at, phase=phase, deleting=gone) for at, (phase, gone) in enumerate(phases)]

    found = counted(*pods, replicas=replicas, active=active, failed=failed)

    assert found.active + found.succeeded + found.failed + found.vanished <= replicas
    assert min(found.active, found.succeeded, found.failed, found.vanished) >= 0
