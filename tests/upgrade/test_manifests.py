"""The manifests of another commit are replaced by this one's, with kubectl, as the guide for upgrades says; jobs run on.

Each operator runs with its Deployment's arguments as its ServiceAccount, the other commit's with its own packages.
"""

import re
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rallypoint.testing.audit import policy
from rallypoint.testing.checkout import Checkout
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import KUBEFLOW, STANDALONE, Service, in_cluster_service
from tests.support.kubectl import ROOT, run
from tests.support.rights import denied_rights
from tests.support.running_jobs import MPI_V2BETA1, OTHERS, Jobs

KINDS = (*OTHERS, MPI_V2BETA1)
OVERLAYS = {"kubeflow": KUBEFLOW, "rallypoint-system": STANDALONE}
"""The overlay that continues an installation in a namespace."""


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    accounts = [f"system:serviceaccount:{namespace}:training-operator" for namespace in OVERLAYS]
    with ControlPlane(nodes=1, audit_policy=policy(accounts, watches=True)) as plane:
        yield plane


def namespace_of(manifest: Path) -> str:
    documents = yaml.load_all(manifest.read_text(), Loader=yaml.CSafeLoader)
    (namespace,) = (
        document["metadata"]["namespace"] for document in documents if document["kind"] == "Deployment"
    )
    return str(namespace)


def installed(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/training-operator"
    deployment: dict[str, Any] = plane.request("GET", path)
    return deployment


def operator_of(checkout: Checkout, plane: ControlPlane, namespace: str) -> AbstractContextManager[Service]:
    return in_cluster_service(plane, deployment=installed(plane, namespace), python=checkout.python)


def uninstall(plane: ControlPlane, namespace: str) -> None:
    """Run the commands of the page."""
    page = (ROOT / "docs" / "how-to" / "uninstall.md").read_text().replace("rallypoint-system", namespace)
    text = page.partition("\n## Stop the operator\n")[2].partition("\nWhat components have installed:\n")[0]
    commands = re.findall(r"^ *(kubectl .*)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        run(plane, command)


def test_jobs_run_on_while_the_manifests_are_replaced_restored_and_removed(
    plane: ControlPlane, previous: Checkout
) -> None:
    manifest, jobs = previous.folder / "deploy" / "standalone.yaml", Jobs(plane)
    namespace = namespace_of(manifest)
    run(plane, f"kubectl apply --server-side -f {manifest}")
    with operator_of(previous, plane, namespace):
        jobs.start(KINDS, "old")
    jobs.remember_now()
    pods = jobs.pods()

    run(plane, f"kubectl apply --server-side -k {OVERLAYS[namespace]}")
    with in_cluster_service(plane, deployment=installed(plane, namespace)):
        jobs.start(KINDS, "new")

    run(plane, f"kubectl apply --server-side -f {manifest}")
    with operator_of(previous, plane, namespace):
        jobs.start(KINDS, "restored")

    run(plane, f"kubectl apply --server-side -k {OVERLAYS[namespace]}")
    uninstall(plane, namespace)
    assert run(plane, f"kubectl -n {namespace} get deployments,services,roles -o name") == ""
    assert [change for change in jobs.changes(but="") if "-old-" in change] == []

    run(plane, f"kubectl apply --server-side -k {OVERLAYS[namespace]}")
    with in_cluster_service(plane, deployment=installed(plane, namespace)):
        jobs.start(KINDS, "later")
        assert {name: pod for name, pod in jobs.pods().items() if name in pods} == pods
        for kind in KINDS:
            jobs.finish(kind, "old")
    assert denied_rights(plane) == []
