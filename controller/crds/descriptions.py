"""Descriptions of fields, from the docstrings beneath them in the source of the models.

Python drops the docstrings of attributes when it compiles a module, so they cost a running operator nothing. This module parses the source
when definitions are generated.

A description is the first paragraph of the docstring; the others are for maintainers.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise

from api.job import Job
from api.meta import Wire

_FIRST_SENTENCE = re.compile(r".+?\.(?= |$)")


def full(description: str) -> str:
    return description


def first_sentence(description: str) -> str:
    found = _FIRST_SENTENCE.match(description)
    return found[0] if found else description


def form(model: type[Job], version: str, storage_version: str) -> Callable[[str], str]:
    """Return the function that shortens the descriptions of one version of a kind.

    All versions of a definition share the 262,144 bytes that client-side ``kubectl apply`` can store. Versions of one kind have the same
    fields, so alpha versions refer to the storage version, which ``kubectl explain`` shows by default.
    """
    if not model.other_versions:
        return full
    if "alpha" in version:
        return lambda _: f"See {storage_version}."
    return first_sentence


def of_field(model: type[Wire], name: str) -> str:
    """Return the description of a field of the model or of its base classes.

    Raises:
        TypeError: the field has no docstring.
    """
    for base in model.__mro__:
        if issubclass(base, Wire) and (found := attribute_docstrings(base).get(name)):
            return plain(found)
    raise TypeError("the field has no description; write a docstring beneath it")


def of_model(model: type[Wire]) -> str:
    """Return the description of a model itself."""
    return plain(inspect.cleandoc(model.__doc__ or ""))


@cache
def attribute_docstrings(type_: type) -> Mapping[str, str]:
    """Return the docstrings beneath the attributes of a class, without those of its base classes.

    Raises:
        OSError: the source is not available.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(type_))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found


def plain(docstring: str) -> str:
    """Return the first paragraph of a docstring on one line, with the code marks of Markdown."""
    paragraph = docstring.partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")
