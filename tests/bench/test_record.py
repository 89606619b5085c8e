"""Files of recorded runs: never overwritten, with their environment."""

import platform
from pathlib import Path

import orjson

from bench import record


def test_a_second_run_of_a_day_gets_another_file(tmp_path: Path) -> None:
    first = record.save("controlplane", {"run": 1}, tmp_path)
    second = record.save("controlplane", {"run": 2}, tmp_path)

    assert second.name == first.name.replace(".json", "-2.json")
    assert orjson.loads(first.read_bytes()) == {"run": 1}
    assert orjson.loads(second.read_bytes()) == {"run": 2}


def test_the_environment_names_versions_and_no_machine() -> None:
    environment = record.environment()

    assert environment["cores"] >= 1
    assert environment["python"].endswith(platform.python_version())
    assert environment["packages"]["aiohttp"][0].isdigit()
    assert platform.node() not in orjson.dumps(environment).decode().split('"')


def test_a_checkout_knows_its_commit() -> None:
    commit = record.commit()

    assert commit["id"] == "unknown" or len(commit["id"]) == 40


def test_keys_of_earlier_records_are_read_under_their_new_names(tmp_path: Path) -> None:
    (path := tmp_path / "old.json").write_bytes(orjson.dumps({"cases": [{"floor": [{"a": 1}], "runs": []}]}))

    assert record.read(path) == {"cases": [{"baseline": [{"a": 1}], "runs": []}]}
