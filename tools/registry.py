"""Where releases are published. This module and ``[project.urls]`` of ``pyproject.toml`` are the only settings of it; whoever publishes elsewhere changes both.

Standard library only: jobs that hold credentials run it without an environment.
"""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

REPOSITORY: str = _PROJECT["urls"]["Repository"]
"""The forge's page of the repository."""
REGISTRY = "ghcr.io/rallypoint-dev"
"""The container registry with an owner's name; a placeholder until there is an account."""
IMAGE = f"{REGISTRY}/rallypoint"
CHARTS = f"{REGISTRY}/charts"
"""Where the chart is; Helm appends its name."""


def download(version: str, name: str) -> str:
    """Return the address of a file of a release."""
    return f"{REPOSITORY}/releases/download/v{version}/{name}"
