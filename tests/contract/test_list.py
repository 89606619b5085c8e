"""Reading: lists by selector, resource version and page, their output formats, and discovery."""

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import PARTIAL, PARTIAL_LIST, TABLE, RawClient, Step

PODS = "/api/v1/namespaces/{ns}/pods"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
EVENTS = "/api/v1/namespaces/{ns}/events"
TRAINS = "/apis/contract.example.com/v1/namespaces/{ns}/trains"
MINE = {"labelSelector": "mine"}
"""Leaves out what a cluster puts into every namespace."""


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


def configmap(name: str, **labels: str) -> Step:
    return Step("POST", CONFIGMAPS, {"metadata": {"name": name, "labels": {"mine": "", **labels}}}, 201)


def pod(name: str, **spec: Any) -> Step:
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return Step("POST", PODS, body, 201)


def train(name: str) -> Step:
    body = {
        "apiVersion": "contract.example.com/v1",
        "kind": "Train",
        "metadata": {"name": name},
        "spec": {"engine": "x"},
    }
    return Step("POST", TRAINS, body, 201)


def get(path: str, code: int = 200, **fields: Any) -> Step:
    return Step("GET", path, None, code, **fields)


LABELLED = [
    configmap("a", app="x", tier="1"),
    configmap("b", app="x", tier="2"),
    configmap("c", app="y"),
    configmap("d"),
]
THREE = [configmap(name) for name in "abc"]

SELECTORS = [
    "mine,app", "mine,app=x", "mine,app==x,tier=1", "mine,app!=x", "mine,!app", "mine,app in (x,y)", "mine,app notin (x)",
    "mine,app in (x),tier notin (1)", "mine,tier>1", "mine,tier<2", "mine, app = x ", "mine,app=", "nobody=has,mine",
]  # fmt: skip

BAD_SELECTORS = ["a===b", "a in x", "a in (x", "=b", "a=b=c", "a b", "!", "a,", "a=-", "a>b"]


@pytest.mark.parametrize("selector", SELECTORS)
async def test_label_selector(both: Both, selector: str) -> None:
    await both.agree([*LABELLED, get(CONFIGMAPS, query={"labelSelector": selector})])


@pytest.mark.parametrize("selector", BAD_SELECTORS)
async def test_bad_label_selector(both: Both, selector: str) -> None:
    await both.agree([get(CONFIGMAPS, 400, query={"labelSelector": selector}, ignore=("message",))])


FIELD_SELECTORS = [
    "metadata.name=p", "metadata.name!=p", "spec.nodeName=n", "spec.nodeName=", "status.phase=Pending", "status.phase=Running",
    "spec.restartPolicy=Never,metadata.name=q", "metadata.namespace={ns}", "",
]  # fmt: skip


@pytest.mark.parametrize("selector", FIELD_SELECTORS)
async def test_field_selector(both: Both, namespace: str, selector: str) -> None:
    pods = [pod("p", nodeName="n"), pod("q", restartPolicy="Never")]
    query = {"fieldSelector": selector.replace("{ns}", namespace)}

    await both.agree([*pods, get(PODS, query=query)])


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        (PODS, "spec.colour=red"),
        (PODS, "metadata.labels=a"),
        (PODS, "metadata.name"),
        (TRAINS, "spec.engine=x"),
    ],
)
async def test_bad_field_selector(both: Both, path: str, selector: str) -> None:
    await both.agree([get(path, 400, query={"fieldSelector": selector})])


def event(name: str, involved: str) -> Step:
    about = {"kind": "Pod", "name": involved, "namespace": "{ns}", "uid": f"u-{involved}"}
    return Step(
        "POST", EVENTS, {"metadata": {"name": name}, "involvedObject": about, "reason": name.upper()}, 201
    )


@pytest.mark.parametrize(
    "selector", ["involvedObject.name=p", "involvedObject.uid=u-q,involvedObject.kind=Pod", "reason=E"]
)
async def test_events_by_their_involved_object(both: Both, selector: str) -> None:
    await both.agree([event("e", "p"), event("f", "q"), get(EVENTS, query={"fieldSelector": selector})])


