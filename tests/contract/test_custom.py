"""Custom resources: pruning, defaults, types, limits, rules, subresources, and the definitions themselves."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import JSON_PATCH, MERGE, STRATEGIC, RawClient, Step

TRAINS = "/apis/contract.example.com/v1/namespaces/{ns}/trains"
T = f"{TRAINS}/t"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION, KIND = "contract.example.com/v1", "Train"


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


def train(
    code: int = 201, *, query: dict[str, str] | None = None, ignore: Sequence[str] = (), **spec: Any
) -> Step:
    body = {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": {"engine": "x", **spec}}
    return Step("POST", TRAINS, body, code, query=query or {}, ignore=ignore)


def post(body: Any, code: int, **fields: Any) -> Step:
    return Step("POST", TRAINS, body, code, **fields)


def merge(path: str, body: Any, code: int = 200, **fields: Any) -> Step:
    return Step("PATCH", path, body, code, MERGE, **fields)


MADE = train()
FIXED = train(fixed="a", cars=[{"name": "a"}, {"name": "b", "seats": 10}])
STRICT = {"fieldValidation": "Strict"}

EXCHANGES: dict[str, list[Step]] = {
    "defaults": [MADE, Step("GET", T)],
    "defaults in lists": [train(cars=[{"name": "a"}, {"name": "b", "seats": 1}])],
    "null takes the default": [train(fuel=None, replicas=None)],
    "null without default is dropped": [train(min=None, limits=None)],
    "null where it is allowed": [train(note=None)],
    "unknown fields are dropped with warnings": [train(unheard=1, cars=[{"name": "a", "colour": "red"}])],
    "unknown fields are kept where it is open": [train(open={"a": {"b": [1, None, "x"]}})],
    "unknown fields, silently": [train(unheard=1, query={"fieldValidation": "Ignore"})],
    "unknown fields, strictly": [train(400, unheard=1, cars=[{"name": "a", "colour": "red"}], query=STRICT)],
    "unknown metadata": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t", "colour": "red"}, "spec": {"engine": "x"}}, 201)],
    "unknown at the top": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": {"engine": "x"}, "data": 1}, 201)],
    "a port by number and by name": [train(port=1), merge(T, {"spec": {"port": "http"}})],
    "a whole float is an integer": [post(None, 201, raw=b'{"apiVersion":"contract.example.com/v1","kind":"Train","metadata":{"name":"t"},"spec":{"engine":"x","limits":{"a":1.0}}}')],
    "a number": [train(speed=1.5), merge(T, {"spec": {"speed": 2}})],
    "wrong type": [train(422, engine=1)],
    "wrong type in a list": [train(422, cars=[{"name": 1}])],
    "a list for an object": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": []}, 422)],
    "an object for a list": [train(422, cars={})],
    "text for a number": [train(422, min="x")],
    "a boolean for an integer": [train(422, min=True)],
    "text in a map of numbers": [train(422, limits={"a": "b"})],
    "a fraction for an integer": [train(422, min=1.5)],
    "a fraction for a port": [train(422, port=1.5)],
    "not in the enumeration": [train(422, fuel="wood")],
    "too short": [train(422, engine="")],
    "too long": [train(422, engine="a" * 11)],
    "no match": [train(422, engine="X")],
    "too small": [train(422, replicas=-1)],
    "too large": [train(422, replicas=101)],
    "too many items": [train(422, cars=[{"name": n} for n in "abcd"])],
    "too many properties": [train(422, limits={"a": 1, "b": 2, "c": 3})],
    "a key twice": [train(422, cars=[{"name": "a"}, {"name": "a"}])],
    "a member twice": [train(422, tags=["a", "a"])],
    "a missing field": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": {}}, 422)],
    "a missing key": [train(422, cars=[{"seats": 1}])],
    "a rule": [train(422, replicas=2, min=5)],
    "a rule about a default": [train(422, min=2)],
    "no spec at all": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}}, 201)],
    "no kind": [post({"metadata": {"name": "t"}, "spec": {"engine": "x"}}, 400, ignore=("message",))],
    "another kind": [post({"apiVersion": VERSION, "kind": "Car", "metadata": {"name": "t"}}, 422)],
    "another version": [post({"apiVersion": "contract.example.com/v2", "kind": KIND, "metadata": {"name": "t"}}, 400)],
    "a number for a label": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t", "labels": {"a": 1}}, "spec": {"engine": "x"}}, 400)],
    "a bad name": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "T"}, "spec": {"engine": "x"}}, 422)],
    "no name": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {}, "spec": {"engine": "x"}}, 422)],
    "status is not created": [post({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": {"engine": "x"}, "status": {"replicas": 5}}, 201)],
    "generation counts the spec": [MADE, merge(T, {"spec": {"engine": "y"}}), merge(T, {"metadata": {"labels": {"a": "b"}}}), merge(f"{T}/status", {"status": {"replicas": 1}})],
    "status is not changed with the object": [MADE, merge(T, {"status": {"replicas": 1}})],
    "only the status is changed with the status": [MADE, merge(f"{T}/status", {"status": {"replicas": 1}, "spec": {"engine": "y"}, "metadata": {"labels": {"a": "b"}}})],
    "status by a tested patch": [
        MADE,
        Step("PATCH", f"{T}/status", [{"op": "test", "path": "/metadata/uid", "value": "$1.metadata.uid"}, {"op": "add", "path": "/status", "value": {"replicas": 3}}], 200, JSON_PATCH),
        Step("PATCH", f"{T}/status", [{"op": "test", "path": "/metadata/uid", "value": "x"}, {"op": "add", "path": "/status", "value": {}}], 422, JSON_PATCH),
        Step("PATCH", f"{T}/status", [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}], 422, JSON_PATCH),
        Step("GET", f"{T}/status"),
    ],
    "a status of a wrong type": [MADE, merge(f"{T}/status", {"status": {"conditions": [{"type": 1}]}}, 422)],
    "unknown status fields": [MADE, merge(f"{T}/status", {"status": {"unheard": 1}})],
    "put: needs the version": [MADE, Step("PUT", T, {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t"}, "spec": {"engine": "y"}}, 422)],
    "put: stale": [MADE, Step("PUT", T, {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t", "resourceVersion": "1"}, "spec": {"engine": "y"}}, 409)],
    "put": [MADE, Step("PUT", T, {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t", "resourceVersion": "$1.metadata.resourceVersion"}, "spec": {"engine": "y"}})],
    "put: status": [MADE, Step("PUT", f"{T}/status", {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "t", "resourceVersion": "$1.metadata.resourceVersion"}, "spec": {"engine": "y"}, "status": {"replicas": 2}})],
    "strategic patches are not for custom resources": [MADE, Step("PATCH", T, {}, 415, STRATEGIC)],
    "a fixed field": [FIXED, merge(T, {"spec": {"fixed": "b"}}, 422), merge(T, {"spec": {"fixed": "a", "engine": "y"}}), merge(T, {"spec": {"fixed": None}})],
    "a rule on update": [train(replicas=5, min=3), merge(T, {"spec": {"replicas": 2}}, 422)],
    "lists are replaced by a merge": [FIXED, merge(T, {"spec": {"cars": [{"name": "z"}]}})],
    "scale: read": [train(replicas=4), Step("GET", f"{T}/scale")],
    "scale: zero": [train(replicas=0), Step("GET", f"{T}/scale")],
    "scale: status and selector": [MADE, merge(f"{T}/status", {"status": {"replicas": 7, "selector": "a=b"}}), Step("GET", f"{T}/scale")],
    "scale: merge": [MADE, merge(f"{T}/scale", {"spec": {"replicas": 7}}), Step("GET", T)],
    "scale: put": [MADE, Step("PUT", f"{T}/scale", {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t", "namespace": "{ns}"}, "spec": {"replicas": 3}})],
    "scale: below zero": [MADE, Step("PUT", f"{T}/scale", {"metadata": {"name": "t"}, "spec": {"replicas": -7}}, 422)],
    "scale: beyond the maximum": [MADE, merge(f"{T}/scale", {"spec": {"replicas": 700}}, 422)],
    "scale: stale": [MADE, merge(f"{T}/scale", {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 3}}, 409)],
    "scale: of nothing": [Step("GET", f"{T}/scale", code=404)],
    "no such subresource": [MADE, Step("GET", f"{T}/none", code=404)],
    "no such resource": [Step("GET", "/apis/contract.example.com/v1/namespaces/{ns}/cars", code=404)],
    "no such version": [Step("GET", "/apis/contract.example.com/v2/namespaces/{ns}/trains", code=404)],
    "a name without a namespace": [MADE, Step("GET", "/apis/contract.example.com/v1/trains/t", code=404)],
    "the definition": [Step("GET", f"{DEFINITIONS}/trains.contract.example.com", ignore=("metadata.annotations",))],
    "a definition of another name": [
        Step("POST", DEFINITIONS, {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
             "spec": {"group": "contract.example.com", "scope": "Namespaced", "names": {"plural": "cars", "kind": "Car"},
                      "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}, 422),
    ],
    "a definition without a schema": [
        Step("POST", DEFINITIONS, {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cars.contract.example.com"},
             "spec": {"group": "contract.example.com", "scope": "Namespaced", "names": {"plural": "cars", "kind": "Car"},
                      "versions": [{"name": "v1", "served": True, "storage": True}]}}, 422),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_custom(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)


def definition(plural: str, kind: str) -> dict[str, Any]:
    fuel = {"type": "string", "default": "coal"}
    spec = {"type": "object", "default": {}, "properties": {"fuel": fuel}}
    schema = {"type": "object", "properties": {"spec": spec}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
        for name in ("v1", "v2")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.contract.example.com"},
        "spec": {
            "group": "contract.example.com",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": versions,
        },
    }


async def answers(client: RawClient, path: str, code: int) -> None:
    """Returns when a path is answered with a code; a cluster takes its time to serve what is defined."""
    async with asyncio.timeout(60):
        while (await client.send(Step("GET", path))).code != code:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)


async def test_a_definition_is_created_and_deleted(client: RawClient, namespace: str) -> None:
    """Served in both of its versions once created, and gone with its objects when deleted."""
    plural = f"t{namespace.replace('-', '')}s"
    made = await client.send(Step("POST", DEFINITIONS, definition(plural, plural.title())))
    assert made.code == 201, made.text
    first, second = (f"/apis/contract.example.com/{version}/{plural}" for version in ("v1", "v2"))
    await answers(client, second, 200)

    body = {"apiVersion": "contract.example.com/v2", "kind": plural.title(), "metadata": {"name": "x"}}
    created = await client.send(Step("POST", second, body))
    read = await client.send(Step("GET", f"{first}/x"))
    listed = await client.send(Step("GET", second))
    await client.send(Step("DELETE", f"{DEFINITIONS}/{plural}.contract.example.com"))

    assert (created.code, created.body["apiVersion"]) == (201, "contract.example.com/v2"), created.text
    assert read.body["apiVersion"] == "contract.example.com/v1"
    assert read.body["spec"] == {"fuel": "coal"}
    assert [item["apiVersion"] for item in listed.body["items"]] == ["contract.example.com/v2"]
    await answers(client, first, 404)
