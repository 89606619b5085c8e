"""Prometheus reads protected metrics as the how-to page configures it: over TLS, with the token of its ServiceAccount."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import free_port
from rallypoint.testing.service import MANIFESTS, OPERATOR_NAMESPACE, in_cluster_service, install
from tests.support.monitoring.prometheus import Object, Prometheus, prometheus
from tests.support.pages import blocks

PAGE = MANIFESTS.parent / "docs" / "how-to" / "secure-metrics.md"
NAMESPACE = "monitoring"
ACCOUNTS = {"prometheus": "training-operator-metrics-reader", "stranger": ""}
"""Names, and the ClusterRoles that they are bound to."""


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ControlPlane, Prometheus]]:
    """Prometheus scrapes an operator as each account, and with ``http`` and no token."""
    folder = tmp_path_factory.mktemp("protected")
    overlay = {
        "namespace": OPERATOR_NAMESPACE,
        "resources": [os.path.relpath(MANIFESTS / "overlays" / "standalone", folder)],
        "components": [os.path.relpath(MANIFESTS / "components" / "secure-metrics", folder)],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    address = f"127.0.0.1:{free_port()}"
    with ControlPlane() as plane:
        install(plane, folder)
        plane.apply(*_accounts())
        scrapes = [_scrape(plane, address, name) for name in ACCOUNTS]
        scrapes.append({"job_name": "plain", "static_configs": [{"targets": [address]}]})
        with (
            in_cluster_service(plane, overlay=folder, metrics_address=address),
            prometheus(plane, folder, scrapes, []) as server,
        ):
            yield plane, server


def _accounts() -> Generator[Object]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    rbac = "rbac.authorization.k8s.io"
    for name, role in ACCOUNTS.items():
        metadata = {"name": name, "namespace": NAMESPACE}
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        if role:
            yield {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{name}-metrics"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", **metadata}],
            }


def _scrape(plane: ControlPlane, address: str, account: str) -> Object:
    """The page's configuration with another path of the token, and with an address in place of discovery."""
    (text,) = (block.text for block in blocks(PAGE, "yaml") if block.text.startswith("scrape_configs:"))
    (scrape,) = yaml.safe_load(text)["scrape_configs"]
    folder: Path = plane.service_account_folder(NAMESPACE, account)
    kept: Any = {key: scrape[key] for key in ("scheme", "tls_config")}
    return {
        **kept,
        "job_name": account,
        "authorization": {**scrape["authorization"], "credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [address]}],
    }


@pytest.mark.parametrize(
    ("job", "error"),
    [
        pytest.param("prometheus", "", id="an account with the right"),
        pytest.param("stranger", "server returned HTTP status 403 Forbidden", id="an account without it"),
        pytest.param("plain", "EOF", id="neither TLS nor a token"),
    ],
)
def test_prometheus_scrapes_with_the_right_account_only(
    scraping: tuple[ControlPlane, Prometheus], job: str, error: str
) -> None:
    plane, server = scraping

    plane.wait("a scrape", lambda: bool(server.query(f'up{{job="{job}"}}')), seconds=30)
    (target,) = (target for target in server.targets() if target["labels"]["job"] == job)
    assert (target["health"], error in target["lastError"]) == ("down" if error else "up", True)
    assert bool(server.query(f'rallypoint_build_info{{job="{job}"}}')) == (not error)
