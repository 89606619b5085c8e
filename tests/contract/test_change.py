"""Changing objects: PUT, the three patch types, what each rejects, and the effect on resourceVersion and generation."""

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import JSON_PATCH, MERGE, STRATEGIC, RawClient, Reply, Step

PODS = "/api/v1/namespaces/{ns}/pods"
SERVICES = "/api/v1/namespaces/{ns}/services"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


CONTAINERS = [
    {"name": "main", "image": "train:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
    {"name": "side", "image": "log:1"},
]
POD = Step(
    "POST", PODS, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}, 201
)
SERVICE = Step(
    "POST",
    SERVICES,
    {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1, "name": "x"}]}},
    201,
)  # fmt: skip
CONFIGMAP = Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}, 201)
LEASE = Step("POST", LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}, 201)
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
JOB = Step("POST", JOBS, {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE}}, 201)


def merge(path: str, body: Any, code: int = 200, **fields: Any) -> Step:
    return Step("PATCH", path, body, code, MERGE, **fields)


def operations(path: str, *body: dict[str, Any], code: int = 200, **fields: Any) -> Step:
    return Step("PATCH", path, list(body), code, JSON_PATCH, **fields)


def strategic(path: str, body: Any, code: int = 200, **fields: Any) -> Step:
    return Step("PATCH", path, body, code, STRATEGIC, **fields)


def put(path: str, body: Any, code: int = 200, **fields: Any) -> Step:
    return Step("PUT", path, body, code, **fields)


def op(name: str, path: str, *value: Any, **fields: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **({"value": value[0]} if value else {}), **fields}


P, S, C, L, J = f"{PODS}/p", f"{SERVICES}/s", f"{CONFIGMAPS}/c", f"{LEASES}/l", f"{JOBS}/j"

