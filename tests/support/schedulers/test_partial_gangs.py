"""The checker of partly bound gangs finds what it must find in made-up histories."""

from typing import Any

import pytest

from tests.support.schedulers.partial_gangs import PartlyBound, partly_bound

Change = tuple[float, str, dict[str, Any]]
GROUP: Change = (0, "ADDED", {"kind": "PodGroup", "metadata": {"name": "a"}, "spec": {"minMember": 2}})


def pod(at: float, name: str, node: str = "", phase: str = "Pending", type_: str = "MODIFIED") -> Change:
    labels = {"training.kubeflow.org/job-name": "a"}
    body = {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }
    return at, type_, body


CREATED = [GROUP, pod(1, "a-0"), pod(1, "a-1")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], [], id="no pod bound"),
        pytest.param([pod(2, "a-0", "n"), pod(3, "a-1", "n")], [PartlyBound("a", 1, 1, 2)], id="one after another"),
        pytest.param([pod(2, "a-0", "n"), pod(9, "a-1")], [PartlyBound("a", 7, 1, 2)], id="one only"),
        pytest.param(
            [pod(2, "a-0", "n"), pod(2, "a-1", "n"), pod(5, "a-0", "n", "Succeeded"),
             pod(6, "a-0", "n", "Succeeded", "DELETED"), pod(9, "a-1", "n")],
            [PartlyBound("a", 0, 1, 2)],
            id="one that ends",
        ),
        pytest.param(
            [pod(2, "a-0", "n", "Failed"), pod(3, "a-0", "n", "Failed", "DELETED"), pod(3, "a-1", "", "Pending", "DELETED"),
             pod(4, "a-0", "n"), pod(8, "a-1", "n")],
            [PartlyBound("a", 4, 1, 2)],
            id="the next attempt",
        ),
    ],
)  # fmt: skip
def test_times_in_which_a_gang_is_bound_in_part(changes: list[Change], expected: list[PartlyBound]) -> None:
    assert list(partly_bound([*CREATED, *changes])) == expected
