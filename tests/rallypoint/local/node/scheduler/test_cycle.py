"""One scheduling cycle: the order of pods, and gangs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.labels import GROUP_NAME, POD_GROUP
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.scheduler.coscheduling import COSCHEDULING
from rallypoint.local.node.scheduler.cycle import Schedule, Snapshot, decide
from rallypoint.local.node.scheduler.volcano import VOLCANO

NODE = {"metadata": {"name": "local"}, "status": {"allocatable": {"cpu": "4", "pods": "100"}}}


def pod(
    name: str, cpu: str = "1", *, age: int = 1, group: str = "", phase: str = "", **spec: Any
) -> dict[str, Any]:
    marks = {"annotations": {GROUP_NAME: group}, "labels": {POD_GROUP: group}} if group else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": f"{age:04}",
            **marks,
        },
        "spec": {
            "schedulerName": "gang" if group else "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
        **({"status": {"phase": phase}} if phase else {}),
    }


def group(name: str, min_member: int, *, age: int = 1, phase: str = "Inqueue", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": f"{age:04}"},
        "spec": {"minMember": min_member, **spec},
        "status": {"phase": phase},
    }


def gang(name: str, count: int, cpu: str = "1", **fields: Any) -> list[dict[str, Any]]:
    return [pod(f"{name}-{index}", cpu, group=name, **fields) for index in range(count)]


def schedule(
    *pods: dict[str, Any], groups: tuple[dict[str, Any], ...] = (), volcano: bool = False
) -> Schedule:
    rules = VOLCANO if volcano else COSCHEDULING
    return decide(Snapshot(NODE, pods, "gang", rules, groups, {"high": 100}))


def bound(plan: Schedule) -> list[str]:
    return [binding["metadata"]["name"] for binding in plan.bind]


def event(plan: Schedule) -> dict[str, tuple[str, str]]:
    return {
        unschedulable.pod["metadata"]["name"]: (unschedulable.reason, unschedulable.message)
        for unschedulable in plan.unschedulable
    }


def phases(plan: Schedule) -> dict[str, str]:
    return {status.gang.group["metadata"]["name"]: status.status["phase"] for status in plan.group_statuses}


def test_priority_goes_before_age() -> None:
    assert bound(schedule(pod("old", age=1), pod("new", age=2), pod("urgent", age=3, priority=10))) == [
        "urgent",
        "old",
        "new",
    ]


def test_a_large_pod_does_not_block_a_small_pod() -> None:
    assert bound(schedule(pod("large", "5", age=1), pod("small", age=2))) == ["small"]


def test_finished_pods_use_no_resources() -> None:
    over = [
        pod("a", "4", nodeName="local", phase="Succeeded"),
        pod("b", "4", nodeName="local", phase="Failed"),
    ]

    assert bound(schedule(*over, pod("next", "4"))) == ["next"]


def test_a_pod_of_another_scheduler_is_ignored() -> None:
    plan = schedule(pod("a", schedulerName="somebody"))

    assert (plan.bind, plan.unschedulable) == ([], [])


def test_pods_that_are_unschedulable_on_any_node() -> None:
    def volume_conflict(pod: Manifest) -> str:
        return 'persistentvolumeclaim "c" not found' if pod["metadata"]["name"].endswith("0") else ""

    pods = [pod("alone-0", "5"), pod("alone-1"), *gang("g", 2)]
    plan = decide(
        Snapshot(NODE, pods, "gang", COSCHEDULING, [group("g", 2)], volume_conflict=volume_conflict)
    )

    assert bound(plan) == ["alone-1"]
    words = '0/1 nodes are available: persistentvolumeclaim "c" not found.'
    assert event(plan)["alone-0"] == ("Unschedulable", words)
    assert event(plan)["g-0"][1].startswith(words)


def test_pods_of_other_nodes_use_no_resources() -> None:
    assert bound(schedule(pod("there", "4", nodeName="elsewhere"), pod("here", "4"))) == ["here"]


def test_without_a_gang_scheduler_its_pods_wait() -> None:
    plan = decide(Snapshot(NODE, gang("g", 1)))

    assert (plan.bind, plan.unschedulable, plan.group_statuses) == ([], [], [])


def test_a_gang_is_bound_together() -> None:
    assert bound(schedule(*gang("g", 4), groups=(group("g", 4),))) == ["g-0", "g-1", "g-2", "g-3"]


def test_a_gang_that_does_not_fit_blocks_no_other_gang() -> None:
    plan = schedule(
        *gang("large", 3, "2"),
        *gang("small", 2, "2", age=9),
        groups=(group("large", 3), group("small", 2, age=9)),
    )

    assert bound(plan) == ["small-0", "small-1"]


def test_pods_beyond_min_member_are_bound_if_they_fit() -> None:
    plan = schedule(*gang("g", 5), groups=(group("g", 3),))

    assert bound(plan) == ["g-0", "g-1", "g-2", "g-3"]
    assert event(plan) == {"g-4": ("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")}


def test_a_replacement_is_bound_beside_running_members() -> None:
    running = [pod(f"g-{index}", group="g", nodeName="local", phase="Running") for index in range(3)]

    assert bound(schedule(*running, pod("g-3", group="g"), groups=(group("g", 4),))) == ["g-3"]


def test_the_gang_with_higher_priority_is_bound_first() -> None:
    old, urgent = gang("old", 4), gang("urgent", 4, priority=5)
    plan = schedule(*old, *urgent, groups=(group("old", 4, age=1), group("urgent", 4, age=2)))

    assert bound(plan) == [f"urgent-{index}" for index in range(4)]


def test_coscheduling_reports_missing_siblings() -> None:
    plan = schedule(*gang("g", 2), groups=(group("g", 3),))
    words = "cannot find enough sibling pods, current pods number: 2, minMember of group: 3."

    assert event(plan) == {
        name: ("Unschedulable", f"0/1 nodes are available: pre-filter pod {name} {words}")
        for name in ("g-0", "g-1")
    }
    assert phases(plan) == {"g": "Pending"}


def test_coscheduling_names_the_unschedulable_pod() -> None:
    plan = schedule(pod("alone", "2", nodeName="local"), *gang("g", 3), groups=(group("g", 3),))
    rejected = "PodGroup default/g gets rejected due to Pod g-2 is unschedulable even after PostFilter"

    assert event(plan) == {
        "g-0": ("Unschedulable", "0/1 nodes are available: 1 optimistic rejection in PostFilter."),
        "g-1": ("Unschedulable", "0/1 nodes are available: 1 optimistic rejection in PostFilter."),
        "g-2": ("Unschedulable", f"0/1 nodes are available: 1 Insufficient cpu. {rejected}"),
    }
    assert phases(plan) == {"g": "Scheduling"}


def test_coscheduling_checks_min_resources_first() -> None:
    plan = schedule(*gang("g", 2), groups=(group("g", 2, minResources={"cpu": "6"}),))

    assert event(plan)["g-0"][1] == "0/1 nodes are available: resource gap: map[cpu:2]."


def test_coscheduling_reports_a_missing_group() -> None:
    assert event(schedule(*gang("g", 1))) == {
        "g-0": ("Unschedulable", "0/1 nodes are available: 1 PodGroup not found.")
    }


def test_coscheduling_derives_the_phase_of_a_group_from_its_pods() -> None:
    def phase(*of_pods: str) -> str:
        pods = [
            pod(f"g-{i}", group="g", nodeName="local", phase=pod_phase) for i, pod_phase in enumerate(of_pods)
        ]
        return phases(schedule(*pods, groups=(group("g", 2),)))["g"]

    assert phase() == "Pending"
    assert phase("Pending", "Pending") == "Scheduling"
    assert phase("Running", "Running") == "Running"
    assert phase("Running", "Failed") == "Failed"
    assert phase("Succeeded", "Succeeded") == "Finished"


def test_volcano_admits_groups_within_the_capacity() -> None:
    plan = schedule(
        groups=(
            group("second", 2, age=2, phase="", minResources={"cpu": "3"}),
            group("first", 2, age=1, phase="", minResources={"cpu": "3"}),
            group("small", 1, age=3, phase="Pending", minResources={"cpu": "1"}),
        ),
        volcano=True,
    )

    assert phases(plan) == {"first": "Inqueue", "second": "Pending", "small": "Inqueue"}


def test_volcano_reserves_resources_of_admitted_groups() -> None:
    groups = (
        group("in", 2, age=2, phase="Inqueue", minResources={"cpu": "3"}),
        group("older", 2, age=1, phase="Pending", minResources={"cpu": "3"}),
    )

    assert phases(schedule(groups=groups, volcano=True)) == {"in": "Inqueue", "older": "Pending"}


def test_volcano_admits_the_group_with_higher_priority() -> None:
    needs: dict[str, Any] = {"minResources": {"cpu": "4"}, "phase": ""}
    groups = (group("old", 2, age=1, **needs), group("urgent", 2, age=2, priorityClassName="high", **needs))

    assert phases(schedule(groups=groups, volcano=True)) == {"old": "Pending", "urgent": "Inqueue"}


def test_volcano_explains_why_a_group_is_not_admitted() -> None:
    (group_status,) = schedule(
        groups=(group("g", 2, phase="", minResources={"cpu": "5"}),), volcano=True
    ).group_statuses

    assert group_status.event is not None
    assert group_status.event.message == "resource in cluster is overused"
    assert group_status.status["conditions"] == [
        {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": "2/0 tasks in gang unschedulable: pod group is not ready, 2 minAvailable",
        }
    ]


def test_volcano_reports_which_pods_fit() -> None:
    plan = schedule(pod("alone", "2", nodeName="local"), *gang("g", 3), groups=(group("g", 3),), volcano=True)
    (group_status,) = plan.group_statuses

    assert plan.bind == []
    assert event(plan) == {
        **{
            name: (
                "Schedulable",
                f"Pod default/{name} can possibly be assigned to local, once minAvailable is satisfied",
            )
            for name in ("g-0", "g-1")
        },
        "g-2": ("Unschedulable", "0/1 nodes are unavailable: 1 Insufficient cpu."),
    }
    assert group_status.status["conditions"][0]["message"] == (
        "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
    )


def test_volcano_binds_no_pod_of_a_group_that_is_not_admitted() -> None:
    assert (
        schedule(
            *gang("g", 2), groups=(group("g", 2, phase="Pending", minResources={"cpu": "9"}),), volcano=True
        ).bind
        == []
    )


def test_volcano_derives_the_phase_of_a_group_from_its_pods() -> None:
    def phase(*of_pods: str) -> str:
        pods = [
            pod(f"g-{i}", group="g", nodeName="local", phase=pod_phase) for i, pod_phase in enumerate(of_pods)
        ]
        return phases(schedule(*pods, groups=(group("g", 2),), volcano=True))["g"]

    assert phase("Pending", "Running") == "Running"
    assert phase("Running") == "Unknown"
    assert phase("Succeeded", "Running") == "Running"
    assert phase("Succeeded", "Succeeded") == "Completed"
    assert phase("Failed") == "Inqueue"


SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=5)


@given(sizes=SIZES, volcano=st.booleans())
def test_a_gang_is_bound_completely_or_not_at_all(sizes: list[tuple[int, int]], volcano: bool) -> None:
    """For any gangs: each is bound completely or not at all, and all bound pods fit."""
    pods = [
        member for index, (count, cpu) in enumerate(sizes) for member in gang(f"g{index}", count, str(cpu))
    ]
    groups = tuple(group(f"g{index}", count, age=index) for index, (count, _) in enumerate(sizes))
    plan = schedule(*pods, groups=groups, volcano=volcano)
    counts = [sum(name.startswith(f"g{index}-") for name in bound(plan)) for index in range(len(sizes))]

    assert all(count in (0, min_member) for count, (min_member, _) in zip(counts, sizes, strict=True))
    assert sum(count * cpu for count, (_, cpu) in zip(counts, sizes, strict=True)) <= 4
    assert len(plan.bind) + len(plan.unschedulable) == len(pods)
    assert plan.bind or all(count * cpu > 4 for count, cpu in sizes)
