"""``$(NAME)`` as the kubelet expands it."""

import pytest

from rallypoint.local.node.containers.expansion import expand

VARIABLES = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "$(A)"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        pytest.param("$(A)", "one", id="a name"),
        pytest.param("$(A)-$(B)", "one-two", id="two names"),
        pytest.param("x$(EMPTY)y", "xy", id="an empty value"),
        pytest.param("$(UNKNOWN)", "$(UNKNOWN)", id="an unknown name stays"),
        pytest.param("$$(A)", "$(A)", id="two dollars escape"),
        pytest.param("$$$(A)", "$one", id="an escaped dollar before a name"),
        pytest.param("$$", "$", id="two dollars are one"),
        pytest.param("$A ${A}", "$A ${A}", id="a shell's own syntax is left to the shell"),
        pytest.param("$(A", "$(A", id="an open reference stays"),
        pytest.param("100$", "100$", id="a dollar at the end"),
        pytest.param("$(NESTED)", "$(A)", id="a value is not expanded again"),
    ],
)
def test_expand(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded
