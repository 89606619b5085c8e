"""Parsing of logs for ``rallypoint why``, and its output."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from rallypoint.cli import job_reader, why
from rallypoint.diagnosis import Cause, Diagnosis, JobSnapshot, LastLines, Phase

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TIME = "2026-01-01T11:59:00.123456789Z"


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        pytest.param(f"{TIME} one\n{TIME} two\n", ("one", "two"), id="lines"),
        pytest.param(f"{TIME} 50%\r60%\r100%\r\n", ("100%",), id="a progress bar"),
        pytest.param(f"{TIME} a\fb\u2028c\x85d\n", ("abcd",), id="other line separators"),
        pytest.param(f"{TIME} \x1b[31mred\x1b[0m\x07\n", ("[31mred[0m",), id="terminal escape sequences"),
        pytest.param(f"{TIME} last\n{TIME} \n{TIME}   \n", ("last",), id="empty lines"),
        pytest.param(f"{TIME} {'x' * 1000}\n", (f"{'x' * 300}…",), id="a long line"),
    ],
)
def test_the_last_lines_of_a_log(log: str, lines: tuple[str, ...]) -> None:
    parsed = job_reader.parse_log(log, 10)

    assert parsed == LastLines(datetime(2026, 1, 1, 11, 59, 0, 123456, tzinfo=UTC), lines)


def test_a_line_can_begin_with_any_kubernetes_time() -> None:
    parsed = job_reader.parse_log("2026-01-01t11:59:00.123456789z one\n2026-01-01 two\n", 10)

    assert parsed == LastLines(datetime(2026, 1, 1, 11, 59, 0, 123456, tzinfo=UTC), ("one",))


@pytest.mark.parametrize("log", ["", f"{TIME} \n"])
def test_an_empty_log_has_no_lines(log: str) -> None:
    assert job_reader.parse_log(log, 1) == LastLines(None, ())


@pytest.mark.parametrize(
    "log", ["unable to retrieve container logs for containerd://0123", "failed to open log file"]
)
def test_an_answer_without_a_log_is_unknown(log: str) -> None:
    assert job_reader.parse_log(log, 1) is None


def shown(
    *causes: Cause, state: str = "Running", forbidden: Sequence[str] = (), phases: tuple[Phase, ...] = ()
) -> str:
    job = {
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

    assert "several lines[2J; last log line: word\n" in found


def test_the_next_step_follows_its_cause() -> None:
    rows = shown(Cause((), "it is closed", next_step="open\nit"), Cause((), "it is late")).splitlines()[4:7]

    assert [row.split("  ")[-1].strip() for row in rows] == ["it is closed", "Next: open it", "it is late"]


def test_a_job_with_forbidden_resources_is_not_reported_as_healthy() -> None:
    assert "The cluster's objects name no cause" in shown()
    assert "The cluster's objects name no cause" not in shown(forbidden=["pods"])
    assert "The cluster's objects name no cause" not in shown(state="Succeeded")


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
