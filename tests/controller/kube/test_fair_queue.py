"""The queue of API calls and of worker keys: which item is next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube.fair_queue import FairQueue

LEVELS = st.integers(-1, 2)
GROUPS = st.sampled_from("abc")
CROWDS = st.lists(st.tuples(LEVELS, GROUPS), max_size=40)
"""The level and group of each thing; things are numbered as they arrive."""


def lines(crowd: list[tuple[int, str]]) -> FairQueue[int]:
    made = FairQueue[int]()
    for number, (level, group) in enumerate(crowd):
        made.push(number, level=level, group=group)
    return made


def drained(waiting: FairQueue[int]) -> list[int]:
    return [waiting.pop() for _ in range(len(waiting))]


def test_a_flood_from_a_group_delays_only_that_group() -> None:
    waiting = lines([(0, "flood")] * 4 + [(0, "small"), (0, "other"), (0, "small")])

    assert drained(waiting) == [0, 4, 5, 1, 6, 2, 3]


def test_a_group_that_comes_back_has_its_turn_after_all_others() -> None:
    waiting = lines([(0, "a"), (0, "b")])
    waiting.pop()
    waiting.push(9, level=0, group="a")

    assert drained(waiting) == [1, 9]


def test_higher_levels_go_first() -> None:
    assert drained(lines([(0, "a"), (2, "a"), (-1, "b"), (2, "b"), (1, "a")])) == [1, 3, 4, 0, 2]


def test_a_raised_item_goes_to_the_end_of_the_higher_level() -> None:
    waiting = lines([(0, "a"), (0, "a"), (1, "a")])
    waiting.raise_to(1, 1)
    waiting.raise_to(2, 0)

    assert drained(waiting) == [2, 1, 0]


def test_pop_oldest_ignores_levels_and_groups() -> None:
    waiting = lines([(0, "a"), (1, "b"), (1, "a"), (1, "b")])
    waiting.raise_to(0, 1)

    assert waiting.pop_oldest() == 0, "raising does not make younger"
    assert drained(waiting) == [1, 2, 3]


def test_pop_from_longest_takes_the_oldest_item_of_the_longest_group_of_the_lowest_level() -> None:
    waiting = lines([(1, "a")] * 4 + [(0, "b"), (0, "c"), (0, "c")])

    assert [waiting.pop_from_longest() for _ in range(7)] == [5, 4, 6, 0, 1, 2, 3]


def test_peek_oldest_removes_nothing() -> None:
    waiting = lines([(0, "a"), (1, "b")])

    assert [waiting.peek_oldest(), waiting.peek_oldest(), len(waiting)] == [0, 0, 2]


def test_missing_items_raise_an_error() -> None:
    waiting = lines([(0, "a")])

    assert (waiting.discard(0), waiting.discard(0)) == (True, False)
    for take in (waiting.pop, waiting.pop_oldest, waiting.peek_oldest, waiting.pop_from_longest):
        with pytest.raises(IndexError):
            take()
    with pytest.raises(KeyError):
        waiting.raise_to(0, 1)


def test_an_item_cannot_be_pushed_twice() -> None:
    with pytest.raises(ValueError, match="already queued"):
        lines([(0, "a")]).push(0, level=3, group="b")


@given(crowd=CROWDS)
def test_each_item_is_popped_once_by_level_and_in_order_within_its_group(
    crowd: list[tuple[int, str]],
) -> None:
    order = drained(lines(crowd))

    assert sorted(order) == list(range(len(crowd)))
    levels = [crowd[number][0] for number in order]
    assert levels == sorted(levels, reverse=True)
    for level_and_group in set(crowd):
        line = [number for number in order if crowd[number] == level_and_group]
        assert line == sorted(line)


@given(crowd=CROWDS)
def test_groups_alternate(crowd: list[tuple[int, str]]) -> None:
    """Of two groups that both wait on, none is served twice before the other is served once."""
    order = drained(lines(crowd))

    for level in {level for level, _ in crowd}:
        served = [crowd[number][1] for number in order if crowd[number][0] == level]
        for at, group in enumerate(served):
            again = served.index(group, at + 1) if group in served[at + 1 :] else None
            if again is not None:
                assert set(served[again:]) - {group} <= set(served[at + 1 : again])


ACTIONS = st.one_of(
    st.tuples(st.just("push"), LEVELS, GROUPS),
    st.tuples(st.sampled_from(["pop", "oldest", "longest"]), st.just(0), st.just("")),
    st.tuples(st.just("discard"), st.integers(0, 20), st.just("")),
    st.tuples(st.just("raise"), LEVELS, st.integers(0, 20).map(str)),
)


@given(actions=st.lists(ACTIONS, max_size=60))
def test_the_queue_holds_exactly_what_was_pushed_and_not_popped(actions: list[tuple[str, int, str]]) -> None:
    waiting, model, count = FairQueue[int](), dict[int, int](), 0
    for action, number, text in actions:
        if action == "push":
            waiting.push(count, level=number, group=text)
            model[count] = number
            count += 1
        elif action == "pop" and model:
            taken = waiting.pop()
            assert model.pop(taken) >= max(model.values(), default=-9)
        elif action == "oldest" and model:
            oldest = waiting.pop_oldest()
            assert oldest == min(model)
            del model[oldest]
        elif action == "longest" and model:
            dropped = waiting.pop_from_longest()
            assert model.pop(dropped) <= min(model.values(), default=9)
        elif action == "discard":
            assert waiting.discard(number) == (model.pop(number, None) is not None)
        elif action == "raise" and int(text) in model:
            waiting.raise_to(int(text), number)
            model[int(text)] = max(model[int(text)], number)
        assert len(waiting) == len(model)
        assert all(item in waiting for item in model)

    assert set(drained(waiting)) == set(model)
    assert not waiting._levels
