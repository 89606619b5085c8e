"""What is reported of an installed CustomResourceDefinition."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from controller.crds import all_crds
from rallypoint.cli.check.definitions import definition_state, differences, missing_definitions
from rallypoint.cli.check.findings import Before, Level

SHIPPED = next(crd for crd in all_crds() if crd["metadata"]["name"] == "jaxjobs.kubeflow.org")
Object = dict[str, Any]


def installed(change: Callable[[Object], object] = lambda definition: None, *, stored: str = "v1") -> Object:
    definition = copy.deepcopy(SHIPPED)
    conditions = [{"type": type_, "status": "True"} for type_ in ("NamesAccepted", "Established")]
    definition["status"] = {"conditions": conditions, "storedVersions": [stored]}
    change(definition)
    return definition


def properties(definition: Object) -> Object:
    found: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    return found


def lose_field(definition: Object) -> None:
    del properties(definition)["runPolicy"]["properties"]["suspend"]


def gain_field(definition: Object) -> None:
    properties(definition)["later"] = {"type": "string"}


def lose_rules(definition: Object) -> None:
    del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]


def describe(definition: Object) -> None:
    properties(definition)["runPolicy"]["description"] = "another text"


def change_pods(definition: Object) -> None:
    roles = properties(definition)["jaxReplicaSpecs"]["additionalProperties"]["properties"]
    roles["template"]["properties"]["spec"]["properties"]["future"] = {"type": "string"}


def belong_to_another(definition: Object) -> None:
    definition["metadata"]["annotations"] = {"controller-gen.kubebuilder.io/version": "v0.14.0"}


def end(definition: Object) -> None:
    definition["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def convert(definition: Object) -> None:
    definition["spec"]["conversion"] = {"strategy": "Webhook"}


def refuse_names(definition: Object) -> None:
    definition["status"]["conditions"][0]["status"] = "False"


def wait(definition: Object) -> None:
    definition["status"]["conditions"][1]["status"] = "False"


@pytest.mark.parametrize(
    ("change", "before", "level", "says"),
    [
        pytest.param(lose_field, None, Level.WARNING, "lacks v1.spec.runPolicy.suspend", id="older"),
        pytest.param(lose_rules, None, Level.WARNING, "differs in v1", id="other rules"),
        pytest.param(lose_field, Before.UPGRADE, Level.OK, "apply the CRDs before", id="older, upgrade"),
        pytest.param(
            gain_field, None, Level.WARNING, "newer than this version: it has v1.spec.later", id="newer"
        ),
        pytest.param(gain_field, Before.UPGRADE, Level.WARNING, "newer than this version", id="a downgrade"),
        pytest.param(
            belong_to_another, None, Level.WARNING, "controller-gen v0.14.0", id="another operator's"
        ),
        pytest.param(belong_to_another, Before.SWITCH, Level.OK, "--force-conflicts", id="before the switch"),
        pytest.param(end, None, Level.BLOCKER, "is being deleted", id="being deleted"),
        pytest.param(convert, None, Level.BLOCKER, "conversion webhook", id="conversion"),
        pytest.param(refuse_names, None, Level.BLOCKER, "its names are taken", id="names"),
        pytest.param(wait, None, Level.BLOCKER, "is not Established", id="established"),
    ],
)
def test_what_differs_is_reported(
    change: Callable[[Object], object], before: Before | None, level: Level, says: str
) -> None:
    first, *_ = definition_state(installed(change), SHIPPED, before)

    assert first.level is level
    assert says in first.text


@pytest.mark.parametrize("change", [lambda _: None, describe, change_pods], ids=["same", "texts", "pods"])
@pytest.mark.parametrize("before", [None, *Before])
def test_the_definition_of_this_version_is_fine(
    change: Callable[[Object], object], before: Before | None
) -> None:
    assert list(definition_state(installed(change), SHIPPED, before)) == []


def test_an_unknown_stored_version_blocks_the_new_definition() -> None:
    old = installed(stored="v1beta1")

    (finding,) = definition_state(old, SHIPPED, Before.SWITCH)
    assert (finding.level, "v1beta1" in finding.text) == (Level.BLOCKER, True)
    assert list(definition_state(old, SHIPPED, None)) == []


def test_missing_definitions_block_a_running_operator_only() -> None:
    def level(before: Before | None, *, operates: bool) -> Level:
        return missing_definitions(["a"], before, operates=operates).level

    assert level(None, operates=True) is Level.BLOCKER
    assert level(None, operates=False) is Level.WARNING
    assert {level(before, operates=True) for before in Before} == {Level.OK}


def test_differences_are_of_the_served_versions() -> None:
    other = installed(gain_field)

    assert differences(other["spec"], SHIPPED["spec"]) == ([], ["v1.spec.later"], [])
    other["spec"]["versions"][0]["served"] = False
    missing, additional, _ = differences(other["spec"], SHIPPED["spec"])
    assert ("v1" in missing, additional) == (True, [])
