"""The permissions of a pod with its ServiceAccount token: both servers give the same responses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.http_trace import APPLY, MERGE, RawClient, Step
from tests.support.comparable import comparable

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/{{ns}}/roles"
BINDINGS = f"{RBAC}/namespaces/{{ns}}/rolebindings"
PODS = "/api/v1/namespaces/{ns}/pods"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
POD = {"metadata": {"name": "p"}, "spec": SPEC}
ON_HOST = {"metadata": {"name": "h"}, "spec": {**SPEC, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


class PodClients:
    """Clients of both servers: with the token of a pod in the test's namespace, and as administrator."""

    def __init__(self, admins: Sequence[RawClient], pods: Sequence[RawClient], namespace: str) -> None:
        self._admins = admins
        self._pods = pods
        self._namespace = namespace

    async def grant(self, *rules: dict[str, Any]) -> None:
        """Grant the rules to the ServiceAccount with a Role and a RoleBinding."""
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": self._namespace}],
        }
        await self.as_admin(Step("POST", ROLES, {"metadata": {"name": "r"}, "rules": list(rules)}, 201))
        await self.as_admin(Step("POST", BINDINGS, binding, 201))

    async def as_admin(self, *steps: Step) -> None:
        """Send requests as administrator."""
        for client in self._admins:
            for step in steps:
                reply = await client.send(self._placed(step))
                assert reply.code == step.code, reply.text

    async def agree(self, step: Step) -> None:
        """Compare the answers. The real server's authorizer reads roles from a cache, so what is allowed may need some tries there."""
        ours, theirs = [await client.send(self._placed(step)) for client in self._pods]
        async with asyncio.timeout(30):
            while theirs.code == 403 != step.code:
                await asyncio.sleep(0.05)
                theirs = await self._pods[1].send(self._placed(step))
        assert (theirs.code, ours.code) == (step.code, step.code), (theirs.text, ours.text)
        if step.code == 403:
            assert comparable(ours.body) == comparable(theirs.body)

    def _placed(self, step: Step) -> Step:
        fields = {name: getattr(step, name) for name in Step.__slots__}
        return Step(**{**fields, "path": step.path.replace("{ns}", self._namespace)})


@pytest.fixture
async def pod_clients(
    embedded: RawClient, real: RawClient, embedded_server: ApiServer, namespace: str
) -> AsyncIterator[PodClients]:
    path = PODS.replace("{ns}", namespace)
    ours, _ = [await client.send(Step("POST", path, POD)) for client in (embedded, real)]
    token_request = Step(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )  # fmt: skip
    issued = (await real.send(token_request)).body["status"]["token"]
    real_pod = RawClient(real.url, issued, real.tls)
    async with RawClient(embedded.url, embedded_server.pod_token(ours.body)) as our_pod, real_pod:
        yield PodClients((embedded, real), (our_pod, real_pod), namespace)


UNGRANTED = {
    "list Secrets": Step("GET", SECRETS, code=403),
    "read a Secret": Step("GET", f"{SECRETS}/s", code=403),
    "watch all pods": Step("GET", "/api/v1/pods", code=403, query={"watch": "true"}),
    "make a pod of the machine's files": Step("POST", PODS, ON_HOST, 403),
    "change itself": Step("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, 403, MERGE),
    "replace itself": Step("PUT", f"{PODS}/p", POD, 403),
    "be gone": Step("DELETE", f"{PODS}/p", code=403),
    "remove all pods": Step("DELETE", PODS, code=403),
    "read its log": Step("GET", f"{PODS}/p/log", code=403),
    "bind itself to a node": Step("POST", f"{PODS}/p/binding", {}, 403),
    "see its namespace": Step("GET", "/api/v1/namespaces/{ns}", code=403),
    "list nodes": Step("GET", "/api/v1/nodes", code=403),
    "see a train": Step("GET", "/apis/contract.example.com/v1/namespaces/{ns}/trains/t", code=403),
    "grant itself something": Step("POST", BINDINGS, {}, 403),
    "have a path of its own": Step("GET", "/metrics", code=403),
}  # fmt: skip


@pytest.mark.parametrize("step", UNGRANTED.values(), ids=UNGRANTED)
async def test_a_pod_without_a_role_is_forbidden_to(pod_clients: PodClients, step: Step) -> None:
    await pod_clients.agree(step)


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", "/apis/batch/v1", "/version", "/healthz", "/openapi/v3"]
)
async def test_every_pod_is_allowed_to_read_discovery(pod_clients: PodClients, path: str) -> None:
    await pod_clients.agree(Step("GET", path))


