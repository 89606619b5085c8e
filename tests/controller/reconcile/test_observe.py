"""The snapshot of a job: its own children only."""

from typing import Any

import msgspec
import pytest

from api.children import Pod, PodGroup, Service
from controller.domain import Key, Snapshot
from controller.kinds import ALL
from controller.reconcile.observe import Sources, observe, owner_uid
from controller.runtime.store import Store
from tests.support.builders import UID, pod, pod_group, service

TRAIN = Key("ml", "train")
KIND = ALL[0]


def observed(*children: Pod | Service) -> Snapshot:
    pods, services = Store[Pod](owner_uid), Store[Service](owner_uid)
    for child in children:
        if isinstance(child, Pod):
            pods.put(child)
        else:
            services.put(child)
    return observe(Sources(pods, services), KIND, TRAIN, UID)


def test_children_of_the_job_are_observed() -> None:
    own = pod("master"), pod("worker", 1), service("worker", 1)

    assert observed(*own) == Snapshot(pods=own[:2], services=own[2:])


def test_a_child_that_is_being_deleted_is_observed() -> None:
    assert len(observed(pod(deleting=True), service(deleting=True)).pods) == 1


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"owner_uid": "another"}, id="of an earlier job of that name"),
        pytest.param({"owner_uid": ""}, id="without an owner, with the right labels"),
        pytest.param({"name": "mine"}, id="under a name that the job does not give"),
        pytest.param({"name": "train-worker-00"}, id="under a name that is only almost right"),
        pytest.param({"index": 1}, id="whose index is not that of its name"),
        pytest.param({"role": "master"}, id="whose role is not that of its name"),
        pytest.param({"namespace": "theirs"}, id="in another namespace, with a forged owner reference"),
    ],
)
def test_a_forged_child_is_not_observed(forged: dict[str, Any]) -> None:
    strangers = msgspec.structs.replace(pod(), **forged), msgspec.structs.replace(service(), **forged)

    assert observed(*strangers) == Snapshot()


@pytest.mark.parametrize(
    "removed", [pytest.param({"index": -1}, id="of its index"), pytest.param({"role": ""}, id="of its role")]
)
def test_a_child_without_its_labels_is_observed_by_name(removed: dict[str, Any]) -> None:
    assert observed(msgspec.structs.replace(pod(), **removed)) == observed(pod())


def test_a_job_without_children_has_an_empty_snapshot() -> None:
    assert observed() == Snapshot()


@pytest.mark.parametrize(
    ("fields", "is_observed"),
    [
        pytest.param({}, True, id="its own"),
        pytest.param({"name": "other"}, False, id="under another name"),
        pytest.param({"namespace": "theirs"}, False, id="in another namespace"),
        pytest.param({"owner_uid": "another"}, False, id="of another job"),
    ],
)
def test_a_pod_group_is_observed_only_if_the_job_owns_it(fields: dict[str, Any], is_observed: bool) -> None:
    groups = Store[PodGroup]()
    groups.put(pod_group(**fields))

    snapshot = observe(Sources(Store(owner_uid), groups=groups), KIND, TRAIN, UID)
    assert (snapshot.group is not None) is is_observed
