"""Custom resources in several versions without a webhook: which defaults apply, and the effect of a changed definition."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import JSON_PATCH, MERGE, RawClient, Step

GROUP = "contract.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSIONS = ("v1", "v2beta1", "v1alpha2")


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


def path(version: str, name: str = "w", *, part: str = "") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/{{ns}}/wagons/{name}{part}".removesuffix("/")


def wagon(version: str, resource_version: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w"} | ({"resourceVersion": resource_version} if resource_version else {})
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Wagon", "metadata": metadata, "spec": spec}


def post(version: str, code: int = 201, **spec: Any) -> Step:
    return Step("POST", path(version, ""), wagon(version, **spec), code)


def merge(version: str, change: Any, code: int = 200, *, part: str = "") -> Step:
    return Step("PATCH", path(version, part=part), change, code, MERGE)


def put(version: str, code: int = 200, *, after: int = 1, **spec: Any) -> Step:
    return Step("PUT", path(version), wagon(version, f"${after}.metadata.resourceVersion", **spec), code)


READ = [Step("GET", path(version)) for version in VERSIONS]
SEATS = {"spec": {"seats": 3}}

EXCHANGES: dict[str, list[Step]] = {
    **{f"born in {version}": [post(version), *READ] for version in VERSIONS},
    **{f"with a route, born in {version}": [post(version, route={}), *READ] for version in VERSIONS},
    "said on purpose": [post("v1", made="v2beta1"), *READ],
    "null is stamped": [post("v2beta1", made=None, seats=None), *READ],
    "no such version to be made in": [post("v1", 422, made="v3")],
    **{
        f"born in {born}, changed through {other}": [post(born, route={}), merge(other, SEATS), *READ]
        for born in VERSIONS for other in VERSIONS
    },
    "an empty patch through another version": [post("v1"), merge("v2beta1", {}), *READ],
    "an empty list of patches": [post("v2beta1"), Step("PATCH", path("v1"), [], 200, JSON_PATCH), *READ],
    "a patch that changes the stamp": [post("v1"), merge("v1", {"spec": {"made": "v2beta1"}}, 422)],
    "a patch that takes the stamp away": [post("v1"), Step("PATCH", path("v2beta1"), [{"op": "remove", "path": "/spec/made"}], 422, JSON_PATCH)],
    "put: the same version, without the stamp": [post("v1", seats=2), put("v1", seats=3), *READ],
    "put: another version, without the stamp": [post("v1", seats=2), put("v2beta1", 422, seats=3), *READ],
    "put: another version, with the stamp": [post("v1", seats=2), put("v2beta1", seats=3, made="v1"), *READ],
    "a rule of one version": [
        post("v2beta1", route={"line": "a"}), merge("v1", {"spec": {"route": {"line": "b"}}}, 422),
        merge("v2beta1", {"spec": {"route": {"line": "b"}}}),
    ],
    "status through another version": [post("v1alpha2"), merge("v2beta1", {"status": {"marks": [{"type": "a"}]}}, part="/status"), *READ],
    "a status with a key twice": [post("v1"), merge("v1", {"status": {"marks": [{"type": "a"}, {"type": "a"}]}}, 422, part="/status")],
    "a list in each version": [post("v2beta1"), *(Step("GET", path(version, "")) for version in VERSIONS)],
    "another version in the body": [Step("POST", path("v1", ""), wagon("v2beta1"), 400)],
    "dry": [
        Step("POST", path("v1alpha2", ""), wagon("v1alpha2", route={}), 201, query={"dryRun": "All"}),
        post("v1alpha2"),
        Step("PATCH", path("v2beta1"), {"spec": {"route": {}}}, 200, MERGE, query={"dryRun": "All"}),
        *READ,
    ],
    "deleted through another version": [post("v1"), Step("DELETE", path("v1alpha2")), Step("GET", path("v1"), code=404)],
    "the preferred version comes first": [Step("GET", f"/apis/{GROUP}")],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_versions(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)


def definition(plural: str, versions: dict[str, dict[str, Any]], storage: str) -> dict[str, Any]:
    """A definition of versions with the given fields of the spec."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.title()},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == storage,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": fields}},
                        }
                    },
                }
                for name, fields in versions.items()
            ],
        },
    }


