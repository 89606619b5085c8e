"""A real Prometheus, started by a test, and its HTTP API."""

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import answers, free_port
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS

Object = dict[str, Any]

INTERVAL_SECONDS = 1
"""Between two scrapes, and between two evaluations of the alerts."""
_LABEL = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")


class PrometheusMissing(RuntimeError):
    """Debian's package ``prometheus`` is not installed."""


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``."""
    path = shutil.which(name)
    if path is None:
        raise PrometheusMissing(f"{name} is missing: apt-get install prometheus")
    return path


def alert_groups() -> list[Object]:
    """Return the groups of the shipped alerts."""
    objects = build(MANIFESTS / "components" / "monitoring")
    groups: list[Object] = next(item for item in objects if item["kind"] == "PrometheusRule")["spec"][
        "groups"
    ]
    return groups


def alert_names() -> list[str]:
    return [rule["alert"] for group in alert_groups() for rule in group["rules"]]


@dataclass(frozen=True)
class Series:
    """Labels, and times in seconds with their values; NaN is left out."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """The API of a running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expr: str) -> list[Series]:
        """Return the present value of each series."""
        return _series(self._get("query", query=expr)["result"])

    def query_range(self, expr: str, start: float, end: float, step_seconds: float) -> list[Series]:
        found = self._get("query_range", query=expr, start=start, end=end, step=step_seconds)
        return _series(found["result"])

    def label_values(self, query: str) -> list[str]:
        """Evaluate Grafana's query of a variable, ``label_values(SELECTOR, LABEL)``."""
        found = _LABEL.fullmatch(query)
        assert found, query
        path = f"label/{found['label']}/values"
        return [str(value) for value in self._get(path, **{"match[]": found["selector"]})]

    def firing(self) -> dict[str, list[Object]]:
        """Return the firing alerts by name: labels and annotations of each."""
        by_name: dict[str, list[Object]] = {}
        for alert in self._get("alerts")["alerts"]:
            if alert["state"] == "firing":
                by_name.setdefault(alert["labels"]["alertname"], []).append(alert)
        return by_name

    def targets(self) -> list[Object]:
        targets: list[Object] = self._get("targets")["activeTargets"]
        return targets

    def _get(self, path: str, **arguments: Any) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.read().decode()}: {arguments}") from error


def _series(result: list[Any]) -> list[Series]:
    return [
        Series(
            found["metric"],
            [
                (float(at), float(value))
                for at, value in found.get("values") or [found["value"]]
                if value != "NaN"
            ],
        )
        for found in result
    ]


@contextmanager
def prometheus(
    plane: ControlPlane, folder: Path, scrapes: Sequence[Object], groups: Sequence[Object]
) -> Generator[Prometheus]:
    """Run Prometheus with these scrape configurations and groups of alerts until the end of the block.

    Raises:
        PrometheusMissing: it is not installed.
        ProcessFailed: it does not start.
    """
    address = f"127.0.0.1:{free_port()}"
    rules = [{**group, "interval": f"{INTERVAL_SECONDS}s"} for group in groups]
    (folder / "rules.yaml").write_text(json.dumps({"groups": rules}))
    config = {
        "global": {
            "scrape_interval": f"{INTERVAL_SECONDS}s",
            "scrape_timeout": f"{INTERVAL_SECONDS}s",
            "evaluation_interval": f"{INTERVAL_SECONDS}s",
        },
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": list(scrapes),
    }
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    command = (
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    )
    with plane.running("prometheus", command, ready=lambda _: answers(f"http://{address}/-/ready")):
        yield Prometheus(address)
