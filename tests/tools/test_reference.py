"""The generated pages of the reference are up to date, and name everything that the code defines."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.crds import all_crds
from controller.crds.openapi import Schema
from controller.kinds import ALL
from tools.markdown import cell, code, table
from tools.reference.__main__ import FOLDER, main, pages

PAGES = pages()
DEFINITIONS = [pytest.param(definition, id=definition["metadata"]["name"]) for definition in all_crds()]


def test_the_pages_are_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, run ``make docs``."""
    assert main([str(tmp_path)]) == 0

    for name in PAGES:
        assert (tmp_path / name).read_text(encoding="utf-8") == (FOLDER / name).read_text(encoding="utf-8")
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in PAGES]


def test_no_page_is_left_over() -> None:
    made = {name for name in PAGES if name.startswith("api/")}

    assert {path.relative_to(FOLDER).as_posix() for path in (FOLDER / "api").iterdir()} == made


@pytest.mark.parametrize("name", PAGES)
def test_each_row_has_the_cells_of_its_table(name: str) -> None:
    columns = 0
    for line in PAGES[name].splitlines():
        bars = line.replace("\\|", "").count("|") if line.startswith("|") else 0
        assert not (bars and columns) or bars == columns, line
        columns = bars


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_every_field_of_ours_is_on_the_page_of_its_kind(definition: dict[str, Any]) -> None:
    page = PAGES[f"api/{definition['spec']['names']['singular']}.md"]
    rows = dict(re.findall(r"^## (\S+)\n\n((?:\|.*\n)+)", page, re.MULTILINE))

    fields = {
        field
        for version in definition["spec"]["versions"]
        for part in ("spec", "status")
        for field in _fields(version["schema"]["openAPIV3Schema"]["properties"][part], part)
    }

    assert len(fields) > 30
    assert [(place, name) for place, name in sorted(fields) if f"| `{name}` | " not in rows[place]] == []


def test_the_page_shows_what_differs_between_versions() -> None:
    page = PAGES["api/mpijob.md"]

    assert (
        "| v1: `kubeflow.org/training-operator`; v2beta1, v1alpha2: `kubeflow.org/mpi-operator` | Controller"
        in page
    )
    assert (
        "| `restartPolicy` | string | v1: `Never`; v2beta1: `OnFailure` (Launcher), `Never` (Worker); "
        in page
    )


@pytest.mark.parametrize(
    ("kind", "default"), [("pytorchjob", "OnFailure"), ("tfjob", "Never"), ("paddlejob", "OnFailure")]
)
def test_the_default_of_a_role_is_that_of_the_kind(kind: str, default: str) -> None:
    assert f"| `restartPolicy` | string | `{default}` | " in PAGES[f"api/{kind}.md"]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.resource.kind)
def test_every_rule_of_the_api_server_is_on_the_page_of_its_kind(kind: Any) -> None:
    page = PAGES[f"api/{kind.resource.singular}.md"]

    assert [rule.message for rule in kind.validation_rules if f"| {cell(rule.message)} | " not in page] == []


def test_cells_do_not_break_a_table() -> None:
    assert code("a|b", "c") == "`a\\|b`, `c`"
    assert cell("a|b\n  <c>") == "a\\|b &lt;c>"
    assert "".join(table(("x", "y"), [("1", "2")])) == "\n| x | y |\n| --- | --- |\n| 1 | 2 |\n"


def _fields(schema: Schema, place: str) -> Iterator[tuple[str, str]]:
    for name, field in schema.get("properties", {}).items():
        yield place, name
        if name in {"template", "metrics", "labelSelector"}:
            continue
        if "items" in field:
            yield from _fields(field["items"], f"{place}.{name}[]")
        elif "additionalProperties" in field:
            yield from _fields(field["additionalProperties"], f"{place}.{name}[role]")
        else:
            yield from _fields(field, f"{place}.{name}")
