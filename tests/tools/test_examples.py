"""The table of examples: what a run reports, what counts as passed, and the report of a missing wheel.

Nothing is installed and nothing trains here: a test double replaces the commands.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from api.services import ServiceMode
from tools import examples
from tools.examples import EXAMPLES, Example, Row, fits, frameworks, logs, lose, main, metric, row, table

ROOT = Path(__file__).parents[2]
JAX = Example("JAXJob", "jax", "jax", "examples/jax/digits.yaml")
ANYWHERE = [Requirement("jax>=0.7")]
OUTPUT = "epoch 1\naccuracy 0.9750 on 360 held-out images (target 0.95), trained on 1437 images\n"


class FinishedProcess:
    """A process that has ended."""

    def __init__(self, status: int, output: str) -> None:
        self.returncode = status
        self._output = output

    def communicate(self) -> tuple[str, None]:
        return self._output, None

    def poll(self) -> int:
        return self.returncode


class Commands:
    """A double of tools/venv.py and ``rallypoint run``."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.installed = 0
        self.status = 0
        self.outcome = "Succeeded"
        self.output = OUTPUT
        self.called: list[list[str]] = []

    def call(self, command: list[str]) -> int:
        self.called.append(command)
        return self.installed

    def begin(self, command: list[str], **_: object) -> "FinishedProcess":
        self.called.append(command)
        log = self.logs / "default_digits-worker-0_uid" / "jax" / "0.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.output)
        summary = {"outcome": self.outcome, "jobs": [{"replicas": [{"logs": [str(log.parents[1])]}]}]}
        return FinishedProcess(self.status, json.dumps(summary) if self.outcome else "")

    def check_output(self, command: list[str], **_: object) -> str:
        return "0.10.2\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    double = Commands(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, play in (("call", double.call), ("Popen", double.begin), ("check_output", double.check_output)):
        monkeypatch.setattr(f"tools.examples.subprocess.{name}", play)
    return double


def test_a_framework_is_installed_and_trained(commands: Commands) -> None:
    found = row(JAX, ANYWHERE, ServiceMode.ADDRESSED)

    assert found[:5] == ("JAXJob", "examples/jax/digits.yaml", "jax 0.10.2", "Succeeded", "accuracy 0.9750")
    assert found.passed
    install, run = commands.called
    assert install == [sys.executable, "tools/venv.py", ".venv-jax", "requirements/jax.txt"]
    assert run[:6] == [".venv-jax/bin/rallypoint", "run", "--timeout", "10m", "--output", "json"]
    assert run[6] == "--run-dir"
    assert run[8:] == ["--services=addressed", "examples/jax/digits.yaml"]


@pytest.mark.parametrize(
    ("status", "outcome", "output", "said"),
    [
        pytest.param(1, "Failed", OUTPUT, ("Failed", "accuracy 0.9750"), id="below its target"),
        pytest.param(
            0, "Succeeded", "accuracy nan on 3 (target 1)", ("Succeeded", "none reported"), id="no metric"
        ),
        pytest.param(124, "Timeout", "", ("Timeout", "none reported"), id="timeout"),
        pytest.param(1, "", "", ("exit status 1", "none reported"), id="no output"),
    ],
)
def test_an_unsuccessful_run_does_not_pass(
    commands: Commands, status: int, outcome: str, output: str, said: tuple[str, str]
) -> None:
    commands.status, commands.outcome, commands.output = status, outcome, output

    found = row(JAX, ANYWHERE, ServiceMode.ADDRESSED)

    assert (found.outcome, found.metric) == said
    assert found.passed is False


def test_a_framework_that_cannot_be_installed_fails(commands: Commands) -> None:
    commands.installed = 1

    found = row(JAX, ANYWHERE, ServiceMode.ADDRESSED)

    assert (found.outcome, found.passed) == ("not installed", False)
    assert len(commands.called) == 1


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [
        pytest.param("jax; python_version < '3.0'", "nor any other", id="no Python"),
        pytest.param("jax; python_version == '3.12'", "there is one for 3.12", id="another Python"),
    ],
)
def test_a_missing_wheel_is_named_and_counts_as_neither_passed_nor_failed(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, wanted: str, outcome: str
) -> None:
    monkeypatch.setattr(examples, "python_version", lambda: "3.99")

    found = row(JAX, [Requirement(wanted)], ServiceMode.PER_REPLICA)

    assert found.outcome == f"no wheel for Python 3.99; {outcome}"
    assert found.passed is None
    assert commands.called == []


