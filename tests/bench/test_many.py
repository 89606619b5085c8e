"""The writes that must not happen."""

from datetime import UTC, datetime

from bench.many import writes_to_copies
from rallypoint.testing.audit import Call


def call(user: str, verb: str, namespace: str) -> Call:
    return Call(user, verb, "pods", namespace, "pod", 200, datetime.now(UTC), datetime.now(UTC))


def test_writes_of_controllers_to_copies_count() -> None:
    written = call("first", "patch", "many-007")
    calls = [
        written,
        call("first", "list", "many-007"),
        call("first", "create", "bench"),
        call("admin", "create", "many-007"),
    ]

    assert writes_to_copies(calls) == [written]
