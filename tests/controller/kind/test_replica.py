"""Roles with their defaults, and the ordered children of a kind with replicas."""

from typing import Any

import pytest

from api.children import NO_INDEX
from api.services import ServiceMode
from controller.domain import Present
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import pytorch_job, template


def specs(**roles: Any) -> Any:
    return PYTORCH.roles(pytorch_job(pytorchReplicaSpecs=roles))


def test_the_master_comes_first_whatever_the_order_of_the_map() -> None:
    assert list(specs(Worker={}, Master={})) == ["Master", "Worker"]


@pytest.mark.parametrize(
    ("given", "replicas"),
    [
        pytest.param({}, 1, id="one by default"),
        pytest.param({"replicas": 0}, 0, id="zero is a number"),
        pytest.param({"replicas": 3}, 3, id="the number in the spec"),
    ],
)
def test_replicas(given: dict[str, Any], replicas: int) -> None:
    assert specs(Worker=given)["Worker"].replicas == replicas


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        pytest.param({}, "OnFailure", id="the kind's default"),
        pytest.param({"restartPolicy": ""}, "OnFailure", id="an empty policy counts as unset"),
        pytest.param({"restartPolicy": "Never"}, "Never", id="the policy in the spec"),
    ],
)
def test_restart_policy(given: dict[str, Any], policy: str) -> None:
    assert specs(Worker=given)["Worker"].restart_policy == policy


@pytest.mark.parametrize("key", ["worker", "WORKER", "wOrKeR"])
def test_a_role_is_recognized_in_any_case_and_gets_its_canonical_name(key: str) -> None:
    (role,) = specs(**{key: {}}).values()

    assert (role.name, role.label) == ("Worker", "worker")


def test_an_unknown_role_is_none() -> None:
    assert specs(Chief={}) == {}


@pytest.mark.parametrize("given", [{}, None], ids=["an empty map", "no map"])
def test_no_map_means_no_roles(given: Any) -> None:
    assert PYTORCH.roles(pytorch_job(pytorchReplicaSpecs=given)) == {}


def test_the_template_of_a_role_is_empty_by_default() -> None:
    assert specs(Worker={})["Worker"].template == {}


def test_children_come_role_by_role_each_pod_before_its_service() -> None:
    job = pytorch_job(masters=1, workers=2)

    wanted = [
        (role.name, index, child.resource.kind, child.name)
        for role, index, child in PYTORCH.wanted(job, PYTORCH.roles(job), Options(), Present())
    ]

    assert wanted == [
        ("Master", 0, "Pod", "train-master-0"),
        ("Master", 0, "Service", "train-master-0"),
        ("Worker", 0, "Pod", "train-worker-0"),
        ("Worker", 0, "Service", "train-worker-0"),
        ("Worker", 1, "Pod", "train-worker-1"),
        ("Worker", 1, "Service", "train-worker-1"),
    ]


def test_a_role_with_zero_replicas_has_no_children() -> None:
    job = pytorch_job(masters=None, workers=0)

    assert list(PYTORCH.wanted(job, PYTORCH.roles(job), Options(), Present())) == []


def test_children_that_are_present_are_left_out() -> None:
    job = pytorch_job(masters=1, workers=2)
    present = Present(pods={"worker": {0, 1}}, services={"master": {0}, "worker": {1, 7}})

    missing = [
        (child.resource.kind, child.name)
        for _, _, child in PYTORCH.wanted(job, PYTORCH.roles(job), Options(), present)
    ]

    assert missing == [("Pod", "train-master-0"), ("Service", "train-worker-0")]


@pytest.mark.parametrize(
    ("services", "missing"),
    [
        pytest.param({}, ["train"], id="it is missing"),
        pytest.param({"": {NO_INDEX}}, [], id="it is present"),
        pytest.param({"master": {0}}, ["train"], id="only one of a replica is present"),
    ],
)
def test_the_service_of_a_whole_job(services: dict[str, set[int]], missing: list[str]) -> None:
    job = pytorch_job(masters=1, workers=0)
    options = Options(services=ServiceMode.PER_JOB)

    found = PYTORCH.wanted(job, PYTORCH.roles(job), options, Present({"master": {0}}, services))

    assert [child.name for _, _, child in found] == missing


def test_the_controller_is_named_after_the_kind() -> None:
    assert PYTORCH.controller_name == "pytorchjob-controller"


def test_common_problems_come_before_those_of_the_kind() -> None:
    job = pytorch_job("Train", masters=1, workers=None, elasticPolicy={}, master={"template": template("x")})

    fields = [problem.field for problem in PYTORCH.problems(job, Options())]

    assert fields == [
        "metadata.name",
        "spec.pytorchReplicaSpecs[Master].template.spec.containers",
        "spec.pytorchReplicaSpecs[Worker]",
    ]


def test_the_roles_are_those_of_the_given_job() -> None:
    first, second = (pytorch_job(pytorchReplicaSpecs={"Worker": {"replicas": count}}) for count in (1, 2))

    assert PYTORCH.roles(first) is PYTORCH.roles(first)
    assert PYTORCH.roles(second)["Worker"].replicas == 2
    assert PYTORCH.roles(first)["Worker"].replicas == 1
