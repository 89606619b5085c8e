"""Protected metrics with a real API server: tokens of ServiceAccounts, the shipped rights, a certificate that is replaced."""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import write_private
from rallypoint.testing.controlplane.process import free_port
from rallypoint.testing.service import ACCOUNT, MANIFESTS, OPERATOR_NAMESPACE, in_cluster_service, install
from tests.support.rights import denied_rights, granted_rights, requested_rights

NAMESPACE = "monitoring"
COMPONENT = MANIFESTS / "components" / "secure-metrics"
READER = "training-operator-metrics-reader"
AUDIENCE = "training-operator-metrics"


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The overlay ``standalone`` with the component."""
    folder = tmp_path_factory.mktemp("overlay")
    standalone = MANIFESTS / "overlays" / "standalone"
    text = {
        "namespace": OPERATOR_NAMESPACE,
        "resources": [os.path.relpath(standalone, folder)],
        "components": [os.path.relpath(COMPONENT, folder)],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(text))
    return folder


@pytest.fixture(scope="module")
def plane(overlay: Path) -> Generator[ControlPlane]:
    """A cluster with two accounts of a namespace: ``prometheus``, which may get the metrics, and ``default``."""
    with ControlPlane(audit_policy=policy([ACCOUNT], watches=True)) as plane:
        install(plane, overlay)
        core, rbac = "v1", "rbac.authorization.k8s.io"
        plane.apply({"apiVersion": core, "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
        plane.apply(
            {
                "apiVersion": core,
                "kind": "ServiceAccount",
                "metadata": {"name": "prometheus", "namespace": NAMESPACE},
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "prometheus-metrics"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": READER},
                "subjects": [account],
            },
        )
        plane.wait("the account", lambda: plane.has(_account("default")), seconds=30)
        yield plane


def _account(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}"


def token(plane: ControlPlane, account: str, *audiences: str) -> str:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600, **({"audiences": list(audiences)} if audiences else {})},
    }
    return str(plane.request("POST", f"{_account(account)}/token", body)["status"]["token"])


class Endpoint:
    """The protected metrics at an address."""

    def __init__(self, address: str, authority: Path | None = None) -> None:
        self._url = f"https://{address}/metrics"
        self.context = ssl.create_default_context(cafile=authority)
        if authority is None:
            self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def get(self, token: str = "") -> tuple[int, str]:
        """Return the status and the text of the answer."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self._url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=15, context=self.context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()


def test_only_an_account_with_the_right_gets_the_metrics_from_leader_and_standby(
    plane: ControlPlane, overlay: Path
) -> None:
    good, other = token(plane, "prometheus"), token(plane, "default")
    for_another = token(plane, "prometheus", "vault")
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    options: dict[str, Any] = {"overlay": overlay, "flags": ["--log-level=debug"]}
    with (
        in_cluster_service(plane, replica="one", metrics_address=addresses[0], **options) as one,
        in_cluster_service(plane, replica="two", metrics_address=addresses[1], **options) as two,
    ):
        for address in addresses:
            endpoint = Endpoint(address)
            assert endpoint.get()[0] == 401
            assert endpoint.get("not-a-token")[0] == 401
            assert endpoint.get(good[:-4] + "AAAA")[0] == 401
            assert endpoint.get(for_another)[0] == 401
            status, text = endpoint.get(other)
            assert (status, text) == (
                403,
                "Forbidden: system:serviceaccount:monitoring:default cannot get /metrics\n",
            )
            status, text = endpoint.get(good)
            assert status == 200
            assert 'rallypoint_metrics_reviews_total{result="denied",review="token"} 3.0' in text
            assert 'rallypoint_metrics_reviews_total{result="denied",review="access"} 1.0' in text
            assert "rallypoint_metrics_certificate_expiry_timestamp_seconds" in text
        logs = one.process.log.read_text() + two.process.log.read_text()

    assert denied_rights(plane) == []
    assert granted_rights("ClusterRole", COMPONENT, READER) <= requested_rights(plane)
    assert logs.count('"token refused"') == 6
    assert not [secret for secret in (good, other, for_another) if secret.rpartition(".")[2] in logs]


def test_a_token_can_be_required_to_be_for_the_metrics_alone(plane: ControlPlane, overlay: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--metrics-token-audiences={AUDIENCE}"]
    with in_cluster_service(plane, flags, overlay=overlay, metrics_address=address):
        endpoint = Endpoint(address)
        assert endpoint.get(token(plane, "prometheus", AUDIENCE))[0] == 200
        assert endpoint.get(token(plane, "prometheus"))[0] == 401


def test_a_certificate_of_an_authority_is_verified_and_replaced_while_it_serves(
    plane: ControlPlane, overlay: Path, tmp_path: Path
) -> None:
    def issue() -> str:
        pair = plane.authority.issue("metrics")
        for name, file in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            new = write_private(tmp_path / "new", file.read_bytes())
            new.rename(tmp_path / name)
        return pair.certificate.read_text()

    def served() -> str:
        host, port = address.split(":")
        return ssl.get_server_certificate((host, int(port)))

    address = f"127.0.0.1:{free_port()}"
    first = issue()
    flags = [f"--metrics-cert-path={tmp_path}"]
    with in_cluster_service(plane, flags, overlay=overlay, metrics_address=address):
        endpoint = Endpoint(address, plane.authority.path)
        good = token(plane, "prometheus")
        assert endpoint.get(good)[0] == 200
        assert served().strip() == first.strip()
        second = issue()
        plane.wait("the other certificate", lambda: served().strip() == second.strip(), seconds=60)
        assert endpoint.get(good)[0] == 200
