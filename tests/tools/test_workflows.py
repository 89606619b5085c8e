"""All workflows: each action is pinned, each job is bounded and keeps no credentials, and no value of an event reaches a shell as code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS: dict[str, dict[str, Any]] = {
    f"{file.stem}, {name}": job
    for file in FILES
    for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
}
LONGEST_MINUTES = 90


def test_each_action_is_pinned_by_commit_and_says_its_version() -> None:
    used = [use for file in FILES for use in re.findall(r"uses: (\S+)(.*)", file.read_text(encoding="utf-8"))]

    assert len(used) == sum("uses" in step for job in JOBS.values() for step in job["steps"])
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    versions = {action.partition("@")[0]: action for action, _ in used}
    assert len(set(versions.values())) == len({action for action, _ in used}), "one action, two versions"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_has_no_rights_of_its_own(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["permissions"] == {}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_bounded_and_keeps_no_credentials(job: str) -> None:
    assert 0 < JOBS[job]["timeout-minutes"] <= LONGEST_MINUTES
    assert re.fullmatch(r"ubuntu-\d+\.04", JOBS[job]["runs-on"])
    for step in JOBS[job]["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        # An expression in a script would be code; a variable is data.
        assert "${{" not in step.get("run", "")


def test_long_tests_the_oldest_and_the_newest_kubernetes_and_the_schedulers_run() -> None:
    job = JOBS["compatibility, test"]

    assert job["strategy"]["matrix"]["target"] == [
        "test-full",
        "test-oldest",
        "test-newest",
        "schedulers",
        "chart",
    ]
    assert job["strategy"]["fail-fast"] is False
    assert job["permissions"] == {"contents": "read"}
    (pinned,) = (step["with"]["key"] for step in job["steps"] if "key" in step.get("with", {}))
    paths = re.findall(r"'([^']+)'", pinned)
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_the_benchmark_compares_with_the_go_operators_and_keeps_its_records() -> None:
    steps = JOBS["bench, compare"]["steps"]
    (checkout,) = (step for step in steps if step.get("uses", "").startswith("actions/checkout@"))
    (upload,) = (step for step in steps if step.get("uses", "").startswith("actions/upload-artifact@"))
    (measurement,) = (step["run"] for step in steps if "run" in step)

    assert checkout["with"]["fetch-depth"] == 0, "it compares with an earlier commit"
    assert 'make bench COMPARE="${COMPARE:-go $before}"' in measurement
    assert Path("bench/results/2026-11-28-comparison-2.json").match(upload["with"]["path"])
    assert JOBS["bench, compare"]["permissions"] == {"contents": "read"}
    (pinned,) = (step["with"]["key"] for step in steps if "key" in step.get("with", {}))
    assert all((ROOT / path).is_file() for path in re.findall(r"'([^']+)'", pinned))
