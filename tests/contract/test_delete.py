"""Deletion: preconditions, grace periods, finalizers, and garbage collection of dependents and namespaces."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import MERGE, RawClient, Reply, Step

PODS = "/api/v1/namespaces/{ns}/pods"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SERVICES = "/api/v1/namespaces/{ns}/services"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
TRAINS = "/apis/contract.example.com/v1/namespaces/{ns}/trains"
P, C, S, T = f"{PODS}/p", f"{CONFIGMAPS}/c", f"{SERVICES}/s", f"{TRAINS}/t"
NODE = "a-node-that-nobody-runs"
OWNER = f"{CONFIGMAPS}/owner"
TIMEOUT_SECONDS = 60.0
"""In seconds, for what a cluster does in the background."""


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


def pod(**fields: Any) -> Step:
    spec = {"containers": [{"name": "c", "image": "i"}], **fields}
    return Step("POST", PODS, {"metadata": {"name": "p"}, "spec": spec}, 201)


def configmap(name: str = "c", **metadata: Any) -> Step:
    return Step("POST", CONFIGMAPS, {"metadata": {"name": name, **metadata}}, 201)


def train(**metadata: Any) -> Step:
    body = {
        "apiVersion": "contract.example.com/v1",
        "kind": "Train",
        "metadata": {"name": "t", **metadata},
        "spec": {"engine": "x"},
    }
    return Step("POST", TRAINS, body, 201)


def delete(path: str, body: Any = None, code: int = 200, **query: str) -> Step:
    return Step("DELETE", path, body, code, query=query)


def merge(path: str, body: Any, code: int = 200) -> Step:
    return Step("PATCH", path, body, code, MERGE)


def gone(path: str) -> Step:
    return Step("GET", path, code=404)


BOUND = pod(nodeName=NODE)
PHASE_FAILED = merge(f"{P}/status", {"status": {"phase": "Failed"}})

EXCHANGES: dict[str, list[Step]] = {
    "an object": [configmap(), delete(C), gone(C)],
    "a custom object": [train(), delete(T), gone(T)],
    "a service answers with itself": [
        Step("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}, 201),
        delete(S), gone(S),
    ],
    "what is not there": [delete(C, code=404)],
    "twice": [configmap(), delete(C), delete(C, code=404)],
    "an unbound pod at once": [pod(), delete(P), gone(P)],
    "a bound pod waits for its node": [BOUND, delete(P), Step("GET", P), delete(P, gracePeriodSeconds="0"), gone(P)],
    "a bound pod with its own grace": [pod(nodeName=NODE, terminationGracePeriodSeconds=5), delete(P), Step("GET", P)],
    "a grace in the options": [BOUND, delete(P, {"gracePeriodSeconds": 7})],
    "a shorter grace hurries": [BOUND, delete(P, {"gracePeriodSeconds": 20}), delete(P, {"gracePeriodSeconds": 3}), delete(P, {"gracePeriodSeconds": 9})],
    "no grace": [BOUND, delete(P, {"gracePeriodSeconds": 0}), gone(P)],
    "a failed pod at once": [BOUND, PHASE_FAILED, delete(P), gone(P)],
    "the status of a terminating pod": [BOUND, delete(P), PHASE_FAILED, Step("GET", P), delete(P, gracePeriodSeconds="0")],
    "the right uid": [configmap(), delete(C, {"preconditions": {"uid": "$1.metadata.uid"}}), gone(C)],
    "another uid": [configmap(), delete(C, {"preconditions": {"uid": "x"}}, 409)],
    "another uid of a custom object": [train(), delete(T, {"preconditions": {"uid": "x"}}, 409)],
    "another version": [configmap(), delete(C, {"preconditions": {"resourceVersion": "1"}}, 409)],
    "the right version": [configmap(), delete(C, {"preconditions": {"resourceVersion": "$1.metadata.resourceVersion"}})],
    "with kind and version in the options": [configmap(), delete(C, {"kind": "DeleteOptions", "apiVersion": "v1"})],
    "an unknown policy": [configmap(), delete(C, {"propagationPolicy": "Some"}, 422)],
    "policy and its old form": [configmap(), delete(C, {"propagationPolicy": "Background", "orphanDependents": True}, 422)],
    "a dry run": [configmap(), delete(C, dryRun="All"), Step("GET", C)],
    "a dry run of a pod": [pod(), delete(P, dryRun="All"), Step("GET", P)],
    "a finalizer holds": [
        configmap(finalizers=["a.b/c"]), delete(C), Step("GET", C), delete(C), merge(C, {"metadata": {"finalizers": None}}), gone(C),
    ],
    "a finalizer holds a pod": [
        pod(), merge(P, {"metadata": {"finalizers": ["a.b/c"]}}), delete(P), merge(P, {"metadata": {"finalizers": None}}), gone(P),
    ],
    "a finalizer holds a bound pod after its node": [
        BOUND, merge(P, {"metadata": {"finalizers": ["a.b/c"]}}), delete(P), delete(P, gracePeriodSeconds="0"), Step("GET", P),
        merge(P, {"metadata": {"finalizers": None}}), gone(P),
    ],
    "the last of two finalizers": [
        train(finalizers=["a.b/c", "a.b/d"]), delete(T), merge(T, {"metadata": {"finalizers": ["a.b/d"]}}),
        merge(T, {"metadata": {"finalizers": []}}), gone(T),
    ],
    "no new finalizers on what goes": [
        configmap(finalizers=["a.b/c"]), delete(C), merge(C, {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}}, 422),
    ],
    "what goes may still change": [configmap(finalizers=["a.b/c"]), delete(C), merge(C, {"data": {"a": "b"}})],
    "what goes is not created": [configmap(finalizers=["a.b/c"]), delete(C), Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}}, 409)],
    "an evicted pod": [pod(), Step("POST", f"{P}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}, 201), gone(P)],
    "a collection": [
        configmap("a", labels={"x": "y"}), configmap("b", labels={"x": "y"}), configmap("c"),
        delete(CONFIGMAPS, labelSelector="x=y"), gone(f"{CONFIGMAPS}/a"), Step("GET", C),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_delete(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)


async def sent(client: RawClient, namespace: str, step: Step) -> Reply:
    reply = await client.send(
        Step(
            step.method,
            step.path.replace("{ns}", namespace),
            step.body,
            step.code,
            step.type,
            query=step.query,
        )
    )
    assert reply.code == step.code, reply.text
    return reply


async def until(client: RawClient, namespace: str, path: str, holds: Callable[[Reply], bool]) -> Reply:
    """The first response that satisfies the condition; polled, because the garbage collector works asynchronously."""
    step = Step("GET", path.replace("{ns}", namespace))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds(reply := await client.send(step)):  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)
    return reply


async def until_gone(client: RawClient, namespace: str, path: str) -> None:
    await until(client, namespace, path, lambda reply: reply.code == 404)


def is_going(reply: Reply) -> bool:
    return "deletionTimestamp" in reply.body["metadata"]


def owned_by(reply: Reply, *, blocking: bool = True) -> list[dict[str, Any]]:
    owner = reply.body
    return [
        {
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": blocking,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_are_deleted_with_their_owner(
    client: RawClient, namespace: str, policy: str
) -> None:
    owner = await sent(client, namespace, configmap("owner"))
    await sent(client, namespace, configmap(ownerReferences=owned_by(owner)))

    await sent(client, namespace, delete(OWNER, {"propagationPolicy": policy}))

    await until_gone(client, namespace, C)
    await until_gone(client, namespace, OWNER)


async def test_dependents_of_dependents_are_deleted(client: RawClient, namespace: str) -> None:
    owner = await sent(client, namespace, configmap("owner"))
    child = await sent(client, namespace, configmap("child", ownerReferences=owned_by(owner)))
    await sent(client, namespace, configmap(ownerReferences=owned_by(child)))

    await sent(client, namespace, delete(OWNER))

    await until_gone(client, namespace, C)


async def test_foreground_deletion_waits_for_a_blocking_dependent(client: RawClient, namespace: str) -> None:
    owner = await sent(client, namespace, configmap("owner"))
    await sent(client, namespace, configmap(ownerReferences=owned_by(owner), finalizers=["a.b/c"]))

    deleted = await sent(client, namespace, delete(OWNER, {"propagationPolicy": "Foreground"}))
    held = await until(client, namespace, C, is_going)
    waiting = await sent(client, namespace, Step("GET", OWNER))
    await sent(client, namespace, merge(C, {"metadata": {"finalizers": None}}))

    assert deleted.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert held.body["metadata"]["finalizers"] == ["a.b/c"]
    assert waiting.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await until_gone(client, namespace, OWNER)


async def test_orphans_are_not_deleted(client: RawClient, namespace: str) -> None:
    owner = await sent(client, namespace, configmap("owner"))
    await sent(client, namespace, configmap(ownerReferences=owned_by(owner)))

    await sent(client, namespace, delete(OWNER, {"propagationPolicy": "Orphan"}))
    await until_gone(client, namespace, OWNER)

    remaining = await sent(client, namespace, Step("GET", C))
    assert "ownerReferences" not in remaining.body["metadata"]


async def test_a_dependent_of_a_missing_owner_is_deleted(client: RawClient, namespace: str) -> None:
    """A late child of a deleted owner goes as if it had been there in time."""
    owner = await sent(client, namespace, configmap("owner"))
    await sent(client, namespace, delete(OWNER))

    await sent(client, namespace, configmap(ownerReferences=owned_by(owner)))

    await until_gone(client, namespace, C)


async def test_a_dependent_with_another_owner_stays(client: RawClient, namespace: str) -> None:
    first = await sent(client, namespace, configmap("owner"))
    second = await sent(client, namespace, configmap("second"))
    two = [{**owned_by(owner)[0], "controller": False} for owner in (first, second)]
    await sent(client, namespace, configmap(ownerReferences=two))

    await sent(client, namespace, delete(OWNER))
    remaining = await until(
        client, namespace, C, lambda reply: len(reply.body["metadata"]["ownerReferences"]) == 1
    )

    assert remaining.body["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_deleting_a_job_orphans_its_dependents_by_default(client: RawClient, namespace: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    owner = await sent(client, namespace, Step("POST", JOBS, body, 201))
    await sent(client, namespace, configmap(ownerReferences=owned_by(owner)))

    await sent(client, namespace, delete(f"{JOBS}/j"))
    await until_gone(client, namespace, f"{JOBS}/j")

    assert (await sent(client, namespace, Step("GET", C))).code == 200


async def test_deleting_a_namespace_deletes_its_objects(client: RawClient, namespace: str) -> None:
    name = f"{namespace}-inner"
    inside = f"/api/v1/namespaces/{name}/configmaps"
    await sent(client, namespace, Step("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, 201))
    await sent(
        client, namespace, Step("POST", inside, {"metadata": {"name": "c", "finalizers": ["a.b/c"]}}, 201)
    )

    terminating = await sent(client, namespace, delete(f"/api/v1/namespaces/{name}"))
    refused = await sent(client, namespace, Step("POST", inside, {"metadata": {"name": "d"}}, 403))
    await until(client, namespace, f"{inside}/c", is_going)
    await sent(client, namespace, merge(f"{inside}/c", {"metadata": {"finalizers": None}}))

    assert terminating.body["status"]["phase"] == "Terminating"
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await until_gone(client, namespace, f"/api/v1/namespaces/{name}")