def test_the_metric_comes_from_the_first_replica_that_reports_it(tmp_path: Path) -> None:
    for name, text in (("a", "loss 0.1\n"), ("b", OUTPUT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_text(text)
    replicas: list[examples.Replica] = [{"logs": [str(tmp_path / "a"), str(tmp_path / "b")]}]

    assert metric(logs([{"replicas": replicas}])) == "accuracy 0.9750"
    assert metric([]) == ""


@pytest.mark.parametrize(
    ("output", "outcome", "passed"),
    [
        pytest.param(f"rank 0 of 3 {examples.RESUMED} 3 epochs\n{OUTPUT}", "Succeeded", True, id="resumed"),
        pytest.param(f"rank 0 of 3 begins\n{OUTPUT}", "begun anew", False, id="started again"),
    ],
)
def test_an_example_that_loses_a_worker_must_resume(
    commands: Commands, output: str, outcome: str, passed: bool
) -> None:
    commands.output = output
    found = row(JAX._replace(loses="worker-1"), ANYWHERE, ServiceMode.PER_REPLICA)

    assert (found.outcome, found.passed) == (outcome, passed)


def test_a_replica_is_killed_in_the_middle_of_the_training(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "default_odd-job-worker-1_uid" / "pytorch" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"{examples.MIDWAY}12 loss 0.1\n")
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with (
        subprocess.Popen(sleep, env={**os.environ, "HOSTNAME": "odd-job-worker-1"}, text=True) as lost,
        subprocess.Popen(sleep, env={**os.environ, "HOSTNAME": "odd-job-worker-0"}, text=True) as other,
    ):
        lose("worker-1", tmp_path, other)
        assert lost.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_no_replica_of_a_finished_run_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], text=True) as over:
        over.wait()
        lose("worker-1", tmp_path, over)
        assert over.returncode == 0


@pytest.mark.parametrize(
    ("passed", "status", "summary"),
    [
        pytest.param(True, 0, "1 passed, 0 failed, 0 without a wheel", id="passed"),
        pytest.param(None, 0, "0 passed, 0 failed, 1 without a wheel", id="no wheel"),
        pytest.param(False, 1, "0 passed, 1 failed, 0 without a wheel", id="failed"),
    ],
)
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    passed: bool | None,
    status: int,
    summary: str,
) -> None:
    monkeypatch.setattr(
        examples, "row", lambda *_: Row("JAXJob", "a.yaml", "jax 1", "so", "much", "3", passed)
    )

    assert main(["jax"]) == status
    said = capsys.readouterr().out
    assert "| JAXJob | a.yaml  | jax 1     | so      | much   | 3       |" in said
    assert summary in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["jax"], ServiceMode.PER_REPLICA, id="default"),
        pytest.param(["--services=per-job", "jax"], ServiceMode.PER_JOB, id="one Service for each job"),
    ],
)
def test_the_mode_of_services(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: ServiceMode
) -> None:
    modes: list[ServiceMode] = []

    def fake_row(example: Example, _: object, services: ServiceMode) -> Row:
        modes.append(services)
        return Row(example.kind, example.manifest, "jax 1", "Succeeded", "", "3", True)

    monkeypatch.setattr(examples, "row", fake_row)

    assert main(arguments) == 0
    assert modes == [expected]


def test_an_unknown_framework_is_rejected() -> None:
    with pytest.raises(SystemExit, match="cobol: not among demo, jax, xgboost, tensorflow, paddle, mpi"):
        main(["jax", "cobol"])


def test_the_table_is_markdown() -> None:
    lines = table(
        [Row("JAXJob", "a.yaml", "jax 0.10.2", "Succeeded", "accuracy 0.9", "3", True)]
    ).splitlines()

    assert [len(line) for line in lines] == [len(lines[0])] * 3
    assert set(lines[1]) == {"|", "-"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.manifest} {example.scales}")
def test_every_example_has_a_manifest_and_a_lock_file(example: Example) -> None:
    declared = examples.declared()[example.group]
    *_, manifest = yaml.safe_load_all((ROOT / example.manifest).read_text())
    pins = (ROOT / "requirements" / f"{example.group}.txt").read_text().splitlines()

    assert manifest["kind"] == example.kind
    assert any(
        fits(requirement, python)
        for requirement in frameworks(declared, example.package)
        for python in examples.PYTHONS
    )
    for requirement in frameworks(declared, example.package):
        assert any(line.startswith(f"{requirement.name}==") for line in pins)


def test_an_example_that_is_scaled_leaves_its_environment_to_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    (example,) = (example for example in EXAMPLES if example.scales)
    _, job = examples.manifests_to_scale(example)
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]

    assert (worker["replicas"], job["spec"]["elasticPolicy"]["maxReplicas"]) == (2, 4)
    assert [variable["name"] for variable in container["env"]] == ["OMP_NUM_THREADS"]


async def test_an_example_trains_again_once_two_epochs_have_ended_with_the_new_number_of_workers(
    tmp_path: Path,
) -> None:
    log = tmp_path / "logs" / "pod" / "pytorch" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1/9 loss 0.1 with 2 workers\nepoch 2/9 loss 0.1 with 4 workers\n")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await examples.until_trained(tmp_path, 4)
    log.write_text(log.read_text() + "epoch 3/9 loss 0.1 with 4 workers\n")
    await examples.until_trained(tmp_path, 4)
