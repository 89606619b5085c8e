"""What normalization removes before records are compared, and what it preserves."""

from typing import Any

import pytest

from controller.shadow.defaults import SHAPES, bare
from tests.support.parity.normal import current, normalized, sent, text

UID = "0b1f9d2e-8a52-4f0c-9a6e-3d1c5b7e9f00"
OTHER = "11111111-2222-3333-4444-555555555555"


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "spec": {"containers": [{"name": "main", **(container or {})}], **spec}}


@pytest.mark.parametrize(
    ("value", "normal"),
    [
        pytest.param(f"owned by {UID}", "owned by <job uid>", id="the UID of the job"),
        pytest.param(f"not {OTHER}.", "not <uid>.", id="another UID"),
        pytest.param("2026-01-02T03:04:05Z", "<time>", id="a time in JSON"),
        pytest.param("2026-01-02T03:04:05.678901Z", "<time>", id="with microseconds"),
        pytest.param("at 2026-01-02 03:04:05 +0000 UTC.", "at <time>.", id="a time in a message of Go"),
        pytest.param("alpine:3.10", "alpine:3.10", id="a version is no time"),
    ],
)
def test_texts(value: str, normal: str) -> None:
    assert text(value, {UID: "<job uid>"}) == normal


def test_nulls_are_dropped_and_empty_values_are_not() -> None:
    assert normalized({"a": None, "b": {"c": None, "d": ""}, "e": [], "f": 0}, {}) == {
        "b": {"d": ""},
        "e": [],
        "f": 0,
    }


@pytest.mark.parametrize(
    ("complete", "chosen"),
    [
        pytest.param(pod(dnsPolicy="ClusterFirst"), pod(), id="a fixed value"),
        pytest.param(pod(dnsPolicy="None"), pod(dnsPolicy="None"), id="another value"),
        pytest.param(pod(enableServiceLinks=1), pod(enableServiceLinks=1), id="one is not true"),
        pytest.param(pod({"resources": {}}), pod(), id="inside a container"),
        pytest.param(
            pod({"livenessProbe": {"httpGet": {"port": 1, "scheme": "HTTP"}, "timeoutSeconds": 1}}),
            pod({"livenessProbe": {"httpGet": {"port": 1}}}),
            id="a probe",
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}]),
            pod(volumes=[{"name": "v", "secret": {"secretName": "s"}}]),
            id="the mode of a volume",
        ),
        pytest.param(
            pod({"resources": {"limits": {"cpu": "1", "gpu": "2"}, "requests": {"cpu": "500m", "gpu": "2"}}}),
            pod({"resources": {"limits": {"cpu": "1", "gpu": "2"}, "requests": {"cpu": "500m"}}}),
            id="a request that is the limit",
        ),
        pytest.param(
            pod({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}),
            pod({"resources": {"limits": {"cpu": "1"}}}),
            id="all requests",
        ),
        pytest.param(
            pod(serviceAccountName="a", serviceAccount="a"), pod(serviceAccountName="a"), id="an account"
        ),
        pytest.param(pod(serviceAccountName="", serviceAccount=""), pod(), id="no account"),
        pytest.param(
            pod({"ports": [{"containerPort": 5, "hostPort": 5, "protocol": "TCP"}]}, hostNetwork=True),
            pod({"ports": [{"containerPort": 5}]}, hostNetwork=True),
            id="a port on the network of the host",
        ),
        pytest.param(
            pod({"ports": [{"containerPort": 5, "hostPort": 5}]}),
            pod({"ports": [{"containerPort": 5, "hostPort": 5}]}),
            id="a host port elsewhere",
        ),
    ],
)
def test_defaults_of_pods(complete: dict[str, Any], chosen: dict[str, Any]) -> None:
    assert bare(complete, SHAPES["Pod"]) == chosen


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("train", "Always"),
        ("train:latest", "Always"),
        ("train:1", "IfNotPresent"),
        ("registry:5000/train", "Always"),
        ("registry:5000/train:1", "IfNotPresent"),
        ("train@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    other = "Never"

    assert bare(pod({"image": image, "imagePullPolicy": policy}), SHAPES["Pod"]) == pod({"image": image})
    assert bare(pod({"image": image, "imagePullPolicy": other}), SHAPES["Pod"]) == pod(
        {"image": image, "imagePullPolicy": other}
    )


def test_ports_of_a_service() -> None:
    ports = [{"name": "b", "port": 2, "targetPort": 2, "protocol": "TCP"}, {"name": "a", "port": 1}]
    service = {"spec": {"type": "ClusterIP", "clusterIP": "None", "ports": ports}}

    assert sent("Service", service, {})["spec"] == {
        "clusterIP": "None",
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
    }


def test_fields_of_the_client_are_preserved() -> None:
    body = {
        "metadata": {
            "name": "a",
            "namespace": "golden",
            "creationTimestamp": None,
            "uid": OTHER,
            "annotations": {},
            "labels": {"x": "y"},
            "ownerReferences": [{"uid": UID, "controller": True}],
        },
        "spec": {"nodeSelector": {"a": "b"}},
        "status": {"phase": "Pending"},
    }

    assert sent("Pod", body, {UID: "<job uid>"}) == {
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "labels": {"x": "y"},
            "ownerReferences": [{"uid": "<job uid>", "controller": True}],
        },
        "spec": {"nodeSelector": {"a": "b"}},
    }


def test_secrets_show_their_keys() -> None:
    secret = {"stringData": {"b": "secret"}, "data": {"a": "c2VjcmV0"}}

    assert sent("Secret", secret, {})["data"] == {"a": "<data>", "b": "<data>"}


def test_the_argument_stays_as_it_is() -> None:
    body = pod({"resources": {}}, dnsPolicy="ClusterFirst")

    sent("Pod", body, {})

    assert body == pod({"resources": {}}, dnsPolicy="ClusterFirst")


@pytest.mark.parametrize(
    ("kind", "obj", "part"),
    [
        pytest.param("Pod", {"spec": {"containers": []}}, None, id="a pod has no mutable part"),
        pytest.param(
            "ConfigMap", {"data": {"hostfile": "a\n"}}, {"data": {"hostfile": "a\n"}}, id="ConfigMap"
        ),
        pytest.param("Role", {}, {"rules": []}, id="Role"),
        pytest.param(
            "Service",
            {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
            {"selector": {"a": "b"}, "publishNotReadyAddresses": False},
            id="Service",
        ),
        pytest.param(
            "Job",
            {
                "spec": {
                    "suspend": True,
                    "completions": 1,
                    "template": {
                        "metadata": {
                            "labels": {"a": "b", "batch.kubernetes.io/job-name": "j", "job-name": "j"}
                        },
                        "spec": {"nodeSelector": {"c": "d"}, "containers": []},
                    },
                }
            },
            {"suspend": True, "labels": {"a": "b"}, "nodeSelector": {"c": "d"}},
            id="Job",
        ),
        pytest.param("PodGroup", {"spec": {"minMember": 3}}, {"spec": {"minMember": 3}}, id="PodGroup"),
    ],
)
def test_the_mutable_part_of_an_object(kind: str, obj: dict[str, Any], part: dict[str, Any] | None) -> None:
    assert current(kind, obj, {}) == part
