"""The table of all metrics. ``docs/reference/metrics.md`` is generated from it.

Source: training-operator 1.9, pkg/common/metrics.go; controller-runtime 0.22, pkg/internal/controller/metrics and pkg/metrics;
Kubernetes 1.34, component-base, metrics/prometheus/restclient. The values of labels are those of the originals.
"""

from controller.telemetry.metrics import jobs, mpi, shadow
from controller.telemetry.metrics.family import Family, Group, Label

RESULTS = ("error", "requeue", "requeue_after", "success")
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
NO_ANSWER = "<error>"
CODES = (
    *("200", "201", "400", "401", "403", "404", "409", "410", "422", "429"),
    *("500", "502", "503", "504", NO_ANSWER),
)
"""The status codes whose series exist from the start; other codes get a series when they first occur."""
PRIORITY_LEVELS = ("event", "child", "status", "first")
FILLS = ("watch", "list")
ENDINGS = ("done", "lost", "refused", "broken")

RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
QUEUE_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000)
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

CONTROLLER = Label("controller", meaning="one for each kind")
_QUEUE = (Label("name", meaning="the controller"), CONTROLLER)
_HOST = Label("host", meaning="the API server, as `host:port`")
_VERB = Label("verb", METHODS)
_CODE = Label("code", CODES, "any other status code once it occurs")
WATCHED_RESOURCE = Label("resource", meaning="one for each watch")
_LEASE = (Label("name", meaning="the Lease"),)

RECONCILES = Family(
    "controller_runtime_reconcile_total",
    "counter",
    "Reconciles by result",
    (CONTROLLER, Label("result", RESULTS)),
)
RECONCILE_ERRORS = Family(
    "controller_runtime_reconcile_errors_total", "counter", "Reconciles that failed", (CONTROLLER,)
)
TERMINAL_ERRORS = Family(
    "controller_runtime_terminal_reconcile_errors_total",
    "counter",
    "Reconciles that failed with an error that no retry can fix",
    (CONTROLLER,),
)
RECONCILE_PANICS = Family(
    "controller_runtime_reconcile_panics_total",
    "counter",
    "Reconciles that raised an unexpected exception",
    (CONTROLLER,),
)
RECONCILE_TIMEOUTS = Family(
    "controller_runtime_reconcile_timeouts_total",
    "counter",
    "Reconciles that were canceled after 10 minutes",
    (CONTROLLER,),
)
RECONCILE_SECONDS = Family(
    "controller_runtime_reconcile_time_seconds",
    "histogram",
    "Duration of a reconcile",
    (CONTROLLER,),
    RECONCILE_BUCKETS,
)
MOST_WORKERS = Family(
    "controller_runtime_max_concurrent_reconciles",
    "gauge",
    "Maximum number of concurrent reconciles",
    (CONTROLLER,),
)
ACTIVE_WORKERS = Family("controller_runtime_active_workers", "gauge", "Running reconciles", (CONTROLLER,))

DEPTH = Family("workqueue_depth", "gauge", "Jobs in the queue", _QUEUE)
ADDS = Family(
    "workqueue_adds_total",
    "counter",
    "Jobs added to the queue; a job that is already in it is not counted",
    _QUEUE,
)
QUEUE_SECONDS = Family(
    "workqueue_queue_duration_seconds",
    "histogram",
    "Time that a job waits in the queue",
    _QUEUE,
    QUEUE_BUCKETS,
)
WORK_SECONDS = Family(
    "workqueue_work_duration_seconds", "histogram", "Duration of a reconcile", _QUEUE, QUEUE_BUCKETS
)
UNFINISHED_SECONDS = Family(
    "workqueue_unfinished_work_seconds", "gauge", "Time spent so far on all running reconciles", _QUEUE
)
LONGEST_SECONDS = Family(
    "workqueue_longest_running_processor_seconds",
    "gauge",
    "Time spent so far on the longest running reconcile",
    _QUEUE,
)
RETRIES = Family("workqueue_retries_total", "counter", "Jobs added again after a failure", _QUEUE)

