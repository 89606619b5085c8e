"""Reading manifest files, and errors with the position of each problem. ``test_run`` tests errors of the server."""

import io
from pathlib import Path

import pytest

from controller.kube.errors import ApiError
from rallypoint.local import documents
from rallypoint.local.documents import Refused


def write(folder: Path, text: str, name: str = "a.yaml") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_documents_of_several_files_in_order(tmp_path: Path) -> None:
    first = write(tmp_path, "apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: B\n", "one.yaml")
    second = write(tmp_path, '{"apiVersion": "v1", "kind": "C"}', "two.json")
    found = documents.read([first, second])

    assert [document.kind for document in found] == ["A", "B", "C"]
    assert [document.source for document in found] == [
        f"{first} (document 1)",
        f"{first} (document 2)",
        second,
    ]


def test_a_hyphen_is_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n"))
    found = documents.read([write(tmp_path, "apiVersion: v1\nkind: C"), "-"])

    assert [(document.kind, document.source) for document in found[1:]] == [
        ("A", "standard input (document 1)"),
        ("B", "standard input (document 2)"),
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(["-"], "standard input: not YAML: ", id="no YAML"),
        pytest.param(["-", "-"], "standard input: it can be read only once", id="twice"),
    ],
)
def test_problems_of_standard_input(monkeypatch: pytest.MonkeyPatch, files: list[str], message: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("{"))
    with pytest.raises(Refused) as raised:
        documents.read(files)

    assert str(raised.value).startswith(message)


