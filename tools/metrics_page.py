"""Writes ``docs/reference/metrics.md`` from the table of metrics.

    .venv/bin/python tools/metrics_page.py [FILE]

The test beside it asks for the same text.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from api.meta import PODS, SERVICES
from controller.kinds import ALL
from controller.telemetry.metrics.families import CONTROLLER, GROUPS, WATCHED_RESOURCE
from controller.telemetry.metrics.family import Family, Group, Label
from controller.telemetry.metrics.jobs import FRAMEWORK
from tools.markdown import code, table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"

OF_KINDS = {
    FRAMEWORK: [kind.framework for kind in ALL],
    CONTROLLER: [kind.controller_name for kind in ALL],
    WATCHED_RESOURCE: [PODS.plural, SERVICES.plural, *(kind.resource.plural for kind in ALL)],
}
"""Values of labels that follow from the kinds that are served."""

QUERIES = {
    "How many jobs failed in the last hour?": (
        "sum by (job_namespace, framework) ((training_operator_jobs_failed_total unless training_operator_jobs_failed_total offset 1h)"
        " or increase(training_operator_jobs_failed_total[1h]))"
    ),
    "How many jobs run, and how many wait?": "sum by (state, framework) (rallypoint_jobs)",
    "How long has a job been waiting for its pods?": "max by (job_namespace, framework) (rallypoint_job_oldest_pending_seconds)",
    "How long do jobs take until they run?": (
        'histogram_quantile(0.9, sum by (framework, le) (rate(rallypoint_job_phase_seconds_bucket{phase="running"}[1h])))'
    ),
    "How many GPUs do jobs hold, and how many do they wait for?": (
        'sum by (job_namespace, state) (rallypoint_job_requested_resources{resource="nvidia.com/gpu"})'
    ),
    "Which namespaces have GPUs that finished jobs hold?": (
        'sum by (job_namespace) (rallypoint_job_requested_resources{resource="nvidia.com/gpu", state="finished"}) > 0'
    ),
    "For how long since the end of a job? Some minutes are normal": (
        "max by (job_namespace, framework) (rallypoint_job_oldest_holding_seconds)"
    ),
    "Why do jobs fail?": (
        "sum by (reason, job_namespace) ((rallypoint_job_failures_total unless rallypoint_job_failures_total offset 1h)"
        " or increase(rallypoint_job_failures_total[1h])) > 0"
    ),
    "Why do pods restart?": "sum by (reason, job_namespace) (increase(rallypoint_job_pod_restarts_total[1h])) > 0",
    "Why do whole jobs restart?": "sum by (action, job_namespace) (increase(rallypoint_job_restarts_total[1h])) > 0",
    "How many reconciles run, and how do they end?": "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
    "Which share of the reconciles fails?": (
        "sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m]))"
        " / sum by (controller) (rate(controller_runtime_reconcile_total[5m]))"
    ),
    "How long does a reconcile take?": (
        "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))"
    ),
    "How long do jobs wait in the operator's work queue?": (
        "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[5m])))"
    ),
    "How many jobs wait in the operator's work queue?": "sum by (name) (workqueue_depth)",
    "Are there enough workers?": (
        "sum by (controller) (controller_runtime_active_workers)"
        " / sum by (controller) (controller_runtime_max_concurrent_reconciles)"
    ),
    "Did a reconcile raise an unexpected exception?": "increase(controller_runtime_reconcile_panics_total[1h]) > 0",
    "Does the API server refuse requests, or fail?": (
        'sum(rate(rest_client_requests_total{code=~"429|5..|<error>"}[5m])) / sum(rate(rest_client_requests_total[5m]))'
    ),
    "How long does the API server take to answer?": (
        "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket[5m])))"
    ),
    "Which requests wait in the operator's request limiter?": "sum by (level) (rallypoint_request_limiter_waiting)",
    "Has the operator reduced its concurrent requests? The maximum is `--kube-api-in-flight`, 16 by default": "min(rallypoint_request_limiter_width)",
    "How many replicas lead? 1 is right; 2, or 0 for long, is wrong": "sum by (name) (leader_election_master_status)",
    "Do watches deliver? Below 90 is normal": "max by (resource) (rallypoint_watch_silence_seconds)",
    "Do watches lose events? Above 0 they do": "increase(rallypoint_watch_repairs_total[1h]) > 0",
    "Is the process too busy to answer in time?": "max(rallypoint_event_loop_lag_longest_seconds)",
    "Is a replica's clock wrong? Up to 2 is normal": "max(abs(rallypoint_clock_offset_seconds))",
    "Are events lost?": "increase(rallypoint_events_dropped_total[1h])",
    "How much CPU?": "rate(process_cpu_seconds_total[5m])",
    "How much memory?": "process_resident_memory_bytes",
    "Which versions run?": "count by (version, python, loop) (rallypoint_build_info)",
}
"""Questions and their PromQL queries."""

HEAD = """\
# Metrics

