"""Protobuf objects as Go clients send them. ``tests/integration/test_kubectl.py`` tests real clients."""

from typing import Any

import pytest

from rallypoint.local.apiserver.serving.protobuf import MAGIC, DecodeError, decode


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def part(number: int, value: "bytes | str | int") -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def sent(api_version: str, kind: str, *fields: bytes) -> bytes:
    return MAGIC + part(1, part(1, api_version) + part(2, kind)) + part(2, b"".join(fields))


def metadata(name: str) -> bytes:
    """As Go sends it: with zero values of fields that are no pointers."""
    return part(1, part(1, name) + part(2, "") + part(3, "") + part(7, 0) + part(8, b""))


def entry(key: str, value: "bytes | str") -> bytes:
    return part(1, key) + part(2, value)


def test_a_config_map() -> None:
    body = sent(
        "v1",
        "ConfigMap",
        metadata("c"),
        part(2, entry("a", "b")),
        part(2, entry("c", "")),
        part(3, entry("d", b"\xff")),
    )

    assert decode(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "b", "c": ""},
        "binaryData": {"d": "/w=="},
    }


def test_a_job() -> None:
    """A zero is significant only for a pointer; inlined structs are flat; a quantity is a string."""
    quantity = part(1, "100m")
    resources = part(8, part(2, entry("cpu", quantity)))
    probe = part(10, part(1, part(1, part(1, "true"))) + part(3, 5))
    container = part(2, part(1, "c") + part(3, "sh") + part(3, "-c") + resources + probe + part(16, 0))
    volume = part(1, part(1, "v") + part(2, part(2, b"")))
    template = part(6, part(2, volume + container + part(3, "Never")))
    body = sent("batch/v1", "Job", metadata("j"), part(2, part(1, 0) + part(2, 1) + template))

    decoded = decode(body)
    spec = decoded["spec"]["template"]["spec"]

    assert decoded["spec"]["parallelism"] == 0
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert spec["containers"] == [
        {
            "name": "c",
            "command": ["sh", "-c"],
            "resources": {"requests": {"cpu": "100m"}},
            "livenessProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 5},
        }
    ]


def test_numbers_times_and_int_or_string() -> None:
    time = part(2, varint(0)[:0])
    port = part(1, part(1, "http") + part(3, 80) + part(4, part(1, 1) + part(2, 0) + part(3, "web")))
    service = decode(sent("v1", "Service", metadata("s"), part(2, port), time))
    number = part(1, part(3, 80) + part(4, part(1, 0) + part(2, 8080)))
    other = decode(sent("v1", "Service", metadata("s"), part(2, number)))
    event = decode(
        sent(
            "v1",
            "Event",
            metadata("e"),
            part(6, part(1, 1_700_000_000)),
            part(10, part(2, 5000) + part(1, 1)),
        )
    )

    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "web"}]
    assert other["spec"]["ports"] == [{"port": 80, "targetPort": 8080}]
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert event["eventTime"] == "1970-01-01T00:00:01.000005Z"


def test_negative_numbers() -> None:
    body = sent("scheduling.k8s.io/v1", "PriorityClass", metadata("p"), part(2, -10))

    assert decode(body)["value"] == -10


def test_delete_options() -> None:
    """DeleteOptions have the same envelope; a grace period of 0 is significant."""
    body = sent("v1", "DeleteOptions", part(1, 0), part(2, part(1, "u")), part(4, "Foreground"))

    assert decode(body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Foreground",
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="something else"),
        pytest.param(sent("v1", "ConfigMap", metadata("c"))[:-3], id="cut off"),
        pytest.param(sent("v1", "Unheard"), id="of a kind that nobody knows"),
        pytest.param(MAGIC + b"\x0f", id="of a wire type that there is not"),
        pytest.param(MAGIC, id="empty"),
    ],
)
def test_invalid_bytes_are_rejected(body: Any) -> None:
    with pytest.raises(DecodeError):
        decode(body)
