"""Suggestions for unknown fields, in the schemas of a custom resource and of a built-in kind."""

from typing import Any

import pytest

from rallypoint.local.field_names import suggestion


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


CONTAINER = fields(name={}, command={}, image={})
SPECS = {
    "additionalProperties": fields(
        replicas={}, restartPolicy={}, template={"allOf": [{"$ref": "#/components/schemas/T"}]}
    )
}
JOB = fields(
    apiVersion={},
    kind={},
    metadata={"type": "object"},
    spec=fields(specs=SPECS, runPolicy=fields(backoffLimit={})),
)
DOCUMENT = {
    "components": {
        "schemas": {
            "Job": {
                **JOB,
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Job"}],
            },
            "T": fields(
                containers={"type": "array", "items": CONTAINER}, nested={"$ref": "#/components/schemas/T"}
            ),
        }
    }
}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        pytest.param("spec.specs.Master.replicsa", "replicas", id="two letters swapped"),
        pytest.param("spec.specs.Master.restartpolicy", "restartPolicy", id="other case"),
        pytest.param(
            "spec.specs.Master.template.containers[0].comand", "command", id="in a list, by reference"
        ),
        pytest.param("metadata.lables", "labels", id="metadata without a schema"),
        pytest.param("spec.backoffLimit", "spec.runPolicy.backoffLimit", id="in the wrong object"),
        pytest.param("spec.image", "spec.specs.*.template.containers[].image", id="below maps and lists"),
        pytest.param("spec.somethingElse", "", id="nothing like it"),
        pytest.param("spec.none.replicsa", "", id="below an unknown field"),
    ],
)
def test_the_suggested_field(path: str, meant: str) -> None:
    assert suggestion(DOCUMENT, "g", "Job", path) == meant


def test_without_a_schema_there_is_no_suggestion() -> None:
    assert suggestion({}, "g", "Job", "spec.replicsa") == ""
    assert suggestion(DOCUMENT, "g", "Other", "spec.replicsa") == ""
