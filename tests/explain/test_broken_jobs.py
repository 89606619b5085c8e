"""Every job that does not run says why, and what to do: at ``kubectl apply``, in ``rallypoint why``, at the end of ``rallypoint run``."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from rallypoint.testing.http_trace import Step
from rallypoint.testing.up import RALLYPOINT, up
from tests.support.broken_jobs import BROKEN_JOBS, BrokenJob, Words
from tests.support.broken_jobs_page import CLUSTER, LOCAL, Page
from tests.support.explaining_cluster import ExplainingCluster, spell_cause

TIMEOUT_SECONDS = 60.0
"""Of the wait for an explanation, from the submission of all jobs; a gang is reported after half a minute."""


def cases(*names: str) -> pytest.MarkDecorator:
    """Return the jobs that have words for one of these places."""
    chosen = [job for job in BROKEN_JOBS if any(getattr(job, name) for name in names)]
    return pytest.mark.parametrize("job", chosen, ids=lambda job: job.what)


def missing(words: Words, said: str) -> list[str]:
    return [text for text in (words.cause, words.next_step) if text not in said]


@cases("apply")
def test_the_api_server_refuses_it(job: BrokenJob, cluster: ExplainingCluster, page: Page) -> None:
    assert job.apply is not None
    said = cluster.apply(job)
    page.add(job.what, CLUSTER, "apply", said)

    assert missing(job.apply, said) == [], said


@cases("why")
def test_why_names_cause_and_next_step(job: BrokenJob, cluster: ExplainingCluster, page: Page) -> None:
    assert job.why is not None
    assert cluster.apply(job).endswith("created\n")
    report = cluster.report(job)
    while missing(job.why, "\n".join(report.causes)) and cluster.age_seconds(job) < TIMEOUT_SECONDS:
        time.sleep(0.5)
        report = cluster.report(job)
    page.add(job.what, CLUSTER, "condition", report.condition)
    page.add(job.what, CLUSTER, "event", *report.warnings)
    page.add(job.what, CLUSTER, "why", *report.causes)

    assert missing(job.why, "\n".join(report.causes)) == [], report


@cases("apply", "run")
def test_run_names_cause_and_next_step(job: BrokenJob, page: Page, tmp_path: Path) -> None:
    words = job.run or job.apply
    assert words is not None
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job.job))
    done = subprocess.run(
        [*RALLYPOINT, "run", "job.yaml", "--timeout", "30s"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    said = done.stderr or done.stdout.partition("\n\n")[2]
    page.add(job.what, LOCAL, f"exit status {done.returncode}", said)

    assert (done.returncode, missing(words, said)) == (job.exit_status, []), said


@cases("local_why")
async def test_why_names_cause_and_next_step_in_local_mode(
    job: BrokenJob, page: Page, tmp_path: Path
) -> None:
    assert job.local_why is not None
    causes: list[str] = []
    async with up(folder=tmp_path) as running, asyncio.timeout(TIMEOUT_SECONDS):
        path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
        assert (await running.client.send(Step("POST", path, job.job, 201))).code == 201
        while not causes or missing(job.local_why, "\n".join(causes)):
            await asyncio.sleep(1)
            why = [*RALLYPOINT, "why", "-o", "json", "--kubeconfig", str(running.kubeconfig)]
            process = await asyncio.create_subprocess_exec(*why, stdout=subprocess.PIPE)
            out, _ = await process.communicate()
            causes = [spell_cause(cause) for found in json.loads(out) for cause in found["causes"]]
        await running.stop()
    page.add(job.what, LOCAL, "why", *causes)
