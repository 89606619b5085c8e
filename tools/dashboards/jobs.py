"""The dashboard of all jobs: what runs, what waits and for how long, what fails, and who holds the GPUs."""

from tools.dashboards.grafana import Dashboard, Limit, Query, Row, Variable, graph, stat, table

_JOBS = 'job_namespace=~"$namespace", framework=~"$framework"'
_STARTING = "created|scheduled|started|running"
_WAITED_FOR = "For a pending job, or one that runs with only some of its pods."

_HELD_FOR = (
    "How long ago the oldest job ended whose pods still hold extended resources, not only the chosen one."
)


def _sum(series: str, *labels: str) -> str:
    return f"sum by ({', '.join(labels)}) ({series})" if labels else f"sum({series})"


def _jobs(*labels: str, state: str = "") -> str:
    matchers = f', state="{state}"' if state else ""
    return _sum(f"rallypoint_jobs{{{_JOBS}{matchers}}}", *labels)


def _requested(*labels: str, state: str = "") -> str:
    matchers = f', state="{state}"' if state else ""
    series = f'rallypoint_job_requested_resources{{{_JOBS}, resource="$resource"{matchers}}}'
    return _sum(series, *labels)


def _seconds_until(quantile: float, *labels: str, phase: str) -> str:
    """Return the query of a quantile over the last hour: phases are too rare for shorter windows."""
    rates = f'rate(rallypoint_job_phase_seconds_bucket{{framework=~"$framework", phase=~"{phase}"}}[1h])'
    return f"histogram_quantile({quantile:g}, sum by ({', '.join((*labels, 'le'))}) ({rates}))"


def _increase(counter: str, *labels: str, period: str = "1h") -> str:
    """Return the query of a counter's increase, with what it shows at its first scrape, which ``increase`` omits."""
    series = f"{counter}{{{_JOBS}}}"
    return f"round({_sum(f'({series} unless {series} offset {period}) or increase({series}[{period}])', *labels)})"


_FAILED = _increase("training_operator_jobs_failed_total", "framework")
_SUCCEEDED = _increase("training_operator_jobs_successful_total", "framework")

