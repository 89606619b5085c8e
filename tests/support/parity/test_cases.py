"""Reading the recordings of all kinds, even of kinds that are not served yet."""

from pathlib import Path

import pytest

from tests.support.parity import kubelet
from tests.support.parity.case import Case, Step, load, slowest_first
from tests.support.parity.case_run import CaseRun
from tests.support.parity.compare import SECTIONS, compare
from tests.support.parity.normal import sent
from tests.support.parity.resources import Owners

CASES = {case.id: case for case in load(Path(__file__).parents[2] / "parity" / "golden")}


def case(*steps: Step) -> Case:
    return Case("kind/case", "default", (), steps, frozenset(), ())


def test_every_case_is_found() -> None:
    assert len(CASES) == 184


def test_every_record_exists() -> None:
    requested = {
        (name, step.argument) for name, case in CASES.items() for step in case.steps if step.verb == "record"
    }

    assert {(name, record) for name, case in CASES.items() for record in case.expected} == requested


def test_every_step_is_supported() -> None:
    assert {step.verb for case in CASES.values() for step in case.steps} <= CaseRun.VERBS.keys()


def test_every_pod_state_can_be_parsed() -> None:
    states = [
        kubelet.state(said)
        for case in CASES.values()
        for step in case.steps
        if step.verb == "pods"
        for said in step.argument.values()
    ]

    assert {state.phase for state in states} == {"Pending", "Running", "Succeeded", "Failed"}


def test_the_manifests_of_a_case_contain_its_job() -> None:
    case = CASES["pytorchjob/host-network"]

    assert [manifest["kind"] for manifest in case.manifests] == ["PriorityClass", "PyTorchJob"]
    assert (case.name, case.resource.path("golden")) == (
        "pt-host-network",
        "/apis/kubeflow.org/v1/namespaces/golden/pytorchjobs",
    )


def test_every_job_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES.values()]

    assert [Owners(names).named(f"{name}-worker-0") for name in names] == names


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_body_is_already_normalized(name: str) -> None:
    """Normalization removes nothing from recorded bodies."""
    bodies = [
        (kind, body)
        for record in CASES[name].expected.values()
        for kind, named in record["creates"].items()
        for body in named.values()
    ]

    assert [sent(kind, body, {}) for kind, body in bodies] == [body for _, body in bodies]


@pytest.mark.parametrize("name", CASES)
def test_a_record_does_not_differ_from_itself(name: str) -> None:
    for record in CASES[name].expected.values():
        assert record.keys() >= set(SECTIONS)
        assert compare(record, record) == []


def test_the_slowest_case_comes_first() -> None:
    quick, slow = case(Step("settle")), case(Step("settle"), Step("wait", 15))

    assert slowest_first([quick, slow]) == [slow, quick]


@pytest.mark.parametrize(
    ("name", "job"),
    [
        pytest.param("ab-worker-0", "ab", id="a name with the job's name as prefix"),
        pytest.param("ab.1234", "ab", id="an event"),
        pytest.param("ab-c", "ab-c", id="the job itself"),
        pytest.param("ab-c-worker-0", "ab-c", id="the longest name wins"),
        pytest.param("abc", "", id="no job"),
    ],
)
def test_the_job_of_a_name(name: str, job: str) -> None:
    assert Owners(["ab", "ab-c"]).named(name) == job


def test_an_owner_of_another_kind_does_not_count() -> None:
    references = [{"kind": "Job", "name": "ab-launcher"}]

    assert Owners(["ab"]).of({"name": "ab-launcher-x1y2z", "ownerReferences": references}) == "ab"
    assert Owners(["ab"]).of({"name": "group", "ownerReferences": [{"kind": "TFJob", "name": "ab"}]}) == "ab"