def test_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none then."""
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(Refused) as raised:
        documents.read(["-"])

    assert str(raised.value) == "standard input: it is closed"


def test_an_empty_file_name() -> None:
    with pytest.raises(Refused) as raised:
        documents.read([""])

    assert str(raised.value) == "'': the name of a file is empty"


def test_a_list_is_its_items(tmp_path: Path) -> None:
    file = write(
        tmp_path, "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: B}]"
    )

    assert [document.kind for document in documents.read([file])] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "a: [",
            "a.yaml: not YAML: line 1, column 5: expected the node content, but found '<stream end>', while parsing a flow node",
            id="not YAML",
        ),
        pytest.param(
            "a: b\n c: d", "not YAML: line 2, column 3: mapping values are not allowed here", id="indentation"
        ),
        pytest.param(
            "a: \0",
            "not YAML: unacceptable character #x0000: special characters are not allowed, position 3",
            id="a character",
        ),
        pytest.param(
            "apiVersion: v1\nkind: A\nmetadata: {name: n, namespace: BAD}",
            'A n: metadata.namespace: Invalid value: "BAD": a lowercase RFC 1123 label must consist of',
            id="a bad namespace",
        ),
        pytest.param("- a", "not an object", id="not an object"),
        pytest.param("kind: A", "apiVersion: Required value", id="no apiVersion"),
        pytest.param("apiVersion: v1\nmetadata: {name: n}", "n: kind: Required value", id="no kind"),
        pytest.param("apiVersion: v1\nkind: List\nitems: [5]", "(item 1): not an object", id="a bad item"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: 3",
            "List: items: Invalid value: must be a list",
            id="items that are no list",
        ),
        pytest.param(
            'apiVersion: "a b?c#d%"\nkind: A\nmetadata: {name: n}',
            'A n: apiVersion: Invalid value: "a b?c#d%": a lowercase RFC 1123 label must consist of',
            id="a bad version",
        ),
        pytest.param(
            "apiVersion: ../../x\nkind: A",
            'A: apiVersion: Invalid value: "../../x": a lowercase RFC 1123 subdomain must consist of',
            id="a bad group",
        ),
    ],
)
def test_an_invalid_document_is_rejected(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)

    with pytest.raises(Refused) as raised:
        documents.read([file])
    (problem,) = raised.value.problems
    assert str(problem).startswith(file)
    assert words in str(problem)


@pytest.mark.parametrize(
    ("meta", "problems"),
    [
        pytest.param("a", ["metadata: Invalid value: must be of type object, not string"], id="no object"),
        pytest.param(
            "{name: 5, generateName: [a], namespace: true}",
            [
                "metadata.name: Invalid value: must be of type string, not integer; put it in quotes",
                "metadata.generateName: Invalid value: must be of type string, not array",
                "metadata.namespace: Invalid value: must be of type string, not boolean; put it in quotes",
            ],
            id="names",
        ),
        pytest.param(
            "{labels: [a], annotations: {istio.io/inject: false, a: {}, b: 1.5, c: text}}",
            [
                "metadata.labels: Invalid value: must be of type object, not array",
                "metadata.annotations[istio.io/inject]: Invalid value: must be of type string, not boolean; put it in quotes",
                "metadata.annotations[a]: Invalid value: must be of type string, not object",
                "metadata.annotations[b]: Invalid value: must be of type string, not number; put it in quotes",
            ],
            id="labels and annotations",
        ),
    ],
)
def test_wrong_types_in_the_metadata_are_all_reported_with_their_field(
    tmp_path: Path, meta: str, problems: list[str]
) -> None:
    file = write(tmp_path, f"apiVersion: v1\nkind: A\nmetadata: {meta}")

    with pytest.raises(Refused) as raised:
        documents.read([file])
    assert [f"{problem.field}: {problem.message}" for problem in raised.value.problems] == problems


def test_nulls_and_dates_in_the_metadata_are_left_to_the_server(tmp_path: Path) -> None:
    meta = "{name: null, labels: null, annotations: {day: 2026-01-01, nothing: null}}"

    assert documents.read([write(tmp_path, f"apiVersion: v1\nkind: A\nmetadata: {meta}")])


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    missing, bad = str(tmp_path / "none.yaml"), write(tmp_path, "- a\n---\nkind: A\n")

    with pytest.raises(Refused) as raised:
        documents.read([missing, bad])
    assert [problem.source for problem in raised.value.problems] == [
        missing,
        f"{bad} (document 1)",
        f"{bad} (document 2)",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(
            "9223372036854775808", "spec.a[1]: Invalid value: not an integer of 64 bits", id="large"
        ),
        pytest.param("-9223372036854775809", "not an integer of 64 bits", id="small"),
        pytest.param(".nan", "spec.a[1]: Invalid value: nan: not a finite number", id="not a number"),
        pytest.param("!!binary aGk=", "spec.a[1]: Invalid value: a binary value of YAML", id="bytes"),
        pytest.param("!!set {b}", "spec.a[1]: Invalid value: a set of YAML", id="a set"),
        pytest.param("!!pairs [b: c]", "spec.a[1][0]: Invalid value: a pair of YAML", id="pairs"),
        pytest.param('"\\ud800"', "spec.a[1]: Invalid value: '\\ud800': not Unicode text", id="no text"),
        pytest.param("{.inf: b}", "spec.a[1]: key: Invalid value: inf", id="a key"),
        pytest.param(
            "&x [*x]",
            "spec.a[1][0]: Invalid value: an alias of an object or list that contains it",
            id="itself",
        ),
        pytest.param("[" * 210 + "]" * 210, "nested more than 200 levels deep", id="deep"),
        pytest.param("[" * 5000 + "]" * 5000, "nested too deep", id="too deep for the parser"),
        pytest.param("2026-13-45", "not YAML: month must be in 1..12", id="a date that is none"),
        pytest.param("9" * 5000, "not YAML: Exceeds the limit", id="a number that is not even read"),
    ],
)
def test_values_without_a_json_form_are_rejected_with_their_field(
    tmp_path: Path, value: str, words: str
) -> None:
    file = write(tmp_path, f"apiVersion: v1\nkind: A\nspec: {{a: [1, {value}]}}")

    with pytest.raises(Refused) as raised:
        documents.read([file])
    (problem,) = raised.value.problems
    assert words in str(problem)


def test_values_with_a_json_form_are_accepted(tmp_path: Path) -> None:
    text = "[&x [1, two], *x, 9223372036854775807, -9223372036854775808, 1.5, true, null, 2026-01-01, {1: a}]"

    assert documents.read([write(tmp_path, f"apiVersion: v1\nkind: A\nspec: {text}")])


def named(name: str, api_version: str = "v1", kind: str = "A", **meta: str) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}}}\n".replace(
        "}", "".join(f", {key}: {value}" for key, value in meta.items()) + "}"
    )


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(named("n"), id="the same"),
        pytest.param(named("n", namespace="team"), id="in the namespace of those that name none"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: A, metadata: {name: n}}]", id="item"
        ),
    ],
)
def test_a_duplicate_object_is_rejected(tmp_path: Path, second: str) -> None:
    first_file, second_file = write(tmp_path, named("n"), "one.yaml"), write(tmp_path, second, "two.yaml")

    with pytest.raises(Refused) as raised:
        documents.read([first_file, second_file], "team")
    (problem,) = raised.value.problems
    assert problem.source.startswith(second_file)
    assert (problem.field, problem.message) == (
        "metadata.name",
        f'Duplicate value: "n": also in {first_file}',
    )


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(named("m"), id="another name"),
        pytest.param(named("n", kind="B"), id="another kind"),
        pytest.param(named("n", api_version="apps/v1"), id="another group"),
        pytest.param(named("n", namespace="other"), id="another namespace"),
    ],
)
def test_objects_that_differ_are_accepted(tmp_path: Path, second: str) -> None:
    files = [write(tmp_path, named("n"), "one.yaml"), write(tmp_path, second, "two.yaml")]

    assert len(documents.read(files)) == 2


def test_generated_names_are_not_duplicates(tmp_path: Path) -> None:
    document = "apiVersion: v1\nkind: A\nmetadata: {generateName: n-}\n"

    assert len(documents.read([write(tmp_path, f"{document}---\n{document}")])) == 2


def test_an_error_that_a_server_reports_twice_is_one_problem(tmp_path: Path) -> None:
    """A server that cannot read the replicas for the scale subresource names their field again, and its rules say nothing new."""
    (document,) = documents.read([write(tmp_path, named("n"))])
    field = "spec.jaxReplicaSpecs.Worker.replicas"
    causes = (
        (field, f'Invalid value: "string": {field} in body must be of type integer: "string"'),
        (
            f".{field}",
            f"Invalid value: 0: .{field} accessor error: two is of the type string, expected int64",
        ),
        ("<nil>", "Invalid value: null: some validation rules were not checked"),
    )
    problems = documents.problems_of(document, ApiError(422, "Invalid", "it is invalid", causes=causes))

    assert [(problem.field, problem.message) for problem in problems] == [
        (field, "Invalid value: must be of type integer, not string")
    ]
