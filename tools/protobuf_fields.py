"""Generates ``numbers.json``: the protobuf field numbers of Kubernetes types, read from their Go source.

    .venv/bin/python tools/protobuf_fields.py MODULES

MODULES is the folder of the ``k8s.io`` modules in a Go module cache. The types are those of ``core.json``, so run
``core_schemas.py`` first. A field is ``name``, or ``name*`` for a Go pointer, whose zero value is significant. The
fields of an inlined type are a nested table. Run it once per Kubernetes release.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, Union

import orjson

from rallypoint.local.apiserver.resources import builtin
from rallypoint.local.apiserver.serving import protobuf

TARGET = Path(protobuf.__file__).with_name("numbers.json")
SCHEMAS = Path(builtin.__file__).with_name("core.json")

EXTRA_TYPES = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
)
"""Types that no object contains."""

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(
    r"^\t(?:(?P<name>\w+)\s+)?(?P<type>[*\w.\[\]]+)\s+`.*?json:\"(?P<json>[^\"]*)\".*?protobuf:\"\w+,(?P<number>\d+)",
    re.MULTILINE,
)

FieldNumbers: TypeAlias = dict[str, Union[str, "FieldNumbers"]]


def field_numbers(types: dict[str, str], name: str) -> FieldNumbers:
    """Return the fields of a type; ``types`` are the bodies of all structs."""
    found: FieldNumbers = {}
    package = name.rpartition(".")[0]
    for field in _FIELD.finditer(types[name]):
        json_name, *options = field["json"].split(",")
        if not json_name and "inline" in options:
            found[field["number"]] = field_numbers(types, _full(package, field["type"]))
        else:
            found[field["number"]] = json_name + ("*" if field["type"].startswith("*") else "")
    return found


def _full(package: str, name: str) -> str:
    name = name.lstrip("*")
    return (
        f"io.k8s.apimachinery.pkg.apis.meta.v1.{name[7:]}"
        if name.startswith("metav1.")
        else f"{package}.{name}"
    )


def read_structs(modules: Path) -> Iterator[tuple[str, str]]:
    """Yield the OpenAPI name and the body of every Go struct of the API."""
    for module in sorted(modules.glob("*@*")):
        root = f"io.k8s.{module.name.partition('@')[0]}"
        if root not in ("io.k8s.api", "io.k8s.apimachinery", "io.k8s.apiextensions-apiserver"):
            continue
        for file in module.rglob("types*.go"):
            package = ".".join([root, *file.relative_to(module).parent.parts])
            for struct in _STRUCT.finditer(file.read_text()):
                yield f"{package}.{struct[1]}", struct[2]


def main(modules: Path) -> None:
    types = dict(read_structs(modules))
    names = [*orjson.loads(SCHEMAS.read_bytes())["definitions"], *EXTRA_TYPES]
    tables = {name: found for name in names if name in types and (found := field_numbers(types, name))}
    if not tables:
        sys.exit(f"{modules} has no types of the Kubernetes API")
    TARGET.write_bytes(orjson.dumps(tables, option=orjson.OPT_SORT_KEYS) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
