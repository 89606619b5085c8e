"""What is written into a Lease, and what is read from it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
import pytest

from controller.runtime.lease import Claim, Lease, lease_from_json

NOW = datetime(2026, 5, 1, 12, 0, 0, 500, tzinfo=UTC)
SOON = "2026-05-01T12:00:00.000500Z"
CLAIM = Claim("kubeflow", "lock", "b", 15.0)


def lease(metadata: dict[str, Any] | None = None, **spec: Any) -> Lease:
    meta = {"namespace": "kubeflow", "name": "lock", "uid": "u", "resourceVersion": "7", **(metadata or {})}
    return lease_from_json(orjson.dumps({"kind": "Lease", "metadata": meta, "spec": spec}))


def test_it_is_read() -> None:
    one = lease(holderIdentity="a", leaseDurationSeconds=15)

    assert (one.namespace, one.name, one.uid, one.resource_version) == ("kubeflow", "lock", "u", 7)
    assert (one.holder, one.duration_seconds) == ("a", 15)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": None}, {"holderIdentity": ""}])
def test_nobody_holds_it(spec: dict[str, Any]) -> None:
    assert (lease(**spec).holder, lease(**spec).duration_seconds) == ("", 0)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"metadata": {"name": "lock"}}', b"[]"])
def test_what_is_no_lease(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        lease_from_json(raw)


def test_a_new_one() -> None:
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


def test_one_that_is_renewed_keeps_when_it_was_taken() -> None:
    old = lease(holderIdentity="b", acquireTime="then", leaseTransitions=3)

    spec = orjson.loads(CLAIM.held(old, NOW))["spec"]

    assert (spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"]) == ("then", SOON, 3)


@pytest.mark.parametrize(("old", "transitions"), [({"leaseTransitions": 3}, 4), ({}, 1)])
def test_one_that_is_taken_counts_it(old: dict[str, Any], transitions: int) -> None:
    spec = orjson.loads(CLAIM.held(lease(holderIdentity="a", **old), NOW))["spec"]

    assert (spec["acquireTime"], spec["holderIdentity"], spec["leaseTransitions"]) == (SOON, "b", transitions)


def test_one_that_is_given_back() -> None:
    spec = orjson.loads(CLAIM.released(lease(holderIdentity="b", leaseTransitions=3), NOW))["spec"]

    assert spec == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": SOON,
        "renewTime": SOON,
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize("write", [CLAIM.held, CLAIM.released])
def test_what_others_have_put_there_stays(write: Any) -> None:
    """And the version goes along, so that nothing is written over what nobody has seen."""
    metadata = {"labels": {"team": "a"}, "managedFields": [{"manager": "x"}]}

    body = orjson.loads(write(lease(metadata, holderIdentity="a", strategy="OldestEmulationVersion"), NOW))

    assert body["metadata"]["labels"] == {"team": "a"}
    assert body["metadata"]["resourceVersion"] == "7"
    assert "managedFields" not in body["metadata"]
    assert body["spec"]["strategy"] == "OldestEmulationVersion"
