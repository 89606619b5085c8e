"""Trains every example in local mode, each framework in an environment of its own, and prints what came of it.

    .venv/bin/python tools/examples.py             all of them
    .venv/bin/python tools/examples.py jax paddle  those of some frameworks
    .venv/bin/python tools/examples.py --services=per-job jax   with one Service for each job

Nothing in the table is known beforehand: the outcome is the job's, the metric is what the job itself has printed. A
worker of the elastic example is killed in mid-run, and the job has to go on from its snapshot; then the example runs
again, with two workers, then four, then three, and has to go on after each change. The exit status is 1 unless all examples that this Python has a framework for have succeeded. The others are named with
what they need, and count as neither.
"""

import argparse
import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import psutil
import yaml
from packaging.requirements import Requirement

from api.meta import Resource
from api.services import ServiceMode
from api.v1.pytorchjob import RESOURCE as PYTORCHJOBS
from controller.kube.client import Client
from controller.kube.static_kubeconfig import static_kubeconfig

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
PYTHONS = [f"3.{minor}" for minor in range(11, 16)]
TIMEOUT = "10m"
"""Of one example's run; none should take a tenth of it."""
METRIC = re.compile(r"^(?P<metric>\w+ [0-9.]+) on .*\(target [0-9.]+\)", re.MULTILINE)
"""What an example prints at its end: ``accuracy 0.9750 on 360 held-out images (target 0.95)``."""
MIDWAY = "epoch 3/"
RESUMED = "goes on from its snapshot after"
"""What an example prints when it has come so far, and when it begins once more."""
BETWEEN_LOOKS_SECONDS = 0.2
SCALING_SECONDS = 180
"""The time for the workers to train after a change of their number; ``last_call_timeout`` is 30 s of it."""
RUNS = Path(".rallypoint") / "runs"
"""Where logs stay."""


class Example(NamedTuple):
    kind: str
    group: str
    """Of dependencies in pyproject.toml; also the name of the lock and of the environment."""
    package: str
    """The framework's requirement in that group; on some platforms it has a suffix: ``xgboost-cpu``."""
    manifest: str
    loses: str = ""
    """A replica, such as ``worker-1``, whose processes are killed in mid-run: the job has to go on from its snapshot."""
    scales: Sequence[int] = ()
    """Numbers of workers: the job begins with the first and is scaled to each other one once it trains."""


class Row(NamedTuple):
    """One line of the table. ``passed`` is None for what cannot be installed here."""

    kind: str
    manifest: str
    framework: str
    outcome: str
    metric: str
    seconds: str
    passed: bool | None


class Replica(TypedDict):
    """What is read here of what ``rallypoint run --output json`` prints, as the two below."""

    logs: list[str]


class Job(TypedDict):
    replicas: list[Replica]


class Run(TypedDict):
    outcome: str
    jobs: list[Job]


CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

