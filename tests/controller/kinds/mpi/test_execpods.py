"""Pods of jobs that start ranks with ``kubectl exec``; other fields of a template stay unchanged."""

import copy
from typing import Any

import pytest

from api.mpijob import RESOURCE, MPIJob
from controller.domain import Role
from controller.kinds.mpi import execpods

HVD = MPIJob.model_validate({"metadata": {"name": "hvd", "namespace": "ml", "uid": "u"}})
FULL: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "mpi",
                "image": "img",
                "env": [{"name": "LR", "value": "0.1"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"claims": [{"name": "gpu"}]},
            },
            {"name": "log-shipper", "image": "shipper"},
        ],
        "initContainers": [{"name": "prepare", "image": "prepare"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "hostNetwork": True,
    }
}


def role(template: dict[str, Any], name: str = "Worker") -> Role:
    return Role(name, 1, "Never", template)


@pytest.mark.parametrize(
    ("fields", "command", "args"),
    [
        pytest.param({}, ["sleep"], ["365d"], id="sleep by default"),
        pytest.param({"command": ["serve"]}, ["serve"], None, id="the template's command"),
        pytest.param(
            {"args": ["--verbose"]}, ["sleep"], ["365d"], id="arguments without a command are replaced"
        ),
    ],
)
def test_command_of_a_worker(fields: dict[str, Any], command: list[str], args: list[str] | None) -> None:
    template = {"spec": {"containers": [{"name": "mpi", "image": "img", **fields}]}}

    first = execpods.worker(HVD, role(template))["containers"][0]

    assert (first["command"], first.get("args")) == (command, args)


def test_a_worker_mounts_the_agent_alone() -> None:
    spec = execpods.worker(HVD, role(FULL))

    assert spec["volumes"] == [
        {"name": "data", "emptyDir": {}},
        {
            "name": "mpi-job-config",
            "configMap": {
                "name": "hvd-config",
                "items": [{"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555}],
            },
        },
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/data"},
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]


def test_a_launcher_has_files_and_kubectl() -> None:
    files = ("kubexec.sh", "hostfile", "discover_hosts.sh")
    spec = execpods.launcher(HVD, role(FULL, "Launcher"), "trainer", [("A", "b")], "delivery:1", files)
    first = spec["containers"][0]

    assert spec["serviceAccountName"] == "trainer"
    assert first["env"] == [{"name": "LR", "value": "0.1"}, {"name": "A", "value": "b"}]
    assert [mount["mountPath"] for mount in first["volumeMounts"]] == ["/data", "/opt/kube", "/etc/mpi"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "mpi-job-kubectl", "mpi-job-config"]
    assert spec["volumes"][1]["emptyDir"] == {}
    assert spec["volumes"][2]["configMap"]["items"] == [
        {"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555},
        {"key": "hostfile", "path": "hostfile", "mode": 0o444},
        {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
    ]


def test_the_kubectl_init_container_follows_those_of_the_template() -> None:
    before, delivery = execpods.launcher(HVD, role(FULL), "a", [], "delivery:1", ())["initContainers"]

    amounts = {"cpu": "100m", "ephemeral-storage": "5Gi", "memory": "512Mi"}
    security = delivery.pop("securityContext")
    assert before["name"] == "prepare"
    assert delivery == {
        "name": "kubectl-delivery",
        "image": "delivery:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": "ml"}],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [
            {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"},
            {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
        ],
    }
    assert (security["runAsNonRoot"], security["allowPrivilegeEscalation"]) == (True, False)


@pytest.mark.parametrize(
    "build", [execpods.worker, lambda job, of: execpods.launcher(job, of, "a", [], "i", ())]
)
def test_fields_of_the_template_are_preserved(build: Any) -> None:
    before = copy.deepcopy(FULL)

    spec = build(HVD, role(FULL))

    assert before == FULL
    assert spec["containers"][1] == FULL["spec"]["containers"][1]
    assert spec["containers"][0]["resources"] == FULL["spec"]["containers"][0]["resources"]
    assert (spec["resourceClaims"], spec["hostNetwork"]) == (FULL["spec"]["resourceClaims"], True)


def test_labels_override_those_of_the_template() -> None:
    template = {"metadata": {"name": "ignored", "labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}}}

    metadata = execpods.pod(RESOURCE, HVD, "hvd-worker-0", role(template), {"b": "4"}, {})["metadata"]

    assert metadata["name"] == "hvd-worker-0"
    assert metadata["labels"] == {"a": "1", "b": "4"}
    assert metadata["annotations"] == {"c": "3"}
