"""The dashboard of the operator: is it well, does it keep up, and how does it load the API server?"""

from tools.dashboards.grafana import Dashboard, Limit, Query, Row, Variable, graph, stat, table

_OWN = 'job=~"$job"'
_BUILD_INFO = f"rallypoint_build_info{{{_OWN}}}"
_RATE = "$__rate_interval"


def _own(metric: str, *matchers: str, function: str = "") -> str:
    """Return the operator's series of a metric, or a function of their samples.

    Other programs have metrics of the same names, perhaps in the same scrape job.
    """
    series = f"{metric}{{{', '.join((_OWN, *matchers))}}}"
    if function:
        series = f"{function}({series}[{_RATE}])"
    if metric.startswith("rallypoint_"):
        return series
    return f"{series} and on (job, instance) {_BUILD_INFO}"


def _by(operation: str, series: str, *labels: str) -> str:
    return f"{operation} by ({', '.join(labels)}) ({series})"


def _quantile(quantile: float, histogram: str, *labels: str) -> str:
    rates = _by("sum", _own(f"{histogram}_bucket", function="rate"), *labels, "le")
    return f"histogram_quantile({quantile:g}, {rates})"


def _rate(counter: str, *labels: str) -> str:
    return _by("sum", _own(counter, function="rate"), *labels)


def _increase(counter: str, *labels: str) -> str:
    return _by("sum", _own(counter, function="increase"), *labels)


def _share(part: str, whole: str, *matchers: str) -> str:
    """Return the query of a counter's share in another one: 0 while neither grows, nothing if there is no operator."""
    some, every = (f"sum({_own(part, *matchers, function='rate')})", f"sum({_own(whole, function='rate')})")
    return f"({some} / ({every} > 0)) or 0 * {every}"


_SILENCE = (
    f"{_own('rallypoint_watch_silence_seconds')}"
    f" unless on (job, instance, resource) {_own('rallypoint_resource_served')} == 0"
)
"""As in the alert: a kind that is not served has no watch."""

_HEALTH = Row(
    "Health",
    (
        stat(
            "Replicas",
            f"count({_BUILD_INFO}) or vector(0)",
            "Processes that Prometheus reads.",
            limits=(Limit(0, "red"), Limit(1, "green")),
        ),
        stat(
            "Leaders",
            _by("sum", _own("leader_election_master_status"), "namespace", "job", "name"),
            "1 for each Lease is right.",
            legend="{{name}}",
            limits=(Limit(0, "red"), Limit(1, "green"), Limit(2, "red")),
        ),
        stat(
            "Resources not served",
            f"count(min by (resource) ({_own('rallypoint_resource_served')}) == 0) or 0 * count({_BUILD_INFO})",
            "Their definitions are missing, or the operator cannot read them.",
            limits=(Limit(1, "red"),),
        ),
        stat(
            "Longest silence of a watch",
            f"max({_SILENCE})",
            "Below 90 s is normal.",
            unit="s",
            limits=(Limit(120, "yellow"), Limit(180, "red")),
        ),
        stat(
            "Failed reconciles",
            _share("controller_runtime_reconcile_errors_total", "controller_runtime_reconcile_total"),
            "The share of all reconciles. Failed ones are retried.",
            unit="percentunit",
            limits=(Limit(0.05, "yellow"), Limit(0.2, "red")),
        ),
        stat(
            "Clock offset",
            f"max(abs({_own('rallypoint_clock_offset_seconds')}))",
            "Between the API server and a replica. Up to 2 s is normal.",
            unit="s",
            limits=(Limit(2, "yellow"), Limit(5, "red")),
        ),
        graph(
            "Leader",
            Query(
                _by("sum", _own("leader_election_master_status"), "instance", "name"), "{{instance}} {{name}}"
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
            f"count by (version, python, loop) ({_BUILD_INFO})",
            "Of the running replicas.",
            order=("version", "python", "loop"),
            amount="replicas",
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
            Query(_by("sum", _own("workqueue_depth"), "name"), "{{name}}"),
            stacked=True,
        ),
        graph(
            "Busy workers",
            Query(
                f"{_by('sum', _own('controller_runtime_active_workers'), 'controller')}"
                f" / {_by('sum', _own('controller_runtime_max_concurrent_reconciles'), 'controller')}",
                "{{controller}}",
            ),
            unit="percentunit",
            maximum=1,
        ),
        graph(
            "Longest running reconcile",
            Query(_by("max", _own("workqueue_longest_running_processor_seconds"), "name"), "{{name}}"),
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
                _share("rest_client_requests_total", "rest_client_requests_total", 'code=~"429|5..|<error>"'),
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
            Query(_by("max", _own("rallypoint_request_limiter_width"), "instance"), "{{instance}} maximum"),
            Query(
                _by("max", _own("rallypoint_request_limiter_in_flight"), "instance"), "{{instance}} running"
            ),
            description="The maximum shrinks while the API server refuses requests (429, 503).",
        ),
        graph(
            "Requests that wait, by purpose",
            Query(_by("sum", _own("rallypoint_request_limiter_waiting"), "level"), "{{level}}"),
            stacked=True,
        ),
    ),
)
_WATCHES = Row(
    "Watches and events",
    (
        graph(
            "Silence of watches",
            Query(_by("max", _SILENCE, "resource"), "{{resource}}"),
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
            "Lost changes and limited events",
            Query(_increase("rallypoint_watch_repairs_total", "resource"), "{{resource}} repaired"),
            Query(f"sum({_own('rallypoint_events_dropped_total', function='increase')})", "events dropped"),
            Query(f"sum({_own('rallypoint_events_limited_total', function='increase')})", "events limited"),
            description="Repaired: a list found what a watch had lost. Limited: one job reports too much.",
        ),
    ),
)
_PROCESS = Row(
    "Process",
    (
        graph("Memory", Query(_own("process_resident_memory_bytes"), "{{instance}}"), unit="bytes"),
        graph(
            "CPU",
            Query(_own("process_cpu_seconds_total", function="rate"), "{{instance}}"),
            description="In cores.",
        ),
        graph(
            "Lag of the event loop",
            Query(
                _by("max", _own("rallypoint_event_loop_lag_longest_seconds"), "instance"),
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
            Query(_own("process_open_fds"), "{{instance}}"),
            Query(_own("process_max_fds"), "{{instance}} maximum"),
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
