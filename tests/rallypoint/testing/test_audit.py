"""Reading the API server's audit log while the server writes it."""

from pathlib import Path

import orjson
import yaml

from rallypoint.testing.audit import calls, policy, read

LINE = orjson.dumps(
    {
        "verb": "create",
        "user": {"username": "one"},
        "requestReceivedTimestamp": "2026-05-01T12:00:00.000100Z",
        "stageTimestamp": "2026-05-01T12:00:00.010100Z",
        "objectRef": {"resource": "pods", "namespace": "default", "name": "a"},
        "responseStatus": {"code": 201},
    }
)


def test_whole_lines_are_read(tmp_path: Path) -> None:
    (log := tmp_path / "audit.log").write_bytes(LINE + b"\n" + LINE[:50])

    (call,) = calls(log)

    assert (call.user, call.verb, call.resource, call.namespace, call.name) == (
        "one",
        "create",
        "pods",
        "default",
        "a",
    )
    assert (call.code, call.is_write) == (201, True)
    assert (call.answered - call.received).total_seconds() == 0.01


def test_a_call_without_an_object_or_a_response(tmp_path: Path) -> None:
    event = orjson.loads(LINE) | {"verb": "get", "objectRef": None, "responseStatus": None}
    (log := tmp_path / "audit.log").write_bytes(orjson.dumps(event) + b"\n")

    (call,) = calls(log)

    assert (call.resource, call.code, call.is_write) == ("", 0, False)


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert calls(tmp_path / "audit.log") == []


def test_the_policy_logs_these_users_only() -> None:
    rules = yaml.safe_load(policy(["one", "other"]))["rules"]

    assert rules == [{"level": "Metadata", "users": ["one", "other"]}, {"level": "None"}]


def test_bodies_of_writes_are_logged_on_demand() -> None:
    reads, writes, others = yaml.safe_load(policy(["one"], bodies=True))["rules"]

    assert reads == {"level": "Metadata", "users": ["one"], "verbs": ["get", "list", "watch"]}
    assert writes == {"level": "Request", "users": ["one"]}
    assert others == {"level": "None"}


def test_reading_continues_after_the_last_complete_line(tmp_path: Path) -> None:
    (log := tmp_path / "audit.log").write_bytes(LINE + b"\n" + LINE[:50])
    first, offset = read(log)
    with log.open("ab") as file:
        file.write(LINE[50:] + b"\n")

    second, end = read(log, offset)

    assert (len(first), len(second), end) == (1, 1, log.stat().st_size)


def test_an_object_without_a_name_in_the_reference_has_that_of_its_body(tmp_path: Path) -> None:
    event = orjson.loads(LINE) | {
        "objectRef": {"resource": "pods"},
        "requestObject": {"metadata": {"name": "b"}},
    }
    (log := tmp_path / "audit.log").write_bytes(orjson.dumps(event) + b"\n")

    (call,) = calls(log)

    assert (call.name, call.body, call.creates, call.succeeded) == (
        "b",
        {"metadata": {"name": "b"}},
        True,
        True,
    )
