"""Puts the folders that ``pyproject.toml`` lists into the wheel. An editable install reads them where they are."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Folders(BuildHookInterface[Any]):
    """Hatchling's own ``force-include`` would copy the folders into editable installs, too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"] |= {folder: Path(folder).name for folder in self.config["folders"]}
