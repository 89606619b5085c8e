from pathlib import Path

from rallypoint.cli.log_lines import last_lines


def test_the_last_lines_of_a_large_log_are_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"x" * 1_000_000 + b"\n" + b"".join(b"line %d\n" % number for number in range(20)))

    assert last_lines(log, 10) == [f"line {number}" for number in range(10, 20)]
    assert last_lines(tmp_path / "none.log", 10) == []
