"""Writes ``rallypoint/cli/check/go_fields.json``: which fields the definitions of the Go operators have. Needs Go.

    .venv/bin/python -m tools.go_fields [FILE]

``nodes`` are the distinct schemas, which the kinds share: ``fields`` by name, ``values`` of a map, ``items`` of a list, each as an index,
and ``open`` if unknown fields are kept. ``operators`` has the node of the spec by operator and kind.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rallypoint.cli.check.go_operators import FIELDS_FILE, GO_OPERATORS
from rallypoint.testing.controlplane.programs import PROGRAMS
from rallypoint.testing.go_operators import definitions


def fields_of(documents_by_operator: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the content of the file for the definitions of each operator."""
    nodes: list[Any] = []
    numbers: dict[str, int] = {}

    def add(schema: Mapping[str, Any]) -> int:
        more = schema.get("additionalProperties")
        node: dict[str, Any] = {}
        if schema.get("x-kubernetes-preserve-unknown-fields") or more is True:
            node["open"] = True
        if schema.get("properties"):
            node["fields"] = {name: add(part) for name, part in sorted(schema["properties"].items())}
        if isinstance(more, dict):
            node["values"] = add(more)
        if "items" in schema:
            node["items"] = add(schema["items"])
        key = json.dumps(node, sort_keys=True)
        if key not in numbers:
            numbers[key] = len(nodes)
            nodes.append(node)
        return numbers[key]

    operators = {
        name: {
            definition["spec"]["names"]["kind"]: add(_spec(definition))
            for definition in sorted(documents, key=lambda document: str(document["metadata"]["name"]))
        }
        for name, documents in documents_by_operator.items()
    }
    versions = {name: PROGRAMS[name].version for name in documents_by_operator}
    return {"versions": versions, "operators": operators, "nodes": nodes}


def _spec(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    version = next(version for version in definition["spec"]["versions"] if version["storage"])
    spec: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def text(fields: Mapping[str, Any]) -> str:
    """Return JSON with one node per line."""
    nodes = ",\n".join(f"  {json.dumps(node)}" for node in fields["nodes"])
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(fields[key])}" for key in ("versions", "operators"))
    return f'{{\n{head},\n "nodes": [\n{nodes}\n ]\n}}\n'


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else FIELDS_FILE
    path.write_text(text(fields_of({name: definitions(name) for name in GO_OPERATORS})), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
