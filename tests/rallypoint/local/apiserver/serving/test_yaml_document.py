"""YAML from clients: aliases are allowed unless they expand to a huge document."""

import pytest

from rallypoint.local.apiserver.serving.yaml_document import MAX_VALUES, TooManyAliases, yaml_document

MULTIPLYING = "a0: &a0 [x, x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 64))


def test_aliases_expand_to_their_values() -> None:
    assert yaml_document(b"a: &a {b: 1}\nc: *a") == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_long_document_without_aliases_is_parsed() -> None:
    assert len(yaml_document(b"[" + b"1," * 5000 + b"'*']")) == 5001


@pytest.mark.parametrize(
    "text", [MULTIPLYING, "a: &a [*a]"], ids=["aliases that multiply", "an alias in itself"]
)
def test_a_document_that_expands_without_bounds_is_rejected(text: str) -> None:
    with pytest.raises(TooManyAliases):
        yaml_document(text.encode())


def test_the_limit_counts_values_instead_of_bytes() -> None:
    line = b"a: &a [" + b"1," * 1000 + b"1]\n"

    assert len(yaml_document(line + b"b: [" + b"*a," * 500 + b"1]")["b"]) == 501
    with pytest.raises(TooManyAliases):
        yaml_document(line + b"b: [" + b"*a," * (MAX_VALUES // 1000) + b"1]")
