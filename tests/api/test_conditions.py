"""The condition list: the six merge rules, one by one and together."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.conditions import find, is_finished, is_true, merge
from api.job import ConditionType, JobCondition, JobStatus
from tests.support.builders import NOON

LATER = NOON + timedelta(seconds=5)
CREATED, RUNNING, RESTARTING = ConditionType.CREATED, ConditionType.RUNNING, ConditionType.RESTARTING
SUSPENDED, SUCCEEDED, FAILED = ConditionType.SUSPENDED, ConditionType.SUCCEEDED, ConditionType.FAILED

TYPES = st.sampled_from(ConditionType)
WRITES = st.lists(st.tuples(TYPES, st.sampled_from(["True", "False"]), st.sampled_from("ab")), max_size=12)


def condition(type_: ConditionType, status: str = "True", reason: str = "r") -> JobCondition:
    return JobCondition(
        type=type_,
        status=status,
        reason=reason,
        message="before",
        last_update_time=NOON,
        last_transition_time=NOON,
    )


def shown(conditions: list[JobCondition]) -> str:
    return ", ".join(f"{condition.type} {condition.status[0]}" for condition in conditions)


@pytest.mark.parametrize("type_", ConditionType)
def test_rule_1_nothing_changes_a_failed_job(type_: ConditionType) -> None:
    before = [condition(RUNNING, "False"), condition(FAILED)]

    assert merge(before, type_, "False", "other", "now", LATER) == before


def test_rule_1_asks_for_failed_to_be_true() -> None:
    assert (
        shown(merge([condition(FAILED, "False")], RUNNING, "True", "r", "m", LATER)) == "Failed F, Running T"
    )


def test_rule_2_same_status_and_reason_change_nothing_not_even_the_message() -> None:
    before = [condition(RUNNING), condition(CREATED)]

    assert merge(before, RUNNING, "True", "r", "now", LATER) == before


def test_rule_2_except_for_a_message_that_must_be_current() -> None:
    (after,) = merge([condition(RUNNING)], RUNNING, "True", "r", "now", LATER, rewords=True)

    assert (after.message, after.last_update_time, after.last_transition_time) == ("now", LATER, NOON)
    assert merge([after], RUNNING, "True", "r", "now", NOON, rewords=True) == [after]


def test_rule_3_another_reason_replaces_and_keeps_the_time_of_transition() -> None:
    (after,) = merge([condition(RUNNING)], RUNNING, "True", "other", "now", LATER)

    assert (after.reason, after.message) == ("other", "now")
    assert (after.last_update_time, after.last_transition_time) == (LATER, NOON)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="a new condition"),
        pytest.param([condition(RUNNING, "False")], id="another status"),
    ],
)
def test_rule_4_otherwise_both_times_are_now(before: list[JobCondition]) -> None:
    (after,) = merge(before, RUNNING, "True", "r", "now", LATER)

    assert (after.last_update_time, after.last_transition_time) == (LATER, LATER)


@pytest.mark.parametrize(
    ("before", "set_", "status", "after"),
    [
        pytest.param(
            [condition(RUNNING), condition(CREATED)],
            RESTARTING,
            "True",
            "Created T, Restarting T",
            id="Restarting drops Running",
        ),
        pytest.param(
            [condition(RESTARTING), condition(CREATED)],
            RUNNING,
            "True",
            "Created T, Running T",
            id="Running drops Restarting",
        ),
        pytest.param(
            [condition(RESTARTING)], RUNNING, "False", "Running F", id="even a false Running drops Restarting"
        ),
        pytest.param(
            [condition(RUNNING), condition(CREATED)],
            SUCCEEDED,
            "True",
            "Running F, Created T, Succeeded T",
            id="Succeeded turns Running false in its place",
        ),
        pytest.param(
            [condition(RUNNING), condition(CREATED)],
            FAILED,
            "True",
            "Running F, Created T, Failed T",
            id="Failed turns Running false in its place",
        ),
        pytest.param(
            [condition(RESTARTING)], FAILED, "True", "Restarting T, Failed T", id="Failed leaves Restarting"
        ),
        pytest.param(
            [condition(RUNNING)], SUSPENDED, "True", "Running T, Suspended T", id="Suspended leaves Running"
        ),
    ],
)
def test_rule_5(before: list[JobCondition], set_: ConditionType, status: str, after: str) -> None:
    assert shown(merge(before, set_, status, "new", "m", LATER)) == after


def test_rule_5_only_the_status_of_running_changes() -> None:
    after = merge([condition(RUNNING)], SUCCEEDED, "True", "done", "m", LATER)

    assert after[0] == condition(RUNNING, "False")


def test_rule_6_a_succeeded_job_can_still_fail() -> None:
    after = merge([condition(SUCCEEDED)], FAILED, "True", "r", "m", LATER)

    assert shown(after) == "Succeeded T, Failed T"


@given(WRITES)
def test_every_type_occurs_once_and_the_last_write_comes_last(
    writes: list[tuple[ConditionType, str, str]],
) -> None:
    conditions: list[JobCondition] = []
    for type_, status, reason in writes:
        before = list(conditions)
        conditions = merge(before, type_, status, reason, "m", LATER)
        types = [condition.type for condition in conditions]
        assert len(set(types)) == len(types)
        assert not {RUNNING, RESTARTING} <= set(types)
        assert conditions == before or conditions[-1].type == type_


@given(WRITES, TYPES)
def test_merging_does_not_change_the_list_given(
    writes: list[tuple[ConditionType, str, str]], last: ConditionType
) -> None:
    conditions: list[JobCondition] = []
    for type_, status, reason in writes:
        conditions = merge(conditions, type_, status, reason, "m", NOON)
    before = [condition.model_copy() for condition in conditions]

    merge(conditions, last, "True", "r", "m", LATER)

    assert conditions == before


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        pytest.param(None, False, id="no conditions"),
        pytest.param([condition(CREATED), condition(RUNNING)], False, id="a running job"),
        pytest.param([condition(SUCCEEDED)], True, id="a succeeded job"),
        pytest.param([condition(FAILED)], True, id="a failed job"),
        pytest.param([condition(SUCCEEDED, "False")], False, id="a false Succeeded"),
        pytest.param([condition(FAILED, "Unknown")], False, id="an unknown Failed"),
    ],
)
def test_is_finished(conditions: list[JobCondition] | None, finished: bool) -> None:
    assert is_finished(JobStatus(conditions=conditions)) is finished


def test_a_job_without_status_is_neither_running_nor_finished() -> None:
    assert not is_finished(None)
    assert not is_true(None, CREATED)


def test_a_condition_is_found_by_its_type() -> None:
    conditions = [condition(CREATED), condition(RUNNING)]

    assert find(conditions, RUNNING) == conditions[1]
    assert find(conditions, FAILED) is None
