"""Writes ``docs/reference/metrics.md`` from the table of metrics.

    .venv/bin/python tools/metrics_page.py [FILE]

The test beside it asks for the same text.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from api.meta import PODS, SERVICES
from controller.kinds import ALL
from controller.telemetry.metrics.families import GROUPS
from controller.telemetry.metrics.family import Family, Group, Label

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"

OF_KINDS = {
    "framework": [kind.framework for kind in ALL],
    "controller": [kind.controller_name for kind in ALL],
    "resource": [PODS.plural, SERVICES.plural, *(kind.resource.plural for kind in ALL)],
}
"""Values of labels that follow from the kinds that are served."""

QUERIES = {
    "Which jobs fail?": "sum by (job_namespace, framework) (increase(training_operator_jobs_failed_total[1h]))",
    "How many passes, and how do they end?": "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
    "Which share of the passes fails?": (
        "sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m]))"
        " / sum by (controller) (rate(controller_runtime_reconcile_total[5m]))"
    ),
    "How long does a pass take?": (
        "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))"
    ),
    "How long does a job wait for its pass?": (
        "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[5m])))"
    ),
    "How many jobs wait?": "sum by (name) (workqueue_depth)",
    "Are there enough workers?": (
        "sum by (controller) (controller_runtime_active_workers)"
        " / sum by (controller) (controller_runtime_max_concurrent_reconciles)"
    ),
    "Was a defect met?": "increase(controller_runtime_reconcile_panics_total[1h]) > 0",
    "Does the API server refuse us, or fail?": (
        'sum(rate(rest_client_requests_total{code=~"429|5..|<error>"}[5m])) / sum(rate(rest_client_requests_total[5m]))'
    ),
    "How long does it take to answer?": (
        "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket[5m])))"
    ),
    "What waits for it?": "sum by (lane) (rallypoint_gate_waiting)",
    "Does it slow us down? 32 is as wide as the gate gets": "min(rallypoint_gate_width)",
    "Who leads? 1 is right; 0 for long, or 2, is not": "sum by (name) (leader_election_master_status)",
    "Do we hear of changes? Below 90 all is well": "max by (resource) (rallypoint_watch_silence_seconds)",
    "Do we hear of all of them? Above 0 a watch has lost events": "increase(rallypoint_watch_repairs_total[1h]) > 0",
    "Is the process too busy to answer in time?": "max(rallypoint_event_loop_lag_longest_seconds)",
    "Is a replica's clock wrong? Within 2 all is well": "max(abs(rallypoint_clock_offset_seconds))",
    "Do events get lost?": "increase(rallypoint_events_dropped_total[1h])",
    "How much CPU?": "rate(process_cpu_seconds_total[5m])",
    "How much memory?": "process_resident_memory_bytes",
    "Which versions run?": "count by (version, python, loop) (rallypoint_build_info)",
}
"""What one asks, in PromQL."""

HEAD = """\
# Metrics

<!-- Made by `make docs` from controller/telemetry/metrics/families.py; edit that instead. -->

Every replica serves its own at `/metrics` on `--metrics-bind-address` (`:8080`), in Prometheus' text form or as OpenMetrics; a standby
does so, too. All series begin at 0 as soon as their labels are known. Names of jobs and pods are never labels: what a single job does is
in its status and its events.

`deploy` has annotations that Prometheus may scrape by; `manifests/components/monitoring` has a ServiceMonitor and alerts for
prometheus-operator.

## What to ask
"""

TAIL = """
## What is not there

- `go_*`: this is no Go program. `process_*` has CPU time, memory and file descriptors, `python_gc_*` the garbage collector.
- `controller_runtime_webhook_*` and `certwatcher_*`: there is no webhook, and so no certificate of one.
- `workqueue_depth` has no label `priority`: what waits is ordered by urgency, but counted together.
- `rest_client_exec_plugin_*`, `rest_client_transport_*`, `rest_client_dns_resolution_duration_seconds`: what they count of client-go has
  no counterpart here.
- `created_pods_total`, `deleted_pods_total` and their siblings: training-operator declares them and serves them nowhere.
"""


def page() -> str:
    queries = ((question, _code(query)) for question, query in QUERIES.items())
    return "".join(
        (
            HEAD,
            *_table(("question", "PromQL"), queries),
            *map(_group, GROUPS),
            "\n## Labels\n",
            *_table(("label", "of", "values"), _labels()),
            TAIL,
        )
    )


def _group(group: Group) -> str:
    rows = (
        (_code(one.name), _type(one), one.unit, _code(*one.label_names), one.help) for one in group.families
    )
    columns = ("name", "type", "unit", "labels", "meaning")
    return "".join((f"\n## {group.title}\n\n{group.about}\n", *_table(columns, rows)))


def _labels() -> Iterator[tuple[str, ...]]:
    """Each once, with the groups that it is used in."""
    used: dict[Label, list[str]] = {}
    for group in GROUPS:
        for label in dict.fromkeys(label for family in group.families for label in family.labels):
            used.setdefault(label, []).append(group.title)
    for label, titles in used.items():
        values = _code(*(label.values or OF_KINDS.get(label.name, ())))
        says = "; ".join(part for part in (values, label.meaning) if part)
        yield _code(label.name), ", ".join(titles), says


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield "\n"
    for cells in (columns, ("---",) * len(columns), *rows):
        yield f"| {' | '.join(cells)} |\n"


def _type(family: Family) -> str:
    if not family.buckets:
        return family.type
    return (
        f"{family.type}, {len(family.buckets)} buckets from {family.buckets[0]:g} to {family.buckets[-1]:.8g}"
    )


def _code(*texts: str) -> str:
    return ", ".join(f"`{text}`".replace("|", "\\|") for text in texts)


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else PAGE
    path.write_text(page(), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
