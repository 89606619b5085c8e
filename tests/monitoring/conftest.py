"""One cluster with a load of jobs for all tests, whose alerts have shorter times."""

import re
import time
from collections.abc import Generator

import pytest

from tests.support.monitoring.cluster import Loaded, MonitoredCluster
from tests.support.monitoring.prometheus import Object, alert_groups

LOAD_SECONDS = 100.0
SETTLE_SECONDS = 5.0
FOR = "2s"
RANGE = "45s"
THRESHOLDS = {
    "TrainingOperatorWatchSilent": ("> 180", "> 100"),
    "TrainingJobsPending": ("> 3600", "> 20"),
    "TrainingResourcesHeld": ("> 900", "> 60"),
}
"""Thresholds that are times, and what the test has in their place."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-pictures", action="store_true", help="write docs/images/dashboard-*.svg")


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Loaded]:
    with MonitoredCluster(tmp_path_factory.mktemp("monitoring"), shortened(alert_groups())) as cluster:
        start = time.time()
        cluster.load.start()
        cluster.load.run(LOAD_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield Loaded(cluster, start, time.time())


def shortened(groups: list[Object]) -> list[Object]:
    """Return the alerts with short times: how long they wait, the ranges of rates, and the thresholds of ``THRESHOLDS``.

    The ranges of increases stay: they do not delay an alert.
    """
    return [{**group, "rules": [_shortened(rule) for rule in group["rules"]]} for group in groups]


def _shortened(rule: Object) -> Object:
    expr = re.sub(r"(rate\([^\[]*)\[\d+m\]", rf"\1[{RANGE}]", rule["expr"])
    if rule["alert"] in THRESHOLDS:
        usual, short = THRESHOLDS[rule["alert"]]
        assert usual in expr
        expr = expr.replace(usual, short)
    return {**rule, "expr": expr, "for": FOR}
