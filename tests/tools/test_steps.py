"""Running named commands in order: what stops the run, and what the exit status is."""

import os
import signal
import subprocess
import sys

import pytest

from tools import steps
from tools.steps import Step, main, parse

SUCCEED = [sys.executable, "-c", ""]


def fail(status: int) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({status})"]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        pytest.param("lint: ruff check", Step("lint", False, ["ruff", "check"]), id="a step"),
        pytest.param("env! make 'a b'", Step("env", True, ["make", "a b"]), id="a required step"),
        pytest.param(
            "types, again: x a:b!",
            Step("types, again", False, ["x", "a:b!"]),
            id="punctuation in the command",
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
def test_an_invalid_step_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse(text)


def test_other_steps_run_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(
        "make test", [Step("one", False, fail(3)), Step("two", False, fail(4)), Step("three", False, SUCCEED)]
    )

    said = capfd.readouterr().out
    assert status == 3
    assert "<== one: FAILED (3) after" in said
    assert "==> three" in said
    assert "make test: FAILED in one, two after" in said


def test_a_failed_required_step_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    status = main("make test", [Step("env", True, fail(2)), Step("lint", False, SUCCEED)])

    assert status == 2
    assert "lint" not in capfd.readouterr().out


def test_the_cost_of_a_failure_is_printed_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    main(
        "make test",
        [Step("mpi", False, fail(3), "tests of MPI fail"), Step("tests", False, SUCCEED, "nothing")],
    )

    *_, cost, outcome = capfd.readouterr().out.splitlines()
    assert cost == "mpi FAILED (3): tests of MPI fail"
    assert outcome.startswith("make test: FAILED in mpi after")


def test_a_failed_required_step_is_named_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    main("make test", [Step("env", True, fail(2)), Step("lint", False, SUCCEED)])

    assert capfd.readouterr().out.splitlines()[-2] == "env FAILED (2): no later step was run"


def test_success(capfd: pytest.CaptureFixture[str]) -> None:
    assert main("make lint", [Step("env", True, SUCCEED), Step("lint", False, SUCCEED)]) == 0
    assert "make lint: ok after" in capfd.readouterr().out


def test_a_missing_program_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main("make lint", [Step("lint", False, ["no-such-program"])]) == 127
    assert "no-such-program" in capfd.readouterr().out


def test_an_interrupted_command_has_the_time_that_it_needs_to_end() -> None:
    """Ctrl-C in a terminal interrupts both processes."""
    command = (
        "trap 'sleep 0.6; echo clean; exit 130' INT; echo up; while :; do sleep 0.05; done",
        "echo next",
    )
    named = [f'{name}: sh -c "{script}"' for name, script in zip(("train", "next"), command, strict=True)]
    with subprocess.Popen(
        [sys.executable, steps.__file__, "make demo", *named],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "up\n":
            pass
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (130, "")
    assert out == "clean\n"
