"""Comparisons name the pointer of each difference; declared differences do not count and must be used."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.json_differences import Difference
from tests.support.parity.case import Case, Record
from tests.support.parity.compare import (
    Declared,
    Outcome,
    compare,
    evaluate,
    load_declared,
    unused,
)

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "job"}}


def recording(**sections: Any) -> Record:
    record: Record = {
        "creates": {"Pod": {"a": {"spec": {"env": ["x", "y"], "n": 1}}}},
        "rejected": {"Service": {"a": [422]}},
        "deletes": {"Pod": ["a"]},
        "live": {"Pod": ["a"]},
        "current": {"Service": {"a": {"selector": {"x/y": "z"}}}},
        "status": {"startTime": "<time>", "conditions": [{"type": "Created"}]},
        "events": [event("Made")],
    }
    return {**record, **sections}


def event(reason: str, **more: Any) -> dict[str, Any]:
    return {"type": "Normal", "reason": reason, "message": "so it is", **more}


def pointers(expected: Record, actual: Record, **options: Any) -> list[str]:
    return [difference.pointer for difference in compare(expected, actual, **options)]


@pytest.mark.parametrize(
    ("sections", "at"),
    [
        pytest.param({"creates": {}}, ["/creates/Pod"], id="nothing was created"),
        pytest.param(
            {"creates": {"Pod": {"a": {"spec": {"env": ["x", "y"], "n": 2}}}}},
            ["/creates/Pod/a/spec/n"],
            id="another value",
        ),
        pytest.param(
            {"creates": {"Pod": {"a": {"spec": {"env": ["x", "y"], "n": True}}}}},
            ["/creates/Pod/a/spec/n"],
            id="another type",
        ),
        pytest.param(
            {"creates": {"Pod": {"a": {"spec": {"env": ["y", "x"], "n": 1}}}}},
            ["/creates/Pod/a/spec/env/0", "/creates/Pod/a/spec/env/1"],
            id="another order",
        ),
        pytest.param(
            {"creates": {"Pod": {"a": {"spec": {"env": ["x", "y", "z"], "n": 1}}}}},
            ["/creates/Pod/a/spec/env"],
            id="a longer list",
        ),
        pytest.param(
            {"creates": {"Pod": {"a": {"spec": {"env": ["x", "y"], "n": 1}, "more": {}}}}},
            ["/creates/Pod/a/more"],
            id="an additional field",
        ),
        pytest.param({"rejected": {}}, ["/rejected/Service"], id="not rejected"),
        pytest.param({"deletes": {"Pod": ["b"]}}, ["/deletes/Pod/0"], id="another pod was deleted"),
        pytest.param({"live": {"Pod": ["a", "b"]}}, ["/live/Pod"], id="an additional pod"),
        pytest.param(
            {"current": {"Service": {"a": {"selector": {"x/y": ""}}}}},
            ["/current/Service/a/selector/x~1y"],
            id="a slash in a name",
        ),
        pytest.param({"status": None}, ["/status"], id="the job is gone"),
        pytest.param(
            {"status": {"conditions": [{"type": "Created"}]}}, ["/status/startTime"], id="a time is missing"
        ),
        pytest.param({"events": []}, ["/events/Made"], id="an event is missing"),
        pytest.param({"events": [event("Made"), event("New")]}, ["/events/New"], id="an event too many"),
        pytest.param(
            {"events": [event("Made", message="no")]}, ["/events/Made", "/events/Made"], id="another message"
        ),
    ],
)
def test_a_difference_is_found(sections: dict[str, Any], at: list[str]) -> None:
    assert pointers(recording(), recording()) == []
    assert pointers(recording(), recording(**sections)) == at


def test_a_difference_contains_the_expected_and_the_actual_value() -> None:
    (difference,) = compare(recording(), recording(live={"Pod": ["b"]}))

    assert str(difference) == '/live/Pod/0: expected "a", found "b"'


def test_any_recorded_variant_matches() -> None:
    expected = recording(variants=[{"live": {"Pod": ["b"]}}, {"status": None}])

    assert pointers(expected, recording(live={"Pod": ["b"]})) == []
    assert pointers(expected, recording(live={"Pod": ["b"]}, status=None)) == []
    assert pointers(expected, recording(live={"Pod": ["c"]})) == ["/live/Pod/0"]


def test_an_optional_event_can_be_missing() -> None:
    expected = recording(events=[event("Made"), event("Odd", sometimes=True)])

    assert pointers(expected, recording(events=[event("Made")])) == []
    assert pointers(expected, recording(events=[event("Odd")])) == ["/events/Made"]


def test_additional_events_for_finished_pods_are_ignored() -> None:
    recorded_events = [event("Made"), event("ExitedWithCode")]

    assert pointers(recording(), recording(events=recorded_events)) == []
    assert pointers(recording(events=recorded_events), recording()) == ["/events/ExitedWithCode"]


def test_with_lossy_events_additional_events_are_ignored() -> None:
    recorded_events = [event("Made"), event("New")]

    assert pointers(recording(), recording(events=recorded_events), lossy_events=True) == []
    assert pointers(recording(events=recorded_events), recording(), lossy_events=True) == ["/events/New"]


def test_a_section_can_be_left_out() -> None:
    assert pointers(recording(), recording(live={}, status=None), left_out=["live"]) == ["/status"]


@pytest.mark.parametrize(
    ("declared", "covered"),
    [
        pytest.param(Declared("kind/case", "/status/startTime", ""), True, id="the exact pointer"),
        pytest.param(Declared("kind/case", "/status", ""), True, id="a pointer to a parent"),
        pytest.param(Declared("kind/case", "/", ""), True, id="everything"),
        pytest.param(Declared("*/case", "/*/startTime", ""), True, id="wildcards"),
        pytest.param(Declared("kind/case", "/stat", ""), False, id="half a name"),
        pytest.param(Declared("kind/other", "/status", ""), False, id="another case"),
        pytest.param(Declared("kind/case", "/status", "", "running"), False, id="another record"),
        pytest.param(Declared("kind/case", "/status", "", "cre*"), True, id="the record"),
    ],
)
def test_what_an_entry_covers(declared: Declared, covered: bool) -> None:
    assert declared.covers("kind/case", "created", Difference("/status/startTime", "missing")) is covered


def test_entries_are_read_from_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- {case: k/a, pointer: /status, reason: why}\n")
    (tmp_path / "b.yaml").write_text("- {case: k/b, record: gone, pointer: /live, reason: why}\n")

    assert load_declared(tmp_path) == [
        Declared("k/a", "/status", "why"),
        Declared("k/b", "/live", "why", "gone"),
    ]


@pytest.mark.parametrize(
    "entry", ["{case: k/a, pointer: /}", "{case: k/a, pointer: /, reason: r, when: now}"]
)
def test_an_entry_without_a_reason_is_an_error(entry: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"- {entry}\n")

    with pytest.raises(ValueError, match=r"a\.yaml"):
        load_declared(tmp_path)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case("kind/case", "default", (JOB,), (), frozenset(), (expect(tmp_path),))


def expect(folder: Path) -> Path:
    path = folder / "created.json"
    path.write_bytes(orjson.dumps(recording()))
    return path


def test_a_case_equal_to_its_recording_gives_no_complaint(case: Case) -> None:
    verdict = evaluate(case, Outcome({"created": recording()}), [])

    assert verdict.complaints == ()
    assert verdict.used == set()


def test_an_undeclared_difference_is_a_complaint(case: Case) -> None:
    verdict = evaluate(case, Outcome({"created": recording(status=None, live={})}), [])

    assert [complaint.split(":")[0] for complaint in verdict.complaints] == [
        "created /live/Pod",
        "created /status",
    ]


def test_a_declared_difference_is_no_complaint(case: Case) -> None:
    declared = Declared("kind/*", "/status", "we mean it")

    verdict = evaluate(case, Outcome({"created": recording(status=None)}), [declared])

    assert verdict.complaints == ()
    assert verdict.used == {declared}


def test_a_missing_record_is_a_complaint(case: Case) -> None:
    assert evaluate(case, Outcome({}, "step 1, create: no"), []).complaints == (
        "step 1, create: no",
        "created: not recorded",
    )


def test_unused_entries_are_reported() -> None:
    used, stale, elsewhere = (
        Declared("kind/a", "/", ""),
        Declared("kind/*", "/status", ""),
        Declared("later/a", "/", ""),
    )
    declared, cases = [used, stale, elsewhere], ["kind/a", "kind/b"]

    assert unused(declared, [used], ["kind/a", "kind/b"], cases) == [stale]
    assert unused(declared, [used], ["kind/a"], cases) == []
