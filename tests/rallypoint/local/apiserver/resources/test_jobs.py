"""Validation of batch/v1 Jobs."""

from typing import Any

import pytest

from rallypoint.local.apiserver.resources import jobs


def fields(**spec: Any) -> list[str]:
    """Return the fields that are refused in a Job with this spec."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}
    return [error.field for error in jobs.validate(jobs.default(job))]


def indexed(indexes: str) -> list[str]:
    policy = {"rules": [{"succeededIndexes": indexes}]}
    return fields(completionMode="Indexed", completions=5, successPolicy=policy)


@pytest.mark.parametrize("indexes", ["0", "0,2-4", "1-3", "4"])
def test_increasing_indexes_below_the_completions_are_valid(indexes: str) -> None:
    assert indexed(indexes) == []


@pytest.mark.parametrize("indexes", ["5", "2,1", "1-1", "a", "1-2-3", "1,", "-1"])
def test_other_indexes_are_refused(indexes: str) -> None:
    assert indexed(indexes) == ["spec.successPolicy.rules[0].succeededIndexes"]


def test_an_indexed_job_has_completions() -> None:
    assert fields(completionMode="Indexed", parallelism=1) == ["spec.completions"]


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}, []),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}, ["onExitCodes.values"]),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}, ["onExitCodes.values[0]"]),
        ({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, []),
        ({"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget"}]}, ["action"]),
    ],
)
def test_rules_of_a_failure_policy(rule: dict[str, Any], refused: list[str]) -> None:
    path = "spec.podFailurePolicy.rules[0]"
    assert fields(podFailurePolicy={"rules": [rule]}) == [f"{path}.{field}" for field in refused]


def test_a_failure_policy_needs_pods_that_never_restart() -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}

    assert fields(template=template, podFailurePolicy=policy) == ["spec.template.spec.restartPolicy"]
