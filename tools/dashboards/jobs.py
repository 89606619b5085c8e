"""The dashboard of all jobs: what runs, what waits and for how long, what fails, and who holds the GPUs."""

from tools.dashboards.grafana import Dashboard, Limit, Query, Row, Variable, graph, stat, table

_JOBS = 'job_namespace=~"$namespace", framework=~"$framework"'
_STARTING = "created|scheduled|started|running"
_RESOURCE = f'{_JOBS}, resource=~"$resource"'


def _jobs(state: str) -> str:
    return f'sum(rallypoint_jobs{{{_JOBS}, state="{state}"}})'


def _held(state: str, by: str = "") -> str:
    return f'sum{by}(rallypoint_job_requested_resources{{{_RESOURCE}, state="{state}"}})'


def _seconds_until(quantile: float, *labels: str, phase: str) -> str:
    """Return the query of a quantile over the last hour: phases are too rare for shorter windows."""
    rates = f'rate(rallypoint_job_phase_seconds_bucket{{framework=~"$framework", phase=~"{phase}"}}[1h])'
    return f"histogram_quantile({quantile:g}, sum by ({', '.join((*labels, 'le'))}) ({rates}))"


def _increase(counter: str, *labels: str, period: str = "$__rate_interval") -> str:
    by = f" by ({', '.join(labels)}) " if labels else ""
    return f"sum{by}(increase({counter}{{{_JOBS}}}[{period}]))"


_FAILED = _increase("training_operator_jobs_failed_total", "framework", period="1h")
_SUCCEEDED = _increase("training_operator_jobs_successful_total", "framework", period="1h")

_OVERVIEW = Row(
    "Overview",
    (
        stat("Running", _jobs("running")),
        stat("Pending", _jobs("pending"), "Neither suspended nor running."),
        stat("Suspended", _jobs("suspended"), "Most of them wait for a queue such as Kueue's."),
        stat("Restarting", _jobs("restarting")),
        stat(
            "Failed",
            f"round({_increase('training_operator_jobs_failed_total', period='$__range')})",
            "In the chosen period.",
        ),
        stat(
            "Oldest pending",
            f"max(rallypoint_job_oldest_pending_seconds{{{_JOBS}}})",
            "For how long the oldest pending job has been pending.",
            unit="s",
            limits=(Limit(600, "yellow"), Limit(3600, "red")),
        ),
        graph(
            "Jobs by state", Query(f"sum by (state) (rallypoint_jobs{{{_JOBS}}})", "{{state}}"), stacked=True
        ),
        graph(
            "Running jobs by framework",
            Query(f'sum by (framework) (rallypoint_jobs{{{_JOBS}, state="running"}})', "{{framework}}"),
            stacked=True,
        ),
        graph(
            "Pods by state",
            Query(f"sum by (state) (rallypoint_job_replicas{{{_JOBS}}})", "{{state}}"),
            stacked=True,
        ),
        table(
            "Jobs by namespace",
            f"sum by (job_namespace, state) (rallypoint_jobs{{{_JOBS}}})",
            columns="state",
            rows="job_namespace",
            width=12,
        ),
        table(
            "Resources by namespace",
            f"sum by (job_namespace, state) (rallypoint_job_requested_resources{{{_RESOURCE}}})",
            "Requested extended resources, such as GPUs.",
            columns="state",
            rows="job_namespace",
            width=12,
        ),
    ),
)
_WAITING = Row(
    "Waiting",
    (
        graph(
            "Time until scheduled, started, running",
            Query(_seconds_until(0.5, "phase", phase=_STARTING), "{{phase}}, median"),
            Query(_seconds_until(0.9, "phase", phase=_STARTING), "{{phase}}, 90th percentile"),
            description="Of the last hour, from the creation of a job or the end of its suspension. "
            "created, scheduled, started: all of its pods are.",
            unit="s",
        ),
        graph(
            "Time until running, by framework",
            Query(_seconds_until(0.9, "framework", phase="running"), "{{framework}}"),
            description="90th percentile of the last hour.",
            unit="s",
        ),
        graph(
            "Duration of jobs",
            Query(_seconds_until(0.5, "framework", phase="finished"), "{{framework}}, median"),
            Query(_seconds_until(0.9, "framework", phase="finished"), "{{framework}}, 90th percentile"),
            description="Of jobs that ended in the last hour, from their creation.",
            unit="s",
        ),
        graph(
            "Oldest pending job by namespace",
            Query(
                f"max by (job_namespace) (rallypoint_job_oldest_pending_seconds{{{_JOBS}}})",
                "{{job_namespace}}",
            ),
            description="`rallypoint why` says what it waits for.",
            unit="s",
        ),
        graph(
            "Pending jobs by namespace",
            Query(
                f'sum by (job_namespace) (rallypoint_jobs{{{_JOBS}, state="pending"}})', "{{job_namespace}}"
            ),
            stacked=True,
        ),
        graph(
            "Created and ended jobs",
            Query(_increase("training_operator_jobs_created_total"), "created"),
            Query(_increase("training_operator_jobs_successful_total"), "succeeded"),
            Query(_increase("training_operator_jobs_failed_total"), "failed"),
        ),
    ),
)
_FAILURES = Row(
    "Failures",
    (
        graph(
            "Failed jobs by framework",
            Query(_increase("training_operator_jobs_failed_total", "framework"), "{{framework}}"),
            stacked=True,
        ),
        graph(
            "Failed jobs by namespace",
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
            "Restarts of pods by reason",
            Query(_increase("rallypoint_job_pod_restarts_total", "reason"), "{{reason}}"),
            description="Replaced pods, and containers that restarted in place.",
            stacked=True,
        ),
        graph(
            "Restarts of pods by namespace",
            Query(_increase("rallypoint_job_pod_restarts_total", "job_namespace"), "{{job_namespace}}"),
            stacked=True,
        ),
        table(
            "Restarts of pods by namespace and reason",
            f"round({_increase('rallypoint_job_pod_restarts_total', 'job_namespace', 'reason', period='$__range')})",
            "In the chosen period.",
            columns="reason",
            rows="job_namespace",
        ),
    ),
)
_RESOURCES = Row(
    "GPUs and other extended resources",
    (
        stat("Held by running pods", _held("running"), width=6),
        stat("Requested by pending pods", _held("pending"), width=6),
        stat("Requested by suspended jobs", _held("suspended"), width=6),
        stat(
            "Held by finished jobs",
            _held("finished"),
            "Their pods still run, because cleanPodPolicy keeps them.",
            width=6,
            limits=(Limit(1, "red"),),
        ),
        graph(
            "By state",
            Query(
                f"sum by (resource, state) (rallypoint_job_requested_resources{{{_RESOURCE}}})",
                "{{resource}} {{state}}",
            ),
            stacked=True,
        ),
        graph(
            "Held, by namespace",
            Query(_held("running", " by (job_namespace) "), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Held by finished jobs, by namespace",
            Query(_held("finished", " by (job_namespace) "), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Requested by pending pods, by namespace",
            Query(_held("pending", " by (job_namespace) "), "{{job_namespace}}"),
            stacked=True,
        ),
        graph(
            "Held, by framework", Query(_held("running", " by (framework) "), "{{framework}}"), stacked=True
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
        Variable("resource", "Resource", "rallypoint_job_requested_resources", "resource"),
    ),
    (_OVERVIEW, _WAITING, _FAILURES, _RESOURCES),
)
