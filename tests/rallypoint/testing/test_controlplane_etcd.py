"""Transactions of etcd's JSON gateway."""

from base64 import b64encode

import orjson

from rallypoint.testing.controlplane.etcd import MAX_BYTES, MAX_PUTS, batches, transaction


def test_a_transaction_has_at_most_128_puts() -> None:
    sizes = [len(batch) for batch in batches((b"key", b"value") for _ in range(2 * MAX_PUTS + 1))]

    assert sizes == [MAX_PUTS, MAX_PUTS, 1]


def test_a_transaction_stays_below_the_limit_of_bytes() -> None:
    third = b"x" * (MAX_BYTES // 3)

    assert [len(batch) for batch in batches([(b"key", third)] * 5)] == [2, 2, 1]


def test_no_entries_need_no_transaction() -> None:
    assert list(batches([])) == []


def test_keys_and_values_are_base64() -> None:
    request = orjson.loads(transaction([(b"/registry/a", b"{}")]))

    assert request == {
        "success": [
            {"requestPut": {"key": b64encode(b"/registry/a").decode(), "value": b64encode(b"{}").decode()}}
        ]
    }
