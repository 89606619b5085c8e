"""Reading and writing a Lease."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import orjson
import pytest

from api.labels import HANDOVER
from controller.runtime.lease import Claim, Lease, lease_from_json

NOW = datetime(2026, 5, 1, 12, 0, 0, 500, tzinfo=UTC)
LATER = NOW + timedelta(seconds=2)
SOON = "2026-05-01T12:00:00.000500Z"
CLAIM = Claim("kubeflow", "lock", "b", 15.0)


def lease(metadata: dict[str, Any] | None = None, **spec: Any) -> Lease:
    meta = {"namespace": "kubeflow", "name": "lock", "uid": "u", "resourceVersion": "7", **(metadata or {})}
    return lease_from_json(orjson.dumps({"kind": "Lease", "metadata": meta, "spec": spec}))


def test_a_lease_is_parsed() -> None:
    parsed = lease(holderIdentity="a", leaseDurationSeconds=15)

    assert (parsed.namespace, parsed.name, parsed.uid, parsed.resource_version) == (
        "kubeflow",
        "lock",
        "u",
        7,
    )
    assert (parsed.holder, parsed.duration_seconds) == ("a", 15)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": None}, {"holderIdentity": ""}])
def test_a_lease_without_a_holder(spec: dict[str, Any]) -> None:
    assert (lease(**spec).holder, lease(**spec).duration_seconds) == ("", 0)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"metadata": {"name": "lock"}}', b"[]"])
def test_json_that_is_no_lease_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        lease_from_json(raw)


def test_a_claim_creates_a_new_lease() -> None:
    made = orjson.loads(CLAIM.made(NOW))

    assert made == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "kubeflow"},
        "spec": {
            "holderIdentity": "b",
            "leaseDurationSeconds": 15,
            "renewTime": SOON,
            "acquireTime": SOON,
            "leaseTransitions": 0,
        },
    }


def test_a_renewal_keeps_the_acquire_time() -> None:
    old = lease(holderIdentity="b", acquireTime="then", leaseTransitions=3)

    spec = orjson.loads(CLAIM.held(old, NOW))["spec"]

    assert (spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"]) == ("then", SOON, 3)


@pytest.mark.parametrize(("old", "transitions"), [({"leaseTransitions": 3}, 4), ({}, 1)])
def test_an_acquisition_counts_a_transition(old: dict[str, Any], transitions: int) -> None:
    spec = orjson.loads(CLAIM.held(lease(holderIdentity="a", **old), NOW))["spec"]

    assert (spec["acquireTime"], spec["holderIdentity"], spec["leaseTransitions"]) == (SOON, "b", transitions)


def test_a_release_clears_the_holder() -> None:
    spec = orjson.loads(CLAIM.released(lease(holderIdentity="b", leaseTransitions=3), NOW, {}))["spec"]

    assert spec == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": SOON,
        "renewTime": SOON,
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(CLAIM.held, id="held"),
        pytest.param(partial(CLAIM.released, latest_changes={"pods": 12}), id="released"),
    ],
)
def test_unknown_fields_are_preserved(write: Any) -> None:
    """The version is sent along, so no unobserved change is overwritten."""
    metadata = {"labels": {"team": "a"}, "managedFields": [{"manager": "x"}]}

    body = orjson.loads(write(lease(metadata, holderIdentity="a", strategy="OldestEmulationVersion"), NOW))

    assert body["metadata"]["labels"] == {"team": "a"}
    assert body["metadata"]["resourceVersion"] == "7"
    assert "managedFields" not in body["metadata"]
    assert body["spec"]["strategy"] == "OldestEmulationVersion"


def test_a_released_lease_says_what_its_holder_knew() -> None:
    released = lease_from_json(CLAIM.released(lease(holderIdentity="b"), NOW, {"pods": 12}))

    assert released.handover() == {"pods": 12}


def test_a_handover_counts_only_until_another_client_writes_the_lease() -> None:
    released = lease_from_json(CLAIM.released(lease(holderIdentity="b"), NOW, {"pods": 12}))
    again = Claim("kubeflow", "lock", "other", 15.0)
    held = lease_from_json(again.held(released, LATER))
    body = {**held.body, "spec": {**held.body["spec"], "holderIdentity": ""}}

    assert held.handover() == {}
    assert lease_from_json(orjson.dumps(body)).handover() == {}, "a Go operator has released it"


@pytest.mark.parametrize("text", ["", "{}", "[]", "12", '{"releasedAt": "", "latestChanges": {"pods": "x"}}'])
def test_an_annotation_that_is_no_handover_is_ignored(text: str) -> None:
    assert lease({"annotations": {HANDOVER: text}}).handover() == {}
