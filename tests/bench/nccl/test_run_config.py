"""From flags to the worker's task."""

import argparse

import pytest

from bench.nccl import run_config
from bench.nccl.schema import Fault, RunConfig


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    run_config.add_flags(parser)
    run_config.add_sweep(parser)
    parser.set_defaults(image="", manifest=None)
    return parser.parse_args(words)


def make_config(*words: str) -> RunConfig:
    return run_config.from_flags(parsed(*words))


def test_by_default_eight_bytes_to_eight_gib() -> None:
    found = make_config()

    assert (found.sizes[0], found.sizes[-1], len(found.sizes)) == (8, 8 << 30, 31)
    assert (found.via, found.backend, found.collectives, found.pair_bytes) == (
        "pytorchjob",
        "nccl",
        ["all_reduce"],
        0,
    )


def test_sizes_are_smaller_on_cpus() -> None:
    assert make_config("--backend", "gloo").sizes[-1] == 4 << 20


def test_the_task_of_the_worker() -> None:
    task = run_config.worker_task(
        make_config(
            "--max", "16", "--collectives", "all", "--pairs", "--gpus", "2", "--inject-fault", "slow:1"
        )
    )

    assert task["sizes"] == [8, 16]
    assert task["collectives"][-1] == "sendrecv"
    assert task["fault"] == {"kind": "slow", "rank": 1}
    assert task["pair_bytes"] == 256 << 20


def test_a_single_rank_has_no_pairs() -> None:
    assert make_config("--pairs").pair_bytes == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--nccl-tests", "/opt"], "needs --via mpijob"),
        (["--nccl-tests", "/opt", "--via", "mpijob", "--pairs"], "excludes"),
        (["--inject-fault", "die:4", "--gpus", "4"], "there is no rank 4 among 4"),
        (["--min", "1M", "--max", "1K"], "above the largest"),
    ],
)
def test_flags_that_exclude_each_other(words: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make_config(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["--max", "big"],
        ["--dtypes", "float8"],
        ["--inject-fault", "slow"],
        ["--inject-fault", "burn:1"],
        ["--gpus", "0"],
    ],
)
def test_invalid_flags(words: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parsed(*words)


def test_faults() -> None:
    assert run_config.parse_fault("die:3") == Fault("die", 3)


def test_arguments_of_programs_of_nccl_tests() -> None:
    found = make_config("--via", "mpijob", "--nccl-tests", "/opt", "--min", "512M", "--iterations", "7")

    words = run_config.perf_arguments(found, "float16")

    assert words == [
        "-b",
        "512M",
        "-e",
        "8G",
        "-f",
        "2",
        "-g",
        "1",
        "-d",
        "half",
        "-w",
        "5",
        "-n",
        "7",
        "-c",
        "1",
    ]
