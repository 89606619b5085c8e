"""Records in files."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson
import pytest

from bench.nccl.schema import SCHEMA, VERSION, Fault, InvalidRecord, Record, World, json_schema, load


def test_the_file_describes_them() -> None:
    """After a change write ``json_schema()`` into the file, and consider VERSION."""
    assert orjson.loads(SCHEMA.read_bytes()) == orjson.loads(orjson.dumps(json_schema()))


def test_a_record_is_read_as_it_was_written(make_record: Callable[..., Record], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(msgspec.json.encode(make_record()))

    assert load(file) == make_record()


def test_a_record_of_version_2_has_other_keys(make_record: Callable[..., Record], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    text = msgspec.json.encode(make_record(schema_version=2, config={"fault": Fault("slow", 1)}))
    file.write_bytes(text.replace(b'"config":', b'"asked":').replace(b'"fault":', b'"drill":'))

    assert load(file) == make_record(schema_version=2, config={"fault": Fault("slow", 1)})


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"record": "other"}', '{"record": "nccl", "schema_version": 2}'],
    ids=["empty", "no tag", "unknown", "less"],
)
def test_files_without_a_record(text: str, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(text)

    with pytest.raises(InvalidRecord):
        load(file)


def test_a_record_of_a_later_version(make_record: Callable[..., Record], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(msgspec.json.encode(make_record(schema_version=VERSION + 1)))

    with pytest.raises(InvalidRecord, match=f"version {VERSION + 1}"):
        load(file)


def test_hardware_bandwidth(make_record: Callable[..., Record]) -> None:
    assert make_record().is_hardware
    assert not make_record(config={"backend": "gloo"}).is_hardware
    assert "CPUs" in make_record(config={"backend": "gloo"}).transport
    shared = make_record(world=World(ranks=4, shared_gpu=True))
    assert not shared.is_hardware
    assert "loopback sockets" in shared.transport


def test_bandwidth_has_the_spread_of_the_times(make_record: Callable[..., Record]) -> None:
    found = make_record(busbw={1 << 20: 100.0}).points[0]

    assert found.busbw_gb_per_second == pytest.approx(100)
    spread = found.busbw(4)
    assert (spread.smallest, spread.median, spread.largest) == pytest.approx((100 / 1.2, 100, 100 / 0.9))