REQUESTS = Family(
    "rest_client_requests_total",
    "counter",
    "Responses of the API server, each retry counted",
    (_CODE, Label("method", METHODS), _HOST),
)
REQUEST_SECONDS = Family(
    "rest_client_request_duration_seconds",
    "histogram",
    "Time from sending a request to its response; of a watch, to its start",
    (_VERB, _HOST),
    REQUEST_BUCKETS,
)
REQUEST_SIZE = Family(
    "rest_client_request_size_bytes", "histogram", "Size of a request body", (_VERB, _HOST), SIZE_BUCKETS
)
RESPONSE_SIZE = Family(
    "rest_client_response_size_bytes",
    "histogram",
    "Size of a response body; the lines of a watch are not counted",
    (_VERB, _HOST),
    SIZE_BUCKETS,
)
REQUEST_RETRIES = Family(
    "rest_client_request_retries_total",
    "counter",
    "Retried requests, by the response that caused the retry",
    (_CODE, _VERB, _HOST),
)
LIMITER_SECONDS = Family(
    "rest_client_rate_limiter_duration_seconds",
    "histogram",
    "Time that --kube-api-qps delays a request; empty without that flag",
    (_VERB, _HOST),
    REQUEST_BUCKETS,
)

MASTER = Family("leader_election_master_status", "gauge", "1 in the leader, 0 in other processes", _LEASE)
SLOW_PATH = Family(
    "leader_election_slowpath_total", "counter", "Renewals that had to read the Lease again", _LEASE
)

LOOP_LAG = Family(
    "rallypoint_event_loop_lag_seconds",
    "histogram",
    "Event loop lag, measured by a timer that fires twice a second",
    (),
    LAG_BUCKETS,
)
LOOP_LAG_LONGEST = Family(
    "rallypoint_event_loop_lag_longest_seconds", "gauge", "Longest event loop lag of the last 1 to 2 minutes"
)
WATCH_SILENCE = Family(
    "rallypoint_watch_silence_seconds",
    "gauge",
    "Time since the watch of a resource last received something from the API server",
    (WATCHED_RESOURCE,),
)
WATCH_FILLS = Family(
    "rallypoint_watch_fills_total",
    "counter",
    "Complete lists of a resource",
    (WATCHED_RESOURCE, Label("by", FILLS, "`list` if the server does not support streaming lists")),
)
WATCH_ENDINGS = Family(
    "rallypoint_watch_endings_total",
    "counter",
    "Watches that ended or did not start",
    (
        WATCHED_RESOURCE,
        Label(
            "ending",
            ENDINGS,
            "`lost`: the resourceVersion was too old, and the resource was listed again",
        ),
    ),
)
SERVED = Family(
    "rallypoint_resource_served",
    "gauge",
    "0 while the API server does not serve a resource: its definition is missing, or it cannot be read",
    (WATCHED_RESOURCE,),
)
WATCH_REPAIRS = Family(
    "rallypoint_watch_repairs_total",
    "counter",
    "Objects that a periodic list found to differ from the cache: the watch had lost an event",
    (WATCHED_RESOURCE,),
)
CLOCK_OFFSET = Family(
    "rallypoint_clock_offset_seconds",
    "gauge",
    "How far the API server's clock is ahead of this process's; deadlines and TTLs of jobs follow the API server's",
)
EVENTS_DROPPED = Family("rallypoint_events_dropped_total", "counter", "Events that could not be sent")
EVENTS_LIMITED = Family(
    "rallypoint_events_limited_total",
    "counter",
    "Events about pods and failed API calls above the limit of their job: 25, and one more every 5 minutes",
)
LIMITER_WIDTH = Family(
    "rallypoint_request_limiter_width",
    "gauge",
    "Maximum number of concurrent requests; reduced after 429 and 503",
)
LIMITER_IN_FLIGHT = Family("rallypoint_request_limiter_in_flight", "gauge", "Running requests")
LIMITER_WAITING = Family(
    "rallypoint_request_limiter_waiting",
    "gauge",
    "Waiting requests, by purpose",
    (Label("level", PRIORITY_LEVELS, "later ones have priority"),),
)
REVIEWS_OF = ("token", "access")
REVIEW_RESULTS = ("allowed", "denied", "error", "limited")
METRICS_REVIEWS = Family(
    "rallypoint_metrics_reviews_total",
    "counter",
    "TokenReviews and SubjectAccessReviews for requests to /metrics; their results are cached",
    (
        Label("review", REVIEWS_OF, "`token`: TokenReview, `access`: SubjectAccessReview"),
        Label(
            "result",
            REVIEW_RESULTS,
            "`limited`: refused without a review, because the client requested too many",
        ),
    ),
)
CERTIFICATE_READS = Family(
    "certwatcher_read_certificate_total",
    "counter",
    "Certificates of /metrics that were loaded, or could not be",
)
CERTIFICATE_ERRORS = Family(
    "certwatcher_read_certificate_errors_total",
    "counter",
    "Failed attempts to load the certificate of /metrics",
)
CERTIFICATE_EXPIRY = Family(
    "rallypoint_metrics_certificate_expiry_timestamp_seconds",
    "gauge",
    "When the certificate of /metrics expires, in seconds since 1970",
)
BUILD = Family(
    "rallypoint_build_info",
    "gauge",
    "Always 1; the labels describe the build",
    (
        Label("version", meaning="of Rallypoint"),
        Label("python", meaning="of Python"),
        Label("loop", ("uvloop", "asyncio"), "the event loop"),
    ),
)

