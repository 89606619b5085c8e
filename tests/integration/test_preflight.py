"""``rallypoint preflight`` on a cluster with jobs that a Go operator would harm."""

import copy
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane
from tests.support.mpiversions import manifest

US = "kubeflow.org/training-operator"


@pytest.fixture
def preflight_namespace(control_plane: ControlPlane, crds: list[Path]) -> Iterator[str]:
    """Yield a namespace whose jobs are deleted after the test, because other tests read all namespaces."""
    name = f"preflight-{secrets.token_hex(3)}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")
    path = f"/apis/kubeflow.org/v1/namespaces/{name}/mpijobs"
    control_plane.wait("jobs gone", lambda: not control_plane.request("GET", path)["items"])


def create(plane: ControlPlane, preflight_namespace: str, version: str, name: str, **policy: Any) -> None:
    body = copy.deepcopy(manifest(version, name, runPolicy=policy))
    plane.request("POST", f"/apis/kubeflow.org/{version}/namespaces/{preflight_namespace}/mpijobs", body)


def test_only_jobs_that_would_be_harmed_are_named(
    control_plane: ControlPlane, preflight_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(control_plane, preflight_namespace, "v1", "old")
    create(control_plane, preflight_namespace, "v2beta1", "new")
    create(control_plane, preflight_namespace, "v2beta1", "wrong", managedBy=US)
    create(control_plane, preflight_namespace, "v1alpha2", "older")
    config = f"--kubeconfig={control_plane.kubeconfig()}"

    assert main(["preflight", "training-operator", config]) == 1
    said = capsys.readouterr().out
    assert (
        f"MPIJob {preflight_namespace}/wrong: runs as v2beta1 and would get a second launcher as v1" in said
    )
    assert [name for name in ("old", "new", "older") if f"{preflight_namespace}/{name}:" in said] == []
    assert "Do not start training-operator" in said

    assert main(["preflight", "mpi-operator", config]) == 1
    said = capsys.readouterr().out
    assert f"MPIJob {preflight_namespace}/older: runs as v1alpha2 and would get a second launcher" in said
    assert f"MPIJob {preflight_namespace}/wrong: runs as v2beta1 and would have no operator" in said
    assert [name for name in ("old", "new") if f"{preflight_namespace}/{name}:" in said] == []

    assert main(["preflight", "training-operator", "--release=1.8", config]) == 1
    assert (
        f"{preflight_namespace}/new: runs as v2beta1 and would get a second launcher"
        in capsys.readouterr().out
    )


def test_nothing_is_harmed_once_the_jobs_are_right_or_over(
    control_plane: ControlPlane, preflight_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(control_plane, preflight_namespace, "v2beta1", "new")
    create(control_plane, preflight_namespace, "v2beta1", "wrong", managedBy=US)
    over = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    path = f"/apis/kubeflow.org/v1/namespaces/{preflight_namespace}/mpijobs/wrong/status"
    control_plane.request("PATCH", path, over)

    assert main(["preflight", "training-operator", f"--kubeconfig={control_plane.kubeconfig()}"]) == 0
    assert "training-operator would harm no unfinished job." in capsys.readouterr().out
