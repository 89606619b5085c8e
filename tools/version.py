"""The version of this source, and every place that repeats it. ``pyproject.toml`` is the source; a test compares the others with it.

    .venv/bin/python tools/version.py                  # prints it
    .venv/bin/python tools/version.py TO=0.2.0rc1      # writes it everywhere; `make version TO=0.2.0rc1` also renders deploy/

A version has the form of PEP 440 (``0.2.0rc1``): so do the distributions, the tag of the image and, after a ``v``, the tag in git.
A Helm chart has the same one in the form of Semantic Versioning (``0.2.0-rc.1``).
"""

import datetime
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
CHANGELOG = Path("CHANGELOG.md")
_NUMBER = r"(\d+(?:\.\w+)*)"
_NUMBER_OF_CHART = r"(\d+\.\d+\.\d+(?:-\w+\.\d+)?)"


class Place(NamedTuple):
    """Files, as a glob, and the expression whose group is the version, as often as it is found; ``semantic`` for that of a chart."""

    files: str
    expression: str
    semantic: bool = False


PLACES = (
    Place("pyproject.toml", rf'^version = "{_NUMBER}"'),  # the source
    Place("pyproject.toml", rf'"rallypoint-operator\[kubeconfig\]=={_NUMBER}"'),
    Place("deploy/operator/pyproject.toml", rf'^version = "{_NUMBER}"'),
    Place(
        "manifests/overlays/*/kustomization.yaml",
        rf"^- name: rallypoint\n(?:  newName: .*\n)?  newTag: {_NUMBER}",
    ),
    *(
        Place(pages, expression, is_semantic)
        for pages in ("README.md", "docs/**/*.md")
        for expression, is_semantic in (
            (rf"/releases/download/v{_NUMBER}/", False),
            (rf"@refs/tags/v{_NUMBER}", False),
            (rf"rallypoint-dev/rallypoint:{_NUMBER}", False),
            (rf"\bVERSION=v?{_NUMBER}", False),
            (rf"--version v?{_NUMBER_OF_CHART}", True),
        )
    ),
)
_HEADING = re.compile(r"^## (?P<version>\S+)(?: – (?P<date>\S+))?$", re.MULTILINE)
UNRELEASED = "unreleased"
"""What stands in place of the date in the changelog."""


class Occurrence(NamedTuple):
    """A version that a file names, and where in the file."""

    path: Path
    version: str
    start: int
    end: int
    semantic: bool


class Section(NamedTuple):
    """A section of the changelog: its version, its date or ``unreleased``, and its text without the heading."""

    version: str
    date: str
    text: str


def checked(text: str) -> Version:
    """Return the version.

    Raises:
        ValueError: it is no version, or not in its normal form, such as ``0.2.0-rc1``.
    """
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ValueError(f"version {text!r}: not a version of PEP 440, such as 0.2.0 or 0.2.0rc1") from error
    if str(version) != text or len(version.release) != 3 or version.local:
        raise ValueError(
            f"version {text!r}: write it as MAJOR.MINOR.PATCH, with rcN after it for a candidate"
        )
    return version


def semantic(version: str) -> str:
    """Return the version in the form of Semantic Versioning, as Helm requires it: ``0.2.0rc1`` becomes ``0.2.0-rc.1``."""
    parsed = checked(version)
    kind, number = parsed.pre or (("dev", parsed.dev) if parsed.dev is not None else ("", 0))
    return parsed.base_version + (f"-{kind}.{number}" if kind else "")


def occurrences(root: Path = ROOT) -> Iterator[Occurrence]:
    """Yield every version in ``PLACES``, the source's first."""
    for place in PLACES:
        for path in sorted(root.glob(place.files)):
            for found in re.finditer(place.expression, path.read_text(encoding="utf-8"), re.MULTILINE):
                yield Occurrence(path, found[1], *found.span(1), place.semantic)


def in_form(found: Occurrence, version: str) -> str:
    """Return the version in the form that the file needs."""
    return semantic(version) if found.semantic else version


def source_version(root: Path = ROOT) -> str:
    """Return the version of this source."""
    return next(occurrences(root)).version


def sections(changelog: str) -> list[Section]:
    """Return the sections of a changelog, the newest first."""
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    return [
        Section(heading["version"], heading["date"] or "", changelog[heading.end() : end].strip() + "\n")
        for heading, end in zip(headings, ends, strict=True)
    ]


def with_section(changelog: str, version: str, today: datetime.date) -> str:
    """Return the changelog with the section that a version needs: a candidate has that of its release, which gets its date with the release itself."""
    base = checked(version).base_version
    if base not in {section.version for section in sections(changelog)}:
        first = _HEADING.search(changelog)
        at = first.start() if first else len(changelog)
        changelog = f"{changelog[:at]}## {base} – {UNRELEASED}\n\n{changelog[at:]}"
    if version == base:
        changelog = changelog.replace(f"## {base} – {UNRELEASED}\n", f"## {base} – {today.isoformat()}\n")
    return changelog


def write(version: str, root: Path = ROOT, *, today: datetime.date) -> list[Path]:
    """Write the version everywhere and return the files that changed.

    Raises:
        ValueError: see ``checked``.
    """
    checked(version)
    texts = {found.path: found.path.read_text(encoding="utf-8") for found in occurrences(root)}
    texts[root / CHANGELOG] = (root / CHANGELOG).read_text(encoding="utf-8")
    changed = dict(texts)
    # From the end: an earlier replacement would move the later ones.
    for found in sorted(occurrences(root), key=lambda place: place.start, reverse=True):
        text = changed[found.path]
        changed[found.path] = text[: found.start] + in_form(found, version) + text[found.end :]
    changed[root / CHANGELOG] = with_section(changed[root / CHANGELOG], version, today)
    written = [path for path, text in changed.items() if text != texts[path]]
    for path in written:
        path.write_text(changed[path], encoding="utf-8")
    return written


def main(arguments: list[str]) -> int:
    if not arguments:
        print(source_version())
        return 0
    version = arguments[0].removeprefix("TO=")
    if not version:
        print("error: name the version: make version TO=0.2.0rc1", file=sys.stderr)
        return 2
    try:
        written = write(version, today=datetime.datetime.now(datetime.UTC).date())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path in written:
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
