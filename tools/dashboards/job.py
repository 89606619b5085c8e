"""The dashboard of one job: its pods by kube-state-metrics, their GPUs by DCGM, their CPU, memory and network by the kubelet.

kube-state-metrics must expose the operator's labels of pods. ``docs/how-to/dashboards.md`` has the setting.
"""

from tools.dashboards.grafana import ONE_JOB, Dashboard, Limit, Query, Row, Variable, graph, stat, table

_LABEL = "label_training_kubeflow_org_"
"""How kube-state-metrics writes the prefix of the operator's labels."""
_NAME = f"{_LABEL}job_name"
_OPERATOR = f"{_LABEL}operator_name"
"""Differs by kind: jobs of two kinds may have the same name."""


def _with_label(series: str, label: str, source: str) -> str:
    """Return the series with another label's value in ``label``, where there is one."""
    return f'label_replace({series}, "{label}", "$1", "{source}", "(.+)")'


_LABELS = f'kube_pod_labels{{namespace="$namespace", {_NAME}="$job_name", {_OPERATOR}="$kind"}}'
for _label, _source in (("role", "job_role"), ("role", "replica_type"), ("index", "replica_index")):
    # Pods of MPIJobs of v2beta1 have no replica type.
    _LABELS = _with_label(_LABELS, _label, f"{_LABEL}{_source}")
_JOIN = f" * on (namespace, pod) group_left (role, index) max by (namespace, pod, role, index) ({_LABELS})"
"""Selects the series of the job's pods, and adds role and index to them. ``kube_pod_labels`` is always 1."""
_OF_A_CONTAINER = 'container!=""'
"""The kubelet also has sums of each pod."""


def _own(metric: str, *matchers: str) -> str:
    """Return the series of the job's pods."""
    return _selector(metric, *matchers) + _JOIN


def _rate(counter: str, *matchers: str) -> str:
    return f"rate({_selector(counter, *matchers)}[$__rate_interval]){_JOIN}"


def _selector(metric: str, *matchers: str) -> str:
    inside = ", ".join(('namespace="$namespace"', *matchers))
    return f"{metric}{{{inside}}}"


def _gpu(metric: str) -> str:
    """Return a metric of DCGM for the job's GPUs.

    Unless Prometheus keeps a target's labels (``honorLabels``), the pod that uses a GPU is in ``exported_pod``.
    """
    series = metric
    for label in ("namespace", "pod"):
        series = _with_label(series, label, f"exported_{label}")
    return series + _JOIN


def _sum(series: str, *labels: str) -> str:
    return f"sum by ({', '.join(labels)}) ({series})" if labels else f"sum({series})"


def _pods(phase: str) -> str:
    return _sum(_own("kube_pod_status_phase", f'phase="{phase}"'))


def _present(metric: str) -> str:
    """Return the series of a metric that is 1 for what holds and 0 for the rest."""
    return f"{_selector(metric)} == 1"


def _containers(*states: str) -> list[str]:
    """Return the metrics of why containers are in these states."""
    return [
        _selector(f"kube_pod_{container}_status_{state}_reason")
        for container in ("container", "init_container")
        for state in states
    ]


def _reasons(*series: str) -> str:
    return _sum(f"({' or '.join(series)}){_JOIN}", "pod", "container", "reason")


_REQUESTED = _own("kube_pod_container_resource_requests", 'unit="integer"')
_NODES = _selector("kube_pod_info")
_UNFINISHED = _selector("kube_pod_status_phase", 'phase=~"Pending|Running"')
_UNSCHEDULABLE = (
    f'label_replace({_present("kube_pod_status_unschedulable")}, "reason", "Unschedulable", "", "")'
)

