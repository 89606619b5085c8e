"""The commands of docs/how-to/helm.md on a real API server, in an order in which one person may run them."""

import re
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from tests.support.helm import helm
from tests.support.kubectl import ROOT, run

PAGE = ROOT / "docs" / "how-to" / "helm.md"
ORIGINAL = ROOT / "tests" / "integration" / "training-operator.yaml"
GUIDE = PAGE.with_name("upgrade-from-training-operator.md")


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


def commands(heading: str, page: Path = PAGE) -> list[str]:
    """The commands under a heading, except those that wait for pods, which this control plane does not start, or need a registry."""
    found = re.split(rf"^#+ {heading}\n", page.read_text(), maxsplit=1, flags=re.MULTILINE)[1]
    section = re.split(r"^## ", found, maxsplit=1, flags=re.MULTILINE)[0]
    lines = re.findall(r"^ *((?:helm|kubectl) .*)$", section, re.MULTILINE)
    return [line for line in lines if " rollout " not in line and "oci://" not in line]


def execute(plane: ControlPlane, *lines: str) -> None:
    assert lines
    for line in lines:
        if line.startswith("helm"):
            _, *words = shlex.split(line.replace("deploy/helm", str(ROOT / "deploy" / "helm")))
            helm(*words, f"--kubeconfig={plane.kubeconfig()}")
        else:
            run(plane, line)


def deployed(plane: ControlPlane, namespace: str, name: str = "training-operator") -> Any:
    """The image of a Deployment, or None if there is none."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    if not plane.has(path):
        return None
    return plane.request("GET", path)["spec"]["template"]["spec"]["containers"][0]["image"].partition(":")[0]


def test_the_commands_of_the_page_do_what_it_says(plane: ControlPlane) -> None:
    image = "REGISTRY/rallypoint"
    run(plane, "kubectl apply --server-side -f deploy/crds.yaml")
    execute(plane, *commands("CRDs that exist already"))
    execute(plane, *commands("Upgrade"))
    assert deployed(plane, "rallypoint-system") == image
    execute(plane, *commands("Uninstall"))
    assert deployed(plane, "rallypoint-system") is None

    execute(plane, *commands("Install with Helm"))
    enforced = plane.request("GET", "/api/v1/namespaces/rallypoint-system")["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"
    assert deployed(plane, "rallypoint-system") == image
    execute(plane, *commands("Uninstall"))

    run(
        plane,
        f"kubectl apply --server-side --force-conflicts --field-manager=argocd-controller -f {ORIGINAL}",
    )
    guide = commands("Upgrade all kinds at once", GUIDE)
    execute(plane, *(line for line in guide if " apply " not in line))
    replace, shadow = commands("Replace a Go operator")
    execute(plane, shadow, replace)
    assert deployed(plane, "kubeflow") == image
    assert deployed(plane, "rallypoint-shadow", "rallypoint-shadow") == image
    role = plane.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/training-operator")
    assert "secrets" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    # The API server serves a definition that has just been created or replaced a moment later.
    jobs = "/apis/kubeflow.org/v1/namespaces/default/jaxjobs"
    plane.wait("JAXJobs are served", lambda: plane.has(jobs))
    assert "webhook-server" not in {
        port["name"]
        for port in plane.request("GET", "/api/v1/namespaces/kubeflow/services/training-operator")["spec"][
            "ports"
        ]
    }

    run(plane, "kubectl create namespace team-a")
    execute(plane, *commands("One namespace"))
    assert deployed(plane, "team-a") == image
