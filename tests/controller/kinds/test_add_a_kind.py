"""Adding a kind by ``docs/how-to/add-a-kind.md``, followed to the letter in a copy of the product.

The blocks of the page are the files and the commands. The copy runs as processes of its own, as the product does.
"""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from api.meta import PODS, SERVICES, Resource
from controller.kube.connect import Connection
from controller.kube.errors import Invalid
from rallypoint.testing.manifests import build
from tests.support.harness import Harness, start_harness

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
COPIED = (
    "api",
    "controller",
    "deploy",
    "examples",
    "manifests",
    "tools",
    "tests/controller/kinds",
    "tests/support",
)
PAGE = ROOT / "docs" / "how-to" / "add-a-kind.md"
CHANGE = " (change)"
"""The suffix of the path of an existing file."""
FILES = ("pyproject.toml", "tests/__init__.py", "tests/conftest.py")
RALLYPOINT = ("-c", "import sys; from rallypoint.cli import main; sys.exit(main())")
RELAYS = Resource("kubeflow.org", "v1", "RelayJob", "relayjobs")
WORKERS = "spec.relayReplicaSpecs.Worker"
SECONDS = 60.0
"""The timeout of the copy's responses."""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with the new kind and the output of ``make deploy``."""
    copy = tmp_path_factory.mktemp("product")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, copy / file)
    add_kind(copy)
    definitions, deploy, *_ = commands()
    call(copy, *definitions)
    call(copy, *deploy)
    return copy


def blocks(language: str) -> list[str]:
    """The fenced blocks of the page in that language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def add_kind(copy: Path) -> None:
    """Write the files of the page; each block begins with its path."""
    for block in (*blocks("python"), *blocks("yaml")):
        head, _, content = block.partition("\n")
        path = head.removeprefix("# ")
        if path.endswith(CHANGE):
            change(copy / path.removesuffix(CHANGE), content)
        else:
            assert not (copy / path).exists()
            (copy / path).parent.mkdir(exist_ok=True)
            (copy / path).write_text(content)


def change(file: Path, content: str) -> None:
    """Add the imports, and append the new name to the line whose beginning the page shows, up to the dots."""
    text = file.read_text()
    for line in filter(None, content.splitlines()):
        if line.startswith("from "):
            text = text.replace("\nfrom ", f"\n{line}\nfrom ", 1)
        else:
            beginning, _, end = line.rpartition("...")
            text, count = re.subn(rf"^({re.escape(beginning)}.*)\)$", rf"\1{end}", text, flags=re.MULTILINE)
            assert count == 1, f"{file.name} has no line {beginning}"
    file.write_text(text)


def commands() -> list[list[str]]:
    """Return the arguments for Python of the page's commands."""
    (block,) = blocks("sh")
    programs = {".venv/bin/python": (), ".venv/bin/rallypoint": RALLYPOINT}
    words = [line.split() for line in block.splitlines()]
    return [[*programs[program], *arguments] for program, *arguments in words]


def python(copy: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True
    )


