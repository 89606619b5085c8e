"""Which pods decide that a job has succeeded."""

from collections.abc import Mapping
from typing import Any

import pytest

from api.job import RunPolicy
from api.success_policy import SuccessPolicy
from controller.domain import Role
from controller.policy import success
from tests.support.builders import pod

ROLES = {name: Role(name, replicas, "Never", {}) for name, replicas in (("Master", 1), ("Worker", 4))}
DONE = {
    "Master": {0: pod("master", 0)},
    "Worker": {index: pod("worker", index, "Succeeded") for index in (0, 2)},
}
"""Workers 0 and 2 have succeeded."""


def policy(*rules: Mapping[str, Any]) -> SuccessPolicy:
    return SuccessPolicy.model_validate({"rules": rules})


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        pytest.param({}, False, id="all pods"),
        pytest.param({"succeededCount": 2}, True, id="any two pods"),
        pytest.param({"succeededCount": 3}, False, id="any three pods"),
        pytest.param({"roles": ["worker"]}, False, id="a whole role"),
        pytest.param({"roles": ["Worker"], "succeededIndexes": "0"}, True, id="one index"),
        pytest.param({"roles": ["Worker"], "succeededIndexes": "0,2"}, True, id="a list"),
        pytest.param({"roles": ["Worker"], "succeededIndexes": "0-2"}, False, id="a range"),
        pytest.param({"roles": ["Worker"], "succeededIndexes": "0-2", "succeededCount": 2}, True, id="two of a range"),
        pytest.param({"succeededIndexes": "0"}, False, id="the index in each role"),
        pytest.param({"succeededIndexes": "2-900000"}, False, id="an index that has not succeeded"),
        pytest.param({"roles": ["Worker"], "succeededIndexes": "7"}, False, id="no pod at all"),
    ],
)  # fmt: skip
def test_a_rule_counts_the_pods_that_it_names(rule: Mapping[str, Any], is_met: bool) -> None:
    assert (success.first_met(policy(rule), ROLES, DONE, ()) is not None) is is_met


def test_one_rule_is_enough() -> None:
    given = policy({"roles": ["Master"]}, {"succeededCount": 2})

    assert success.first_met(given, ROLES, DONE, ()) == 2


def test_ignored_pods_are_not_counted() -> None:
    failed = {
        "Worker": {**DONE["Worker"], 1: pod("worker", 1, "Failed", uid="a"), 3: pod("worker", 3, "Failed", uid="b")}
    }  # fmt: skip
    workers = policy({"roles": ["Worker"]})

    assert success.first_met(workers, ROLES, failed, ()) is None
    assert success.first_met(workers, ROLES, failed, {"a", "b"}) == 1
    assert success.can_be_met(policy({"roles": ["Worker"], "succeededCount": 3}), ROLES, failed, {"a"})
    assert not success.can_be_met(
        policy({"roles": ["Worker"], "succeededCount": 3}), ROLES, failed, {"a", "b"}
    )


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        pytest.param([], "rules", id="no rule"),
        pytest.param([{}] * 21, "rules", id="too many rules"),
        pytest.param([{"roles": []}], "rules[0].roles", id="no roles"),
        pytest.param([{}, {"roles": ["Chef"]}], "rules[1].roles[0]", id="an unknown role"),
        pytest.param([{"succeededIndexes": ""}], "rules[0].succeededIndexes", id="no index"),
        pytest.param([{"succeededIndexes": "2-1"}], "rules[0].succeededIndexes", id="a reversed range"),
        pytest.param([{"succeededIndexes": "1,1"}], "rules[0].succeededIndexes", id="an index twice"),
        pytest.param([{"succeededIndexes": "3,0"}], "rules[0].succeededIndexes", id="a wrong order"),
        pytest.param([{"succeededIndexes": "x"}], "rules[0].succeededIndexes", id="no number"),
        pytest.param([{"succeededIndexes": "1,"}], "rules[0].succeededIndexes", id="a comma at the end"),
        pytest.param([{"succeededIndexes": "0," * 600 + "1"}], "rules[0].succeededIndexes", id="a long list"),
        pytest.param([{"succeededIndexes": "4"}], "rules[0].succeededIndexes", id="an index that no role has"),
        pytest.param([{"succeededCount": 0}], "rules[0].succeededCount", id="none"),
        pytest.param([{"succeededCount": 6}], "rules[0].succeededCount", id="more than there are"),
        pytest.param(
            [{"roles": ["Worker"], "succeededIndexes": "2-9", "succeededCount": 3}], "rules[0].succeededCount",
            id="more than the range has",
        ),
    ],
)  # fmt: skip
def test_a_problem_names_its_field(rules: list[Mapping[str, Any]], field: str) -> None:
    given = RunPolicy.model_validate({"successPolicy": {"rules": rules}})

    (problem,) = success.problems(given, ROLES, is_supported=True)

    assert problem.field == f"spec.runPolicy.successPolicy.{field}"


def test_a_kind_without_success_policies_says_so() -> None:
    given = RunPolicy.model_validate({"successPolicy": {"rules": [{"roles": ["Chef"]}]}})

    (problem,) = success.problems(given, {}, is_supported=False)

    assert problem.field == "spec.runPolicy.successPolicy"
    assert not list(success.problems(RunPolicy(), {}, is_supported=False))
