"""``bench checkpoints``: ranks of a real job are killed at random, and it must end with the weights of an undisturbed one."""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from api.failure_policy import RestartStrategy
from api.labels import CHECKPOINT_DIR, CHECKPOINT_TIME
from api.times import format_time
from bench import record
from bench.subparsers import Subparsers
from controller.kube.client import MERGE_PATCH
from controller.policy.checkpoints import DIRECTORY_VARIABLE
from controller.policy.recovery import ATTEMPT_VARIABLE
from rallypoint.testing.http_trace import RawClient, Step
from rallypoint.testing.up import up

EXAMPLE = record.ROOT / "examples" / "pytorch" / "resume.yaml"
PROGRAM = EXAMPLE.with_suffix(".py")
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
RANKS = 4
STEPS_PER_EPOCH = 12
"""1,437 images, 4 ranks, 32 images a step."""
MOST_STEPS_BEFORE_A_KILL = 40
TIMEOUT_SECONDS = 3600.0
BETWEEN_LOOKS_SECONDS = 0.1


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "checkpoints",
        help="kill ranks of a job that resumes, and compare its weights with an undisturbed one",
    )
    parser.add_argument("--python", type=Path, required=True, help="interpreter with torch and scikit-learn")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40, help="passes over the images; default: 40")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each step; default: 0.1")
    parser.add_argument("--strategy", choices=[*RestartStrategy], default="Recreate", help="of the restarts")
    parser.add_argument("--seed", type=int, default=0, help="of the ranks and moments of the kills")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if a run failed or the results differ."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    try:
        undisturbed, killed = asyncio.run(
            compare(args.python.absolute(), args.kills, args.epochs, args.pause, args.seed, args.strategy)
        )
    except (TimeoutError, JobFailed) as error:
        console.print(
            f"not measured: {str(error) or 'the job did not end in time'}", style="red", markup=False
        )
        return 1
    Console(file=sys.stdout, width=120).print(_table(killed))
    found = {name: value for name, value in killed.figures().items() if name != "attempts"}
    console.print(f"undisturbed: {undisturbed.figures()}\nkilled: {found}", markup=False)
    problems = list(killed.problems(undisturbed, args.kills, args.epochs))
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if not args.no_record and not problems:
        parameters = {
            "kills": args.kills,
            "epochs": args.epochs,
            "pause_seconds": args.pause,
            "strategy": args.strategy,
            "seed": args.seed,
        }
        runs = {"undisturbed": undisturbed.figures(), "killed": killed.figures()}
        result = record.document(load_before, checkpoints={**parameters, **runs})
        console.print(f"recorded in {record.save('checkpoints', result)}")
    return 1 if problems else 0


class JobFailed(Exception):
    """A job failed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One job that has succeeded. ``steps`` are the attempt and the number of each step of rank 0, in order."""

    weights: str
    steps: list[tuple[int, int]]
    status: Mapping[str, Any]

    @property
    def repeated(self) -> int:
        """The steps that were done again because no checkpoint contained them."""
        return len(self.steps) - len({step for _, step in self.steps})

    def figures(self) -> dict[str, Any]:
        return {
            "weights_sha256": self.weights,
            "steps": len(self.steps),
            "steps_repeated": self.repeated,
            "restarts": self.status.get("restarts", 0),
            "lost_seconds": self.status.get("lostSeconds", 0),
            "wall_clock_seconds": {
                name.removesuffix("Seconds"): value
                for name, value in self.status["wallClock"].items()
                if name.endswith("Seconds")
            },
            "attempts": [
                {
                    "pod": attempt["pod"],
                    "exit_code": attempt.get("exitCode"),
                    "in_place": attempt.get("inPlace", False),
                    "lost_seconds": attempt.get("lostSeconds"),
                }
                for attempt in self.status.get("attempts", ())
            ],
        }

    def problems(self, undisturbed: "Run", kills: int, epochs: int) -> Iterator[str]:
        """Yield what differs from an undisturbed run, and what does not add up."""
        total = epochs * STEPS_PER_EPOCH
        if self.weights != undisturbed.weights:
            yield f"the weights differ: {self.weights} and {undisturbed.weights}"
        if [step for _, step in undisturbed.steps] != list(range(1, total + 1)):
            yield f"the undisturbed run did not do the steps 1 to {total}, each once"
        for attempt in range(kills + 1):
            done = [step for number, step in self.steps if number == attempt]
            if not done or done != list(range(done[0], done[-1] + 1)):
                yield f"attempt {attempt} left out or repeated a step"
        if {step for _, step in self.steps} != set(range(1, total + 1)):
            yield f"the steps 1 to {total} were not all done"
        history = self.status.get("attempts", ())
        if len(history) != kills or self.status.get("restarts") != kills:
            yield f"{kills} kills, but {self.status.get('restarts')} restarts, {len(history)} in the history"


