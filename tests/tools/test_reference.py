"""The generated pages of the reference are up to date, and name everything that the code defines."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.command import build_parser
from controller.crds import all_crds
from controller.crds.openapi import Schema
from controller.kinds import ALL
from controller.settings import FIELDS, Settings
from controller.telemetry.build import COMMIT_VARIABLE
from tools.markdown import cell, code, table
from tools.reference.__main__ import FOLDER, main
from tools.reference.__main__ import pages as all_pages
from tools.reference.flags import NOTES
from tools.reference.labels import ENVIRONMENT, LABELS, SAMPLES, Sample, pods, variables

PAGES = all_pages()
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


def test_every_flag_is_on_the_page_with_its_default() -> None:
    generated, _, _ = PAGES["flags.md"].partition("## Differences")
    rows = dict(re.findall(r"^\| (`-.*?`) \| (.*) \|$", generated, re.MULTILINE))
    listed = {name for names in rows for name in re.findall(r"`(-[^`]+)`", names)}
    settings = {f"--{name.replace('_', '-')}" for name in FIELDS if name != "of_kinds"}

    assert {name for action in build_parser()._actions for name in action.option_strings} == listed
    assert settings <= listed
    assert rows["`--controller-threads`, `--threadiness`"].startswith(
        f"integer | `{Settings().controller_threads}` | "
    )
    assert set(NOTES) <= listed


def test_every_label_and_annotation_of_the_code_is_on_the_page() -> None:
    found = {
        node.value
        for path in _sources("api", "controller")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.(io|org|sh)/[A-Za-z0-9-]+", node.value)
    }

    assert {key for key in found - NO_KEYS if f"| `{key}` | " not in PAGES["labels.md"]} == set()
    assert found >= NO_KEYS


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.kind.resource.kind} {sample.title}")
def test_every_label_of_a_pod_is_on_the_page(sample: Sample) -> None:
    made = list(pods(sample))

    assert {role for role, _ in made} == sample.roles.keys()
    assert {label for _, body in made for label in body["metadata"]["labels"]} <= LABELS.keys()
    assert all("annotations" not in body["metadata"] for _, body in made)
    assert variables(sample)


def test_every_kind_has_a_sample() -> None:
    assert {id(sample.kind) for sample in SAMPLES} == {id(kind) for kind in ALL}


def test_every_variable_that_the_operator_reads_is_on_the_page() -> None:
    """The variables of OpenTelemetry have a row together."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in _sources("controller"))
    read = set(re.findall(r'\benviron(?:\.get\(|\[)"([A-Z_]+)"', text))
    read |= set(re.findall(r'_variable\(environment, "([A-Z_]+)"\)', text)) | {COMMIT_VARIABLE}

    assert {"KUBECONFIG", "KUBEFLOW_NAMESPACE", "NO_PROXY"} <= read
    assert {name for name in read if not name.startswith("OTEL_")} <= ENVIRONMENT.keys()


NO_KEYS = {
    "apiextensions.k8s.io/v1",
    "k8s.io/initial-events-end",
    "kubeflow.org/mpi-operator",
    "kubeflow.org/training-operator",
    "kubernetes.io/ssh-auth",
    "kueue.x-k8s.io/multikueue",
    "node.kubernetes.io/out-of-service",
}
"""Texts of that form that are no label and no annotation of jobs or pods."""


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (Path(__file__).parents[2] / folder).rglob("*.py")


def test_every_recorded_reason_is_on_the_page() -> None:
    """The recordings of the Go operators show which reasons occur."""
    page = PAGES["events.md"]
    recorded = {
        reason
        for path in (Path(__file__).parents[1] / "parity" / "golden").rglob("expect/*.json")
        for reason in re.findall(r'"reason": "(\w+)', path.read_text(encoding="utf-8"))
    }
    kinds = tuple(kind.resource.kind for kind in ALL)

    assert recorded
    missing = {
        reason
        for reason in recorded
        if f"`{reason}`" not in page
        and f"`<Kind>{_without(reason, kinds)}`" not in page
        and not re.fullmatch(r"(Successful(Create|Delete)|Failed(Create|Update|Delete))[A-Z]\w+", reason)
    }
    assert missing == RECORDED_ONLY


def test_reasons_are_declared_where_they_are_described() -> None:
    """A reason that is a literal where an event is recorded would be on no page."""
    literals = {
        argument.value
        for path in _sources("controller")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and _called(node)
        in {"Event", "record_event", "_record_event", "warning_event", "_warning", "_set", "failed"}
        for argument in node.args[:3]
        if isinstance(argument, ast.Constant)
        and isinstance(argument.value, str)
        and re.fullmatch(r"[A-Z][A-Za-z]+", argument.value)
    }

    assert literals == {"SuccessfulDeletePod", "SuccessfulCreatePod", "MPIJobRunning", "MPIJobFailed"}


RECORDED_ONLY = {"LauncherRole", "RoleBinding", "ServiceAccount"}
"""Reasons of training-operator for objects of MPIJobs about which this operator records nothing."""


def _without(reason: str, kinds: tuple[str, ...]) -> str:
    kind = next((kind for kind in kinds if reason.startswith(kind)), "")
    return reason.removeprefix(kind)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
