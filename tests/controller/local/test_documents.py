"""Manifest files: read, and refused with the place of each fault. What a server refuses is in ``test_run``."""

from pathlib import Path

import pytest

from controller.local import documents
from controller.local.documents import Refused


def write(folder: Path, text: str, name: str = "a.yaml") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_documents_of_several_files_in_order(tmp_path: Path) -> None:
    one = write(tmp_path, "apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: B\n", "one.yaml")
    two = write(tmp_path, '{"apiVersion": "v1", "kind": "C"}', "two.json")
    found = documents.read([one, two])

    assert [document.kind for document in found] == ["A", "B", "C"]
    assert [document.source for document in found] == [f"{one} (document 1)", f"{one} (document 2)", two]


def test_a_list_is_its_items(tmp_path: Path) -> None:
    file = write(
        tmp_path, "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: B}]"
    )

    assert [document.kind for document in documents.read([file])] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param("- a", "not an object", id="not an object"),
        pytest.param("kind: A", "apiVersion: Required value", id="no apiVersion"),
        pytest.param("apiVersion: v1\nmetadata: {name: n}", "n: kind: Required value", id="no kind"),
        pytest.param("apiVersion: v1\nkind: List\nitems: [5]", "(item 1): not an object", id="a bad item"),
    ],
)
def test_what_is_no_object_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)

    with pytest.raises(Refused) as raised:
        documents.read([file])
    (problem,) = raised.value.problems
    assert str(problem).startswith(file)
    assert words in str(problem)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    missing, bad = str(tmp_path / "none.yaml"), write(tmp_path, "- a\n---\nkind: A\n")

    with pytest.raises(Refused) as raised:
        documents.read([missing, bad])
    assert [problem.source for problem in raised.value.problems] == [
        missing,
        f"{bad} (document 1)",
        f"{bad} (document 2)",
    ]