async def compare(
    python: Path, kills: int, epochs: int, pause: float, seed: int, strategy: str = RestartStrategy.RECREATE
) -> tuple[Run, Run]:
    """Train without kills and with them, one after the other; return both runs.

    Raises:
        JobFailed: a job failed.
        TimeoutError: a job did not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with up("--no-ui", "--isolation=loopback", folder=Path(folder)) as cluster:
            runs = [
                await _train(
                    cluster.client, job(name, Path(folder), python, epochs, pause, strategy), count, seed
                )
                for name, count in (("undisturbed", 0), ("killed", kills))
            ]
    return runs[0], runs[1]


def job(name: str, folder: Path, python: Path, epochs: int, pause: float, strategy: str) -> dict[str, Any]:
    """Return the example's job, with its checkpoints in a folder of its own."""
    _, found = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    directory = folder / name
    arguments = [
        f"--epochs={epochs}",
        "--target=0",
        f"--pause={pause}",
        f"--steps-file={directory / 'steps'}",
    ]
    for role in found["spec"]["pytorchReplicaSpecs"].values():
        spec = role["template"]["spec"]
        (container,) = spec["containers"]
        container |= {"command": [str(python), str(PROGRAM)], "args": arguments}
        container.pop("volumeMounts", None)
        spec.pop("volumes", None)
        spec["terminationGracePeriodSeconds"] = 1
    found["metadata"] = {"name": name, "annotations": {CHECKPOINT_DIR: str(directory)}}
    found["spec"]["runPolicy"]["failurePolicy"]["restartStrategy"] = strategy
    return dict(found)


async def _train(client: RawClient, body: dict[str, Any], kills: int, seed: int) -> Run:
    name, directory = body["metadata"]["name"], Path(body["metadata"]["annotations"][CHECKPOINT_DIR])
    await client.send(Step("POST", JOBS, body, 201))
    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        helpers = [
            tasks.create_task(_report_checkpoints(client, f"{PODS}/{name}-master-0", directory)),
            tasks.create_task(_kill(directory, kills, random.Random(seed))),
        ]
        status = await _end(client, f"{JOBS}/{name}", kills)
        for helper in helpers:
            helper.cancel()
    log = (await client.send(Step("GET", f"{PODS}/{name}-master-0/log"))).text
    weights = next(line.split()[1] for line in log.splitlines() if line.startswith("weights "))
    return Run(weights, _steps(directory), status)


async def _end(client: RawClient, path: str, kills: int) -> Mapping[str, Any]:
    """Return the status of the job at its end.

    Raises:
        JobFailed: it failed, or restarted more often than ranks were killed.
    """
    while True:
        status: dict[str, Any] = (await client.send(Step("GET", path))).body.get("status") or {}
        true = {entry["type"] for entry in status.get("conditions", ()) if entry["status"] == "True"}
        if "Failed" in true or status.get("restarts", 0) > kills:
            raise JobFailed(status["conditions"][-1]["message"])
        if "Succeeded" in true:
            return status
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


async def _report_checkpoints(client: RawClient, pod: str, directory: Path) -> None:
    """Write the time of the newest checkpoint into the pod's annotation, as a program with the right to do so does."""
    reported = 0.0
    while True:
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
        with suppress(FileNotFoundError):
            saved = (directory / "digits.pt").stat().st_mtime
            if saved > reported:
                at = format_time(datetime.fromtimestamp(saved, UTC))
                change = {"metadata": {"annotations": {CHECKPOINT_TIME: at}}}
                await client.send(Step("PATCH", pod, change, type=MERGE_PATCH))
                reported = saved


async def _kill(directory: Path, kills: int, chance: random.Random) -> None:
    """Kill one rank of each of the first attempts after a random number of its steps."""
    for attempt in range(kills):
        steps, rank = chance.randint(1, MOST_STEPS_BEFORE_A_KILL), chance.randrange(RANKS)
        while sum(of == attempt for of, _ in _steps(directory)) < steps:  # noqa: ASYNC110 -- another process
            await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
        os.kill(_pid(directory, attempt, rank), signal.SIGKILL)


def _steps(directory: Path) -> list[tuple[int, int]]:
    try:
        lines = (directory / "steps").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [(int(attempt), int(step)) for attempt, step in map(str.split, lines)]


def _pid(directory: Path, attempt: int, rank: int) -> int:
    """Return the process of this rank. Its environment names the folder, which no other job has.

    Raises:
        JobFailed: there is none.
    """
    wanted = {DIRECTORY_VARIABLE: str(directory), ATTEMPT_VARIABLE: str(attempt), "RANK": str(rank)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            program = process.cmdline()[1:2]  # that of the agent is another one
            if wanted.items() <= process.environ().items() and program == [str(PROGRAM)]:
                return process.pid
    raise JobFailed(f"attempt {attempt} has no process of rank {rank}")


def _table(run: Run) -> Table:
    """Return a row per attempt that a kill ended."""
    table = Table(title="attempts that a kill ended")
    for column in ("attempt", "steps done", "killed", "exit code", "seconds until all ran again"):
        table.add_column(column, justify="right")
    for number, attempt in enumerate(run.status.get("attempts", ())):
        done = sum(of == number for of, _ in run.steps)
        cells = (number, done, attempt["pod"], attempt.get("exitCode"), attempt.get("lostSeconds"))
        table.add_row(*map(str, cells))
    return table