_PODS_ROW = Row(
    "Pods",
    (
        stat("Running", _pods("Running")),
        stat("Pending", _pods("Pending")),
        stat("Failed", _pods("Failed"), limits=(Limit(1, "red"),)),
        stat(
            "Restarts of containers",
            _sum(_own("kube_pod_container_status_restarts_total")),
            "In place, of the present pods.",
            limits=(Limit(1, "yellow"),),
        ),
        stat("Age of the oldest pod", f"time() - min({_own('kube_pod_created')})", unit="s"),
        stat(
            "Requested resources",
            _sum(
                f"{_REQUESTED} * on (namespace, pod) group_left () max by (namespace, pod) ({_UNFINISHED} == 1)",
                "resource",
            ),
            "GPUs and other extended resources, of pending and running pods.",
            legend="{{resource}}",
        ),
        graph(
            "Pods by phase", Query(_sum(_own("kube_pod_status_phase"), "phase"), "{{phase}}"), stacked=True
        ),
        graph(
            "Ready pods by role",
            Query(_sum(_own("kube_pod_status_ready", 'condition="true"'), "role"), "{{role}}"),
            stacked=True,
        ),
        graph(
            "Restarts of containers by pod",
            Query(_sum(_own("kube_pod_container_status_restarts_total"), "pod"), "{{pod}}"),
        ),
        table(
            "Pods",
            _sum(
                f"({_present('kube_pod_status_phase')})"
                f" * on (namespace, pod) group_left (node) max by (namespace, pod, node) ({_NODES}){_JOIN}",
                *("pod", "role", "index", "phase", "node"),
            ),
            width=12,
            order=("pod", "role", "index", "phase", "node"),
        ),
        table(
            "Why pods do not run",
            _reasons(_UNSCHEDULABLE, *_containers("waiting")),
            "Pods that fit no node, and containers that wait.",
            width=6,
            order=("pod", "container", "reason"),
        ),
        table(
            "How containers and pods ended",
            _reasons(*_containers("terminated", "last_terminated"), _present("kube_pod_status_reason")),
            "Also containers that restarted in place. Without a container: the reason of the pod, such as Evicted.",
            width=6,
            order=("pod", "container", "reason"),
        ),
    ),
)
_GPUS = Row(
    "GPUs",
    (
        graph(
            "Utilization",
            Query(_gpu("DCGM_FI_DEV_GPU_UTIL"), "{{pod}} {{gpu}}"),
            description="The share of time in which a kernel ran, however little of the GPU it used.",
            unit="percent",
            maximum=100,
        ),
        graph(
            "Tensor cores",
            Query(_gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), "{{pod}} {{gpu}}"),
            description="The share of cycles in which the tensor cores worked.",
            unit="percentunit",
            maximum=1,
        ),
        graph("GPU memory", Query(_gpu("DCGM_FI_DEV_FB_USED"), "{{pod}} {{gpu}}"), unit="mbytes"),
        graph("Power", Query(_gpu("DCGM_FI_DEV_POWER_USAGE"), "{{pod}} {{gpu}}"), unit="watt"),
        graph("Temperature", Query(_gpu("DCGM_FI_DEV_GPU_TEMP"), "{{pod}} {{gpu}}"), unit="celsius"),
        graph(
            "Last XID error",
            Query(_gpu("DCGM_FI_DEV_XID_ERRORS"), "{{pod}} {{gpu}}"),
            description="The number of the driver's last error; 0 is none.",
        ),
    ),
)
_USAGE = Row(
    "CPU, memory and network",
    (
        graph(
            "CPU", Query(_sum(_rate("container_cpu_usage_seconds_total", _OF_A_CONTAINER), "pod"), "{{pod}}")
        ),
        graph(
            "Memory",
            Query(_sum(_own("container_memory_working_set_bytes", _OF_A_CONTAINER), "pod"), "{{pod}}"),
            unit="bytes",
        ),
        graph(
            "Network",
            Query(_sum(_rate("container_network_receive_bytes_total"), "pod"), "{{pod}} received"),
            Query(_sum(_rate("container_network_transmit_bytes_total"), "pod"), "{{pod}} sent"),
            description="Without RDMA, which bypasses the pod's network.",
            unit="Bps",
        ),
    ),
)

JOB = Dashboard(
    ONE_JOB,
    "Training job",
    "Pods, GPUs, CPU, memory and network of one training job.",
    (
        Variable("namespace", "Namespace", f'kube_pod_labels{{{_NAME}!=""}}', "namespace", has_many=False),
        Variable(
            "job_name",
            "Job",
            f'kube_pod_labels{{namespace="$namespace", {_NAME}!=""}}',
            _NAME,
            has_many=False,
        ),
        Variable(
            "kind",
            "Kind",
            f'kube_pod_labels{{namespace="$namespace", {_NAME}="$job_name"}}',
            _OPERATOR,
            has_many=False,
        ),
    ),
    (_PODS_ROW, _GPUS, _USAGE),
    "now-1h",
)
