"""The schema of a job follows the contract and the API models."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec, replica_field
from api.meta import Wire
from api.v1.pytorchjob import PyTorchJob
from controller.crds.jobs import job_schema
from controller.crds.kubernetes import shipped
from controller.crds.openapi import QUANTITY, Schema

TEXT: Schema = {"type": "string"}
INT32: Schema = {"type": "integer", "format": "int32"}
TIME: Schema = {"type": "string", "format": "date-time"}


@pytest.fixture(scope="module")
def schema() -> Schema:
    return job_schema(PyTorchJob, shipped(), "v1")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.runPolicy.cleanPodPolicy", TEXT),
        ("spec.runPolicy.ttlSecondsAfterFinished", INT32),
        ("spec.runPolicy.activeDeadlineSeconds", {"type": "integer", "format": "int64"}),
        ("spec.runPolicy.backoffLimit", INT32),
        ("spec.runPolicy.suspend", {"type": "boolean", "default": False}),
        ("spec.runPolicy.schedulingPolicy.minAvailable", INT32),
        ("spec.runPolicy.schedulingPolicy.minResources.*", QUANTITY),
        ("spec.runPolicy.schedulingPolicy.priorityClass", TEXT),
        ("spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", INT32),
        ("spec.pytorchReplicaSpecs.*.replicas", INT32),
        ("spec.pytorchReplicaSpecs.*.restartPolicy", TEXT),
        ("spec.pytorchReplicaSpecs.*.template.metadata.labels.*", TEXT),
        ("spec.pytorchReplicaSpecs.*.template.spec.containers.[].image", TEXT),
        ("spec.nprocPerNode", TEXT),
        ("spec.elasticPolicy.minReplicas", INT32),
        ("spec.elasticPolicy.maxReplicas", INT32),
        ("spec.elasticPolicy.rdzvBackend", TEXT),
        ("spec.elasticPolicy.rdzvPort", INT32),
        ("spec.elasticPolicy.rdzvHost", TEXT),
        ("spec.elasticPolicy.rdzvId", TEXT),
        ("spec.elasticPolicy.rdzvConf.[].key", TEXT),
        ("spec.elasticPolicy.rdzvConf.[].value", TEXT),
        ("spec.elasticPolicy.standalone", {"type": "boolean"}),
        ("spec.elasticPolicy.nProcPerNode", INT32),
        ("spec.elasticPolicy.maxRestarts", INT32),
        ("spec.elasticPolicy.metrics.[].resource.target.averageUtilization", INT32),
        ("spec.elasticPolicy.metrics.[].resource.target.averageValue", QUANTITY),
        ("status.conditions.[].type", TEXT),
        ("status.conditions.[].lastTransitionTime", TIME),
        ("status.conditions.[].lastUpdateTime", TIME),
        ("status.replicaStatuses.*.active", INT32),
        ("status.replicaStatuses.*.succeeded", INT32),
        ("status.replicaStatuses.*.failed", INT32),
        ("status.replicaStatuses.*.selector", TEXT),
        ("status.replicaStatuses.*.labelSelector.matchLabels.*", TEXT),
        ("status.startTime", TIME),
        ("status.completionTime", TIME),
        ("status.lastReconcileTime", TIME),
    ],
)
def test_fields_of_the_contract(schema: Schema, path: str, expected: Schema) -> None:
    found = at(schema, path)

    assert {key: found[key] for key in found if key != "description"} == expected


@pytest.mark.parametrize(
    ("path", "required"),
    [
        ("spec", ["pytorchReplicaSpecs"]),
        ("spec.pytorchReplicaSpecs.*", None),
        ("spec.runPolicy", None),
        ("spec.elasticPolicy", None),
        ("spec.elasticPolicy.rdzvConf.[]", None),
        ("spec.pytorchReplicaSpecs.*.template.spec", ["containers"]),
        ("status.conditions.[]", ["type", "status"]),
    ],
)
def test_required_fields_of_the_contract(schema: Schema, path: str, required: list[str] | None) -> None:
    assert at(schema, path).get("required") == required


def test_the_spec_is_optional(schema: Schema) -> None:
    assert "required" not in schema


def test_every_field_of_the_models_has_a_schema(schema: Schema) -> None:
    assert set(fields_of(PyTorchJob)) <= set(paths(schema))


def test_every_schema_has_a_field_in_the_models(schema: Schema) -> None:
    """But for the insides of what is passed through, and the one field that is only read by others."""
    known = set(fields_of(PyTorchJob))
    passed_through = ("spec.pytorchReplicaSpecs.*.template.", "spec.elasticPolicy.metrics.[]", "metadata.")

    extra = {path for path in paths(schema) if path not in known and not path.startswith(passed_through)}

    assert {path for path in extra if "labelSelector" not in path} == set()


def test_ephemeral_containers_are_kept_without_a_schema(schema: Schema) -> None:
    """A pod cannot be created with them; the API server says so for the pod."""
    found = at(schema, "spec.pytorchReplicaSpecs.*.template.spec.ephemeralContainers")

    assert found["items"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_roles_and_containers_are_bounded(schema: Schema) -> None:
    """Without bounds, the API server refuses the definition: it estimates the cost of rules from the largest possible job."""
    assert at(schema, "spec.pytorchReplicaSpecs")["maxProperties"] == 32
    assert at(schema, "spec.pytorchReplicaSpecs.*.template.spec.containers")["maxItems"] == 1000
    assert "maxItems" not in shipped().template["properties"]["spec"]["properties"]["containers"]


def test_the_queue_cannot_change(schema: Schema) -> None:
    (rule,) = at(schema, "spec.runPolicy.schedulingPolicy.queue")["x-kubernetes-validations"]

    assert rule == {
        "rule": "self == oldSelf",
        "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
    }


def test_the_replica_map_is_found_by_its_type() -> None:
    assert replica_field(PyTorchJob).wire_name == "pytorchReplicaSpecs"


def test_a_spec_without_a_replica_map_is_rejected() -> None:
    with pytest.raises(TypeError, match="JobSpec has no replica specs"):
        replica_field(Job)


def test_a_field_of_an_unknown_type_is_rejected() -> None:
    class OddSpec(JobSpec):
        odd_replica_specs: dict[str, ReplicaSpec] | None = None
        """Roles."""
        anything: dict[str, Any] | None = None
        """Whatever."""

    class OddJob(Job):
        spec: OddSpec = Field(default_factory=OddSpec)

    with pytest.raises(TypeError, match=r"OddSpec\.anything: no schema is known for"):
        job_schema(OddJob, shipped(), "v1")


def test_a_field_without_a_docstring_is_rejected() -> None:
    class OddSpec(JobSpec):
        odd_replica_specs: dict[str, ReplicaSpec] | None = None

    class OddJob(Job):
        spec: OddSpec = Field(default_factory=OddSpec)

    with pytest.raises(TypeError, match=r"OddSpec\.odd_replica_specs: the field has no description"):
        job_schema(OddJob, shipped(), "v1")


def at(schema: Schema, path: str) -> Schema:
    """The schema below ``path``: ``*`` is any key of a map, ``[]`` any item of a list."""
    for step in path.split("."):
        match step:
            case "*":
                schema = schema["additionalProperties"]
            case "[]":
                schema = schema["items"]
            case _:
                schema = schema["properties"][step]
    return schema


def paths(schema: Schema, prefix: str = "") -> Iterator[str]:
    """Every path that ``at`` knows."""
    children = {f"{prefix}{name}": child for name, child in schema.get("properties", {}).items()}
    if "additionalProperties" in schema:
        children[f"{prefix}*"] = schema["additionalProperties"]
    if "items" in schema:
        children[f"{prefix}[]"] = schema["items"]
    for path, child in children.items():
        yield path
        yield from paths(child, f"{path}.")


def fields_of(model: type[Wire]) -> Iterator[str]:
    """Every JSON field of a model, read from the schema that pydantic generates, independently of our code."""
    document = model.model_json_schema(by_alias=True)
    yield from _walk(document, document["$defs"], "")


def _walk(node: Schema, definitions: Schema, prefix: str) -> Iterator[str]:
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]]
    for option in node.get("anyOf", ()):
        if option != {"type": "null"}:
            yield from _walk(option, definitions, prefix)
    for name, child in node.get("properties", {}).items():
        yield f"{prefix}{name}"
        if f"{prefix}{name}" != "metadata":  # the API server's, not ours
            yield from _walk(child, definitions, f"{prefix}{name}.")
    if isinstance(node.get("additionalProperties"), dict):
        yield f"{prefix}*"
        yield from _walk(node["additionalProperties"], definitions, f"{prefix}*.")
    if "items" in node:
        yield f"{prefix}[]"
        yield from _walk(node["items"], definitions, f"{prefix}[].")
