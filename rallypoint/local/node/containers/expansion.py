"""``$(NAME)`` in commands, arguments and variables, by the kubelet's rules.

Source: Kubernetes, third_party/forked/golang/expansion/expand.go.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str], *, strict: bool = False) -> str:
    """``text`` with each ``$(NAME)`` replaced; an unknown name stays as written, ``$$`` is a plain ``$``.

    What comes out is not expanded again, and a ``$`` in front of anything else means itself.

    Raises:
        KeyError: a name is unknown, and that is not allowed (``strict``).
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return variables[name] if strict else variables.get(name, match.group(0))

    return _REFERENCE.sub(value, text)