EXCHANGES: dict[str, list[Step]] = {
    "merge: labels come and go": [POD, merge(P, {"metadata": {"labels": {"a": None, "x/y": "z"}}})],
    "merge: null removes a list": [CONFIGMAP, merge(C, {"data": None})],
    "merge: lists are replaced": [SERVICE, merge(S, {"spec": {"ports": [{"port": 2}]}})],
    "merge: name differs": [POD, merge(P, {"metadata": {"name": "q"}}, 400)],
    "merge: namespace differs": [POD, merge(P, {"metadata": {"namespace": "q"}}, 400)],
    "merge: uid differs": [POD, merge(P, {"metadata": {"uid": "q"}}, 422)],
    "merge: stale version": [POD, merge(P, {"metadata": {"resourceVersion": "1"}}, 409)],
    "merge: version that is met": [POD, merge(P, {"metadata": {"resourceVersion": "$1.metadata.resourceVersion", "labels": {"c": "d"}}})],
    "merge: creation time stays": [POD, merge(P, {"metadata": {"creationTimestamp": None}})],
    "merge: bad label": [POD, merge(P, {"metadata": {"labels": {"x": "-"}}}, 422)],
    "merge: bad finalizer": [POD, merge(P, {"metadata": {"finalizers": ["abc"]}}, 422)],
    "merge: unknown field": [POD, merge(P, {"spec": {"unheard": 1}})],
    "merge: strict unknown field": [POD, merge(P, {"spec": {"unheard": 1}}, 422, query={"fieldValidation": "Strict"}, ignore=("message", "details"))],
    "merge: dry run": [POD, merge(P, {"metadata": {"labels": {"x": "y"}}}, query={"dryRun": "All"}), Step("GET", P)],
    "merge: not an object": [POD, merge(P, [], 400)],
    "merge: not JSON": [POD, merge(P, None, 400, raw=b'{"a":', ignore=("message",))],
    "merge: no such object": [merge(f"{PODS}/none", {}, 404)],
    "merge: an empty patch of a missing subresource": [POD, merge(f"{P}/none", {}, 404)],
    "merge: another media type": [POD, Step("PATCH", P, {}, 415, "application/json")],
    "pod: image may change": [POD, strategic(P, {"spec": {"containers": [{"name": "main", "image": "train:2"}]}})],
    "pod: node may not": [POD, merge(P, {"spec": {"nodeName": "x"}}, 422)],
    "pod: command may not": [POD, strategic(P, {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}, 422)],
    "pod: containers may not be added": [POD, strategic(P, {"spec": {"containers": [{"name": "new", "image": "x"}]}}, 422)],
    "pod: containers may not be removed": [POD, strategic(P, {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}, 422)],
    "pod: a deadline may be added": [POD, merge(P, {"spec": {"activeDeadlineSeconds": 5}})],
    "pod: tolerations may be added": [POD, operations(P, op("add", "/spec/tolerations/-", {"key": "x", "operator": "Exists"}))],
    "pod: status is not written with the pod": [POD, merge(P, {"status": {"phase": "Running"}})],
    "pod: status alone": [POD, merge(f"{P}/status", {"status": {"phase": "Running", "podIP": "127.0.0.5"}}, ignore=("status.podIPs",))],
    "pod: status with labels and spec": [
        POD, merge(f"{P}/status", {"status": {"phase": "Failed"}, "metadata": {"labels": {"n": "x"}}, "spec": {"nodeName": "z"}}),
    ],
    "pod: conditions merge by type": [
        POD,
        strategic(f"{P}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        strategic(f"{P}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]}}),
    ],
    "pod: a gate is lifted": [
        Step("POST", PODS, {"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "a.b/c"}], "containers": CONTAINERS}}, 201,
             ignore=("status.conditions",)),
        merge(P, {"spec": {"schedulingGates": None, "nodeSelector": {"a": "b"}}}, ignore=("status.conditions",)),
    ],
    "json: add and replace": [CONFIGMAP, operations(C, op("add", "/data/c", "3"), op("replace", "/data/a", "9"))],
    "json: remove": [CONFIGMAP, operations(C, op("remove", "/data/a"))],
    "json: move and copy": [CONFIGMAP, operations(C, op("move", "/data/x", **{"from": "/data/a"}), op("copy", "/data/y", **{"from": "/data/b"}))],
    "json: copies that double each other": [
        CONFIGMAP,
        operations(C, *(op("copy", f"/metadata/c{i}", **{"from": "/metadata"}) for i in range(30)), code=422),
    ],
    "json: escaped names": [POD, operations(P, op("add", "/metadata/labels/x~1y", "z"))],
    "json: a test that holds": [CONFIGMAP, operations(C, op("test", "/metadata/uid", "$1.metadata.uid"), op("add", "/data/z", "1"))],
    "json: a test that fails": [CONFIGMAP, operations(C, op("test", "/metadata/uid", "x"), op("add", "/data/z", "1"), code=422)],
    "json: a test of what is missing": [CONFIGMAP, operations(C, op("test", "/metadata/none/deep", "x"), code=422)],
    "json: a test that something is missing": [CONFIGMAP, operations(C, op("test", "/metadata/none", None))],
    "json: removes what is missing": [CONFIGMAP, operations(C, op("remove", "/data/none"), code=422)],
    "json: replaces what is missing": [CONFIGMAP, operations(C, op("replace", "/data/none", "x"))],
    "json: adds below what is missing": [CONFIGMAP, operations(C, op("add", "/none/deep", "x"), code=422)],
    "json: no such operation": [CONFIGMAP, operations(C, op("frob", "/data/a"), code=422)],
    "json: an index beyond the end": [SERVICE, operations(S, op("add", "/spec/ports/7", {"port": 2}), code=422)],
    "json: inserts": [SERVICE, operations(S, op("add", "/spec/ports/0", {"port": 2, "name": "y"}))],
    "json: not a list": [CONFIGMAP, Step("PATCH", C, {"op": "add"}, 400, JSON_PATCH)],
    "json: nothing": [CONFIGMAP, operations(C)],
    "strategic: lists merge by key": [
        SERVICE, strategic(S, {"spec": {"ports": [{"port": 1, "name": "renamed"}, {"port": 2, "name": "new"}]}}),
    ],
    "strategic: a list is replaced": [SERVICE, strategic(S, {"spec": {"ports": [{"$patch": "replace"}, {"port": 2}]}})],
    "strategic: an item is deleted": [
        SERVICE, strategic(S, {"spec": {"ports": [{"port": 2, "name": "y"}]}}), strategic(S, {"spec": {"ports": [{"port": 1, "$patch": "delete"}]}}),
    ],
    "strategic: a map is replaced": [CONFIGMAP, strategic(C, {"data": {"$patch": "replace", "z": "1"}})],
    "strategic: finalizers are joined": [
        CONFIGMAP, strategic(C, {"metadata": {"finalizers": ["a.b/c"]}}), strategic(C, {"metadata": {"finalizers": ["a.b/d"]}}),
        strategic(C, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}), merge(C, {"metadata": {"finalizers": None}}),
    ],
    "strategic: no merge key": [SERVICE, strategic(S, {"spec": {"ports": [{"name": "y"}]}}, 500, ignore=("message", "reason", "code"))],
    "put: whole object": [CONFIGMAP, put(C, {"metadata": {"name": "c"}, "data": {"z": "1"}})],
    "put: stale version": [CONFIGMAP, put(C, {"metadata": {"name": "c", "resourceVersion": "1"}}, 409)],
    "put: version that is met": [CONFIGMAP, put(C, {"metadata": {"name": "c", "resourceVersion": "$1.metadata.resourceVersion"}})],
    "put: another uid": [CONFIGMAP, put(C, {"metadata": {"name": "c", "uid": "x"}}, 409, ignore=("message",))],
    "put: another name": [CONFIGMAP, put(C, {"metadata": {"name": "d"}}, 400)],
    "put: without a name": [CONFIGMAP, put(C, {"data": {"z": "1"}}, 400)],
    "put: no such object": [put(f"{CONFIGMAPS}/none", {"metadata": {"name": "none"}}, 404)],
    "put: a lease makes one": [put(L, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}, 201)],
    "put: a lease needs the version": [LEASE, put(L, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "y"}}, 422)],
    "put: a lease is renewed": [
        LEASE, put(L, {"metadata": {"name": "l", "resourceVersion": "$1.metadata.resourceVersion"}, "spec": {"holderIdentity": "y", "leaseTransitions": 1}}),
    ],
    "put: the same again": [CONFIGMAP, put(C, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}})],
    "put: owners change": [
        CONFIGMAP, put(C, {"metadata": {"name": "c", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "$1.metadata.uid"}]}}),
    ],
    "put: a collection": [put(PODS, {}, 405)],
    "service: its address stays": [SERVICE, merge(S, {"spec": {"clusterIP": "10.0.0.9"}}, 422)],
    "service: selector and ports change": [SERVICE, merge(S, {"spec": {"selector": {"c": "d"}, "ports": [{"port": 3}]}})],
    "config map: immutable": [
        CONFIGMAP, merge(C, {"immutable": True}), merge(C, {"data": {"a": "2"}}, 422), merge(C, {"immutable": False}, 422),
        merge(C, {"metadata": {"labels": {"x": "y"}}}),
    ],
    "secret: plain text is added": [
        Step("POST", SECRETS, {"metadata": {"name": "k"}, "data": {"a": "Yg=="}}, 201), merge(f"{SECRETS}/k", {"stringData": {"c": "d"}}),
    ],
    "job: suspended and resumed": [JOB, merge(J, {"spec": {"suspend": True}}, ignore=("status",))],
    "job: its template stays": [JOB, merge(J, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}, 422, ignore=("message", "details"))],
    "job: its mode stays": [JOB, merge(J, {"spec": {"completionMode": "Indexed"}}, 422)],
    "bound once": [
        POD,
        Step("POST", f"{P}/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}, 201),
        Step("GET", P),
        Step("POST", f"{P}/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "elsewhere"}}, 409),
    ],
    "bound to nothing": [POD, Step("POST", f"{P}/binding", {"metadata": {"name": "p"}, "target": {}}, 500)],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_change(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)


def resolve(path: str, namespace: str) -> str:
    return path.replace("{ns}", namespace)


async def send_all(client: RawClient, namespace: str, *steps: Step) -> list[Reply]:
    placed = [Step(s.method, resolve(s.path, namespace), s.body, s.code, s.type) for s in steps]
    made = await client.run(placed)
    assert [reply.code for reply in made] == [step.code for step in steps]
    return made


@pytest.mark.parametrize(
    ("step", "writes"),
    [
        pytest.param(merge(C, {"data": {"a": "1"}}), False, id="the same value"),
        pytest.param(merge(C, {}), False, id="an empty merge"),
        pytest.param(operations(C), False, id="no operations"),
        pytest.param(
            put(C, {"metadata": {"name": "c"}, "data": {"b": "2", "a": "1"}}), False, id="another order"
        ),
        pytest.param(merge(C, {"data": {"a": "2"}}), True, id="another value"),
    ],
)
async def test_only_a_change_increments_the_resource_version(
    client: RawClient, namespace: str, step: Step, writes: bool
) -> None:
    before, after = await send_all(client, namespace, CONFIGMAP, step)

    changed = int(after.body["metadata"]["resourceVersion"]) > int(before.body["metadata"]["resourceVersion"])
    assert changed == writes


async def test_resource_versions_increase_across_resources(client: RawClient, namespace: str) -> None:
    made = await send_all(client, namespace, CONFIGMAP, SERVICE, POD, merge(C, {"data": {"a": "5"}}))

    versions = [int(reply.body["metadata"]["resourceVersion"]) for reply in made]
    assert versions == sorted(set(versions))
