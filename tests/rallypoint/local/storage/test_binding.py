"""Which volume a claim gets."""

from typing import Any

import pytest

from rallypoint.local.storage.binding import find_volume, is_in_use, provisioned_volume, volume_conflict

CLAIM_META = {"name": "c", "namespace": "team", "uid": "c-1", "resourceVersion": "7"}


def claim(**spec: Any) -> dict[str, Any]:
    claim_spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "",
        "volumeMode": "Filesystem",
    }
    return {"metadata": CLAIM_META, "spec": {**claim_spec, **spec}}


def volume(name: str = "v", size: str = "2Gi", **spec: Any) -> dict[str, Any]:
    has = {
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": size},
        "volumeMode": "Filesystem",
    }
    return {"metadata": {"name": name, "labels": {"disk": "fast"}}, "spec": {**has, **spec}}


def name_of(wanted: dict[str, Any], *volumes: dict[str, Any]) -> str:
    found = find_volume(wanted, volumes)
    return "" if found is None else str(found["metadata"]["name"])


@pytest.mark.parametrize(
    ("wanted", "there", "expected"),
    [
        pytest.param(claim(), volume(), "v", id="it fits"),
        pytest.param(claim(), volume(size="1Gi"), "", id="too small"),
        pytest.param(claim(accessModes=["ReadWriteMany"]), volume(), "", id="another mode"),
        pytest.param(claim(storageClassName="x"), volume(), "", id="another class"),
        pytest.param(claim(), volume(volumeMode="Block"), "", id="no file system"),
        pytest.param(claim(selector={"matchLabels": {"disk": "fast"}}), volume(), "v", id="labelled"),
        pytest.param(
            claim(selector={"matchLabels": {"disk": "slow"}}), volume(), "", id="labelled otherwise"
        ),
        pytest.param(claim(), volume(claimRef={"namespace": "team", "name": "d"}), "", id="kept for another"),
        pytest.param(
            claim(), volume(size="1Gi", claimRef={"namespace": "team", "name": "c"}), "v", id="kept for it"
        ),
        pytest.param(
            claim(),
            volume(claimRef={"namespace": "team", "name": "c", "uid": "c-0"}),
            "",
            id="of its predecessor",
        ),
        pytest.param(claim(volumeName="v"), volume(size="1Gi"), "v", id="named"),
        pytest.param(claim(volumeName="w"), volume(), "", id="another is named"),
    ],
)
def test_a_volume_for_a_claim(wanted: dict[str, Any], there: dict[str, Any], expected: str) -> None:
    assert name_of(wanted, there) == expected


def test_the_smallest_matching_volume_is_bound() -> None:
    assert name_of(claim(), volume("large", "9Gi"), volume("right", "3Gi"), volume("small", "1Gi")) == "right"


def test_a_terminating_volume_is_not_bound() -> None:
    going = volume()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert name_of(claim(), going) == ""


def test_a_provisioned_volume_is_reserved_for_its_claim(tmp_path: Any) -> None:
    made = provisioned_volume(claim(storageClassName="any"), tmp_path)

    assert name_of(claim(storageClassName="any"), made) == "pvc-c-1"
    assert made["spec"]["hostPath"] == {"path": str(tmp_path), "type": "DirectoryOrCreate"}


def pod(**volume: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "p-1"},
        "spec": {"volumes": [{"name": "v", **volume}], "nodeName": "local"},
    }


USES = pod(persistentVolumeClaim={"claimName": "c"})
OWN = pod(ephemeral={})
BOUND = {**claim(), "status": {"phase": "Bound"}}
GOING = {**BOUND, "metadata": {**CLAIM_META, "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("user", "known", "words"),
    [
        pytest.param(USES, {}, 'persistentvolumeclaim "c" not found', id="missing"),
        pytest.param(USES, {"c": GOING}, 'persistentvolumeclaim "c" is being deleted', id="being deleted"),
        pytest.param(
            USES, {"c": claim()}, "pod has unbound immediate PersistentVolumeClaims", id="not bound"
        ),
        pytest.param(USES, {"c": BOUND}, "", id="bound"),
        pytest.param(
            OWN,
            {},
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
            id="not yet created",
        ),
        pytest.param(
            OWN,
            {"p-v": BOUND},
            "PVC team/p-v was not created for pod team/p (pod is not owner)",
            id="foreign",
        ),
        pytest.param(pod(emptyDir={}), {}, "", id="no claim"),
    ],
)
def test_claims_that_block_a_pod(user: dict[str, Any], known: dict[str, Any], words: str) -> None:
    assert (
        volume_conflict(user, {("team", name): known_claim for name, known_claim in known.items()}) == words
    )


@pytest.mark.parametrize(("phase", "holding"), [("Running", True), ("Pending", True), ("Succeeded", False)])
def test_a_pod_holds_its_claims_until_it_has_ended(phase: str, holding: bool) -> None:
    assert is_in_use({**USES, "status": {"phase": phase}}) is holding