_PROCESS = (
    Family("process_cpu_seconds_total", "counter", "CPU time used, by user and system"),
    Family("process_resident_memory_bytes", "gauge", "Resident memory"),
    Family("process_virtual_memory_bytes", "gauge", "Virtual memory"),
    Family("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970"),
    Family("process_open_fds", "gauge", "Open file descriptors"),
    Family("process_max_fds", "gauge", "Maximum number of open file descriptors"),
)
_GENERATION = (Label("generation", ("0", "1", "2")),)
_PYTHON = (
    Family(
        "python_info",
        "gauge",
        "Always 1; the labels describe the Python interpreter",
        (
            Label("version", meaning="of Python"),
            Label("implementation", meaning="of Python"),
            Label("major", meaning="of its version"),
            Label("minor", meaning="of its version"),
            Label("patchlevel", meaning="of its version"),
        ),
    ),
    Family("python_gc_collections_total", "counter", "Runs of the garbage collector", _GENERATION),
    Family(
        "python_gc_objects_collected_total",
        "counter",
        "Objects that the garbage collector freed",
        _GENERATION,
    ),
    Family(
        "python_gc_objects_uncollectable_total",
        "counter",
        "Objects that the garbage collector could not free",
        _GENERATION,
    ),
)

GROUPS = (
    jobs.OPERATOR_GROUP,
    jobs.GROUP,
    mpi.GROUP,
    Group(
        "Reconciles",
        "The names are controller-runtime's. A reconcile handles one job.",
        (
            RECONCILES,
            RECONCILE_ERRORS,
            TERMINAL_ERRORS,
            RECONCILE_PANICS,
            RECONCILE_TIMEOUTS,
            RECONCILE_SECONDS,
            MOST_WORKERS,
            ACTIVE_WORKERS,
        ),
    ),
    Group(
        "Work queues",
        "The names are controller-runtime's. There is one queue per kind; `name` and `controller` are the same.",
        (DEPTH, ADDS, QUEUE_SECONDS, WORK_SECONDS, UNFINISHED_SECONDS, LONGEST_SECONDS, RETRIES),
    ),
    Group(
        "Requests to the API server",
        "Names, labels and buckets are client-go's, as the components of Kubernetes expose them. "
        f"`{NO_ANSWER}` means no response. Requests of the leader election are included.",
        (REQUESTS, REQUEST_SECONDS, REQUEST_SIZE, RESPONSE_SIZE, REQUEST_RETRIES, LIMITER_SECONDS),
    ),
    Group(
        "Leader election",
        "The names are client-go's. Without `--leader-elect` there are no series.",
        (MASTER, SLOW_PATH),
    ),
    Group(
        "Rallypoint",
        "Metrics that the Go operators do not have.",
        (
            LOOP_LAG,
            LOOP_LAG_LONGEST,
            WATCH_SILENCE,
            WATCH_FILLS,
            WATCH_ENDINGS,
            WATCH_REPAIRS,
            SERVED,
            CLOCK_OFFSET,
            EVENTS_DROPPED,
            EVENTS_LIMITED,
            LIMITER_WIDTH,
            LIMITER_IN_FLIGHT,
            LIMITER_WAITING,
            BUILD,
        ),
    ),
    shadow.GROUP,
    Group(
        "Metrics endpoint",
        "Without `--metrics-secure` there are no series. `certwatcher_*` are controller-runtime's names.",
        (METRICS_REVIEWS, CERTIFICATE_READS, CERTIFICATE_ERRORS, CERTIFICATE_EXPIRY),
    ),
    Group(
        "Process",
        "The names are those of Prometheus client libraries, and of the one for Python. `process_*` exists on Linux only.",
        (*_PROCESS, *_PYTHON),
    ),
)
