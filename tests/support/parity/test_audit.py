"""Reading the audit log while it grows: the job of each call, and incomplete lines."""

from pathlib import Path
from typing import Any

import orjson

from tests.support.parity.audit import AuditLog
from tests.support.parity.resources import Owners


def line(
    verb: str, resource: str, name: str = "", body: Any = None, code: int = 200, second: int = 0
) -> bytes:
    event = {
        "verb": verb,
        "stage": "ResponseComplete",
        "user": {"username": "operator"},
        "requestReceivedTimestamp": f"1970-01-01T00:00:{second:02}.000000Z",
        "stageTimestamp": f"1970-01-01T00:00:{second:02}.000000Z",
        "objectRef": {"resource": resource, "name": name},
        "requestObject": body,
        "responseStatus": {"code": code},
    }
    return orjson.dumps(event) + b"\n"


def log(path: Path, *lines: bytes) -> AuditLog:
    path.write_bytes(b"".join(lines))
    return AuditLog(path, Owners(["a", "b"]))


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "audit.log", Owners(["a"])).calls("a") == []


def test_calls_are_assigned_to_their_jobs(tmp_path: Path) -> None:
    owner = {"metadata": {"name": "group", "ownerReferences": [{"kind": "PyTorchJob", "name": "b"}]}}
    audit = log(
        tmp_path / "audit.log",
        line("create", "pods", body={"metadata": {"name": "a-worker-0"}}),
        line("create", "podgroups", body=owner),
        line("patch", "pytorchjobs", "a", [{"op": "add", "path": "/status", "value": {}}]),
        line("create", "events", "b.17f", {"involvedObject": {"name": "b"}}),
        line("patch", "events", "a.17f", {"count": 2}),
        line("get", "leases", "training-operator"),
    )

    assert [(call.verb, call.resource) for call in audit.calls("a")] == [
        ("create", "pods"),
        ("patch", "pytorchjobs"),
        ("patch", "events"),
    ]
    assert [call.name for call in audit.calls("b")] == ["group", "b.17f"]


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    path, second = tmp_path / "audit.log", line("create", "pods", "a-1")
    audit = log(path, line("create", "pods", "a-0"), second[:20])

    assert [call.name for call in audit.calls("a")] == ["a-0"]

    with path.open("ab") as file:
        file.write(second[20:])

    assert [call.name for call in audit.calls("a")] == ["a-0", "a-1"]


def test_the_time_of_the_last_write(tmp_path: Path) -> None:
    audit = log(
        tmp_path / "audit.log",
        line("create", "pods", "a-0", second=3),
        line("get", "pods", "a-0", second=9),
        line("create", "pods", "b-0", second=12),
    )

    assert audit.last_write("a") == 3.0
    assert audit.last_write("none") == float("-inf")
