"""Calls counted from audit log lines of kube-apiserver."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import yaml

from bench.controlplane.audit import IDLE_SECONDS, POLL_SECONDS, AuditLog, status_writes
from rallypoint.testing.audit import policy

SENDER = {
    "user": {"username": "system:serviceaccount:a:b"},
    "requestReceivedTimestamp": "2026-05-01T12:00:00.000100Z",
    "stageTimestamp": "2026-05-01T12:00:00.010100Z",
}


def line(verb: str, resource: str, code: int = 200, **reference: Any) -> bytes:
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "verb": verb,
        **SENDER,
        "objectRef": {"resource": resource, "namespace": "bench", "apiVersion": "v1", **reference},
        "responseStatus": {"metadata": {}, "code": code},
    }
    return orjson.dumps(event) + b"\n"


def test_calls_by_verb_and_resource(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(
        line("create", "pods", 201) * 3
        + line("create", "services", 201)
        + line("patch", "pytorchjobs", subresource="status") * 2
        + line("create", "services", 409)
    )

    calls = AuditLog(path).calls_since(0)

    assert calls.by_kind == {"create pods": 3, "create services": 2, "patch pytorchjobs/status": 2}
    assert calls.refused == {"409": 1}
    assert calls.total == 7


def test_watches_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(line("watch", "pods") + line("list", "pods"))

    assert AuditLog(path).calls_since(0).by_kind == {"list pods": 1}


def test_only_calls_after_the_offset_count(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.size_bytes() == 0
    (tmp_path / "audit.log").write_bytes(line("create", "pods"))
    offset = log.size_bytes()
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(line("delete", "pods") + b'{"verb": "crea')

    assert log.calls_since(offset).by_kind == {"delete pods": 1}


def test_a_call_without_object_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(orjson.dumps({"verb": "get", "requestURI": "/version", **SENDER}) + b"\n")

    assert AuditLog(path).calls_since(0).total == 1


async def test_idle_waits_until_the_log_stops_growing(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"")
    loop = asyncio.get_running_loop()
    started = loop.time()
    loop.call_later(IDLE_SECONDS / 2, path.write_bytes, line("create", "pods"))

    await AuditLog(path).wait_until_idle()

    assert 1.5 * IDLE_SECONDS <= loop.time() - started < 1.5 * IDLE_SECONDS + 3 * POLL_SECONDS


def test_the_policy_logs_the_named_user_and_no_leases() -> None:
    first, second, rest = yaml.safe_load(policy(["system:serviceaccount:a:b"], leases=False))["rules"]

    assert first == {"level": "None", "resources": [{"group": "coordination.k8s.io"}]}
    assert second == {"level": "Metadata", "users": ["system:serviceaccount:a:b"]}
    assert rest == {"level": "None"}


def test_status_writes_are_patches_and_updates_of_the_status_of_jobs() -> None:
    calls = {
        "patch pytorchjobs/status": 3,
        "update mpijobs/status": 2,
        "update pytorchjobs": 5,
        "patch pods/status": 7,
        "get pytorchjobs/status": 11,
    }

    assert status_writes(calls) == 5
