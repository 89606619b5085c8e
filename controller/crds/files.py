"""CustomResourceDefinitions as YAML files, one a kind, named as the original names them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

HEADER = (
    "# Made by `rallypoint crds`; edit the wire types in api/ or the generator in controller/crds/ instead.\n"
)


class _Dumper(yaml.CSafeDumper):
    """Schemas repeat themselves; an alias for what is said before would be unreadable, and not every tool follows it."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(definition: dict[str, Any]) -> str:
    """One YAML document. The innermost maps stand on one line, so that a pod template is a few pages, not hundreds."""
    return "---\n" + yaml.dump(
        definition, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120
    )


def file_name(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    return f"{spec['group']}_{spec['names']['plural']}.yaml"


def write(definitions: Iterable[dict[str, Any]], folder: Path) -> list[Path]:
    """Write a file for each definition into ``folder``, which is made if need be; files of other names stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for definition in definitions:
        path = folder / file_name(definition)
        path.write_text(HEADER + to_yaml(definition), encoding="utf-8")
        paths.append(path)
    return paths
