"""The metrics and labels that PromQL expressions use."""

import pytest

from tests.support import promql


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up", {"up"}, set()),
        ('absent(up{job="by_chance"} == 1)', {"up"}, {"job"}),
        (
            "sum by (a, b) (rate(x_total[5m])) / sum(rate(y_total[1h])) > 0.2",
            {"x_total", "y_total"},
            {"a", "b"},
        ),
        ('x{a=~"1|2..|<error>",b!="c"} or y unless z', {"x", "y", "z"}, {"a", "b"}),
        ("histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))", {"x_bucket"}, {"le"}),
        ("x unless x offset 1h", {"x"}, set()),
        ("max by (i) (by_size)", {"by_size"}, {"i"}),
    ],
)
def test_metrics_and_labels_of_an_expression(expression: str, metrics: set[str], labels: set[str]) -> None:
    assert (promql.metrics(expression), promql.labels(expression)) == (metrics, labels)


def test_each_selector_counts() -> None:
    assert promql.selected("sum(x[5m]) / sum(x[1h]) and on (a) y") == ["x", "x", "y"]
