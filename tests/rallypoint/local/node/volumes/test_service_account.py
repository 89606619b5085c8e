"""Access of a pod to the API server: token files, variables, names and the CA certificate."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.meta import Resource
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.local.node.volumes.service_account import PATH, ApiServerAccess, with_mount
from tests.support.local_harness import LocalHarness, start_local_harness

pytestmark = pytest.mark.looptime(False)

ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")

ASK = f"""
import json, os, ssl, sys, urllib.error, urllib.request
place = {PATH!r}
def read(name): return open(os.path.join(place, name)).read()
context = ssl.create_default_context(cafile=place + "/ca.crt")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}), urllib.request.HTTPSHandler(context=context))
def ask(host, path, body=None):
    headers = {{"Authorization": "Bearer " + read("token"), "Content-Type": "application/json"}}
    data = body and json.dumps(body).encode()
    try:
        return json.load(opener.open(urllib.request.Request("https://" + host + path, data, headers)))["kind"]
    except urllib.error.HTTPError as error:
        return error.code
service = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
pods = "/api/v1/namespaces/" + read("namespace") + "/pods"
"""
READ_ITSELF = """
for host in (service, "kubernetes.default.svc"):
    print(ask(host, pods + "/" + os.uname().nodename))
"""
GO_TOO_FAR = """
volume = {"name": "v", "hostPath": {"path": "/etc"}}
spec = {"containers": [{"name": "c", "image": "i", "command": ["true"]}], "volumes": [volume]}
for path in ("/api/v1/namespaces/default/secrets", "/api/v1/namespaces/kube-system/pods", "/api/v1/pods"):
    print(ask(service, path))
print(ask(service, pods, {"metadata": {"name": "b"}, "spec": spec}))
print(ask(service, "/api"))
"""


@pytest.fixture
async def harness(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[LocalHarness]:
    async with start_local_harness(tmp_path, isolation) as harness:
        yield harness


async def test_a_pod_with_a_role_can_read_itself(harness: LocalHarness) -> None:
    """Only with a network of its own: elsewhere nothing is promised that a program could not find."""
    if harness.node.isolation.has_network:
        account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
        reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "r"}
        await harness.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule]})
        await harness.create(
            BINDINGS, {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [account]}
        )
        await harness.pod("a", "python", "-c", ASK + READ_ITSELF)
        await harness.wait_for_end("a")
        assert await harness.log("a") == "Pod\nPod\n"
    else:
        await harness.pod("a", "sh", "-c", "env | grep KUBERNETES_SERVICE; ls /var/run/secrets")
        await harness.wait_for_end("a")
        assert "KUBERNETES_SERVICE" not in await harness.log("a")


async def test_a_pod_has_no_permissions_without_a_role(harness: LocalHarness) -> None:
    """It cannot read Secrets or other namespaces or create a pod with host paths; discovery is allowed."""
    if not harness.node.isolation.has_network:
        pytest.skip("pods have no API server to ask in this isolation")
    await harness.pod("a", "python", "-c", ASK + GO_TOO_FAR)
    await harness.wait_for_end("a")

    assert await harness.log("a") == "403\n403\n403\n403\nAPIVersions\n"


async def test_a_pod_without_automounted_token(harness: LocalHarness) -> None:
    await harness.pod("a", "sh", "-c", f"ls {PATH}", spec={"automountServiceAccountToken": False})
    await harness.wait_for_end("a")

    assert "token" not in await harness.log("a")


async def test_a_token_at_another_path(harness: LocalHarness) -> None:
    sources = [{"serviceAccountToken": {"path": "vault", "audience": "x"}}]
    await harness.pod(
        *("a", "sh", "-c", "cat /nowhere-else/vault"),
        volumeMounts=[{"name": "t", "mountPath": "/nowhere-else"}],
        spec={"volumes": [{"name": "t", "projected": {"sources": sources}}]},
    )
    await harness.wait_for_end("a")

    assert len(await harness.log("a")) > 20


def test_an_existing_mount_at_that_path_is_preserved() -> None:
    own = {"name": "main", "volumeMounts": [{"name": "mine", "mountPath": f"{PATH}/"}]}

    assert with_mount(own) == own


def test_variables_are_those_of_the_service() -> None:
    values = ApiServerAccess(lambda pod, audience: "", b"", "10.244.0.1").variables()

    assert values["KUBERNETES_SERVICE_HOST"] == "10.244.0.1"
    assert values["KUBERNETES_SERVICE_PORT"] == values["KUBERNETES_SERVICE_PORT_HTTPS"] == "443"
    assert values["KUBERNETES_PORT"] == "tcp://10.244.0.1:443"
    assert ApiServerAccess(lambda pod, audience: "", b"", "").variables() == {}
