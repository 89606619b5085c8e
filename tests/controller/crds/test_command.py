"""``rallypoint crds``: which definitions it prints."""

import re
from typing import Any

import pytest
import yaml

from controller.crds import all_crds
from controller.crds.command import main
from controller.kinds import DEFAULT
from rallypoint.cli.check.definitions import differences


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert main(arguments) == 0
    return list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader))


def keyed_lists(node: Any, path: str = "") -> list[str]:
    """The paths of the lists that server-side apply tracks by element."""
    if isinstance(node, list):
        return [found for child in node for found in keyed_lists(child, path)]
    if not isinstance(node, dict):
        return []
    own = [path] if node.get("x-kubernetes-list-type") in {"map", "set"} else []
    return own + [found for key, child in node.items() for found in keyed_lists(child, f"{path}/{key}")]


def without_markers(node: Any) -> Any:
    if isinstance(node, list):
        return [without_markers(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_markers(child)
        for key, child in node.items()
        if not re.fullmatch("x-kubernetes-list-(type|map-keys)", key)
    }


def test_lists_of_templates_are_keyed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == printed(capsys, "--template-lists=keyed") == all_crds(kinds=DEFAULT)


def test_atomic_templates_differ_in_nothing_but_the_lists_of_templates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keyed, atomic = printed(capsys), printed(capsys, "--template-lists=atomic")

    assert without_markers(atomic) == without_markers(keyed)
    outside = [path for path in keyed_lists(keyed) if "/template/" not in path]
    assert keyed_lists(atomic) == outside
    assert any(path.endswith("/status/properties/conditions") for path in outside)
    assert len(outside) < len(keyed_lists(keyed))


def test_check_accepts_either(capsys: pytest.CaptureFixture[str]) -> None:
    for keyed, atomic in zip(printed(capsys), printed(capsys, "--template-lists=atomic"), strict=True):
        assert differences(atomic["spec"], keyed["spec"]) == ([], [], [])


def test_another_form_of_lists_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--template-lists=granular"])

    assert "invalid choice: 'granular'" in capsys.readouterr().err
