"""``bench nccl`` as users start it: torch and gloo, four processes, through both kinds, and its page in a browser."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.nccl.formulas import COLLECTIVES
from bench.nccl.schema import Record, Scaling, load

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, "-c", "import sys; from bench.__main__ import main; sys.exit(main())"]
FOUR_ON_CPUS = [
    "--backend=gloo",
    "--nodes=2",
    "--gpus=2",
    "--warmup=1",
    "--iterations=2",
    "--rounds=2",
    "--out=out",
]
TWO, SINGLE_GPU = ["--nodes=1"], ["--nodes=1", "--gpus=1"]
"""Fewer ranks where only the end matters."""
SMALL = ["--min=8", "--max=64K", "--factor=8192"]
TIMEOUT_SECONDS = 300
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
PROBE_SCRIPT = """<script>
const layout = {inside: true, dots: 0, shown: []};
for (const chart of document.querySelectorAll("svg.chart")) {
  const paper = chart.getBoundingClientRect();
  for (const part of chart.querySelectorAll("text, circle, polyline")) {
    const box = part.getBoundingClientRect();
    layout.inside &&= box.left >= paper.left - 1 && box.right <= paper.right + 1 && box.top >= paper.top - 1 && box.bottom <= paper.bottom + 1;
  }
  layout.dots += chart.querySelectorAll("circle").length;
  layout.shown.push([paper.width > 300, paper.height > 150]);
}
layout.wide = document.documentElement.scrollWidth > window.innerWidth;
document.body.append(Object.assign(document.createElement("pre"), {id: "layout", textContent: JSON.stringify(layout)}));
</script>"""
"""Reports how the browser laid out the page."""


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with torch for pods; created if it is missing or its lock changed."""
    folder = ROOT / ".venv-demo"
    make = [sys.executable, "tools/venv.py", str(folder), "requirements/demo.txt"]
    subprocess.run(make, cwd=ROOT, check=True)
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Ended:
    status: int
    command_output: str
    record: Record
    page: Path


@pytest.fixture(scope="module")
def bench(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ended]:
    """Runs the command, which always leaves a record and a page."""

    def run(*flags: str) -> Ended:
        folder = tmp_path_factory.mktemp("bench")
        ended = subprocess.run(
            [*BENCH, "nccl", *FOUR_ON_CPUS, f"--python={python}", *flags],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        (file,) = list(folder.glob("out/*.json")) or [Path()]
        found = load(file)
        assert isinstance(found, Record), ended.stderr
        return Ended(ended.returncode, ended.stderr, found, file.with_suffix(".html"))

    return run


@pytest.fixture(scope="module")
def through_mpijob(bench: Callable[..., Ended]) -> Ended:
    return bench("--via=mpijob", "--collectives=all", *SMALL)


def test_a_pytorchjob_with_a_slow_rank_is_measured(bench: Callable[..., Ended]) -> None:
    """Every collective, type and size is correct, and the delayed rank is reported."""
    ended = bench(
        "--collectives=all", "--dtypes=float32,bfloat16,int8", "--pairs", "--inject-fault=slow:2", *SMALL
    )

    record = ended.record
    assert (record.state, record.why) == ("complete", "")
    assert {point.collective for point in record.points} == set(COLLECTIVES)
    assert {point.dtype for point in record.points} == {"float32", "bfloat16", "int8"}
    assert [point for point in record.points if point.wrong != 0] == []
    assert all(len(point.times_us) == 2 for point in record.points)
    assert [rank.local_rank for rank in record.ranks] == [0, 1, 0, 1]
    assert ended.status == 1
    assert re.search(
        r"^slow: rank 2 \(node local, pod nccl-\w+-worker-0\), in 3 slow pairs$",
        ended.command_output,
        re.MULTILINE,
    )


def test_an_mpijob_is_measured(through_mpijob: Ended) -> None:
    record = through_mpijob.record

    assert through_mpijob.status == 0, through_mpijob.command_output
    assert record.config.via == "mpijob"
    assert record.world is not None
    assert record.world.ranks == 4
    assert {point.collective for point in record.points} == set(COLLECTIVES)
    assert [point for point in record.points if point.wrong != 0] == []


def test_a_rank_that_dies_during_the_run_is_reported(bench: Callable[..., Ended]) -> None:
    ended = bench(*TWO, "--inject-fault=die:1", "--min=8", "--max=1K")

    record = ended.record
    assert ended.status == 1
    assert record.state == "partial"
    assert "rank 1 has died: exit code 86" in record.why
    assert [point.size_bytes for point in record.points] == [8, 16, 32, 64]
    assert record.why.splitlines()[0] in ended.command_output
    assert "Partial:" in ended.page.read_text()


def test_wrong_elements_are_detected(bench: Callable[..., Ended]) -> None:
    ended = bench(
        *SINGLE_GPU, "--inject-fault=corrupt:0", "--collectives=all_reduce,alltoall", "--min=64", "--max=64"
    )

    assert [point.wrong for point in ended.record.points] == [1, 1]
    assert ended.status == 1
    assert "all_reduce of 64 float32: 1 elements are wrong" in ended.command_output


def test_training_runs_over_nodes(python: Path, tmp_path: Path) -> None:
    """One node is enough to train; efficiency of several is arithmetic."""
    flags = [
        "scaling",
        "--backend=gloo",
        "--model=small",
        "--batch=2",
        "--warmup=1",
        "--iterations=2",
        "--rounds=2",
    ]
    ended = subprocess.run(
        [*BENCH, *flags, f"--python={python}", "--out=out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )

    assert ended.returncode == 0, ended.stderr
    (file,) = tmp_path.glob("out/*-scaling.json")
    record = load(file)
    assert isinstance(record, Scaling)
    ((via, nodes, ranks, rates),) = [
        (run.via, run.nodes, run.ranks, run.images_per_second) for run in record.runs
    ]
    assert (via, nodes, ranks, len(rates)) == ("pytorchjob", 1, 1, 2)
    assert min(rates) > 0


def test_the_report_renders_in_a_browser(through_mpijob: Ended, tmp_path: Path) -> None:
    """Both charts are shown, all their parts are inside, and the page is not wider than the window."""
    page = tmp_path / "page.html"
    page.write_text(through_mpijob.page.read_text().replace("</body>", f"{PROBE_SCRIPT}</body>"))

    dom = subprocess.run(
        [*browser(), "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )

    layout: dict[str, Any] = json.loads(re.findall(r'<pre id="layout">(.*?)</pre>', dom.stdout)[0])
    assert layout["shown"] == [[True, True], [True, True]]
    assert layout["dots"] == 2 * len(through_mpijob.record.points)
    assert layout["inside"]
    assert not layout["wide"]
    assert "gloo between CPUs" in dom.stdout


def browser() -> list[str]:
    """A browser of this machine."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, (
        f"no browser: one of {', '.join(BROWSERS)} is needed; on Debian: apt-get install chromium-headless-shell"
    )
    return [found, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,2000"]
