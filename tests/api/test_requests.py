"""The resource requests of a pod."""

from typing import Any

import pytest

from api.requests import extended_resources, requests


def container(*, limits: dict[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"containers": [{}, container()]}, {}, id="no resources"),
        pytest.param(
            {"containers": [container(cpu=1)], "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
            {"cpu": "1", "memory": "1Gi"},
            id="a limit of the whole pod counts where no container asks",
        ),
        pytest.param({"containers": [container(cpu=1), container(cpu="500m")]}, {"cpu": "1500m"}, id="a sum"),
        pytest.param(
            {"containers": [container(cpu="1", limits={"cpu": "2", "nvidia.com/gpu": 1})]},
            {"cpu": "1", "nvidia.com/gpu": "1"},
            id="a limit without a request",
        ),
        pytest.param(
            {"containers": [container(cpu=1)], "initContainers": [container(cpu=3), container(cpu=2)]},
            {"cpu": "3"},
            id="the largest init container",
        ),
        pytest.param(
            {
                "containers": [container(cpu=1)],
                "initContainers": [{**container(cpu=1), "restartPolicy": "Always"}, container(cpu=2)],
            },
            {"cpu": "3"},
            id="an init container beside a sidecar",
        ),
        pytest.param(
            {"containers": [container(memory="1Gi")], "overhead": {"memory": "512Mi"}},
            {"memory": "1536Mi"},
            id="overhead",
        ),
        pytest.param(
            {"containers": [container(cpu=1, memory="1Gi")], **container(cpu=4)},
            {"cpu": "4", "memory": "1Gi"},
            id="the pod as a whole",
        ),
        pytest.param(
            {
                "containers": [
                    {"resources": {"limits": {"example.com/gpu": 2}, "claims": [{"name": "fabric"}]}},
                    {"resources": {"claims": [{"name": "fabric", "request": "channel"}]}},
                ],
                "resourceClaims": [{"name": "fabric", "resourceClaimTemplateName": "fabric"}],
            },
            {"example.com/gpu": "2"},
            id="claims of devices have no amount",
        ),
    ],
)
def test_requests(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert {name: str(amount) for name, amount in requests(spec).items()} == expected


def test_an_invalid_amount_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        requests({"containers": [container(cpu="many")]})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({"containers": [container(cpu=1, limits={"hugepages-2Mi": "4Mi"})]}, (), id="native"),
        pytest.param(
            {"containers": [container(limits={"example.com/b": "2k", "nvidia.com/gpu": 1, "cpu": 1})] * 2},
            (("example.com/b", 4000), ("nvidia.com/gpu", 2)),
            id="by name",
        ),
        pytest.param(
            {
                "containers": [container(limits={"nvidia.com/gpu": 1})],
                "initContainers": [container(limits={"nvidia.com/gpu": 3})],
            },
            (("nvidia.com/gpu", 3),),
            id="the largest init container",
        ),
        pytest.param(
            {"containers": [container(limits={"kubernetes.io/x": 1, "requests.a.com/x": 1})]},
            (),
            id="reserved names",
        ),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": 0})]}, (), id="none of them"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": "one"})]}, (), id="no quantity"),
    ],
)
def test_extended_resources(spec: dict[str, Any], expected: tuple[tuple[str, int], ...]) -> None:
    assert extended_resources(spec) == expected