EXAMPLES = (
    Example("PyTorchJob", "demo", "torch", "examples/pytorch/digits.yaml"),
    Example("PyTorchJob", "demo", "torch", "examples/pytorch/resume.yaml"),
    Example("PyTorchJob", "demo", "torch", "examples/pytorch/elastic.yaml", loses="worker-1"),
    Example("PyTorchJob", "demo", "torch", "examples/pytorch/elastic.yaml", scales=(2, 4, 3)),
    Example("JAXJob", "jax", "jax", "examples/jax/digits.yaml"),
    Example("XGBoostJob", "xgboost", "xgboost", "examples/xgboost/cancer.yaml"),
    Example("TFJob", "tensorflow", "tensorflow", "examples/tensorflow/mirrored.yaml"),
    Example("TFJob", "tensorflow", "tensorflow", "examples/tensorflow/parameter-server.yaml"),
    Example("PaddleJob", "paddle", "paddlepaddle", "examples/paddle/digits.yaml"),
    Example("MPIJob", "mpi", "mpi4py", "examples/mpi/digits.yaml"),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Train the examples in local mode.")
    parser.add_argument("groups", nargs="*", metavar="FRAMEWORK")
    parser.add_argument("--services", choices=tuple(map(str, ServiceMode)), default=ServiceMode.PER_REPLICA)
    args = parser.parse_args(arguments)
    groups: Sequence[str] = args.groups
    known = dict.fromkeys(example.group for example in EXAMPLES)
    if unknown := set(groups) - known.keys():
        sys.exit(f"error: {', '.join(sorted(unknown))}: not among {', '.join(known)}")
    chosen = [example for example in EXAMPLES if not groups or example.group in groups]
    groups_declared = declared()
    rows: list[Row] = []
    for example in chosen:
        print(f"--- {example.kind} {example.manifest}", flush=True)
        wanted = frameworks(groups_declared[example.group], example.package)
        rows.append(row(example, wanted, ServiceMode(args.services)))
    counts = {passed: sum(row.passed is passed for row in rows) for passed in (True, False, None)}
    print(f"\n{table(rows)}\n\n{counts[True]} passed, {counts[False]} failed, {counts[None]} without a wheel")
    return 1 if counts[False] else 0


def declared() -> dict[str, list[object]]:
    """The groups of dependencies in pyproject.toml."""
    groups: dict[str, list[object]] = tomllib.loads(PROJECT.read_text())["dependency-groups"]
    return groups


def frameworks(group: Iterable[object], package: str) -> list[Requirement]:
    """A framework's requirements in a group: one for each platform on which it goes by another name."""
    found = [Requirement(text) for text in group if isinstance(text, str)]
    return [requirement for requirement in found if requirement.name.removesuffix("-cpu") == package]


def row(example: Example, wanted: Sequence[Requirement], services: ServiceMode) -> Row:
    """Install and train, if there is a wheel."""
    fitting = [requirement for requirement in wanted if fits(requirement, python_version())]
    if not fitting:
        needed = ", ".join(
            python for python in PYTHONS if any(fits(requirement, python) for requirement in wanted)
        )
        outcome = f"no wheel for Python {python_version()}; " + (
            f"there is one for {needed}" if needed else "nor any other"
        )
        return Row(example.kind, example.manifest, example.package, outcome, "", "", None)
    name = fitting[0].name
    environment = f".venv-{example.group}"
    if subprocess.call([sys.executable, "tools/venv.py", environment, f"requirements/{example.group}.txt"]):
        return Row(example.kind, example.manifest, name, "not installed", "", "", False)
    return (scaled if example.scales else trained)(example, environment, name, services)


def python_version() -> str:
    return "{}.{}".format(*sys.version_info)


def fits(requirement: Requirement, python: str) -> bool:
    """Whether a requirement applies on this machine with Python ``3.12``."""
    marker = requirement.marker
    return marker is None or marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"})


def trained(example: Example, environment: str, name: str, services: ServiceMode) -> Row:
    started = time.monotonic()
    RUNS.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{Path(example.manifest).stem}-", dir=RUNS)).resolve()
    run = begun(example, environment, folder, services)
    if example.loses:
        lose(example.loses, folder, run)
    output, _ = run.communicate()
    seconds = time.monotonic() - started
    document: Run = json.loads(output or f'{{"outcome": "exit status {run.returncode}", "jobs": []}}')
    texts = logs(document["jobs"])
    reached = metric(texts)
    resumed = not example.loses or any(RESUMED in text for text in texts)
    return Row(
        example.kind,
        example.manifest,
        f"{name} {version(environment, name)}",
        document["outcome"] if resumed else "begun anew",
        reached or "none reported",
        f"{seconds:.0f}",
        run.returncode == 0 and bool(reached) and resumed,
    )


def begun(example: Example, environment: str, folder: Path, services: ServiceMode) -> "subprocess.Popen[str]":
    """The run of an example, with its logs in ``folder``."""
    options = ["--timeout", TIMEOUT, "--output", "json", "--run-dir", str(folder), f"--services={services}"]
    command = [f"{environment}/bin/rallypoint", "run", *options, example.manifest]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def scaled(example: Example, environment: str, name: str, services: ServiceMode) -> Row:
    """Scale the example in a local cluster that stays up."""
    started = time.monotonic()
    RUNS.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scaled-", dir=RUNS)).resolve()
    kubeconfig = folder / "kubeconfig"
    command = [f"{environment}/bin/rallypoint", "up", "--run-dir", str(folder), f"--services={services}"]
    with subprocess.Popen([*command, "--kubeconfig-out", str(kubeconfig)]) as cluster:
        try:
            while not kubeconfig.exists() and cluster.poll() is None:
                time.sleep(BETWEEN_LOOKS_SECONDS)
            reached = asyncio.run(scale(example.scales, manifests_to_scale(example), folder, kubeconfig))
        finally:
            cluster.terminate()
    steps = " -> ".join(map(str, example.scales))
    outcome = (
        f"trained with {steps} workers"
        if reached == len(example.scales)
        else f"stopped after {reached} of {steps}"
    )
    seconds = f"{time.monotonic() - started:.0f}"
    framework = f"{name} {version(environment, name)}"
    return Row(
        example.kind, example.manifest, framework, outcome, "", seconds, reached == len(example.scales)
    )


def manifests_to_scale(example: Example) -> tuple[Any, Any]:
    """Return the claim and the job, which trains without end and leaves its environment to the node."""
    claim, job = yaml.safe_load_all(Path(example.manifest).read_text())
    job["spec"]["elasticPolicy"]["maxReplicas"] = max(example.scales)
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replicas"] = example.scales[0]
    container = worker["template"]["spec"]["containers"][0]
    container["args"] += ["--epochs", "100000"]
    container["env"] = [
        variable for variable in container["env"] if not variable["name"].startswith("TORCH_")
    ]
    return claim, job


async def scale(scales: Sequence[int], manifests: tuple[Any, Any], folder: Path, kubeconfig: Path) -> int:
    """Return with how many of the numbers of workers the job has trained, each in time."""
    claim, job = manifests
    connection = static_kubeconfig(str(kubeconfig))
    assert connection is not None
    async with Client(connection, user_agent="examples") as client:
        await client.create(CLAIMS, "default", json.dumps(claim).encode())
        created = json.loads(await client.create(PYTORCHJOBS, "default", json.dumps(job).encode()))
        for index, count in enumerate(scales):
            body = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}}
            await client.patch(PYTORCHJOBS, "default", created["metadata"]["name"], json.dumps(body).encode())
            try:
                async with asyncio.timeout(SCALING_SECONDS):
                    await until_trained(folder, count)
            except TimeoutError:
                return index
    return len(scales)


