"""Running named commands in order: what stops the run, and what the exit status is."""

import sys

import pytest

from tools.steps import Step, main, parse

PASS = [sys.executable, "-c", ""]


def fail(status: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({status})"]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        pytest.param("lint: ruff check", Step("lint", False, ["ruff", "check"]), id="a step"),
        pytest.param("env! make 'a b'", Step("env", True, ["make", "a b"]), id="a step that is needed"),
        pytest.param(
            "types, again: x a:b!", Step("types, again", False, ["x", "a:b!"]), id="marks in the command"
        ),
        pytest.param(
            "mpi (tests of MPI fail): x (y)",
            Step("mpi", False, ["x", "(y)"], "tests of MPI fail"),
            id="a step with a cost",
        ),
    ],
)
def test_parse(text: str, step: Step) -> None:
    assert parse(text) == step


@pytest.mark.parametrize("text", ["", "ruff check", "lint:", ": ruff", "(cost): ruff"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse(text)


def test_a_failure_does_not_keep_the_others_from_running(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(
        "make test", [Step("one", False, fail(3)), Step("two", False, fail(4)), Step("three", False, PASS)]
    )

    said = capfd.readouterr().out
    assert status == 3
    assert "<== one: FAILED (3) after" in said
    assert "==> three" in said
    assert "make test: FAILED in one, two after" in said


def test_nothing_follows_a_failed_step_that_is_needed(capfd: pytest.CaptureFixture[str]) -> None:
    status = main("make test", [Step("env", True, fail(2)), Step("lint", False, PASS)])

    assert status == 2
    assert "lint" not in capfd.readouterr().out


def test_what_a_failure_costs_is_said_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    main(
        "make test", [Step("mpi", False, fail(3), "tests of MPI fail"), Step("tests", False, PASS, "nothing")]
    )

    *_, cost, outcome = capfd.readouterr().out.splitlines()
    assert cost == "mpi FAILED (3): tests of MPI fail"
    assert outcome.startswith("make test: FAILED in mpi after")


def test_a_failed_step_that_is_needed_is_named_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    main("make test", [Step("env", True, fail(2)), Step("lint", False, PASS)])

    assert capfd.readouterr().out.splitlines()[-2] == "env FAILED (2): no later step was run"


def test_success(capfd: pytest.CaptureFixture[str]) -> None:
    assert main("make lint", [Step("env", True, PASS), Step("lint", False, PASS)]) == 0
    assert "make lint: ok after" in capfd.readouterr().out


def test_a_missing_program_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main("make lint", [Step("lint", False, ["no-such-program"])]) == 127
    assert "no-such-program" in capfd.readouterr().out
