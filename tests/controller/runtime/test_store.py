"""What is known of a resource: from lists, from watches, and from the answers to own writes, in any order."""

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
        pytest.param(4, False, id="older news is no news"),
        pytest.param(5, False, id="nor is the same again, as when an own write comes back"),
        pytest.param(6, True, id="newer news is taken"),
    ],
)
def test_put(version: int, taken: bool) -> None:
    store = stored(old := Thing("a", 5))

    change = store.put(new := Thing("a", version, owner="somebody"))

    assert change == ((old, new) if taken else None)
    assert store.get("default", "a") == (new if taken else old)


def test_a_row_that_the_watch_does_not_report_outlives_a_list_and_goes_with_its_removal() -> None:
    store = stored()
    store.advance(10)
    store.put_unselected(thing := Thing("a", 5))

    assert store.replace([], 20) == []
    assert set(store) == {thing}
    assert store.unselected == {("default", "a")}
    assert store.remove(thing) == (thing, None)
    assert store.unselected == set()


def test_a_row_that_the_watch_reports_again_is_its_own() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))
    store.put(Thing("a", 6))

    assert store.unselected == set()
    assert store.replace([], 20) != []


def test_a_namespace_is_part_of_the_name() -> None:
    store = stored(here := Thing("a", 5), there := Thing("a", 4, namespace="other"))

    assert set(store) == {here, there}
    assert store.get("other", "a") == there
    assert store.get("nowhere", "a") is None


def test_the_index_follows_every_change() -> None:
    store = stored(Thing("a", 1, owner="x"), b := Thing("b", 2, owner="x"))
    store.put(moved := Thing("a", 3, owner="y"))
    assert (store.indexed("x"), store.indexed("y")) == ((b,), (moved,))

    store.remove(b)
    assert (store.indexed("x"), len(store)) == ((), 1)

    store.amend(amended := replace(moved, owner="z"))
    assert (store.indexed("y"), store.indexed("z")) == ((), (amended,))


def test_an_amended_row_is_as_a_list_says_even_at_its_old_version() -> None:
    # The server was restored from a backup of before whatever the row was amended for, and has passed the place of the watch since.
    store = stored(told := Thing("a", 5))
    store.amend(amended := replace(told, owner="z"))

    assert store.replace([told], 9) == [(amended, told)]
    assert store.replace([told], 10) == []


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


def test_an_answer_that_comes_after_the_removal_brings_nothing_back() -> None:
    """The watch told of the creation (7) and the removal (8) before the answer to the create (7) was read."""
    store = stored()
    store.put(made := Thing("a", 7))
    store.advance(7)
    store.remove(replace(made, resource_version=8))
    store.advance(8)

    assert store.put(made) is None
    assert store.get("default", "a") is None


def test_an_answer_that_overtakes_the_watch_is_known_at_once() -> None:
    store = stored()
    store.advance(6)

    assert store.put(made := Thing("a", 7)) == (None, made)


def test_the_horizon_does_not_go_back() -> None:
    store = stored()
    store.advance(6)
    store.advance(5)

    assert store.last_synced_resource_version == 6


def test_a_list_replaces_what_is_known_but_not_newer_own_writes() -> None:
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


def test_a_list_is_right_about_all_that_is_not_newer() -> None:
    """Its server was set back and has come past our place again: that nothing is known of it, but the list is the truth."""
    store = stored(known := Thing("a", 8))
    store.advance(8)

    assert store.replace([older := Thing("a", 5)], 10) == [(known, older)]
    assert store.get("default", "a") == older


def test_after_the_server_was_set_back_nothing_counts_that_was_known() -> None:
    """Numbers are given out a second time, so that an equal one does not mean the same object."""
    store = stored(gone := Thing("a", 8), again := Thing("b", 4), Thing("made by us", 12))
    store.advance(9)

    changes = store.replace([other := Thing("b", 4, uid="2"), came := Thing("c", 6)], 7)

    assert changes == [(gone, None), (Thing("made by us", 12), None), (again, other), (None, came)]
    assert (set(store), store.last_synced_resource_version) == ({other, came}, 7)
    assert store.put(later := Thing("a", 8, uid="3")) == (None, later)


def test_a_list_brings_what_the_watch_has_missed() -> None:
    """An event was lost on the way: the object is older than what the watch has reached, and still unknown."""
    store = stored()
    store.advance(9)

    assert store.replace([missed := Thing("a", 5)], 10) == [(None, missed)]


NAMES = st.sampled_from("abc")


class StoreMachine(RuleBasedStateMachine):
    """A server, its watch and our own writes, whose news arrive in any order that a real one can produce."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store[Thing](index=lambda thing: thing.owner)
        self.version = 0
        self.server: dict[str, Thing] = {}
        self.history: list[tuple[str, Thing]] = []
        self.told = 0
        """How many events of the history the watch has delivered."""
        self.answers: list[Thing] = []
        """Answers to own writes that are still on their way."""
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
    def somebody_writes(self, name: str, owner: str) -> None:
        self.write(name, owner)

    @rule(name=NAMES, owner=NAMES)
    def we_write(self, name: str, owner: str) -> None:
        self.answers.append(self.write(name, owner))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.server)))
        self.version += 1
        self.history.append(("DELETED", replace(self.server.pop(name), resource_version=self.version)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.answers) - 1))
        self.store.put(self.answers.pop(at))

    @precondition(lambda self: self.told < len(self.history))
    @rule()
    def an_event_arrives(self) -> None:
        self.deliver(self.told)
        self.told += 1

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def an_event_arrives_twice(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.integers(0, self.told - 1)))

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
        self.told = len(self.history)

    @invariant()
    def nothing_gets_older(self) -> None:
        for thing in self.store:
            current = self.newest.get(thing.uid, 0)
            assert thing.resource_version >= current
            self.newest[thing.uid] = thing.resource_version

    @invariant()
    def the_index_is_complete(self) -> None:
        for owner in "abc":
            assert set(self.store.indexed(owner)) == {one for one in self.store if one.owner == owner}

    @override
    def teardown(self) -> None:
        """Once all news have arrived, in whatever order, the store is like the server."""
        while self.told < len(self.history):
            self.an_event_arrives()
        for answer in self.answers:
            self.store.put(answer)
        assert {one.name: one for one in self.store} == self.server


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_row_that_was_read_by_its_name_is_selected_once_the_watch_reports_it_in_that_version() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))

    assert store.put(Thing("a", 5)) is None
    assert store.unselected == set()


def test_a_row_stays_unselected_while_the_watch_reports_what_it_was() -> None:
    store = stored()
    store.put_unselected(Thing("a", 5))

    assert store.put(Thing("a", 4)) is None
    assert store.unselected == {("default", "a")}
