"""The operators that a comparison can name."""

import argparse
import subprocess
from collections.abc import Iterable

import pytest

from api.services import ServiceMode
from bench.controlplane.operators import (
    GO,
    WORKING_TREE,
    GoOperators,
    Opponent,
    Rallypoint,
    operators,
    opponent,
)
from bench.controlplane.scenario import Jobs
from rallypoint.testing import checkout
from rallypoint.testing.checkout import Checkout
from rallypoint.testing.controlplane import Unavailable


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("commit")
    known = {"main~1": Checkout("0123456789abcdef", folder)}

    def extract(revision: str) -> Checkout:
        if revision not in known:
            raise subprocess.CalledProcessError(128, ["git", "rev-parse", revision])
        return known[revision]

    monkeypatch.setattr(checkout, "extract", extract)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        pytest.param("go", Opponent(GO), id="the Go operators"),
        pytest.param("main~1", Opponent("main~1"), id="a commit"),
        pytest.param(
            "HEAD,--events=compact,--services=addressed",
            Opponent("HEAD", ("--events=compact", "--services=addressed")),
            id="a commit with flags",
        ),
        pytest.param(
            "HEAD,--enable-scheme=TFJob,MPIJob",
            Opponent("HEAD", ("--enable-scheme=TFJob,MPIJob",)),
            id="commas",
        ),
    ],
)
def test_an_opponent(text: str, parsed: Opponent) -> None:
    assert opponent(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "--events=full", ",--events=full", "go,--events=full", "HEAD,--services=few"]
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected go|no mode of Services: few"):
        opponent(text)


@pytest.mark.usefixtures("commits")
def test_the_working_tree_comes_first_and_an_opponent_comes_once() -> None:
    compared = operators(
        ["--events=off"], list(map(opponent, ["main~1", "go", "main~1", "main~1,--events=off"]))
    )

    assert [operator.name for operator in compared] == [WORKING_TREE, "main~1", GO, "main~1 --events=off"]
    assert compared[0].facts()["flags"] == ["--events=off"]
    assert compared[1].facts() == {"commit": {"id": "0123456789abcdef", "changed": False}, "flags": []}


@pytest.mark.usefixtures("commits")
def test_an_unknown_commit_is_an_error_that_names_it() -> None:
    with pytest.raises(Unavailable, match="main~9 is no commit of this repository"):
        operators([], [opponent("main~9")])


@pytest.mark.parametrize(
    ("flags", "services"),
    [((), 16), (["--services=addressed"], 2), (["--services=addressed", "--services=per-replica"], 16)],
)
def test_flags_decide_about_the_services_of_a_scenario(flags: Iterable[str], services: int) -> None:
    """The last one, as for the operator."""
    operator = Rallypoint("x", {"id": "x", "changed": False}, flags=tuple(flags))

    assert operator.scenario(Jobs(2, 8)).services == services
    assert Jobs(2, 8).service_mode is ServiceMode.PER_REPLICA


def test_the_go_operators_are_tuned() -> None:
    facts = GoOperators().facts()

    assert {name: fact["version"] for name, fact in facts.items()} == {
        "training-operator": "1.9.4",
        "mpi-operator": "0.8.2",
    }
    assert all(
        {"--kube-api-qps=1000", "--kube-api-burst=2000"} <= set(fact["flags"]) for fact in facts.values()
    )
