"""Builds the JSON of a Grafana dashboard from rows of panels with Prometheus queries.

Source: Grafana's schema of dashboards; ``tests/monitoring/test_schema.py`` checks the result against it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Object = dict[str, Any]

COLUMNS = 24
"""The width of a dashboard."""
SCHEMA_VERSION = 39
"""Of Grafana 11; newer versions migrate it when they load it."""
ONE_JOB = "rallypoint-job"
"""The UID of the dashboard of one job."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_FLAT_COLOR = {"color": {"mode": "thresholds"}}
_STATE_COLORS = {
    "running": "green",
    "pending": "yellow",
    "suspended": "#8e8e8e",
    "restarting": "orange",
    "succeeded": "blue",
    "failed": "red",
}
COLORS = {
    "state": _STATE_COLORS | {"finished": "red"},
    "phase": {state.capitalize(): color for state, color in _STATE_COLORS.items()},
    "result": {"success": "green", "error": "red"},
    "reason": {
        "error": "red",
        "oom": "purple",
        "deadline": "orange",
        "invalid": "#8e8e8e",
        "evicted": "yellow",
        "node_lost": "blue",
        "preempted": "light-blue",
        "pending_timeout": "dark-orange",
    },
}
"""By label and its value: the color of a series in graphs. Other series get colors in their order, which mean nothing."""


class Query(NamedTuple):
    """A PromQL query and the name of its series, in which ``{{label}}`` stands for a label's value."""

    expr: str
    legend: str = ""