EXCHANGES: dict[str, list[Step]] = {
    "an empty list": [get(PODS)],
    "an empty list of custom resources": [get(TRAINS)],
    "in order of names": [configmap("b"), configmap("a"), configmap("a-b"), configmap("a.b"), get(CONFIGMAPS, query=MINE)],
    "custom resources": [train("b"), train("a"), get(TRAINS)],
    "one by its name": [configmap("a"), get(f"{CONFIGMAPS}/a")],
    "none by its name": [get(f"{CONFIGMAPS}/none", 404)],
    "pages": [*THREE, get(CONFIGMAPS, query={**MINE, "limit": "2"}), get(CONFIGMAPS, query={**MINE, "limit": "2", "continue": "$4.metadata.continue"})],
    "what is left is counted": [pod("a"), pod("b"), pod("c"), get(PODS, query={"limit": "1"})],
    "a page sees the list as it was": [
        *THREE, get(CONFIGMAPS, query={**MINE, "limit": "1"}), configmap("b2"), Step("DELETE", f"{CONFIGMAPS}/c"),
        get(CONFIGMAPS, query={**MINE, "limit": "5", "continue": "$4.metadata.continue"}),
    ],
    "a page that takes all": [*THREE, get(CONFIGMAPS, query={**MINE, "limit": "3"})],
    "any version": [*THREE, get(CONFIGMAPS, query={**MINE, "resourceVersion": "0"})],
    "any version, paged": [*THREE, get(CONFIGMAPS, query={**MINE, "resourceVersion": "0", "limit": "1"})],
    "not older than": [*THREE, get(CONFIGMAPS, query={**MINE, "resourceVersion": "$3.metadata.resourceVersion", "resourceVersionMatch": "NotOlderThan"})],
    "at least a version": [*THREE, get(CONFIGMAPS, query={**MINE, "resourceVersion": "$1.metadata.resourceVersion"})],
    "exactly": [*THREE, get(CONFIGMAPS, query={**MINE, "resourceVersion": "$2.metadata.resourceVersion", "resourceVersionMatch": "Exact"})],
    "one at any version": [*THREE, get(f"{CONFIGMAPS}/a", query={"resourceVersion": "0"})],
    "not yet": [get(CONFIGMAPS, 504, query={"resourceVersion": "99999999", "resourceVersionMatch": "NotOlderThan"}, ignore=("message",))],
    "no version": [get(CONFIGMAPS, 400, query={"resourceVersion": "x"})],
    "no limit": [get(CONFIGMAPS, 400, query={"limit": "x"})],
    "no page": [get(CONFIGMAPS, 400, query={"limit": "1", "continue": "x"}, ignore=("message",))],
    "a match without a version": [get(CONFIGMAPS, 422, query={"resourceVersionMatch": "Exact"})],
    "an unknown match": [get(CONFIGMAPS, 422, query={"resourceVersion": "1", "resourceVersionMatch": "Some"})],
    "exactly any version": [get(CONFIGMAPS, 422, query={"resourceVersion": "0", "resourceVersionMatch": "Exact"})],
    "a match with a page": [get(CONFIGMAPS, 422, query={"resourceVersion": "1", "resourceVersionMatch": "Exact", "continue": "x"}, ignore=("message", "details.causes"))],
    "initial events of a list": [get(CONFIGMAPS, 422, query={"sendInitialEvents": "true"})],
    "metadata of a list": [pod("a"), get(PODS, accept=PARTIAL_LIST)],
    "metadata of one": [pod("a"), get(f"{PODS}/a", accept=PARTIAL)],
    "metadata of custom resources": [train("a"), get(TRAINS, accept=PARTIAL_LIST), get(f"{TRAINS}/a", accept=PARTIAL)],
    "an unknown media type": [get(PODS, 406, accept="application/xml", ignore=("message", "details"))],
    "the first form that is known": [pod("a"), get(f"{PODS}/a", accept="application/xml, application/json")],
    "a log of nothing": [get(f"{PODS}/none/log", 404)],
    "no such resource": [get("/api/v1/namespaces/{ns}/pogs", 404)],
    "no such group": [get("/apis/nowhere.example.com/v1/pods", 404)],
    "an unknown method": [Step("PROPFIND", PODS, None, 405)],
    "namespaces are deleted one by one": [Step("DELETE", "/api/v1/namespaces", None, 405)],
    "the API versions": [get("/api", ignore=("serverAddressByClientCIDRs",))],
    "one group": [get("/apis/batch")],
    "no such group in discovery": [get("/apis/nowhere.example.com", 404)],
    "health": [get("/healthz"), get("/readyz"), get("/livez")],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_read(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)


async def table(client: RawClient, path: str) -> dict[str, Any]:
    reply = await client.send(Step("GET", path, accept=TABLE))
    assert reply.code == 200, reply.text
    body: dict[str, Any] = reply.body
    for column in body["columnDefinitions"]:
        del column["description"]
    return body


TABLES: dict[str, tuple[str, list[Step]]] = {
    "pods": (PODS, [pod("a"), pod("b", nodeName="n")]),
    "config maps": (f"{CONFIGMAPS}/a", [configmap("a")]),
    "custom resources": (TRAINS, [train("a")]),
    "events": (EVENTS, [event("e", "p")]),
    "services": (
        "/api/v1/namespaces/{ns}/services",
        [Step("POST", "/api/v1/namespaces/{ns}/services", {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 5, "name": "p"}], "selector": {"b": "2", "a": "1"}}}, 201)],
    ),
    "jobs": (
        "/apis/batch/v1/namespaces/{ns}/jobs",
        [Step("POST", "/apis/batch/v1/namespaces/{ns}/jobs", {"metadata": {"name": "j"}, "spec": {"managedBy": "contract.example.com/nobody", "parallelism": 2, "manualSelector": True,
              "selector": {"matchLabels": {"a": "b"}},
              "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}, 201)],
    ),
    "leases": (
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        [Step("POST", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}, 201)],
    ),
    "secrets": ("/api/v1/namespaces/{ns}/secrets", [Step("POST", "/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, 201)]),
    "claims": (
        "/api/v1/namespaces/{ns}/persistentvolumeclaims",
        [Step("POST", "/api/v1/namespaces/{ns}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}, 201)],
    ),
    "volumes": (
        "/api/v1/persistentvolumes/{ns}",
        [Step("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "{ns}"}, "spec": {"accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": "x", "hostPath": {"path": "/d"}, "claimRef": {"namespace": "a", "name": "b"}}}, 201)],
    ),
    "storage classes": (
        "/apis/storage.k8s.io/v1/storageclasses/{ns}",
        [Step("POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "{ns}", "annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}, "provisioner": "a/b"}, 201)],
    ),
    "autoscalers": (
        "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
        [Step("POST", "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", {"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "a/v1", "kind": "K", "name": "x"}}}, 201)],
    ),
    "roles": ("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/r", [Step("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", {"metadata": {"name": "r"}}, 201)]),
    "the namespace": ("/api/v1/namespaces/{ns}", []),
}  # fmt: skip

AGES = {"0s", "1s", "2s", "3s"}


def ageless(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [["<age>" if cell in AGES else cell for cell in row["cells"]] for row in rows]


@pytest.mark.parametrize(("path", "made"), TABLES.values(), ids=TABLES.keys())
async def test_table(
    both: Both, embedded: RawClient, real: RawClient, namespace: str, path: str, made: list[Step]
) -> None:
    """The columns that tools show, and what stands in them."""
    await both.agree(
        [Step(s.method, s.path, s.body, s.code, ignore=("metadata.finalizers", "status")) for s in made]
    )

    ours, theirs = [await table(client, path.replace("{ns}", namespace)) for client in (embedded, real)]

    assert ours["columnDefinitions"] == theirs["columnDefinitions"]
    assert [cells[:-1] if "pods" in path else cells for cells in ageless(ours["rows"])] == [
        cells[:-1] if "pods" in path else cells for cells in ageless(theirs["rows"])
    ]
    assert {row["object"]["kind"] for row in ours["rows"]} == {
        row["object"]["kind"] for row in theirs["rows"]
    }


SIDECAR = {
    "name": "s",
    "ready": False,
    "restartCount": 3,
    "image": "i",
    "imageID": "",
    "state": {"running": {}},
}
GATES_COLUMN = 8
STATES: dict[str, dict[str, Any]] = {
    "running": {"phase": "Running", "podIP": "10.9.8.7", "containerStatuses": [{"name": "c", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": {"running": {}}}]},
    "completed": {"phase": "Succeeded", "containerStatuses": [{"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]},
    "failed": {"phase": "Failed", "containerStatuses": [{"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 3}}}]},
    "by a signal": {"phase": "Failed", "containerStatuses": [{"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]},
    "crash loop": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": False, "restartCount": 7, "image": "i", "imageID": "", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
    "evicted": {"phase": "Failed", "reason": "Evicted"},
    "waiting": {"phase": "Pending", "initContainerStatuses": [{"name": "w", "ready": False, "restartCount": 1, "image": "i", "imageID": "", "state": {"running": {}}}]},
    "beside a sidecar": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}, {"type": "g", "status": "True"}], "initContainerStatuses": [SIDECAR | {"started": True, "ready": True}], "containerStatuses": [{"name": "c", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": {"running": {}}}]},
    "sidecar not ready": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}, {"type": "g", "status": "False"}], "initContainerStatuses": [SIDECAR | {"started": True}], "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]},
    "sidecar starting": {"phase": "Pending", "initContainerStatuses": [SIDECAR | {"started": False}]},
    "sidecar crashing": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}], "initContainerStatuses": [SIDECAR | {"started": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}], "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]},
    "sidecar outlives": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}], "initContainerStatuses": [SIDECAR | {"started": True, "ready": True}], "containerStatuses": [{"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]},
    "init failed": {"phase": "Pending", "initContainerStatuses": [{"name": "w", "ready": False, "restartCount": 1, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]},
}  # fmt: skip


@pytest.mark.parametrize("status", STATES.values(), ids=STATES.keys())
async def test_pod_states_in_a_table(
    embedded: RawClient, real: RawClient, namespace: str, status: dict[str, Any]
) -> None:
    pods = PODS.replace("{ns}", namespace)
    spec = {
        "nodeName": "n",
        "containers": [{"name": "c", "image": "i"}],
        "initContainers": [
            {"name": "w", "image": "i"},
            {"name": "s", "image": "i", "restartPolicy": "Always"},
        ],
        "readinessGates": [{"conditionType": "g"}],
    }
    rows = []
    for client in (embedded, real):
        made = await client.run(
            [
                Step("POST", pods, {"metadata": {"name": "p"}, "spec": spec}),
                Step("PATCH", f"{pods}/p/status", {"status": status}, type="application/merge-patch+json"),
            ]
        )
        assert [reply.code for reply in made] == [201, 200]
        (cells,) = ageless((await table(client, pods))["rows"])
        rows.append([*cells[:4], cells[GATES_COLUMN]])

    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1", ["pods", "pods/status", "pods/binding", "services", "configmaps", "secrets", "events", "namespaces", "nodes", "serviceaccounts", "persistentvolumeclaims"]),
        ("/apis/batch/v1", ["jobs", "jobs/status"]),
        ("/apis/coordination.k8s.io/v1", ["leases"]),
        ("/apis/autoscaling/v2", ["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
        ("/apis/rbac.authorization.k8s.io/v1", ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]),
        ("/apis/apiextensions.k8s.io/v1", ["customresourcedefinitions", "customresourcedefinitions/status"]),
        ("/apis/contract.example.com/v1", ["trains", "trains/status", "trains/scale"]),
    ],
)  # fmt: skip
async def test_both_servers_describe_resources_alike(
    embedded: RawClient, real: RawClient, path: str, names: list[str]
) -> None:
    described = []
    for client in (embedded, real):
        body = (await client.send(Step("GET", path))).body
        found = {entry["name"]: {**entry, "storageVersionHash": ""} for entry in body["resources"]}
        for entry in found.values():
            entry["verbs"] = sorted(entry["verbs"])
        described.append({name: found[name] for name in names})

    assert described[0] == described[1]


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery(embedded: RawClient, real: RawClient, path: str) -> None:
    """The embedded server's aggregated discovery describes its resources as a real server does."""
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    described = []
    for client in (embedded, real):
        reply = await client.send(Step("GET", path, accept=accept))
        described.append(
            {
                (group["metadata"].get("name", ""), version["version"], found["resource"]): found["scope"]
                for group in reply.body["items"]
                for version in group["versions"]
                for found in version["resources"]
            }
        )

    assert described[0]
    assert described[0].items() <= described[1].items()


@pytest.mark.parametrize("value", ["False", "0", "FALSE"])
async def test_a_watch_that_is_switched_off_is_a_list(both: Both, value: str) -> None:
    """The Python client sends ``watch=False``."""
    await both.agree([*THREE, get(CONFIGMAPS, query=MINE | {"watch": value})])


@pytest.mark.parametrize("limit", ["-1", "0"])
async def test_a_limit_below_one_is_none(both: Both, limit: str) -> None:
    await both.agree([*THREE, get(CONFIGMAPS, query=MINE | {"limit": limit})])