<!-- Made by `make docs` from controller/telemetry/metrics/families.py; edit that instead. -->

Every replica, also a standby, serves its own metrics at `/metrics` on `--metrics-bind-address` (`:8080`), in Prometheus' text format or
as OpenMetrics; with `--metrics-secure` [only to clients that may read them](../how-to/secure-metrics.md). All series start at 0 as soon as
their labels are known. Names of jobs and pods are no labels, except the names of launchers in `mpi_operator_job_info`: read the status and
the events of a job to see what it does.

The Service in `deploy` has annotations that Prometheus can discover; `manifests/components/monitoring` has a ServiceMonitor, alerts and
[dashboards](../how-to/dashboards.md).

## Queries
"""

TAIL = """
## Metrics of the Go operators that do not exist here

- `go_*`: this is not a Go program. `process_*` has CPU time, memory and file descriptors, `python_gc_*` the garbage collector.
- `controller_runtime_webhook_*`: there is no webhook.
- the label `priority` of `workqueue_depth`: the queue orders keys by priority, but counts them together.
- `rest_client_exec_plugin_*`, `rest_client_transport_*`, `rest_client_dns_resolution_duration_seconds`: they describe parts of client-go
  that have no counterpart here.
- `created_pods_total`, `deleted_pods_total` and similar ones: training-operator declares them but does not serve them.
"""


def page() -> str:
    queries = ((question, code(query)) for question, query in QUERIES.items())
    return "".join(
        (
            HEAD,
            *table(("question", "PromQL"), queries),
            *map(_group, GROUPS),
            "\n## Labels\n",
            *table(("label", "of", "values"), _labels()),
            TAIL,
        )
    )


def _group(group: Group) -> str:
    rows = (
        (code(family.name), _type(family), family.unit, code(*family.label_names), family.help)
        for family in group.families
    )
    columns = ("name", "type", "unit", "labels", "meaning")
    return "".join((f"\n## {group.title}\n\n{group.about}\n", *table(columns, rows)))


def _labels() -> Iterator[tuple[str, ...]]:
    """Yield each label with the groups that use it, or with the families if others of the group have another label of that name."""
    used: dict[Label, list[str]] = {}
    for group in GROUPS:
        labels = list(dict.fromkeys(label for family in group.families for label in family.labels))
        meanings = Counter(label.name for label in labels)
        for label in labels:
            families = [code(family.name) for family in group.families if label in family.labels]
            used.setdefault(label, []).extend(families if meanings[label.name] > 1 else [group.title])
    for label, titles in used.items():
        values = code(*(label.values or OF_KINDS.get(label, ())))
        says = "; ".join(part for part in (values, label.meaning) if part)
        yield code(label.name), ", ".join(titles), says


def _type(family: Family) -> str:
    if not family.buckets:
        return family.type
    return (
        f"{family.type}, {len(family.buckets)} buckets from {family.buckets[0]:g} to {family.buckets[-1]:.8g}"
    )


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else PAGE
    path.write_text(page(), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
