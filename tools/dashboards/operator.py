"""The dashboard of the operator: is it well, does it keep up, and how does it load the API server?"""

from tools.dashboards.grafana import Dashboard, Limit, Query, Row, Variable, graph, stat, table

_OWN = 'job=~"$job"'
"""Other programs have metrics of the same names."""
_RATE = "$__rate_interval"


def _quantile(quantile: float, histogram: str, *labels: str) -> str:
    by = ", ".join((*labels, "le"))
    return f"histogram_quantile({quantile:g}, sum by ({by}) (rate({histogram}_bucket{{{_OWN}}}[{_RATE}])))"


def _rate(counter: str, *labels: str) -> str:
    return f"sum by ({', '.join(labels)}) (rate({counter}{{{_OWN}}}[{_RATE}]))"


def _increase(counter: str, *labels: str) -> str:
    return f"sum by ({', '.join(labels)}) (increase({counter}{{{_OWN}}}[{_RATE}]))"


def _share(part: str, whole: str) -> str:
    """Return the query of a counter's share in another one: 0 while neither grows."""
    rates = [f"sum(rate({counter}[{_RATE}]))" for counter in (part, whole)]
    return f"({rates[0]} / ({rates[1]} > 0)) or vector(0)"


_HEALTH = Row(
    "Health",
    (
        stat("Replicas", f"count(rallypoint_build_info{{{_OWN}}})", "Processes that Prometheus reads."),
        stat(
            "Leaders",
            f"sum by (name) (leader_election_master_status{{{_OWN}}})",
            "1 for each Lease is right.",
            limits=(Limit(0, "red"), Limit(1, "green"), Limit(2, "red")),
        ),
        stat(
            "Resources not served",
            f"count(min by (resource) (rallypoint_resource_served{{{_OWN}}}) == 0) or vector(0)",
            "Their definitions are missing, or the operator cannot read them.",
            limits=(Limit(1, "red"),),
        ),
        stat(
            "Longest silence of a watch",
            f"max(rallypoint_watch_silence_seconds{{{_OWN}}})",
            "Below 90 s is normal.",
            unit="s",
            limits=(Limit(120, "yellow"), Limit(180, "red")),
        ),
        stat(
            "Failed reconciles",
            _share(
                f"controller_runtime_reconcile_errors_total{{{_OWN}}}",
                f"controller_runtime_reconcile_total{{{_OWN}}}",
            ),
            "The share of all reconciles. Failed ones are retried.",
            unit="percentunit",
            limits=(Limit(0.05, "yellow"), Limit(0.2, "red")),
        ),
        stat(
            "Clock offset",
            f"max(abs(rallypoint_clock_offset_seconds{{{_OWN}}}))",
            "Between the API server and a replica. Up to 2 s is normal.",
            unit="s",
            limits=(Limit(2, "yellow"), Limit(5, "red")),
        ),
        graph(
            "Leader",
            Query(
                f"sum by (instance, name) (leader_election_master_status{{{_OWN}}})", "{{instance}} {{name}}"
            ),
            description="1 in the replica that leads. Only the leader reconciles and exposes the metrics of jobs.",
            maximum=1,
        ),
        graph(
            "Unexpected exceptions and hanging reconciles",
            Query(
                _increase("controller_runtime_reconcile_panics_total", "controller"),
                "{{controller}} exception",
            ),
            Query(
                _increase("controller_runtime_reconcile_timeouts_total", "controller"),
                "{{controller}} timeout",
            ),
            description="Above 0 is a defect; the log has the traceback.",
        ),
        table(
            "Versions",
            f"count by (version, python, loop) (rallypoint_build_info{{{_OWN}}})",
            "Of the running replicas.",
        ),
    ),
)
_WORK = Row(
    "Reconciles and queues",
    (
        graph(
            "Reconciles by result",
            Query(_rate("controller_runtime_reconcile_total", "result"), "{{result}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Reconciles by kind",
            Query(_rate("controller_runtime_reconcile_total", "controller"), "{{controller}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Failed reconciles by kind",
            Query(_rate("controller_runtime_reconcile_errors_total", "controller"), "{{controller}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Duration of a reconcile",
            Query(_quantile(0.5, "controller_runtime_reconcile_time_seconds"), "median"),
            Query(_quantile(0.99, "controller_runtime_reconcile_time_seconds"), "99th percentile"),
            unit="s",
        ),
        graph(
            "Wait in the queue",
            Query(_quantile(0.5, "workqueue_queue_duration_seconds"), "median"),
            Query(_quantile(0.99, "workqueue_queue_duration_seconds"), "99th percentile"),
            description="How long a job waits for a worker. Above 30 s, raise --controller-threads.",
            unit="s",
        ),
        graph(
            "Jobs in the queue",
            Query(f"sum by (name) (workqueue_depth{{{_OWN}}})", "{{name}}"),
            stacked=True,
        ),
        graph(
            "Busy workers",
            Query(
                f"sum by (controller) (controller_runtime_active_workers{{{_OWN}}})"
                f" / sum by (controller) (controller_runtime_max_concurrent_reconciles{{{_OWN}}})",
                "{{controller}}",
            ),
            unit="percentunit",
            maximum=1,
        ),
        graph(
            "Longest running reconcile",
            Query(f"max by (name) (workqueue_longest_running_processor_seconds{{{_OWN}}})", "{{name}}"),
            unit="s",
        ),
        graph(
            "Retries", Query(_rate("workqueue_retries_total", "name"), "{{name}}"), unit="ops", stacked=True
        ),
    ),
)
_REQUESTS = Row(
    "Requests to the API server",
    (
        graph(
            "Requests by status code",
            Query(_rate("rest_client_requests_total", "code"), "{{code}}"),
            description="409 is a conflict, which is retried; <error> means no response.",
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Requests by method",
            Query(_rate("rest_client_requests_total", "method"), "{{method}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Refused or unanswered",
            Query(
                _share(
                    f'rest_client_requests_total{{{_OWN}, code=~"429|5..|<error>"}}',
                    f"rest_client_requests_total{{{_OWN}}}",
                ),
                "share of all requests",
            ),
            unit="percentunit",
            maximum=1,
            limits=(Limit(0.1, "red"),),
        ),
        graph(
            "Response time, 99th percentile",
            Query(_quantile(0.99, "rest_client_request_duration_seconds", "verb"), "{{verb}}"),
            unit="s",
        ),
        graph(
            "Concurrent requests",
            Query(f"max by (instance) (rallypoint_request_limiter_width{{{_OWN}}})", "{{instance}} maximum"),
            Query(
                f"max by (instance) (rallypoint_request_limiter_in_flight{{{_OWN}}})", "{{instance}} running"
            ),
            description="The maximum shrinks while the API server refuses requests (429, 503).",
        ),
        graph(
            "Requests that wait, by purpose",
            Query(f"sum by (level) (rallypoint_request_limiter_waiting{{{_OWN}}})", "{{level}}"),
            stacked=True,
        ),
    ),
)
_WATCHES = Row(
    "Watches and events",
    (
        graph(
            "Silence of watches",
            Query(f"max by (resource) (rallypoint_watch_silence_seconds{{{_OWN}}})", "{{resource}}"),
            description="Time since the API server last sent something. It sends a bookmark about once a minute.",
            unit="s",
            limits=(Limit(180, "red"),),
        ),
        graph(
            "Complete lists and ended watches",
            Query(_increase("rallypoint_watch_fills_total", "resource"), "{{resource}} listed"),
            Query(_increase("rallypoint_watch_endings_total", "ending"), "watch {{ending}}"),
        ),
        graph(
            "Lost changes",
            Query(_increase("rallypoint_watch_repairs_total", "resource"), "{{resource}} repaired"),
            Query(f"sum(increase(rallypoint_events_dropped_total{{{_OWN}}}[{_RATE}]))", "events dropped"),
            Query(f"sum(increase(rallypoint_events_limited_total{{{_OWN}}}[{_RATE}]))", "events limited"),
            description="Repaired: a list found what a watch had lost. Limited: one job reports too much.",
        ),
    ),
)
_PROCESS = Row(
    "Process",
    (
        graph("Memory", Query(f"process_resident_memory_bytes{{{_OWN}}}", "{{instance}}"), unit="bytes"),
        graph(
            "CPU", Query(f"rate(process_cpu_seconds_total{{{_OWN}}}[{_RATE}])", "{{instance}}"), unit="short"
        ),
        graph(
            "Lag of the event loop",
            Query(
                f"max by (instance) (rallypoint_event_loop_lag_longest_seconds{{{_OWN}}})",
                "{{instance}} longest",
            ),
            Query(
                _quantile(0.99, "rallypoint_event_loop_lag_seconds", "instance"),
                "{{instance}} 99th percentile",
            ),
            description="How late the process reacts. A replica that is 10 s late loses the Lease; check its CPU limit.",
            unit="s",
            limits=(Limit(2, "red"),),
        ),
        graph(
            "Open files",
            Query(f"process_open_fds{{{_OWN}}}", "{{instance}}"),
            Query(f"process_max_fds{{{_OWN}}}", "{{instance}} maximum"),
        ),
        graph(
            "Garbage collections",
            Query(
                _rate("python_gc_collections_total", "instance", "generation"),
                "{{instance}} generation {{generation}}",
            ),
            unit="ops",
        ),
    ),
)

OPERATOR = Dashboard(
    "rallypoint-operator",
    "Training operator",
    "Health, work, API calls and processes of Rallypoint's operator.",
    (Variable("job", "Operator", "rallypoint_build_info", "job"),),
    (_HEALTH, _WORK, _REQUESTS, _WATCHES, _PROCESS),
)
