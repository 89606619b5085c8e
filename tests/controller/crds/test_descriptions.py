"""Descriptions of fields: every field of ours has one, in each version, and they come from the docstrings of the models."""

from collections.abc import Iterator

import pytest

from api.job import ReplicaSpec, RestartPolicy
from api.meta import Wire
from api.mpijob import MPIJob
from api.v1.pytorchjob import PyTorchJob
from controller.crds import all_crds
from controller.crds.definition import crd
from controller.crds.descriptions import attribute_docstrings, first_sentence, form, full, of_field, of_model
from controller.crds.jobs import job_schema
from controller.crds.kubernetes import shipped
from controller.crds.openapi import Schema
from controller.kinds import ALL
from controller.kinds.mpi import MPI

VERSIONS = [
    pytest.param(
        version["schema"]["openAPIV3Schema"], id=f"{definition['metadata']['name']}-{version['name']}"
    )
    for definition in all_crds()
    for version in definition["spec"]["versions"]
]
SET_BY_THE_API_SERVER = {"apiVersion", "kind", "metadata"}
"""Fields whose descriptions the API server publishes itself."""


class Base(Wire):
    width: int = 0
    """Width in pixels.

    Source: somewhere.
    """
    height: int = 0
    """Height of ``this``, on
    two lines. Defaults to 0.
    """


class Derived(Base):
    depth: int = 0
    height: int = 1
    """Another height."""


@pytest.mark.parametrize("schema", VERSIONS)
def test_every_field_of_ours_has_a_description(schema: Schema) -> None:
    own = dict(own_fields(schema))

    assert {"spec", "spec.runPolicy.schedulingPolicy.queue", "status.conditions"} < own.keys()
    assert [path for path, field in own.items() if not field.get("description")] == []
    assert schema["description"]


@pytest.mark.parametrize("schema", VERSIONS)
def test_descriptions_are_sentences(schema: Schema) -> None:
    """They have the code marks of Markdown, not of reStructuredText."""
    for path, field in own_fields(schema):
        text = field["description"]
        assert text[0].isupper() or text[0] in "`v", f"{path}: {text}"
        assert text.endswith("."), f"{path}: {text}"
        assert "``" not in text, f"{path}: {text}"
        assert text.count("`") % 2 == 0, f"{path}: {text}"
        assert text == " ".join(text.split()), f"{path}: {text}"


def test_pod_templates_have_no_descriptions_of_their_fields() -> None:
    pods = shipped()
    schema = job_schema(PyTorchJob, pods, "v1")
    template = schema["properties"]["spec"]["properties"]["pytorchReplicaSpecs"]["additionalProperties"][
        "properties"
    ]["template"]

    assert template["description"].startswith("Template of the role's pods.")
    assert "description" not in pods.template
    assert not [path for path, field in fields(template) if "description" in field]


def test_a_description_is_the_first_paragraph_of_the_docstring() -> None:
    assert of_field(Base, "width") == "Width in pixels."
    assert of_field(Base, "height") == "Height of `this`, on two lines. Defaults to 0."


def test_a_field_is_described_by_the_nearest_class_that_declares_it() -> None:
    assert of_field(Derived, "height") == "Another height."
    assert of_field(Derived, "width") == "Width in pixels."


def test_a_field_without_a_docstring_is_named() -> None:
    assert "depth" not in attribute_docstrings(Derived)
    with pytest.raises(TypeError, match="write a docstring beneath it"):
        of_field(Derived, "depth")


def test_a_kind_is_described_by_its_docstring() -> None:
    assert of_model(PyTorchJob).startswith("A training job of PyTorch")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1", "Number of ranks, as in `a.b`."),
        ("v2beta1", "Number of ranks, as in `a.b`."),
        ("v1alpha2", "See v1."),
    ],
)
def test_versions_of_one_definition_share_its_size(version: str, expected: str) -> None:
    described = form(MPIJob, version, "v1")("Number of ranks, as in `a.b`. Defaults to 1.")

    assert described == expected


def test_a_kind_with_one_version_has_whole_descriptions() -> None:
    assert form(PyTorchJob, "v1", "v1") is full


def test_the_first_sentence_of_a_text_without_any_is_the_text() -> None:
    assert first_sentence("no sentence") == "no sentence"


def test_a_description_of_one_kind_takes_precedence() -> None:
    schemas = {
        version["name"]: version["schema"]["openAPIV3Schema"]
        for version in crd(MPI.resource, MPIJob, shipped())["spec"]["versions"]
    }

    def limit(version: str) -> str:
        policy = schemas[version]["properties"]["spec"]["properties"]["runPolicy"]["properties"]
        return str(policy["backoffLimit"]["description"])

    assert limit("v1") == "Number of restarts at which the job fails."
    assert limit("v2beta1") == limit("v1alpha2") == "Number of retries of the launcher. Defaults to `6`."


def test_the_described_default_of_the_restart_policy_is_that_of_each_kind() -> None:
    on_failure = {
        kind.resource.kind for kind in ALL if getattr(kind, "restart_policy", "") == RestartPolicy.ON_FAILURE
    }

    assert on_failure == {"PyTorchJob", "PaddleJob"}
    assert of_field(ReplicaSpec, "restart_policy").endswith(
        "Defaults to `Never`; to `OnFailure` in PyTorchJobs, PaddleJobs and launchers of v2beta1 and v1alpha2 MPIJobs; "
        "to `Always` in workers of v1alpha2 MPIJobs."
    )


def own_fields(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the fields that our models define, and the two whose contents come from Kubernetes."""
    for path, field in fields(schema):
        top, _, rest = path.partition(".")
        inside = any(
            f".{name}." in f"{path}." and not path.endswith(f".{name}")
            for name in ("template", "metrics", "labelSelector")
        )
        if (
            inside
            or path.endswith(("[]", "*"))
            or (not rest and top in SET_BY_THE_API_SERVER)
            or path == "metadata.name"
        ):
            continue
        yield path, field


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every node below a schema with its path: ``*`` is any key of a map, ``[]`` any item of a list."""
    children = {f"{prefix}{name}": child for name, child in schema.get("properties", {}).items()}
    if "additionalProperties" in schema:
        children[f"{prefix}*"] = schema["additionalProperties"]
    if "items" in schema:
        children[f"{prefix}[]"] = schema["items"]
    for path, child in children.items():
        yield path, child
        yield from fields(child, f"{path}.")
