"""CustomResourceDefinitions as YAML files, one per kind, with the file names of the original."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

HEADER = (
    "# Made by `rallypoint crds`; edit the wire types in api/ or the generator in controller/crds/ instead.\n"
)


class _Dumper(yaml.CSafeDumper):
    """Writes repeated parts in full: aliases would be unreadable, and some tools do not support them."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(definition: dict[str, Any]) -> str:
    """Return one YAML document. The innermost maps take one line each, so that a pod template has a few pages, not hundreds."""
    return "---\n" + yaml.dump(
        definition, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120
    )


def file_name(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    return f"{spec['group']}_{spec['names']['plural']}.yaml"


def write(definitions: Iterable[dict[str, Any]], folder: Path) -> list[Path]:
    """Write a file for each definition into ``folder``, and create the folder if needed. Other files stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for definition in definitions:
        path = folder / file_name(definition)
        path.write_text(HEADER + to_yaml(definition), encoding="utf-8")
        paths.append(path)
    return paths
