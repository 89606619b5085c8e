# mypy: disable-error-code="explicit-override"
# The environments that build have no typing_extensions.
"""What both distributions add to hatchling's builds: folders outside of the project's, the commit, and a readme whose links work anywhere."""

import posixpath
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMMIT = "COMMIT"
"""Name of the file with the commit: in the root of a source distribution, and in a wheel's ``extra_metadata``."""
_RELATIVE_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def commit(root: Path) -> str:
    """Return the commit that ``root`` is built from, with ``-dirty`` if tracked files differ from it; empty outside of a repository."""
    if (root / COMMIT).is_file():
        return (root / COMMIT).read_text(encoding="utf-8").strip()
    for folder in (root, *root.parents[:2]):
        if (folder / ".git").exists():
            # Without --exclude, a tag's name would stand in place of the commit.
            command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            return done.stdout.strip()
    return ""


def absolute_links(text: str, url: str, version: str, folder: str = "") -> str:
    """Return Markdown whose relative links lead to the files of this version's tag at ``url``.

    Args:
        folder: where the text's file lies in the repository.
    """

    def absolute(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        view = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({url}/{view}/v{version}/{path})"

    return _RELATIVE_LINK.sub(absolute, text)


class Contents(BuildHookInterface[Any]):
    """Adds the folders that ``pyproject.toml`` lists, and the commit. An editable install reads both where they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a build; hatchling's own ``force-include`` would copy the folders into editable installs, too."""
        self._scratch = TemporaryDirectory()
        if version != "standard":
            return
        root = Path(self.root)
        for folder in self.config.get("folders", []):
            name = Path(folder).name
            # A source distribution has the folders inside.
            build_data["force_include"][str(root / name if (root / name).is_dir() else folder)] = name
        if known := commit(root):
            file = Path(self._scratch.name, COMMIT)
            file.write_text(known + "\n", encoding="utf-8")
            build_data["extra_metadata" if self.target_name == "wheel" else "force_include"][str(file)] = (
                COMMIT
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after a build."""
        self._scratch.cleanup()


class Readme(MetadataHookInterface):
    """Sets the long description: the readme, with links that work outside of the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called with the table ``project``."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        links = absolute_links(
            text, metadata["urls"]["Repository"], metadata["version"], self.config.get("folder", "")
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": links}