GRANTED: dict[str, tuple[dict[str, Any], Step, Step]] = {
    "a verb and no other": (rule("get", "pods"), Step("GET", f"{PODS}/p"), Step("GET", PODS, code=403)),
    "a resource and not its parts": (rule("*", "pods"), Step("GET", PODS), Step("GET", f"{PODS}/p/log", code=403)),
    "a part of each resource": (
        rule("get", "*/status"), Step("GET", f"{PODS}/p/status"), Step("GET", f"{PODS}/p", code=403),
    ),
    "an object by its name": (
        rule("get", "pods", resourceNames=["p"]), Step("GET", f"{PODS}/p"), Step("GET", f"{PODS}/q", code=403),
    ),
    "a list of what a name selects": (
        rule("list", "pods", resourceNames=["p"]),
        Step("GET", PODS, query={"fieldSelector": "metadata.name=p"}),
        Step("GET", PODS, query={"fieldSelector": "metadata.name!=p"}, code=403),
    ),
    "its namespace and no other": (rule("*", "*"), Step("GET", SECRETS), Step("GET", "/api/v1/secrets", code=403)),
    "its namespace itself": (
        rule("get", "namespaces"), Step("GET", "/api/v1/namespaces/{ns}"), Step("GET", "/api/v1/namespaces", code=403),
    ),
    "another group": (
        rule("list", "trains", "contract.example.com"),
        Step("GET", "/apis/contract.example.com/v1/namespaces/{ns}/trains"),
        Step("GET", PODS, code=403),
    ),
    "a change and no creation by apply": (
        rule("patch", "configmaps"),
        Step("PATCH", f"{CONFIGMAPS}/c", {"data": {"a": "b"}}, 200, MERGE),
        Step("PATCH", f"{CONFIGMAPS}/new", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}, 403,
             APPLY, query={"fieldManager": "m"}),
    ),
    "what it has may be handed on, and no more": (
        rule("create get", "roles", "rbac.authorization.k8s.io"),
        Step("POST", ROLES, {"metadata": {"name": "less"}, "rules": [rule("get", "roles", "rbac.authorization.k8s.io")]}, 201),
        Step("POST", ROLES, {"metadata": {"name": "more"}, "rules": [rule("get", "secrets")]}, 403),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("granted", "allowed", "forbidden"), GRANTED.values(), ids=GRANTED)
async def test_a_role_grants(
    pod_clients: PodClients, granted: dict[str, Any], allowed: Step, forbidden: Step
) -> None:
    await pod_clients.as_admin(Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}}, 201))
    await pod_clients.grant(granted)
    await pod_clients.agree(allowed)
    await pod_clients.agree(forbidden)


async def test_binding_a_role_with_more_permissions_is_forbidden(pod_clients: PodClients) -> None:
    await pod_clients.grant(rule("*", "rolebindings", "rbac.authorization.k8s.io"))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await pod_clients.agree(
        Step("POST", BINDINGS, {"metadata": {"name": "all"}, "roleRef": role, "subjects": []}, 403)
    )


async def test_a_role_binding_grants_a_cluster_role_in_its_namespace(pod_clients: PodClients) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    group = {
        "kind": "Group",
        "apiGroup": "rbac.authorization.k8s.io",
        "name": "system:serviceaccounts",
    }
    await pod_clients.as_admin(
        Step("POST", BINDINGS, {"metadata": {"name": "b"}, "roleRef": role, "subjects": [group]}, 201)
    )
    await pod_clients.agree(Step("GET", SECRETS))
    await pod_clients.agree(Step("GET", "/api/v1/nodes", code=403))
