"""The store: lists, watch events and responses to own writes in any order."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from controller.runtime.store import Store


@dataclass(frozen=True)
class Thing:
    name: str
    resource_version: int
    uid: str = "1"
    owner: str = ""
    namespace: str = "default"


def stored(*things: Thing) -> Store[Thing]:
    store = Store[Thing](index=lambda thing: thing.owner)
    for thing in things:
        store.put(thing)
    return store


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        pytest.param(4, False, id="an older version is ignored"),
        pytest.param(5, False, id="the same version is ignored, as after an own write"),
        pytest.param(6, True, id="a newer version is stored"),
    ],
)
def test_put(version: int, taken: bool) -> None:
    store = stored(old := Thing("a", 5))

    change = store.put(new := Thing("a", version, owner="somebody"))

    assert change == ((old, new) if taken else None)
    assert store.get("default", "a") == (new if taken else old)


def test_an_unselected_row_survives_a_list_and_is_removed_by_its_deletion() -> None:
    store = stored()
    store.advance(10)
    store.put_unselected(thing := Thing("a", 5))

    assert store.replace([], 20) == []
    assert set(store) == {thing}
    assert store.unselected == {("default", "a")}
    assert store.remove(thing) == (thing, None)
    assert store.unselected == set()


def test_a_row_that_the_watch_reports_again_is_selected() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))
    store.put(Thing("a", 6))

    assert store.unselected == set()
    assert store.replace([], 20) != []


def test_the_namespace_is_part_of_the_key() -> None:
    store = stored(default := Thing("a", 5), other := Thing("a", 4, namespace="other"))

    assert set(store) == {default, other}
    assert store.get("other", "a") == other
    assert store.get("nowhere", "a") is None


def test_the_index_follows_every_change() -> None:
    store = stored(Thing("a", 1, owner="x"), b := Thing("b", 2, owner="x"))
    store.put(moved := Thing("a", 3, owner="y"))
    assert (store.indexed("x"), store.indexed("y")) == ((b,), (moved,))

    store.remove(b)
    assert (store.indexed("x"), len(store)) == ((), 1)

    store.amend(amended := replace(moved, owner="z"))
    assert (store.indexed("y"), store.indexed("z")) == ((), (amended,))


def test_a_list_replaces_an_amended_row_even_at_its_old_version() -> None:
    # The server was restored from a backup of before whatever the row was amended for, and has passed the place of the watch since.
    store = stored(listed := Thing("a", 5))
    store.amend(amended := replace(listed, owner="z"))

    assert store.replace([listed], 9) == [(amended, listed)]
    assert store.replace([listed], 10) == []


@pytest.mark.parametrize(
    ("gone", "removed"),
    [
        pytest.param(Thing("a", 9), True, id="the very object"),
        pytest.param(Thing("a", 9, uid="2"), False, id="an earlier object of that name"),
        pytest.param(Thing("b", 9), False, id="one that is not known"),
    ],
)
def test_remove(gone: Thing, removed: bool) -> None:
    store = stored(there := Thing("a", 5))

    assert store.remove(gone) == ((there, None) if removed else None)
    assert len(store) == (0 if removed else 1)


def test_a_response_after_the_deletion_restores_nothing() -> None:
    """The watch reported the creation (7) and the deletion (8) before the response to the create (7) arrived."""
    store = stored()
    store.put(made := Thing("a", 7))
    store.advance(7)
    store.remove(replace(made, resource_version=8))
    store.advance(8)

    assert store.put(made) is None
    assert store.get("default", "a") is None


def test_a_response_before_the_watch_event_is_stored_at_once() -> None:
    store = stored()
    store.advance(6)

    assert store.put(made := Thing("a", 7)) == (None, made)


def test_the_last_synced_resource_version_does_not_decrease() -> None:
    store = stored()
    store.advance(6)
    store.advance(5)

    assert store.last_synced_resource_version == 6


def test_a_list_replaces_rows_but_not_newer_own_writes() -> None:
    store = stored(
        old := Thing("changed", 3, owner="x"),
        Thing("same", 4),
        gone := Thing("gone", 5),
        Thing("made by us meanwhile", 12),
        Thing("written by us meanwhile", 13),
    )

    changes = store.replace(
        [
            new := Thing("changed", 8, owner="y"),
            Thing("same", 4),
            came := Thing("came", 9),
            Thing("written by us meanwhile", 2),
        ],
        10,
    )

    assert changes == [(gone, None), (old, new), (None, came)]
    assert {thing.name: thing.resource_version for thing in store} == {
        "changed": 8,
        "same": 4,
        "came": 9,
        "made by us meanwhile": 12,
        "written by us meanwhile": 13,
    }
    assert (store.last_synced_resource_version, store.indexed("x"), store.indexed("y")) == (10, (), (new,))


def test_a_list_replaces_all_rows_that_are_not_newer() -> None:
    """Its server was set back and has come past our place again: that nothing is known of it, but the list is the truth."""
    store = stored(known := Thing("a", 8))
    store.advance(8)

    assert store.replace([older := Thing("a", 5)], 10) == [(known, older)]
    assert store.get("default", "a") == older


def test_after_a_restore_of_the_server_all_rows_are_replaced() -> None:
    """Numbers are given out a second time, so that an equal one does not mean the same object."""
    store = stored(gone := Thing("a", 8), again := Thing("b", 4), Thing("made by us", 12))
    store.advance(9)

    changes = store.replace([other := Thing("b", 4, uid="2"), came := Thing("c", 6)], 7)

    assert changes == [(gone, None), (Thing("made by us", 12), None), (again, other), (None, came)]
    assert (set(store), store.last_synced_resource_version) == ({other, came}, 7)
    assert store.put(later := Thing("a", 8, uid="3")) == (None, later)


def test_a_list_returns_changes_that_the_watch_missed() -> None:
    """An event was lost on the way: the object is older than what the watch has reached, and still unknown."""
    store = stored()
    store.advance(9)

    assert store.replace([missed := Thing("a", 5)], 10) == [(None, missed)]


NAMES = st.sampled_from("abc")


class StoreMachine(RuleBasedStateMachine):
    """A server, its watch and own writes, whose events and responses arrive in any possible order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store[Thing](index=lambda thing: thing.owner)
        self.version = 0
        self.server: dict[str, Thing] = {}
        self.history: list[tuple[str, Thing]] = []
        self.delivered = 0
        """How many events of the history the watch has delivered."""
        self.answers: list[Thing] = []
        """Responses to own writes that are still under way."""
        self.newest: dict[str, int] = {}
        self.uids = 0

    def write(self, name: str, owner: str) -> Thing:
        self.version += 1
        before = self.server.get(name)
        self.uids += before is None
        thing = Thing(name, self.version, before.uid if before else str(self.uids), owner)
        self.server[name] = thing
        self.history.append(("PUT", thing))
        return thing

    @rule(name=NAMES, owner=NAMES)
    def another_client_writes(self, name: str, owner: str) -> None:
        self.write(name, owner)

    @rule(name=NAMES, owner=NAMES)
    def we_write(self, name: str, owner: str) -> None:
        self.answers.append(self.write(name, owner))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def another_client_deletes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.server)))
        self.version += 1
        self.history.append(("DELETED", replace(self.server.pop(name), resource_version=self.version)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.answers) - 1))
        self.store.put(self.answers.pop(at))

    @precondition(lambda self: self.delivered < len(self.history))
    @rule()
    def an_event_arrives(self) -> None:
        self.deliver(self.delivered)
        self.delivered += 1

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def an_event_arrives_twice(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.integers(0, self.delivered - 1)))

    def deliver(self, at: int) -> None:
        type_, thing = self.history[at]
        if type_ == "DELETED":
            self.store.remove(thing)
        else:
            self.store.put(thing)
        self.store.advance(thing.resource_version)

    @rule()
    def everything_is_listed(self) -> None:
        self.store.replace(list(self.server.values()), self.version)
        self.delivered = len(self.history)

    @invariant()
    def nothing_gets_older(self) -> None:
        for thing in self.store:
            current = self.newest.get(thing.uid, 0)
            assert thing.resource_version >= current
            self.newest[thing.uid] = thing.resource_version

    @invariant()
    def the_index_is_complete(self) -> None:
        for owner in "abc":
            assert set(self.store.indexed(owner)) == {thing for thing in self.store if thing.owner == owner}

    @override
    def teardown(self) -> None:
        """Once all events and responses have arrived, in any order, the store equals the server."""
        while self.delivered < len(self.history):
            self.an_event_arrives()
        for answer in self.answers:
            self.store.put(answer)
        assert {thing.name: thing for thing in self.store} == self.server


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_row_read_by_name_is_selected_once_the_watch_reports_that_version() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))

    assert store.put(Thing("a", 5)) is None
    assert store.unselected == set()