def call(copy: Path, *arguments: str) -> str:
    done = python(copy, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_the_properties_of_every_kind_hold(product: Path) -> None:
    _, _, property_tests, _ = commands()
    output = call(product, *property_tests, "-q", "-p", "no:cacheprovider")

    (passed,) = re.findall(r"(\d+) passed", output)
    assert int(passed) >= 12


def test_an_invalid_definition_is_rejected_with_the_message_of_the_page(
    product: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "wrong"
    for folder in ("api", "controller"):
        shutil.copytree(product / folder, copy / folder)
    kind = copy / "controller" / "kinds" / "relay.py"
    kind.write_text(kind.read_text().replace("port=7070,", 'port=7070, port_name="relayjob-headquarters",'))
    (sentence,) = blocks("text")

    done = python(copy, "-m", "controller.crds")

    assert done.returncode == 1
    assert done.stderr.endswith(sentence)


def test_the_engine_of_the_copy_is_unchanged(product: Path) -> None:
    for engine in ("reconcile", "policy", "runtime", "kind"):
        for path in (ROOT / "controller" / engine).glob("*.py"):
            assert (product / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_the_kind_is_in_the_manifests(product: Path) -> None:
    documents = build(product / "manifests" / "overlays" / "standalone")
    shipped = list(
        yaml.load_all((product / "deploy" / "standalone.yaml").read_text(), Loader=yaml.CSafeLoader)
    )
    role = next(manifest for manifest in documents if manifest["kind"] == "ClusterRole")
    granted = {
        (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }

    edit, view = (
        (product / "manifests" / "components" / "user-roles" / name).read_text()
        for name in ("edit.yaml", "view.yaml")
    )

    for users in (edit, view):
        assert "relayjobs, " in users
        assert "relayjobs/status, " in users
    assert "relayjobs.kubeflow.org" in {manifest["metadata"]["name"] for manifest in documents}
    assert {
        (what.replace("pytorch", "relay"), verb) for what, verb in granted if "pytorch" in what
    } <= granted
    assert shipped == documents


def definition(product: Path) -> Any:
    text = (product / "manifests" / "base" / "crds" / "kubeflow.org_relayjobs.yaml").read_text()
    return yaml.load(text, Loader=yaml.CSafeLoader)


def relay(product: Path) -> Any:
    return yaml.safe_load((product / "examples" / "relay" / "relay.yaml").read_text())


@pytest.mark.parametrize(
    ("worker", "field"),
    [
        pytest.param({"replicas": "two"}, f"{WORKERS}.replicas", id="text where a number belongs"),
        pytest.param({"replicas": -1}, "spec.relayReplicaSpecs", id="fewer than none"),
        pytest.param({"template": {"spec": {}}}, f"{WORKERS}.template.spec.containers", id="no containers"),
    ],
)
async def test_the_api_server_validates_the_kind(product: Path, worker: dict[str, Any], field: str) -> None:
    job = relay(product)
    job["spec"]["relayReplicaSpecs"]["Worker"] |= worker
    async with start_harness(crds=()) as harness:
        await harness.define([definition(product)])
        with pytest.raises(Invalid) as caught:
            await harness.create(RELAYS, job)

    assert field in {field for field, _ in caught.value.causes}


async def test_the_api_server_sets_defaults_and_drops_unknown_fields(product: Path) -> None:
    job = relay(product)
    job["spec"]["lapps"] = 3
    async with start_harness(crds=()) as harness:
        await harness.define([definition(product)])
        stored = (await harness.create(RELAYS, job))["spec"]

    assert stored["runPolicy"] == {"suspend": False}
    assert "lapps" not in stored
    assert stored["laps"] == 4


@asynccontextmanager
async def running_controller(
    product: Path, harness: Connection, folder: Path, port: int
) -> AsyncGenerator[None]:
    """The copy's controller as a process, with its metrics on that port."""
    assert harness.token is not None
    login = {
        "clusters": [{"name": "it", "cluster": {"server": harness.server}}],
        "users": [{"name": "it", "user": {"token": harness.token()}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(login))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller",
        f"--kubeconfig={folder / 'kubeconfig'}",
        "--leader-elect=false",
        "--enable-scheme=relayjob",
        f"--metrics-bind-address=127.0.0.1:{port}",
        "--health-probe-bind-address=0",
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product)},
    )
    try:
        yield
    finally:
        process.terminate()
        assert await process.wait() == 0


async def until(text: str, port: int) -> str:
    """The metrics, once they say that."""
    async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    metrics = await answer.text()
                if text in metrics:
                    return metrics
            await asyncio.sleep(0.1)


@pytest.mark.looptime(False)
async def test_the_controller_runs_and_counts_the_kind(
    product: Path, tmp_path: Path, unused_tcp_port: int
) -> None:
    async with start_harness(crds=()) as harness:
        await harness.define([definition(product)])
        async with running_controller(product, harness.connection, tmp_path, unused_tcp_port):
            await harness.create(RELAYS, relay(product))
            metrics = await until(
                'training_operator_jobs_created_total{framework="relay",job_namespace="default"} 1',
                unused_tcp_port,
            )
            await until(
                'controller_runtime_reconcile_total{controller="relayjob-controller",result="success"}',
                unused_tcp_port,
            )
            assert (
                'workqueue_adds_total{controller="relayjob-controller",name="relayjob-controller"}' in metrics
            )
            pods = await settled(harness)
    assert pods == ["relay-head-0", "relay-worker-0", "relay-worker-1"]


async def settled(harness: Harness) -> list[str]:
    """The names of the pods, once all have their Services."""
    async with asyncio.timeout(SECONDS):
        while True:
            pods, services = await harness.names(PODS), await harness.names(SERVICES)
            if pods and pods == services:
                return pods
            await asyncio.sleep(0.05)


def test_the_kind_runs_in_local_mode(product: Path, tmp_path: Path) -> None:
    *_, run = commands()
    done = python(product, *run, "--run-dir", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "RelayJob default/relay: Succeeded" in done.stdout
    for replica in ("head 0", "worker 0", "worker 1"):
        assert re.search(rf"{replica} of 3, 4 laps, from \S+:\d+\n", done.stdout)


def test_local_mode_validates_the_kind_before_it_runs(product: Path, tmp_path: Path) -> None:
    job = relay(product)
    job["spec"]["relayReplicaSpecs"]["Worker"]["replicas"] = "two"
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(job))
    done = python(
        product,
        *RALLYPOINT,
        "run",
        "--run-dir",
        str(tmp_path / "run"),
        str(tmp_path / "wrong.yaml"),
    )

    assert done.returncode == 2
    assert f"{WORKERS}.replicas" in done.stderr