async def until_trained(folder: Path, count: int) -> None:
    """Wait until an epoch after the first one of this round has ended with that many workers."""
    line = re.compile(rf"^epoch .* with {count} workers$", re.MULTILINE)
    while not any(len(line.findall(text)) > 1 for text in texts_of(folder)):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


def texts_of(folder: Path) -> list[str]:
    return [log.read_text(errors="replace") for log in (folder / "logs").rglob("*.log")]


def lose(replica: str, folder: Path, run: "subprocess.Popen[str]") -> None:
    """Kill a replica's processes, as a kernel does that is out of memory, once it has come midway or the run is over."""
    while run.poll() is None:
        for log in folder.glob(f"logs/*-{replica}_*/*/*.log"):
            if MIDWAY in log.read_text(errors="replace"):
                kill(log.parts[-3].split("_")[1])
                return
        time.sleep(BETWEEN_LOOKS_SECONDS)


def kill(pod: str) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOSTNAME") == pod:
                process.kill()


def logs(jobs: Iterable[Job]) -> list[str]:
    """What all replicas have printed."""
    folders = [Path(folder) for job in jobs for replica in job["replicas"] for folder in replica["logs"]]
    return [log.read_text(errors="replace") for folder in folders for log in sorted(folder.rglob("*.log"))]


def metric(texts: Iterable[str]) -> str:
    """What the first replica that tells it has reached; empty if none does."""
    return next((match["metric"] for text in texts if (match := METRIC.search(text))), "")


def version(environment: str, package: str) -> str:
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([f"{environment}/bin/python", "-c", script], text=True).strip()


def table(rows: Sequence[Row]) -> str:
    """Markdown, in columns that line up."""
    head = ("kind", "example", "framework", "outcome", "metric", "seconds")
    cells = [head, *(row[:-1] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
