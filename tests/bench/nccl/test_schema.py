"""Records on disk."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson
import pytest

from bench.nccl.schema import SCHEMA, VERSION, Record, Unreadable, World, described, load


def test_the_file_describes_them() -> None:
    """After a change: write ``described()`` into it, and mind what VERSION says."""
    assert orjson.loads(SCHEMA.read_bytes()) == orjson.loads(orjson.dumps(described()))


def test_a_record_is_read_as_it_was_written(record: Callable[..., Record], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(msgspec.json.encode(record()))

    assert load(file) == record()


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"record": "other"}', '{"record": "nccl", "schema_version": 2}'],
    ids=["empty", "no tag", "unknown", "less"],
)
def test_what_is_none_of_ours(text: str, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(text)

    with pytest.raises(Unreadable):
        load(file)


def test_a_version_of_tomorrow(record: Callable[..., Record], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(msgspec.json.encode(record(schema_version=VERSION + 1)))

    with pytest.raises(Unreadable, match=f"version {VERSION + 1}"):
        load(file)


def test_what_is_hardware(record: Callable[..., Record]) -> None:
    assert record().is_hardware
    assert not record(asked={"backend": "gloo"}).is_hardware
    assert "CPUs" in record(asked={"backend": "gloo"}).carried_by
    shared = record(world=World(ranks=4, shared_gpu=True))
    assert not shared.is_hardware
    assert "loopback sockets" in shared.carried_by


def test_bandwidth_has_the_spread_of_the_times(record: Callable[..., Record]) -> None:
    found = record(busbw={1 << 20: 100.0}).points[0]

    assert found.busbw_gb_per_second == pytest.approx(100)
    spread = found.busbw(4)
    assert (spread.smallest, spread.median, spread.largest) == pytest.approx((100 / 1.2, 100, 100 / 0.9))
