"""Parsing of logs for ``rallypoint why``, and its output."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rallypoint.cli import why
from rallypoint.diagnosis import Cause, Diagnosis, JobSnapshot, LastLines, Phase

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def shown(
    *causes: Cause,
    state: str = "Running",
    forbidden: Sequence[str] = (),
    phases: tuple[Phase, ...] = (),
    **status: Any,
) -> str:
    job = {
        "status": status,
        "kind": "JAXJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": NOW.isoformat()},
    }
    snapshot = JobSnapshot(job, NOW)
    return why.text(
        why.Report(snapshot, Diagnosis(state, NOW - timedelta(minutes=5), causes, phases), forbidden)
    )


def test_many_causes_are_counted() -> None:
    found = shown(*(Cause((f"j-worker-{number}",), f"cause {number}") for number in range(25)))

    assert found.count("cause ") == why.SHOWN_ROWS
    assert "and 5 more" in found


def test_many_names_are_counted() -> None:
    found = shown(Cause(tuple(f"p{number}" for number in range(5)), "the same"))

    assert "p0, p1, p2 and 2 more" in found


def test_escape_sequences_are_removed_from_messages() -> None:
    found = shown(Cause((), "several\nlines\x1b[2J", quote="\x07word"))

    assert "several lines; last log line: word\n" in found


def test_the_next_step_follows_its_cause() -> None:
    rows = shown(Cause((), "it is closed", next_step="open\nit"), Cause((), "it is late")).splitlines()[4:7]

    assert [row.split("  ")[-1].strip() for row in rows] == ["it is closed", "Next: open it", "it is late"]


def test_attempts_that_have_ended_are_listed() -> None:
    ended = {
        "number": 0,
        "endTime": "2026-01-01T11:50:00Z",
        "pod": "j-worker-1",
        "node": "node-3",
        "container": "jax",
        "exitCode": 7,
        "action": "RestartJob",
        "lostSeconds": 12,
    }

    rows = shown(restarts=1, lostSeconds=12, attempts=[ended]).splitlines()

    title = rows.index("Attempts (restarted once, 12s lost):")
    words = rows[title + 3].split()
    assert words == [
        "0",
        "2026-01-01T11:50:00Z",
        "j-worker-1",
        "node-3",
        "jax:",
        "exit",
        "code",
        "7",
        "RestartJob",
        "12s",
    ]
    assert "Attempts" not in shown()


def test_a_job_with_forbidden_resources_is_not_reported_as_healthy() -> None:
    assert "No cause found in the cluster's objects" in shown()
    assert "No cause found in the cluster's objects" not in shown(forbidden=["pods"])
    assert "No cause found in the cluster's objects" not in shown(state="Succeeded")


def test_a_job_without_a_cause_has_a_summary() -> None:
    job = {
        "kind": "JAXJob",
        "apiVersion": "kubeflow.org/v1",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": NOW.isoformat()},
    }
    found = Diagnosis("Running", NOW, (), (), summary="j-worker-0 has printed nothing.")
    blocked = Diagnosis("Running", NOW, (Cause((), "no room"),), (), summary="it runs")

    reports = [why.Report(JobSnapshot(job, NOW), diagnosis, ()) for diagnosis in (found, blocked)]

    assert "\nj-worker-0 has printed nothing.\n" in why.text(reports[0])
    assert [why.document(report)["summary"] for report in reports] == ["j-worker-0 has printed nothing.", ""]


def test_lines_of_deleted_pods_are_marked() -> None:
    job = {
        "kind": "JAXJob",
        "apiVersion": "kubeflow.org/v1",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": NOW.isoformat()},
    }
    snapshot = JobSnapshot(
        job,
        NOW,
        last_lines={
            ("j-worker-0", "jax"): LastLines(NOW, ("new",)),
            ("j-worker-1", "jax"): LastLines(None, ()),
        },
        lines_of_deleted_pods={
            ("j-worker-0", "jax"): LastLines(NOW - timedelta(minutes=1), ("old", "older"))
        },
    )

    text = why.text(why.Report(snapshot, Diagnosis("Running", NOW, (), ()), ()))

    rows = [line.split() for line in text.splitlines()[-3:]]
    assert rows == [["j-worker-0/jax", "0s", "new"], ["j-worker-0/jax", "(deleted)", "60s", "old"], ["older"]]
    assert "j-worker-1" not in text


def test_phases_are_printed_with_seconds() -> None:
    phases = (
        Phase("created", NOW, 2, 2),
        Phase("scheduled", NOW + timedelta(seconds=492), 2, 2),
        Phase("started", None, 0, 2),
        Phase("Running", NOW + timedelta(hours=2, seconds=5)),
    )

    rows = [line.split(None, 1) for line in shown(phases=phases).splitlines()[-4:]]

    assert rows == [
        ["+0s", "2 of 2 pods created"],
        ["+8m12s", "2 of 2 pods scheduled"],
        ["-", "0 of 2 pods started"],
        ["+2h0m5s", "Running"],
    ]
