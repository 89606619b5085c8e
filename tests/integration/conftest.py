"""Fixtures of integration tests: the definitions that a cluster needs."""

from pathlib import Path

import pytest

from rallypoint.testing.controlplane import ControlPlane

_CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> list[Path]:
    """Our CustomResourceDefinitions, installed from ``manifests``; the files they come from."""
    files = sorted(path for path in _CRDS.glob("*.yaml") if path.name != "kustomization.yaml")
    control_plane.apply_files(*files)
    return files
