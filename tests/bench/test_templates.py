"""The definitions and jobs of ``bench templates``."""

from typing import Any

import pytest

from api.v1.pytorchjob import RESOURCE, PyTorchJob
from bench.templates import OPAQUE, RULES, SIZES, STATUSES, definitions, job, status
from controller.crds import all_crds
from controller.kinds.pytorch import PYTORCH


def schema(name: str) -> Any:
    (version,) = definitions()[name]["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def template(name: str) -> Any:
    roles = schema(name)["properties"]["spec"]["properties"]["pytorchReplicaSpecs"]
    return roles["additionalProperties"]["properties"]["template"]


def test_each_definition_has_a_group_of_its_own_and_the_first_is_the_shipped_one() -> None:
    made = definitions()

    assert len({definition["spec"]["group"] for definition in made.values()}) == len(made)
    assert all(
        definition["metadata"]["name"] == f"{RESOURCE.plural}.{definition['spec']['group']}"
        for definition in made.values()
    )
    (shipped,) = all_crds(kinds=[PYTORCH])
    assert made["keyed lists"]["spec"]["versions"] == shipped["spec"]["versions"]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("keyed lists", True),
        ("atomic lists", True),
        ("containers alone", True),
        ("keyed lists, no rules", False),
        ("opaque, no rules", False),
    ],
)
def test_only_definitions_without_rules_lack_them(name: str, rules: bool) -> None:
    assert (RULES in schema(name)) is (RULES in schema(name)["properties"]["spec"]) is rules


def test_the_schemas_of_templates_differ() -> None:
    assert template("opaque, no rules") == OPAQUE
    assert list(template("containers alone")["properties"]["spec"]["properties"]) == ["containers"]
    assert template("atomic lists").keys() == template("keyed lists").keys()
    assert "x-kubernetes-list-type" in str(template("keyed lists"))
    assert "x-kubernetes-list-type" not in str(template("atomic lists"))


@pytest.mark.parametrize("size", SIZES)
def test_a_job_has_templates_of_its_size(size: str) -> None:
    containers, variables = SIZES[size]

    made = job(RESOURCE, "job", containers, variables)

    assert PyTorchJob.model_validate(made).metadata.name == "job"
    for role in made["spec"]["pytorchReplicaSpecs"].values():
        found = role["template"]["spec"]["containers"]
        assert [len(container.get("env", ())) for container in found] == [variables] * containers
        assert len({container["name"] for container in found}) == containers
        mounted = {mount["name"] for container in found for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in role["template"]["spec"].get("volumes", ())}


def test_each_status_adds_a_condition() -> None:
    assert [[found["type"] for found in status(index)["conditions"]] for index in range(3)] == [
        ["Created"],
        ["Created", "Running"],
        list(STATUSES),
    ]
