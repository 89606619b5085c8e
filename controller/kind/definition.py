"""Checks of the definition of a kind, so that a mistake stops the program at its start and not a user's job."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from api.job import RestartPolicy
from api.meta import Resource
from api.names import LONGEST_NAME

LONGEST_PORT_NAME: Final = 15
"""Maximum length of a container port's name, from RFC 6335."""
LONGEST_ROLE: Final = 32
"""Maximum length of a role name: a pod's name contains the job's name, the role and the index, and has at most 63 characters."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_TEXT = "lower-case letters, digits and '-', with a letter or digit at both ends"
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ROLE = re.compile(r"[A-Za-z0-9]+")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


class InvalidKind(ValueError):
    """The definition of a kind is invalid; the message names each field and the problem."""


class Named(Protocol):
    """The members of every kind that are checked."""

    @property
    def resource(self) -> Resource: ...
    @property
    def controller_name(self) -> str: ...


class Defined(Named, Protocol):
    """The members of a kind with indexed pods that are checked."""

    @property
    def container(self) -> str: ...
    @property
    def port_name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def restart_policy(self) -> str: ...
    @property
    def role_names(self) -> tuple[str, ...]: ...


def require(kind: Named, problems: Iterator[str]) -> None:
    """Raise if the definition of a kind is invalid.

    Raises:
        InvalidKind: there are problems.
    """
    if found := list(problems):
        raise InvalidKind(f"{kind.resource.kind}: {'; '.join(found)}")


def name_problems(kind: Named) -> Iterator[str]:
    """Return the problems of those names of a kind that URLs and labels contain."""
    if not _LABEL.fullmatch(kind.resource.plural):
        yield f"the plural {kind.resource.plural!r} must be {_LABEL_TEXT}"
    if len(kind.controller_name) > LONGEST_NAME or not _LABEL_VALUE.fullmatch(kind.controller_name):
        yield (
            f"controller_name {kind.controller_name!r} must be a label value: at most {LONGEST_NAME} letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )


def replica_problems(kind: Defined) -> Iterator[str]:
    """Return the problems of a kind's port, container, roles and restart policy."""
    yield from name_problems(kind)
    if len(kind.port_name) > LONGEST_PORT_NAME:
        yield (
            f"port_name {kind.port_name!r} has {len(kind.port_name)} characters; Kubernetes allows {LONGEST_PORT_NAME} at most"
        )
    elif not _PORT_NAME.fullmatch(kind.port_name):
        yield f"port_name {kind.port_name!r} must be {_LABEL_TEXT}, with at least one letter and no '--'"
    if not 0 < kind.port < 65536:
        yield f"port {kind.port} must be from 1 to 65535"
    if len(kind.container) > LONGEST_NAME or not _LABEL.fullmatch(kind.container):
        yield f"container {kind.container!r} must be at most {LONGEST_NAME} {_LABEL_TEXT}"
    if kind.restart_policy not in set(RestartPolicy):
        yield f"restart_policy {kind.restart_policy!r} must be one of {', '.join(RestartPolicy)}"
    if not kind.role_names:
        yield "role_names must name at least one role"
    for name in kind.role_names:
        if len(name) > LONGEST_ROLE or not _ROLE.fullmatch(name):
            yield f"role {name!r} must be at most {LONGEST_ROLE} letters and digits: it is a label and a part of pod names"
    labels = [name.lower() for name in kind.role_names]
    if len(set(labels)) < len(labels):
        yield "role_names must differ in more than case"


def not_tuples(fields: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Return the fields that are one text instead of a tuple: ``("Head")`` is not a tuple."""
    for field, names in fields.items():
        if isinstance(names, str):
            yield f'{field} must be a tuple of names; a tuple of one name has a comma: ("{names}",)'


def require_distinct(kinds: Iterable[Named]) -> None:
    """Raise if two kinds have a name in common.

    Raises:
        InvalidKind: they have.
    """
    resources = [kind.resource for kind in kinds]
    for field, names in {
        "kind": [resource.kind for resource in resources],
        "plural": [resource.plural for resource in resources],
    }.items():
        for name, count in Counter(names).items():
            if count > 1:
                raise InvalidKind(f"{count} kinds have the {field} {name!r}; each needs its own")


def unknown_roles(kind: Defined, fields: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Return the roles in the given fields that the kind does not have."""
    for field, names in fields.items():
        for name in names:
            if name not in kind.role_names:
                yield f"{field} names {name!r}, which is none of role_names ({', '.join(kind.role_names)})"


UNSET: Any = None
"""The default of a field that ``__post_init__`` derives from the others."""
