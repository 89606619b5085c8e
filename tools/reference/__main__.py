"""Writes the generated pages of ``docs/reference``.

.venv/bin/python -m tools.reference [FOLDER]
"""

import sys
from pathlib import Path

from tools.reference import api, events, flags, labels

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return the pages by their paths below ``docs/reference``."""
    return {**api.pages(), "events.md": events.page(), "flags.md": flags.page(), "labels.md": labels.page()}


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else FOLDER
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