def stamped(version: str) -> dict[str, Any]:
    return {"made": {"type": "string", "default": version}, "seats": {"type": "integer"}}


async def read_as(client: RawClient, url: str, expected_spec: dict[str, Any]) -> dict[str, Any]:
    """The object at ``url``, once it has this spec; a cluster serves a changed definition after a while."""
    async with asyncio.timeout(60):
        while True:
            reply = await client.send(Step("GET", url))
            if reply.code == 200 and reply.body["spec"] == expected_spec:
                return dict(reply.body)
            await asyncio.sleep(0.05)


async def test_a_new_definition_reads_objects_stored_by_the_previous(
    client: RawClient, namespace: str
) -> None:
    """Until an object is rewritten, it is read by the new definition's schema of the version in which it is stored."""
    plural = f"w{namespace.replace('-', '')}s"
    definition_url, objects_url = f"{DEFINITIONS}/{plural}.{GROUP}", f"/apis/{GROUP}/{{}}/{plural}"
    old = definition(plural, {"v2beta1": {"seats": {"type": "integer"}}}, "v2beta1")
    assert (await client.send(Step("POST", DEFINITIONS, old))).code == 201
    body = {
        "apiVersion": f"{GROUP}/v2beta1",
        "kind": plural.title(),
        "metadata": {"name": "x"},
        "spec": {"seats": 4},
    }
    async with asyncio.timeout(60):
        while (made := await client.send(Step("POST", objects_url.format("v2beta1"), body))).code != 201:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)

    new = definition(plural, {"v1": stamped("v1"), "v2beta1": stamped("v2beta1")}, "v1")
    changed = await client.send(Step("PATCH", definition_url, {"spec": new["spec"]}, type=MERGE))
    assert changed.body["status"]["storedVersions"] == ["v2beta1", "v1"], changed.text
    stored = await read_as(client, f"{objects_url.format('v1')}/x", {"made": "v2beta1", "seats": 4})
    assert stored["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]

    dropped = copy.deepcopy(new["spec"])
    dropped["versions"] = dropped["versions"][:1]
    refused = await client.send(Step("PATCH", definition_url, {"spec": dropped}, type=MERGE))
    assert refused.code == 422
    assert (
        'status.storedVersions[0]: Invalid value: "v2beta1": missing from spec.versions'
        in refused.body["message"]
    )

    first = await client.send(Step("PATCH", f"{objects_url.format('v1')}/x", {}, type=MERGE))
    again = await client.send(Step("PATCH", f"{objects_url.format('v1')}/x", {}, type=MERGE))
    assert first.body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]
    assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    assert first.body["metadata"]["generation"] == 1

    trimmed = await client.send(
        Step("PATCH", f"{definition_url}/status", {"status": {"storedVersions": ["v1"]}}, type=MERGE)
    )
    assert trimmed.body["status"]["storedVersions"] == ["v1"], trimmed.text
    assert (await client.send(Step("PATCH", definition_url, {"spec": dropped}, type=MERGE))).code == 200
    await read_as(client, f"{objects_url.format('v1')}/x", {"made": "v2beta1", "seats": 4})
    await client.send(Step("DELETE", definition_url))


async def test_a_changed_definition_ends_watches(client: RawClient, namespace: str) -> None:
    """The watch has reported objects in a form that the new definition does not return."""
    plural = f"c{namespace.replace('-', '')}s"
    definition_url, objects_url = f"{DEFINITIONS}/{plural}.{GROUP}", f"/apis/{GROUP}/v1/{plural}"
    await client.send(Step("POST", DEFINITIONS, definition(plural, {"v1": {}}, "v1")))
    async with asyncio.timeout(60):
        while (await client.send(Step("GET", objects_url))).code != 200:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)

    query = {"watch": "true", "timeoutSeconds": "60"}
    async with asyncio.timeout(30), client.stream(objects_url, query, "application/json") as lines:
        new = definition(plural, {"v1": stamped("v1")}, "v1")
        changed = await client.send(Step("PATCH", definition_url, {"spec": new["spec"]}, type=MERGE))
        ended = [line async for line in lines]

    assert changed.code == 200
    assert ended == []
    await client.send(Step("DELETE", definition_url))
