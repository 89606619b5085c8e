"""The timeline of ``rallypoint describe``."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli import describe
from rallypoint.cli.cluster import Cluster
from rallypoint.diagnosis import Restart, Span, Timeline
from tests.support.faults import Refuse, Rule
from tests.support.harness import NAMESPACE, start_harness

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_bar_has_a_row_for_each_span() -> None:
    spans = [
        Span("queued", ago(400), ago(200)),
        Span("starting", ago(200), ago(199)),
        Span("running", ago(199), None),
    ]
    restart = Restart(ago(150), "j-worker-0", "ended with\nexit code 1")

    text = "".join(describe.timeline_bar(Timeline(spans, [restart]), NOW))

    assert text.splitlines() == [
        "Timeline:",
        "  Phase      At       Duration   Bar",
        "  -----      --       --------   ---",
        "  queued     +0s      3m20s      |####################                    |",
        "  starting   +3m20s   1s         |                    #                   |",
        "  running    +3m21s   3m19s      |                    ####################|",
        "  Restarted once, last 2m ago: j-worker-0 ended with exit code 1",
    ]


def test_many_spans_share_rows() -> None:
    spans = [
        Span(name, ago(1000 - 10 * number), ago(990 - 10 * number))
        for number, name in enumerate(["running", "restarting"] * 50)
    ]

    rows = "".join(describe.timeline_bar(Timeline(spans, []), NOW)).splitlines()[3:]

    assert len(rows) == describe.BAR_ROWS
    assert "running, restarting" in rows[0]


def test_a_job_without_spans_has_no_bar() -> None:
    assert list(describe.timeline_bar(Timeline([], []), NOW)) == []


def test_attempts_have_a_row_each() -> None:
    first = {
        "number": 0, "endTime": "2026-01-01T12:00:04Z", "pod": "j-worker-2", "node": "n7", "nodeProblems": ["KernelDeadlock"], "container": "pytorch",
        "exitCode": 137, "reason": "OOMKilled", "message": "out of\nmemory", "action": "RestartJob", "lostSeconds": 12,
    }  # fmt: skip
    second = {
        "number": 1,
        "endTime": "2026-01-01T12:09:30Z",
        "pod": "j-worker-0",
        "reason": "Deleted",
        "action": "RestartJob",
        "inPlace": True,
    }

    text = "".join(
        describe.attempts({"status": {"restarts": 2, "lostSeconds": 12, "attempts": [first, second]}})
    )

    title, _, _, *rows = text.splitlines()
    assert title == "Attempts (restarted 2 times, 12s lost):"
    assert [re.split(r" {3,}", row.strip()) for row in rows] == [
        [
            "0",
            "2026-01-01T12:00:04Z",
            "j-worker-2",
            "n7 (KernelDeadlock)",
            "pytorch: exit code 137 (OOMKilled): out of memory",
            "RestartJob",
            "12s",
        ],
        ["1", "2026-01-01T12:09:30Z", "j-worker-0", "<none>", "Deleted", "RestartJob in place", "<none>"],
    ]


def test_a_job_that_failed_in_its_first_attempt_has_not_restarted() -> None:
    title = next(iter(describe.attempts({"status": {"attempts": [{"number": 0, "action": "FailJob"}]}})))

    assert title == "Attempts (not restarted, 0s lost):\n"


def test_the_stacks_of_a_hang_follow_the_attempts() -> None:
    stacks = [
        {
            "pods": ["j-worker-0", "j-worker-1"],
            "text": "process 1, stopped: python\n    step\x1b (train.py:3)",
        }
    ]

    text = "".join(describe.stacks({"status": {"attempts": [{"number": 3, "stacks": stacks}]}}))

    assert text.splitlines()[-3:] == [
        "  Stacks of j-worker-0, j-worker-1 at the end of attempt 3:",
        "    process 1, stopped: python",
        "        step\\u001b (train.py:3)",
    ]


def test_a_job_without_a_history_has_no_attempts() -> None:
    assert list(describe.attempts({"status": {}})) == []


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_job_costs_one_list_of_events(is_refused: bool) -> None:
    refused = Rule(Refuse(403, "Forbidden"), verb="list", plural="events", times=None if is_refused else 0)
    async with start_harness(refused) as harness:
        job = await harness.submit(workers=31)
        async with Client(harness.connection, user_agent="rallypoint-cli") as client:
            cluster = Cluster(client, "", NAMESPACE, await clusters.discover(client))
            (served,) = cluster.find_all("pytorchjobs")
            text = await describe._description(cluster, served, job)

    assert harness.faults.count("list", "events") == 1
    assert ("You have no permission to read events.\n" in text) == is_refused