def test_a_row_stays_unselected_while_the_watch_reports_older_versions() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))

    assert store.put(Thing("a", 4)) is None
    assert store.unselected == {("default", "a")}


def test_the_latest_change_is_that_of_the_newest_row_or_deletion() -> None:
    store = stored(Thing("a", 5), Thing("b", 7))
    assert store.latest_change == 7
    store.remove(Thing("a", 9))
    store.advance(20)

    assert store.latest_change == 9


def test_the_latest_change_is_unknown_until_the_watch_reports_an_own_deletion() -> None:
    store = stored(thing := Thing("a", 5))
    store.amend(thing)
    assert store.latest_change is None
    store.remove(Thing("a", 8))

    assert store.latest_change == 8


def test_the_latest_change_is_unknown_after_a_deletion_without_an_event() -> None:
    store = stored(thing := Thing("a", 5))
    store.remove(thing)
    assert store.latest_change is None
    store.replace([], 30)

    assert store.latest_change == 30


def test_a_deletion_that_a_list_shows_is_no_later_than_the_list() -> None:
    store = stored(Thing("a", 5))
    store.replace([], 30)

    assert store.latest_change == 30


def test_a_list_without_changes_does_not_change_the_latest_change() -> None:
    store = stored(thing := Thing("a", 5))
    store.replace([thing], 30)

    assert store.latest_change == 5


@pytest.mark.parametrize(
    ("thing", "is_known"),
    [
        pytest.param(Thing("a", 4), True, id="an older version"),
        pytest.param(Thing("a", 5), True, id="the same version"),
        pytest.param(Thing("a", 6), False, id="a newer version"),
        pytest.param(Thing("a", 4, uid="2"), False, id="another object of that name"),
        pytest.param(Thing("b", 4), False, id="another name"),
        pytest.param(Thing("a", 4, namespace="other"), False, id="another namespace"),
    ],
)
def test_confirm(thing: Thing, is_known: bool) -> None:
    assert (
        stored(Thing("a", 5)).confirm(thing.namespace, thing.name, thing.uid, thing.resource_version)
        is is_known
    )


def test_an_event_of_the_version_that_was_read_by_name_selects_the_row() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))

    assert store.confirm("default", "a", "1", 4)
    assert store.unselected == {("default", "a")}
    assert store.confirm("default", "a", "1", 5)
    assert store.unselected == set()
