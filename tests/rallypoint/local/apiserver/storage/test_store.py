"""The store: revisions, history and watchers, including slow ones."""

import asyncio
from typing import Any

import pytest

from rallypoint.local.apiserver.storage.store import Collection, Gone, Store


def obj(name: str, namespace: str = "a", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return {"kind": "Thing", "apiVersion": "v1", "metadata": metadata, **fields}


@pytest.fixture
def store() -> Store:
    return Store(history=4)


@pytest.fixture
def things(store: Store) -> Collection:
    return store.collection("/things")


def names(entries: list[Any]) -> list[str]:
    return [entry.metadata["name"] for entry in entries]


def test_each_write_has_its_own_revision(store: Store, things: Collection) -> None:
    versions = [
        store.put(things, obj("x")).revision,
        store.put(store.collection("/others"), obj("x")).revision,
        store.remove(things, obj("x")).revision,
    ]

    assert versions == sorted(set(versions))


def test_storing_an_object_does_not_change_it(store: Store, things: Collection) -> None:
    given = obj("x")

    entry = store.put(things, given)

    assert "resourceVersion" not in given["metadata"]
    assert entry.metadata["resourceVersion"] == str(entry.revision)


def test_lists_are_sorted_and_filtered_by_namespace(store: Store, things: Collection) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        store.put(things, obj(name, namespace))

    assert names(things.select()) == ["y", "z", "x"]
    assert names(things.select("a")) == ["y", "z"]
    assert things.select("none") == []


def test_earlier_revisions_can_be_read(store: Store, things: Collection) -> None:
    store.put(things, obj("x", colour="red"))
    then = store.put(things, obj("y")).revision
    store.put(things, obj("x", colour="blue"))
    store.remove(things, obj("y"))
    store.put(things, obj("z"))

    before = things.at(then)

    assert names(before) == ["x", "y"]
    assert before[0].object["colour"] == "red"
    assert names(things.at(store.revision)) == ["x", "z"]


def test_compacted_revisions_are_gone(store: Store, things: Collection) -> None:
    first = store.put(things, obj("x")).revision
    for _ in range(5):
        store.put(things, obj("x"))

    with pytest.raises(Gone, match=f"too old resource version: {first} "):
        things.at(first)
    with pytest.raises(Gone):
        things.since(first)
    assert len(list(things.since(things.compacted_revision))) == 4


def test_a_new_collection_has_no_earlier_revisions(store: Store) -> None:
    store.put(store.collection("/things"), obj("x"))
    late = store.collection("/late")

    with pytest.raises(Gone):
        late.since(1)
    assert list(late.since(store.revision)) == []


def test_a_watcher_sees_every_change(store: Store, things: Collection) -> None:
    watcher = store.watch(things, capacity=10)
    store.put(things, obj("x"))
    store.put(things, obj("x", colour="red"))
    store.remove(things, obj("x"))
    store.unwatch(things, watcher)
    store.put(things, obj("y"))

    assert [change.type for change in watcher.drain()] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_watcher_wakes(store: Store, things: Collection) -> None:
    watcher = store.watch(things, capacity=10)
    waiting = asyncio.ensure_future(watcher.wake.wait())
    store.put(things, obj("x"))

    assert await waiting
    assert len(watcher.drain()) == 1
    assert not watcher.wake.is_set()


def test_a_slow_watcher_is_lost(store: Store, things: Collection) -> None:
    slow, quick = store.watch(things, capacity=2), store.watch(things, capacity=10)
    for name in "abc":
        store.put(things, obj(name))

    assert slow.lost
    assert slow.drain() == []
    assert len(quick.drain()) == 3


def test_an_object_is_encoded_once(store: Store, things: Collection) -> None:
    entry = store.put(things, obj("x"))

    assert entry.bytes("v1") is entry.bytes("v1")
    assert b'"apiVersion":"v2"' in entry.bytes("v2")


def test_owners_and_dependents_are_indexed(store: Store, things: Collection) -> None:
    store.put(things, obj("owner"))
    child = obj("child")
    child["metadata"]["ownerReferences"] = [{"uid": "uid-owner"}]
    store.put(things, child)

    assert store.owners["uid-owner"] == (things, ("a", "owner"))
    assert store.dependents["uid-owner"] == {(things, ("a", "child"))}
    store.remove(things, child)
    assert "uid-owner" not in store.dependents
