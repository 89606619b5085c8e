"""The priority of a new pod from its PriorityClass."""

from typing import Any

import pytest

from rallypoint.local.apiserver.resources.pods.priority import with_priority

HIGH = {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
USUAL = {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        pytest.param({}, [], (None, 0, "PreemptLowerPriority"), id="no classes"),
        pytest.param({}, [HIGH, USUAL], ("usual", 5, "PreemptLowerPriority"), id="the one for all"),
        pytest.param(
            {"priorityClassName": "high"}, [HIGH, USUAL], ("high", 100, "Never"), id="the one named"
        ),
        pytest.param(
            {"priorityClassName": "system-node-critical"},
            [],
            ("system-node-critical", 2_000_001_000, "PreemptLowerPriority"),
            id="one that every cluster has",
        ),
        pytest.param(
            {"priorityClassName": "other"},
            [USUAL],
            ("other", 0, "PreemptLowerPriority"),
            id="one that is not there",
        ),
        pytest.param({"priority": 7}, [], (None, 7, "PreemptLowerPriority"), id="said by the pod"),
    ],
)
def test_priority(
    spec: dict[str, Any], classes: list[dict[str, Any]], expected: tuple[str | None, int, str]
) -> None:
    made = with_priority({"spec": dict(spec)}, classes)["spec"]

    assert (made.get("priorityClassName"), made["priority"], made["preemptionPolicy"]) == expected
