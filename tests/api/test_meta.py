"""The base of the API types: paths of resources, and JSON round trips without loss."""

import pytest

from api.meta import HORIZONTAL_POD_AUTOSCALERS, PODS, ObjectMeta, Resource, Wire

JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


class Sample(Wire):
    first_field: int | None = None
    second_field: str = "default"


@pytest.mark.parametrize(
    ("resource", "where", "path"),
    [
        pytest.param(PODS, {}, "/api/v1/pods", id="the core group has no name"),
        pytest.param(PODS, {"namespace": "ml"}, "/api/v1/namespaces/ml/pods", id="a namespace narrows"),
        pytest.param(
            JOBS,
            {"namespace": "ml", "name": "train", "subresource": "status"},
            "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/train/status",
            id="a subresource comes last",
        ),
        pytest.param(
            NODES,
            {"namespace": "ml", "name": "n1"},
            "/api/v1/nodes/n1",
            id="a cluster-scoped one has no namespace",
        ),
        pytest.param(PODS, {"name": "../x y"}, "/api/v1/pods/..%2Fx%20y", id="a name is escaped"),
    ],
)
def test_path(resource: Resource, where: dict[str, str], path: str) -> None:
    assert resource.path(**where) == path


@pytest.mark.parametrize(
    ("resource", "version"),
    [
        pytest.param(PODS, "v1", id="of the core group the version alone"),
        pytest.param(HORIZONTAL_POD_AUTOSCALERS, "autoscaling/v2", id="of any other both"),
    ],
)
def test_api_version(resource: Resource, version: str) -> None:
    assert resource.api_version == version


def test_a_resource_has_the_lower_case_kind_as_its_singular() -> None:
    assert JOBS.singular == "pytorchjob"


@pytest.mark.parametrize(
    ("sample", "serialized"),
    [
        pytest.param(Sample(), {}, id="an unset field is left out"),
        pytest.param(Sample(first_field=None), {}, id="null is left out"),
        pytest.param(Sample(first_field=0), {"firstField": 0}, id="zero is written"),
        pytest.param(
            Sample(second_field="default"), {"secondField": "default"}, id="an explicit default is written"
        ),
        pytest.param(
            Sample.model_validate({"firstField": 1, "odd": {"a": [None, {}]}}),
            {"firstField": 1, "odd": {"a": [None, {}]}},
            id="an unknown field is unchanged",
        ),
    ],
)
def test_serialization(sample: Sample, serialized: dict[str, object]) -> None:
    assert sample.to_wire() == serialized


def test_times_are_written_as_the_api_server_writes_them() -> None:
    meta = ObjectMeta.model_validate({"creationTimestamp": "2026-01-01T12:00:00Z"})

    assert meta.to_wire() == {"creationTimestamp": "2026-01-01T12:00:00Z"}
