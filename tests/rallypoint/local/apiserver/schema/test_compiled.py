import pytest

from rallypoint.local.apiserver.schema.structural import compiled

SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}}


def test_equal_schemas_are_compiled_once() -> None:
    assert compiled({**SCHEMA}) is compiled(SCHEMA)
    assert compiled({**SCHEMA, "required": ["size"]}).required == ("size",)
    assert compiled(SCHEMA).required == ()


def test_a_schema_that_is_not_valid_fails_each_time() -> None:
    schema = {**SCHEMA, "x-kubernetes-validations": [{"rule": "self.size >"}]}

    for _ in range(2):
        with pytest.raises(ValueError, match=r"self\.size"):
            compiled(schema)
