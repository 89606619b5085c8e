"""The bodies of pods and Services; the template stays unchanged."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from controller.kind import Options
from controller.kind.pods import (
    containers,
    effective_restart_policy,
    pod,
    role_port,
    service,
    service_ports,
    with_env,
)
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import UID, pytorch_job, template

OWNER = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "name": "train",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
OWN_PORT = {"name": "pytorchjob-port", "containerPort": 23456}


def made(role: str = "Worker", index: int = 0, **fields: Any) -> dict[str, Any]:
    """The pod of a role whose replica spec has these fields."""
    job = pytorch_job(worker=fields, master=fields)
    roles = PYTORCH.roles(job)
    return pod(PYTORCH, job, roles, roles[role], index, Options())


def role_of(*given: dict[str, Any], **fields: Any) -> Any:
    """A role whose template has these containers."""
    job = pytorch_job(worker={"template": {"spec": {"containers": list(given)}}, **fields})
    return PYTORCH.roles(job)["Worker"]


def container(name: str = "pytorch", *ports: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "image": "img", "ports": list(ports)}


def test_variables_follow_those_of_the_user() -> None:
    own = {"name": "A", "value": "1"}

    first, second = (
        with_env(PYTORCH, {"name": name, "env": [own]}, [{"name": "B", "value": "2"}])
        for name in ("pytorch", "x")
    )

    assert first["env"] == second["env"] == [own, {"name": "B", "value": "2"}]


@pytest.mark.parametrize(
    ("name", "env", "unchanged"),
    [
        pytest.param("pytorch", [{"name": "B"}], False, id="the kind's container gets the variables"),
        pytest.param("sidecar", [{"name": "B"}], True, id="another container is unchanged"),
        pytest.param("pytorch", [], True, id="without variables nothing changes"),
    ],
)
def test_a_kind_can_set_variables_in_its_own_container_only(
    name: str, env: list[dict[str, Any]], unchanged: bool
) -> None:
    given = {"name": name, "image": "img"}

    made = with_env(replace(PYTORCH, env_everywhere=False), given, env)

    assert (made == given) is unchanged
    assert given == {"name": name, "image": "img"}


def test_a_pod_has_its_name_labels_and_owner() -> None:
    assert made("Worker", 1)["metadata"] == {
        "name": "train-worker-1",
        "labels": {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "1",
        },
        "ownerReferences": [OWNER],
    }


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"annotations": {"a": "b"}}, {"annotations": {"a": "b"}}, id="annotations are kept"),
        pytest.param({"finalizers": ["a/b"]}, {"finalizers": ["a/b"]}, id="finalizers are kept"),
        pytest.param({"name": "mine", "namespace": "theirs"}, {}, id="name and namespace are not"),
    ],
)
def test_the_metadata_of_the_template_is_merged(metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    meta = made(template={**template(), "metadata": metadata})["metadata"]

    assert {key: meta[key] for key in meta.keys() - {"labels", "ownerReferences"}} == {
        "name": "train-worker-0",
        **expected,
    }


def test_the_operator_s_labels_win_over_the_template_s() -> None:
    mine = {"app": "x", "training.kubeflow.org/job-name": "other", "training.kubeflow.org/replica-index": "9"}

    labels = made(template={**template(), "metadata": {"labels": mine}})["metadata"]["labels"]

    assert labels["app"] == "x"
    assert labels["training.kubeflow.org/job-name"] == "train"
    assert labels["training.kubeflow.org/replica-index"] == "0"


@pytest.mark.parametrize(
    ("policy", "effective"),
    [
        pytest.param("Always", "Always", id="Always is the kubelet's"),
        pytest.param("OnFailure", "OnFailure", id="OnFailure is the kubelet's"),
        pytest.param("Never", "Never", id="Never is the kubelet's"),
        pytest.param("ExitCode", "Never", id="with ExitCode the operator restarts"),
    ],
)
def test_the_restart_policy_of_the_role_becomes_that_of_the_pod(policy: str, effective: str) -> None:
    role = role_of(container(), restartPolicy=policy)

    assert effective_restart_policy(role) == effective
    assert made(restartPolicy=policy)["spec"]["restartPolicy"] == effective


def test_the_template_s_own_restart_policy_is_overwritten() -> None:
    given = template()
    given["spec"]["restartPolicy"] = "Always"

    assert made(template=given)["spec"]["restartPolicy"] == "OnFailure"


def test_other_fields_of_a_template_stay_unchanged() -> None:
    extra = {
        "hostNetwork": True,
        "dnsPolicy": "None",
        "volumes": [{"name": "v"}],
        "schedulerName": "s",
        "new": {"a": 1},
    }
    given = template()
    given["spec"].update(extra)

    spec = made(template=given)["spec"]

    assert {key: spec[key] for key in extra} == extra


def test_every_container_gets_the_environment_after_its_own() -> None:
    given = {
        "spec": {
            "containers": [
                {"name": "pytorch", "image": "img", "env": [{"name": "RANK", "value": "99"}]},
                {"name": "sidecar", "image": "sc"},
            ],
            "initContainers": [{"name": "mine", "image": "img"}],
        }
    }

    spec = made("Master", template=given)["spec"]
    first, second = (container["env"] for container in spec["containers"])

    assert first[0] == {"name": "RANK", "value": "99"}
    assert first[1:] == second
    assert second[0] == {"name": "PYTHONUNBUFFERED", "value": "1"}
    assert spec["initContainers"] == [{"name": "mine", "image": "img"}]


def test_init_containers_come_after_the_user_s() -> None:
    given = template()
    given["spec"]["initContainers"] = [{"name": "mine", "image": "img"}]

    names = [container["name"] for container in made("Worker", template=given)["spec"]["initContainers"]]

    assert names == ["mine", "init-pytorch"]


def test_the_job_s_template_is_never_changed() -> None:
    given = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container(), container("sidecar")]}}
    job = pytorch_job(worker={"template": given})
    before, roles = copy.deepcopy(job.to_wire()), PYTORCH.roles(job)

    body = pod(PYTORCH, job, roles, roles["Worker"], 0, Options())
    body["metadata"]["labels"]["c"] = "d"
    body["spec"]["containers"][0]["env"].append({})

    assert job.to_wire() == before


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        pytest.param([container()], [[OWN_PORT]], id="a container without ports gets the default"),
        pytest.param(
            [container("pytorch", {"name": "pytorchjob-port", "containerPort": 1})],
            [[{"name": "pytorchjob-port", "containerPort": 1}]],
            id="a port of that name is used",
        ),
        pytest.param(
            [container("pytorch", {"name": "other", "containerPort": 23456})],
            [[{"name": "other", "containerPort": 23456}, OWN_PORT]],
            id="the same number under another name does not count",
        ),
        pytest.param(
            [container("sidecar"), container()], [[], [OWN_PORT]], id="the container of the kind's name"
        ),
        pytest.param(
            [container("a"), container("b")],
            [[OWN_PORT], []],
            id="the first container where none has the name",
        ),
    ],
)
def test_default_port(given: list[dict[str, Any]], ports: list[list[dict[str, Any]]]) -> None:
    assert [container["ports"] for container in containers(PYTORCH, role_of(*given))] == ports


@pytest.mark.parametrize(
    ("given", "port"),
    [
        pytest.param([container()], 23456, id="the default"),
        pytest.param(
            [container("pytorch", {"name": "pytorchjob-port", "containerPort": 29500})],
            29500,
            id="the user's port of that name",
        ),
        pytest.param(
            [container("sidecar", {"name": "pytorchjob-port", "containerPort": 1}), container()],
            23456,
            id="another container's port of that name does not count",
        ),
        pytest.param([container("main")], 23456, id="the default where no container has the kind's name"),
    ],
)
def test_role_port(given: list[dict[str, Any]], port: int) -> None:
    assert role_port(PYTORCH, role_of(*given)) == port


def test_a_service_is_headless_and_selects_by_its_own_labels() -> None:
    job = pytorch_job()

    body = service(PYTORCH, job, PYTORCH.roles(job)["Worker"], 1)

    labels = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert body == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train-worker-1", "labels": labels, "ownerReferences": [OWNER]},
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "ports": [{"name": "pytorchjob-port", "port": 23456}],
        },
    }


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        pytest.param(
            [{"name": "debug", "containerPort": 5678}],
            [{"name": "pytorchjob-port", "port": 23456}, {"name": "debug", "port": 5678}],
            id="every named port, the kind's first",
        ),
        pytest.param(
            [{"containerPort": 8080}],
            [{"name": "pytorchjob-port", "port": 23456}],
            id="a port without a name is left out",
        ),
        pytest.param(
            [{"name": "other", "containerPort": 23456}],
            [{"name": "pytorchjob-port", "port": 23456}],
            id="a number occurs once, under the kind's name",
        ),
        pytest.param(
            [{"name": "quic", "containerPort": 23456, "protocol": "UDP"}],
            [
                {"name": "pytorchjob-port", "port": 23456},
                {"name": "quic", "port": 23456, "protocol": "UDP"},
            ],
            id="ports with different protocols are different",
        ),
    ],
)
def test_a_service_has_the_ports_of_the_containers(
    ports: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert service_ports(PYTORCH, role_of(container("pytorch", *ports), container("sidecar"))) == expected


def test_a_service_without_ports_has_an_empty_list() -> None:
    role = role_of(container("main"))

    assert "ports" not in service(PYTORCH, pytorch_job(), role, 0)["spec"]
