"""The workflow that publishes: each job has the rights of its own steps, and what was not built twice is not published."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / ".github" / "workflows" / "release.yml"
TEXT = FILE.read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
TRIGGER: dict[str, Any] = WORKFLOW[True]  # YAML 1.1 reads `on` as true
PERMISSIONS = {
    "build": {"contents": "read"},
    "rebuild": {"contents": "read"},
    "images": {"contents": "read", "packages": "write", "id-token": "write"},
    "distributions": {"id-token": "write"},
    "forge": {"contents": "write", "id-token": "write", "attestations": "write"},
}


def test_a_tag_of_a_version_starts_it_and_nothing_else() -> None:
    assert TRIGGER.keys() == {"push"}
    patterns = [re.escape(tag).replace(r"\[0\-9\]\+", "[0-9]+") for tag in TRIGGER["push"]["tags"]]

    def starts(tag: str) -> bool:
        return any(re.fullmatch(pattern, tag) for pattern in patterns)

    assert [starts(tag) for tag in ("v0.2.0", "v0.2.0rc1", "v10.20.30rc12")] == [True] * 3
    assert [starts(tag) for tag in ("0.2.0", "v0.2", "v0.2.0-rc.1", "v0.2.0;id", "main")] == [False] * 5


def test_each_job_has_the_rights_of_its_steps() -> None:
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == PERMISSIONS


def test_only_jobs_that_build_nothing_may_write_or_sign() -> None:
    for name, job in JOBS.items():
        builds = any("make " in step.get("run", "") for step in job["steps"])
        writes = "write" in job["permissions"].values()
        assert builds != writes, name
        assert ("environment" in job) == writes, name


def test_nothing_is_published_before_both_builds_agree() -> None:
    for name in ("images", "distributions"):
        assert JOBS[name]["needs"] == ["build", "rebuild"]
    assert JOBS["forge"]["needs"] == ["images", "distributions"]
    assert "needs.build.outputs.checksums" in str(JOBS["rebuild"])
