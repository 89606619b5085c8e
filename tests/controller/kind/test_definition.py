"""A kind that cannot work is refused where it is defined."""

from dataclasses import replace
from typing import Any

import pytest

from api.job import Job
from controller.kind import JobKind, KindDefaults, Replicas
from controller.kind.definition import UNSET, InvalidKind, require_distinct
from controller.kinds import ALL
from controller.kinds.jax import JAX
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.kinds.xgboost import XGBOOST

LONG = "a" * 64


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"port_name": "xgboostjob-tracker"},
            "XGBoostJob: port_name 'xgboostjob-tracker' has 18 characters; Kubernetes allows 15 at most",
            id="a port name that is too long",
        ),
        pytest.param(
            {"port_name": "a--b"}, "port_name 'a--b' must be lower-case letters", id="a port name's dashes"
        ),
        pytest.param(
            {"port_name": "123"}, "port_name '123' must be .* at least one letter", id="a port name of digits"
        ),
        pytest.param(
            {"port_name": "Port"}, "port_name 'Port' must be lower-case", id="a port name's letters"
        ),
        pytest.param({"port": 0}, "port 0 must be from 1 to 65535", id="no port"),
        pytest.param({"port": 65536}, "port 65536 must be from 1 to 65535", id="a port that is too high"),
        pytest.param({"container": "Boost"}, "container 'Boost' must be", id="a container's letters"),
        pytest.param({"container": LONG}, "must be at most 63 lower-case letters", id="a container's length"),
        pytest.param(
            {"restart_policy": "Sometimes"},
            "restart_policy 'Sometimes' must be one of Always, ",
            id="a restart policy",
        ),
        pytest.param({"role_names": ()}, "role_names must name at least one role", id="no roles"),
        pytest.param(
            {"role_names": ("Master", "Worker", "a_b")},
            "role 'a_b' must be at most 32 letters",
            id="a role's letters",
        ),
        pytest.param(
            {"role_names": ("Master", "Worker", "A" * 33)}, "must be at most 32 letters", id="a role's length"
        ),
        pytest.param(
            {"role_names": ("Master", "Worker", "WORKER")},
            "role_names must differ in more than case",
            id="a role twice",
        ),
        pytest.param(
            {"leader": "Chief"},
            r"leader names 'Chief', which is none of role_names \(Master, Worker\)",
            id="an unknown leader",
        ),
        pytest.param({"single_roles": ("Chief",)}, "single_roles names 'Chief'", id="an unknown single role"),
        pytest.param(
            {"required_roles": ("Chief",)}, "required_roles names 'Chief'", id="an unknown required role"
        ),
        pytest.param(
            {"alternative_roles": ("Chief",)},
            "alternative_roles names 'Chief'",
            id="an unknown alternative role",
        ),
        pytest.param(
            {"role_names": ("Master", "Trainer"), "scalable": True},
            "scalable needs a role Worker",
            id="nothing to scale",
        ),
        pytest.param(
            {"resource": replace(XGBOOST.resource, plural="XGBoostJobs")},
            "the plural 'XGBoostJobs' must be",
            id="a plural's letters",
        ),
        pytest.param(
            {"resource": replace(XGBOOST.resource, kind="A" * 60)},
            "controller_name 'a+-controller' must be a label",
            id="a label",
        ),
        pytest.param(
            {"single_roles": "Master"},
            r"^XGBoostJob: single_roles must be a tuple of names; .* has a comma: \(\"Master\",\)$",
            id="a forgotten comma",
        ),
        pytest.param({"model": Job}, "model Job: JobSpec has no replica specs", id="a model without roles"),
    ],
)
def test_an_invalid_definition_is_rejected(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidKind, match=sentence):
        replace(XGBOOST, **changes)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidKind) as caught:
        replace(XGBOOST, port=0, leader="Chief")

    assert str(caught.value).count(";") == 1


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        pytest.param(XGBOOST, "2 kinds have the kind 'XGBoostJob'", id="the same kind twice"),
        pytest.param(
            replace(JAX, resource=replace(JAX.resource, plural="xgboostjobs")),
            "2 kinds have the plural 'xgboostjobs'",
            id="a plural that is taken",
        ),
    ],
)
def test_kinds_must_not_share_names(other: Any, problem: str) -> None:
    with pytest.raises(InvalidKind, match=problem):
        require_distinct([XGBOOST, other])


def test_a_kind_without_a_role_that_ends_a_job_is_rejected() -> None:
    with pytest.raises(
        InvalidKind, match="no role ends a job: name a leader, add a role Worker, or give a completion_rule"
    ):
        replace(JAX, role_names=("Trainer",), scalable=False, completion_rule=UNSET)


def test_a_flavor_with_an_invalid_label_is_rejected() -> None:
    with pytest.raises(InvalidKind, match="MPIJob: controller_name 'mpi operator' must be a label value"):
        replace(V2BETA1, controller_name="mpi operator")


def test_defaults_follow_from_the_name_of_the_kind() -> None:
    assert (JAX.framework, JAX.container, JAX.port_name) == ("jax", "jax", "jaxjob-port")
    assert JAX.replicas_field == "jaxReplicaSpecs"


def members(protocol: type) -> set[str]:
    return {name for base in protocol.__mro__ for name in vars(base) if not name.startswith("_")}


def test_a_kind_must_provide_ten_members_at_most() -> None:
    required = members(Replicas) - members(KindDefaults)

    assert len(members(JobKind) - members(KindDefaults)) <= len(required) <= 10


def test_every_kind_takes_its_defaults_from_kind_defaults() -> None:
    variants = [variant for kind in ALL for variant in (kind, *kind.variants)]

    assert all(isinstance(kind, KindDefaults) for kind in variants)
