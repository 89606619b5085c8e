"""Server-side apply: fields that a manager sets, removes, and cannot take from another manager."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from rallypoint.testing.http_trace import APPLY, Step

CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
SERVICES = "/api/v1/namespaces/{ns}/services"
PODS = "/api/v1/namespaces/{ns}/pods"
TRAINS = "/apis/contract.example.com/v1/namespaces/{ns}/trains"
C, S, P, T = f"{CONFIGMAPS}/c", f"{SERVICES}/s", f"{PODS}/p", f"{TRAINS}/t"


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


def apply(
    path: str,
    body: dict[str, Any],
    code: int = 200,
    *,
    by: str = "one",
    ignore: Sequence[str] = (),
    **query: str,
) -> Step:
    return Step("PATCH", path, body, code, APPLY, query={"fieldManager": by, **query}, ignore=ignore)


def configmap(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def service(*ports: dict[str, Any]) -> dict[str, Any]:
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}


def train(**spec: Any) -> dict[str, Any]:
    spec = {"engine": "x", **spec}
    return {"apiVersion": "contract.example.com/v1", "kind": "Train", "metadata": {"name": "t"}, "spec": spec}


def pod(image: str, *env: str) -> dict[str, Any]:
    container = {"name": "c", "image": image, "env": [{"name": name, "value": "1"} for name in env]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


ALIASES = b"""
apiVersion: v1
kind: ConfigMap
metadata: {name: c, labels: &labels {x: z}, annotations: *labels}
"""
LAUGHS = (
    ALIASES
    + b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12))
)
"""Nine to the power of twelve values in half a kilobyte."""


EXCHANGES: dict[str, list[Step]] = {
    "YAML with aliases": [replace(apply(C, {}, 201), raw=ALIASES)],
    "YAML with aliases that multiply": [replace(apply(C, {}, 400), raw=LAUGHS)],
    "creates": [apply(C, configmap({"a": "1"}), 201), Step("GET", C)],
    "the same again writes nothing": [apply(C, configmap({"a": "1"}), 201), apply(C, configmap({"a": "1"}))],
    "changes": [apply(C, configmap({"a": "1"}), 201), apply(C, configmap({"a": "2", "b": "3"}))],
    "what is no longer named goes": [apply(C, configmap({"a": "1", "b": "2"}), 201), apply(C, configmap({"a": "1"}))],
    "labels that are no longer named go": [
        apply(C, configmap({"a": "1"}, labels={"x": "y", "z": ""}), 201), apply(C, configmap({"a": "1"}, labels={"x": "y"})),
    ],
    "what another made stays": [
        Step("POST", CONFIGMAPS, configmap({"theirs": "1"}), 201), apply(C, configmap({"mine": "2"})), apply(C, configmap({})),
    ],
    "what another wants as well stays": [
        apply(C, configmap({"a": "1", "b": "2"}), 201), apply(C, configmap({"b": "2"}), by="two"), apply(C, configmap({"a": "1"})),
    ],
    "a conflict": [apply(C, configmap({"a": "1"}), 201), apply(C, configmap({"a": "2"}), 409, by="two")],
    "a conflict by force": [
        apply(C, configmap({"a": "1"}), 201), apply(C, configmap({"a": "2"}), by="two", force="true"), apply(C, configmap({})),
    ],
    "items of a list by their keys": [
        apply(S, service({"port": 1, "name": "x"}), 201), apply(S, service({"port": 1, "name": "x"}, {"port": 2, "name": "y"})),
        apply(S, service({"port": 2, "name": "y"})),
    ],
    "items of two managers": [
        apply(T, train(cars=[{"name": "a"}]), 201), apply(T, train(cars=[{"name": "b", "seats": 5}]), by="two"), apply(T, train(cars=[])),
    ],
    "members of a set": [apply(T, train(tags=["a", "b"]), 201), apply(T, train(tags=["c"]), by="two"), apply(T, train(tags=["b"]))],
    "a custom resource": [apply(T, train(replicas=3), 201), apply(T, train())],
    "a custom resource is validated": [apply(T, train(replicas=101), 422)],
    "the image of a pod": [apply(P, pod("i:1", "A"), 201), apply(P, pod("i:2", "A"))],
    "the environment of a pod stays": [apply(P, pod("i:1", "A"), 201), apply(P, pod("i:1", "B"), 422)],
    "a status": [
        apply(T, train(), 201), apply(f"{T}/status", {"apiVersion": "contract.example.com/v1", "kind": "Train", "metadata": {"name": "t"}, "status": {"replicas": 4}}),
        Step("GET", T),
    ],
    "a dry run": [apply(C, configmap({"a": "1"}), 201, dryRun="All"), Step("GET", C, code=404)],
    "without a manager": [Step("PATCH", C, configmap({}), 422, APPLY)],
    "an unknown field, strictly": [apply(T, train(unheard=1), 500, fieldValidation="Strict", ignore=("message",))],
    "an unknown field": [apply(T, train(unheard=1), 500, ignore=("message",))],
}  # fmt: skip


@pytest.mark.parametrize("steps", EXCHANGES.values(), ids=EXCHANGES.keys())
async def test_apply(both: Both, steps: list[Step]) -> None:
    await both.agree(steps)