class Limit(NamedTuple):
    """The value from which a number is shown in that color."""

    value: float
    color: Literal["yellow", "red", "green"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel; Grafana's ``unit`` formats its values."""

    type: Literal["timeseries", "stat", "table"]
    title: str
    queries: Sequence[Query]
    description: str = ""
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    maximum: float | None = None
    namespace_label: str = ""
    """Of a graph: the label from whose namespace a click on a series opens the dashboard of one job."""
    limits: Sequence[Limit] = ()
    columns: str = ""
    """Of a table: the label whose values become columns."""
    rows: str = ""
    """Of a table with ``columns``: the label whose values become rows."""
    order: Sequence[str] = ()
    """Of a table without ``columns``: the labels that are its columns, in this order."""
    amount: str = ""
    """Of a table without ``columns``: the head of the values, which are not shown without one."""
    empty: str = ""
    """Text in place of an empty graph."""

    def to_json(self, number: int, x: int, y: int) -> Object:
        """Return the panel at this position; ``number`` is unique in the dashboard."""
        body: Object = {
            "id": number,
            "type": self.type,
            "title": self.title,
            "description": self.description,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                self._target(chr(ord("A") + index), query) for index, query in enumerate(self.queries)
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": list(self._overrides())},
            "options": self._options(),
        }
        if self.type == "table":
            body["transformations"] = list(self._transformations())
        return body

    def _overrides(self) -> Iterator[Object]:
        """Yield the colors of series whose names have a meaning."""
        if self.type != "timeseries":
            return
        colors: dict[str, str] = {}
        for query in self.queries:
            colors |= COLORS.get(query.legend.removeprefix("{{").removesuffix("}}"), {})
            if query.legend in _STATE_COLORS:
                colors[query.legend] = _STATE_COLORS[query.legend]
        for name, color in colors.items():
            value = {"mode": "fixed", "fixedColor": color}
            yield {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "color", "value": value}],
            }

    @property
    def _is_instant(self) -> bool:
        """Whether only the last value counts; a query of the whole period has no history."""
        return self.type == "table" or any("$__range" in query.expr for query in self.queries)

    def _target(self, ref: str, query: Query) -> Object:
        return {
            "refId": ref,
            "datasource": _DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "format": "table" if self.type == "table" else "time_series",
            "instant": self._is_instant,
            "range": not self._is_instant,
        }

    def _defaults(self) -> Object:
        steps: list[Object] = [{"value": None, "color": "green" if self.limits else "text"}]
        steps += [{"value": limit.value, "color": limit.color} for limit in self.limits]
        defaults: Object = {"unit": self.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.maximum is not None:
            defaults["max"] = self.maximum
        if self.empty:
            defaults["noValue"] = self.empty
        if self.namespace_label:
            namespace = f"var-namespace=${{__field.labels.{self.namespace_label}}}"
            url = f"/d/{ONE_JOB}?{namespace}&${{__url_time_range}}"
            defaults["links"] = [{"title": "Jobs of this namespace", "url": url}]
        if self.type == "stat":
            return defaults | _FLAT_COLOR
        if self.type == "timeseries":
            stacking = {"mode": "normal" if self.stacked else "none", "group": "A"}
            fill = 40 if self.stacked else 5
            custom = {"fillOpacity": fill, "lineWidth": 1, "showPoints": "never", "stacking": stacking}
            if self.limits:
                custom["thresholdsStyle"] = {"mode": "line"}
            defaults |= {"custom": custom}
        return defaults

    def _options(self) -> Object:
        match self.type:
            case "timeseries":
                legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
                return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
            case "stat":
                return {
                    "graphMode": "none" if self._is_instant else "area",
                    "colorMode": "value",
                    "justifyMode": "auto",
                    "textMode": "auto",
                    "orientation": "auto",
                    "wideLayout": True,
                    "showPercentChange": False,
                    "percentChangeColorMode": "standard",
                    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                }
            case "table":
                return {"frameIndex": 0, "showHeader": True, "cellHeight": "sm"}

    def _transformations(self) -> Iterator[Object]:
        if self.columns:
            matrix = {"columnField": self.columns, "rowField": self.rows, "valueField": "Value"}
            yield {"id": "groupingToMatrix", "options": matrix}
        else:
            hidden = dict.fromkeys(("Time",) if self.amount else ("Time", "Value"), True)
            order = {label: index for index, label in enumerate((*self.order, "Value"))}
            names = {"Value": self.amount} if self.amount else {}
            yield {
                "id": "organize",
                "options": {"excludeByName": hidden, "indexByName": order, "renameByName": names},
            }


def graph(title: str, *queries: Query, description: str = "", **options: Any) -> Panel:
    """Return a panel of lines over time; ``options`` are fields of ``Panel``."""
    return Panel(type="timeseries", title=title, queries=queries, description=description, **options)


def stat(title: str, query: str, description: str = "", *, legend: str = "", **options: Any) -> Panel:
    """Return a panel of the last number of each series, with its history behind it."""
    return Panel(
        type="stat",
        title=title,
        queries=[Query(query, legend)],
        description=description,
        **({"width": 4, "height": 4} | options),
    )


def table(title: str, query: str, description: str = "", **options: Any) -> Panel:
    """Return a panel of one row for each series of the present."""
    return Panel(type="table", title=title, queries=[Query(query)], description=description, **options)


@dataclass(frozen=True)
class Variable:
    """A label's values to choose from, at the top of a dashboard."""

    name: str
    label: str
    metric: str
    """The metric, with matchers if need be, that has the label."""
    values_of: str
    """The label."""
    has_many: bool = True
    """Whether several values, or all, can be chosen."""
    default: str = ""
    """Of a variable with one value: the one that is chosen at first if it exists; otherwise the first one is."""

    def to_json(self) -> Object:
        query = f"label_values({self.metric}, {self.values_of})"
        variable = {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": _DATASOURCE,
            "query": query,
            "refresh": 2,
            "sort": 1,
            "multi": self.has_many,
            "includeAll": self.has_many,
        }
        if self.has_many:
            variable["current"] = {"text": "All", "value": "$__all"}
        elif self.default:
            variable["current"] = {"text": self.default, "value": self.default}
        return variable


@dataclass(frozen=True)
class Row:
    """Panels under a title."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard, and the name of its file."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    period: str = "now-6h"
    """The period that is shown at first."""

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]

    def to_json(self) -> Object:
        datasource = {
            "type": "datasource",
            "name": "datasource",
            "label": "Data source",
            "query": "prometheus",
        }
        return {
            "uid": self.name,
            "title": self.title,
            "description": self.description,
            "tags": ["rallypoint", "training"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,
            "timezone": "browser",
            "time": {"from": self.period, "to": "now"},
            "refresh": "30s",
            "annotations": {"list": []},
            "templating": {"list": [datasource, *(variable.to_json() for variable in self.variables)]},
            "links": [_LINKS],
            "panels": list(self._placed()),
        }

    def _placed(self) -> Iterator[Object]:
        """Yield rows and panels from left to right and from top to bottom."""
        number, y = 0, 0
        for row in self.rows:
            number += 1
            position = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": position,
                "panels": [],
            }
            x, y, height = 0, y + 1, 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, height = 0, y + height, 0
                number += 1
                yield panel.to_json(number, x, y)
                x, height = x + panel.width, max(height, panel.height)
            y += height


_LINKS = {
    "type": "dashboards",
    "title": "Training",
    "tags": ["rallypoint"],
    "asDropdown": True,
    "includeVars": False,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
}
