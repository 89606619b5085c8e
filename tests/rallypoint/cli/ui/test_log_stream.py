"""Lines of logs as the page shows them."""

import pytest

from rallypoint.cli.ui import log_stream
from rallypoint.cli.ui.log_stream import LONGEST_LINE, _Unsent, clean


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b" 10%\r 20%\r 30%\r", " 30%"),
        (b"\tindented", "\tindented"),
        (b"\xff", "\ufffd"),
        (b"x" * 5000, "x" * LONGEST_LINE + "…"),
    ],
)
def test_a_line_is_what_a_terminal_shows(line: bytes, shown: str) -> None:
    assert clean(line) == shown


def test_a_slow_browser_misses_the_oldest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_UNSENT_LINES", 2)
    unsent = _Unsent()
    write = unsent.writer({"metadata": {"name": "p"}}, "main")

    write(b"1\n2\n3\n4\n")

    assert unsent.take() == [("", "… 2 lines are left out"), ("p", "3"), ("p", "4")]
    assert unsent.take() == []