_OVERVIEW = Row(
    "Overview",
    (
        stat("Running", _jobs(state="running")),
        stat("Pending", _jobs(state="pending"), "Neither suspended nor running."),
        stat("Suspended", _jobs(state="suspended"), "Most of them wait for a queue such as Kueue's."),
        stat("Restarting", _jobs(state="restarting")),
        stat(
            "Failed",
            _increase("training_operator_jobs_failed_total", period="$__range"),
            "In the chosen period.",
        ),
        stat(
            "Longest wait for pods",
            f"max(rallypoint_job_oldest_pending_seconds{{{_JOBS}}})",
            _WAITED_FOR,
            unit="s",
            limits=(Limit(600, "yellow"), Limit(3600, "red")),
        ),
        graph(
            "Active jobs by state",
            Query(
                f'sum by (state) (rallypoint_jobs{{{_JOBS}, state!~"succeeded|failed"}})',
                "{{state}}",
            ),
            description="Without finished jobs, which may be many.",
            stacked=True,
        ),
        graph(
            "Running jobs by framework",
            Query(_jobs("framework", state="running"), "{{framework}}"),
            stacked=True,
        ),
        graph(
            "Pods by state",
            Query(f"sum by (state) (rallypoint_job_replicas{{{_JOBS}}})", "{{state}}"),
            stacked=True,
        ),
        table(
            "Jobs by namespace",
            _jobs("job_namespace", "state"),
            columns="state",
            rows="job_namespace",
            width=12,
        ),
        table(
            "Resources by namespace",
            _requested("job_namespace", "state"),
            "What jobs request of the chosen resource, such as GPUs.",
            columns="state",
            rows="job_namespace",
            width=12,
        ),
    ),
)
_WALL_CLOCK = f"rallypoint_job_wall_clock_seconds{{{_JOBS}}}"
_GOODPUT = Row(
    "Goodput",
    (
        graph(
            "Where the time of jobs goes",
            Query(f"sum by (phase) ({_WALL_CLOCK})", "{{phase}}"),
            description="Over the whole lives of existing jobs that have a wall clock: those with a failure policy, or with `runPolicy.wallClock`.",
            unit="s",
            stacked=True,
        ),
        graph(
            "Goodput by namespace",
            Query(
                f'sum by (job_namespace) (rallypoint_job_wall_clock_seconds{{{_JOBS}, phase="running"}})'
                f" / sum by (job_namespace) ({_WALL_CLOCK})",
                "{{job_namespace}}",
            ),
            description="The share of these jobs' time in which they ran and lost nothing. `rallypoint goodput` shows single jobs.",
            unit="percentunit",
            namespace_label="job_namespace",
        ),
    ),
)
_WAITING = Row(
    "Waiting",
    (
        graph(
            "Longest wait for pods, by namespace",
            Query(
                f"max by (job_namespace) (rallypoint_job_oldest_pending_seconds{{{_JOBS}}})",
                "{{job_namespace}}",
            ),
            description=f"{_WAITED_FOR} `rallypoint why` says what it waits for.",
            unit="s",
            namespace_label="job_namespace",
        ),
        graph(
            "Pending jobs by namespace",
            Query(_jobs("job_namespace", state="pending"), "{{job_namespace}}"),
            stacked=True,
            namespace_label="job_namespace",
        ),
        graph(
            "Jobs created and ended in the last hour",
            Query(_increase("training_operator_jobs_created_total"), "created"),
            Query(_increase("training_operator_jobs_successful_total"), "succeeded"),
            Query(_increase("training_operator_jobs_failed_total"), "failed"),
        ),
        graph(
            "Time until scheduled, started, running",
            Query(_seconds_until(0.5, "phase", phase=_STARTING), "{{phase}}, median"),
            Query(_seconds_until(0.9, "phase", phase=_STARTING), "{{phase}}, 90th percentile"),
            description="In all namespaces, of the last hour, from the creation of a job or the end of its suspension. "
            "created, scheduled, started: all of its pods are.",
            unit="s",
        ),
        graph(
            "Time until running, by framework",
            Query(_seconds_until(0.9, "framework", phase="running"), "{{framework}}"),
            description="In all namespaces: 90th percentile of the last hour.",
            unit="s",
        ),
        graph(
            "Duration of jobs",
            Query(_seconds_until(0.5, "framework", phase="finished"), "{{framework}}, median"),
            Query(_seconds_until(0.9, "framework", phase="finished"), "{{framework}}, 90th percentile"),
            description="In all namespaces, of jobs that ended in the last hour, from their creation.",
            unit="s",
        ),
    ),
)
_FAILURES = Row(
    "Failures",
    (
        graph(
            "Jobs failed in the last hour, by reason",
            Query(f"{_increase('rallypoint_job_failures_total', 'reason')} > 0", "{{reason}}"),
            empty="None",
            description="deadline: activeDeadlineSeconds. invalid: the operator or the API server refused the job.",
            stacked=True,
        ),
        graph(
            "Jobs failed in the last hour, by namespace",
            Query(_increase("training_operator_jobs_failed_total", "job_namespace"), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Share of jobs that fail",
            Query(
                f"{_FAILED} / ({_FAILED} + {_SUCCEEDED})",
                "{{framework}}",
            ),
            description="Of the jobs that ended in the last hour.",
            unit="percentunit",
            maximum=1,
        ),
        graph(
            "Restarts of pods in the last hour, by reason",
            Query(f"{_increase('rallypoint_job_pod_restarts_total', 'reason')} > 0", "{{reason}}"),
            empty="None",
            description="Replaced pods, and containers that restarted in place.",
            stacked=True,
            width=12,
        ),
        graph(
            "Restarts of pods in the last hour, by namespace",
            Query(_increase("rallypoint_job_pod_restarts_total", "job_namespace"), "{{job_namespace}}"),
            stacked=True,
            width=12,
        ),
        table(
            "Failed jobs by namespace and reason",
            _increase("rallypoint_job_failures_total", "job_namespace", "reason", period="$__range"),
            "In the chosen period.",
            columns="reason",
            rows="job_namespace",
            width=12,
        ),
        table(
            "Restarts of pods by namespace and reason",
            _increase("rallypoint_job_pod_restarts_total", "job_namespace", "reason", period="$__range"),
            "In the chosen period.",
            columns="reason",
            rows="job_namespace",
            width=12,
        ),
    ),
)
_RESOURCES = Row(
    "GPUs, or another extended resource",
    (
        stat("Held by running pods", _requested(state="running"), width=5),
        stat("Requested by pending pods", _requested(state="pending"), width=5),
        stat("Requested by suspended jobs", _requested(state="suspended"), width=5),
        stat(
            "Held by finished jobs",
            _requested(state="finished"),
            "Their pods still run. That is normal for a short time; cleanPodPolicy may keep them for long.",
            width=5,
            limits=(Limit(1, "yellow"),),
        ),
        stat(
            "Longest held after the end",
            f"max(rallypoint_job_oldest_holding_seconds{{{_JOBS}}})",
            _HELD_FOR,
            unit="s",
            limits=(Limit(300, "yellow"), Limit(900, "red")),
        ),
        graph("By state", Query(_requested("state"), "{{state}}"), stacked=True),
        graph(
            "Held, by namespace",
            Query(_requested("job_namespace", state="running"), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Held, by framework",
            Query(_requested("framework", state="running"), "{{framework}}"),
            stacked=True,
        ),
        graph(
            "Requested by pending pods, by namespace",
            Query(_requested("job_namespace", state="pending"), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Held by finished jobs, by namespace",
            Query(_requested("job_namespace", state="finished"), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Longest held after the end of a job, by namespace",
            Query(
                f"max by (job_namespace) (rallypoint_job_oldest_holding_seconds{{{_JOBS}}})",
                "{{job_namespace}}",
            ),
            description=_HELD_FOR,
            unit="s",
        ),
    ),
)

JOBS = Dashboard(
    "rallypoint-jobs",
    "Training jobs",
    "States, waiting times, failures and GPUs of training jobs, by namespace.",
    (
        Variable("namespace", "Namespace", "rallypoint_jobs", "job_namespace"),
        Variable("framework", "Framework", "rallypoint_jobs", "framework"),
        Variable(
            "resource",
            "Resource",
            "rallypoint_job_requested_resources",
            "resource",
            has_many=False,
            default="nvidia.com/gpu",
        ),
    ),
    (_OVERVIEW, _GOODPUT, _WAITING, _FAILURES, _RESOURCES),
)
