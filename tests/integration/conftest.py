"""Fixtures of integration tests: the definitions that a cluster needs."""

from pathlib import Path

import pytest

from rallypoint.testing.controlplane import ControlPlane

_MANIFESTS = Path(__file__).parents[2] / "manifests"


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> list[Path]:
    """Our CustomResourceDefinitions, those of opt-in kinds too, installed from ``manifests``; the files they come from."""
    files = sorted(_MANIFESTS.glob("**/kubeflow.org_*.yaml"))
    control_plane.apply_files(*files)
    return files
