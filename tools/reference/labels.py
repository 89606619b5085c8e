"""The page of labels, annotations and environment variables.

The variables, and who has which label, come from the pods that the kinds make of the sample jobs here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api import labels
from api.job import replica_field
from api.labels import (
    FAILED_BEFORE,
    GROUP_NAME,
    KUEUE_PREFIX,
    LAST_APPLIED,
    POD_GROUP,
    SCHEDULING_PARAMETERS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
    TASK_SPEC,
    YUNIKORN_APP,
    YUNIKORN_QUEUE,
)
from api.mpijob import FLAVOR, Flavor, MPIJob
from controller.crds.definition import KUBERNETES_VERSION
from controller.crds.kubernetes import shipped
from controller.domain import Present
from controller.kind import Options
from controller.kinds import ALL
from controller.kinds.jax import JAX
from controller.kinds.mpi import MPI
from controller.kinds.mpi.hosts import WAIT_ANNOTATION
from controller.kinds.mpi.names import LAUNCHER, WORKER
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.sshpods import DEFAULT_CONTAINER
from controller.kinds.mpi.v2beta1 import QUEUE_ANNOTATION
from controller.kinds.mxnet import MXNET, TUNER_SERVER_KEY
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from controller.telemetry.build import COMMIT_VARIABLE
from tools.markdown import code, table

HEAD = """\
# Labels, annotations and environment variables

<!-- Made by `make docs` from api/labels.py and the kinds, and from tools/reference/labels.py; edit those instead. -->

Labels and annotations that training-operator or mpi-operator defines keep their names, so selectors and dashboards keep matching. Rallypoint's own, such as `training.kubeflow.org/restart-attempt`, also begin with `training.kubeflow.org/` or `kubeflow.org/`.
"""

LABELS: Mapping[str, tuple[str, str]] = {
    labels.OPERATOR_NAME: (
        "the controller of the kind, such as `pytorchjob-controller`",
        "Pods and Services.",
    ),
    labels.JOB_NAME: (
        "the name of the job",
        "Pods, Services and ConfigMaps. `kubectl get pods -l training.kubeflow.org/job-name=NAME` lists the pods of a job.",
    ),
    labels.REPLICA_TYPE: ("the role in lower case", "Pods and Services."),
    labels.REPLICA_INDEX: (
        "the index in the role, from 0",
        "Pods and Services. In v2beta1 MPIJobs with `runLauncherAsWorker` the launcher is 0 and workers begin at 1.",
    ),
    labels.JOB_ROLE: (
        "`master`; in v2beta1 MPIJobs `launcher` or `worker`",
        "The pod that leads the job; the page of each kind names it.",
    ),
    labels.RESTART_ATTEMPT: (
        "how often the job had been restarted as a whole, from 0",
        "Pods of jobs with a [failure policy](../how-to/survive-failures.md), and the batch Job of a launcher.",
    ),
    "group_name": ("`kubeflow.org`", "Pods of v1alpha2 MPIJobs, as in the MPI Operator of 2020."),
    "mpi_job_name": ("the name of the job", "Pods of v1alpha2 MPIJobs."),
    "mpi_role_type": ("`launcher` or `worker`", "Pods of v1alpha2 MPIJobs."),
    POD_GROUP: ("the name of the job", "Pods under the coscheduling plugin: their PodGroup."),
    YUNIKORN_APP: (
        "the UID of the job, with the number of its attempt from the first restart as a whole on",
        "Pods under YuniKorn: their application.",
    ),
    YUNIKORN_QUEUE: ("`runPolicy.schedulingPolicy.queue`", "Pods under YuniKorn: their queue."),
}
"""Labels that the operator writes: value, and where."""

ANNOTATIONS_WRITTEN: Mapping[str, tuple[str, str]] = {
    FAILED_BEFORE: (
        "number of failures in a row, from 2",
        "A pod that replaces a failed one. See [back-off](run-policy.md#back-off).",
    ),
    GROUP_NAME: ("the name of the job", "Pods under Volcano: their PodGroup."),
    TASK_SPEC: ("the role in lower case", "Pods under Volcano: their task in the PodGroup."),
    TASK_GROUP_NAME: ("the role in lower case", "Pods under YuniKorn: their task group."),
    TASK_GROUPS: (
        "JSON: for each role how many pods start together, and what each needs",
        "Pods under YuniKorn: the [gang](../how-to/gang-scheduling.md#apache-yunikorn).",
    ),
    SCHEDULING_PARAMETERS: (
        "that of the job, else `placeholderTimeoutInSeconds` from `scheduleTimeoutSeconds`",
        "Pods under YuniKorn.",
    ),
    FLAVOR: (
        "`v1`, `v1alpha2`",
        "MPIJobs that another controller copies, such as MultiKueue, so that the copy keeps its [flavor](mpijob-versions.md).",
    ),
    labels.POD_SETS: (
        "two fingerprints of the job's pods",
        "Workloads of Kueue that the operator [keeps](../how-to/kueue.md#by-this-operator).",
    ),
    labels.HANDOVER: (
        "JSON: for each resource the resourceVersion of the last change that the leader knew",
        "The Lease of the leader election, when the leader has [released](../decisions/0047-take-over.md) it.",
    ),
    KUBERNETES_VERSION: (
        f"such as `{shipped().version}`",
        "CustomResourceDefinitions: the release of Kubernetes whose pod template they contain.",
    ),
}
"""Annotations that the operator, or `rallypoint crds`, writes: value, and where."""

ANNOTATIONS_READ: Mapping[str, tuple[str, str]] = {
    labels.CHECKPOINT_DIR: (
        "a path, or an address",
        "A job: its pods get the value as `RALLYPOINT_CHECKPOINT_DIR`. See [checkpoints](../how-to/goodput.md#checkpoints).",
    ),
    labels.SERVICES: (
        "`per-replica`, `addressed`, `per-job`",
        "A job, except MPIJobs: its [Services](../how-to/services.md). It takes precedence over `--services`.",
    ),
    labels.CHECKPOINT_TIME: (
        "such as `2026-11-27T12:00:00Z`",
        "A pod, which writes it about itself: when its newest checkpoint was complete. See [checkpoints](../how-to/goodput.md#checkpoints).",
    ),
    SCHEDULING_PARAMETERS: (
        "such as `gangSchedulingStyle=Hard`",
        "Jobs under YuniKorn: how it schedules the gang; copied to the pods.",
    ),
    FLAVOR: (
        "`v1`, `v1alpha2`, `v2beta1`",
        "MPIJob: its [flavor](mpijob-versions.md); it takes precedence over `spec.flavor`.",
    ),
    WAIT_ANNOTATION: (
        "`true`, `false`",
        "MPIJob: whether its launcher waits until all workers are ready. See [when the launcher starts](mpijob.md#when-the-launcher-starts).",
    ),
    QUEUE_ANNOTATION: (
        "name of a queue",
        "MPIJob of v2beta1 under Volcano: its queue, unless `schedulingPolicy.queue` names one.",
    ),
    DEFAULT_CONTAINER: (
        "name of a container",
        "Pod template of a v2beta1 MPIJob: the container that runs MPI; otherwise the first.",
    ),
    TUNER_SERVER_KEY: ("any text", "Pod template of an MXJob: copied into `labels` of `MX_CONFIG`."),
    LAST_APPLIED: (
        "a manifest",
        "MPIJob: a manifest of another version than the job's causes the event `FlavorImmutable`.",
    ),
    f"{KUEUE_PREFIX}*": (
        "any",
        "MPIJob: a label or annotation of Kueue; the operator then leaves `managedBy` as it is. See [versions of MPIJob](mpijob-versions.md).",
    ),
}
"""Annotations that the operator reads: value, and where."""

ENVIRONMENT: Mapping[str, str] = {
    "KUBECONFIG": "The kubeconfig file, unless `--kubeconfig` names one.",
    "KUBERNETES_SERVICE_HOST": "The address of the API server in a pod, which the kubelet sets. It applies if there is no kubeconfig.",
    "KUBERNETES_SERVICE_PORT": "The port of that address; 443 by default.",
    "KUBEFLOW_NAMESPACE": "The default of `--namespace`.",
    "CUSTOM_CLUSTER_DOMAIN": "The default of `--cluster-domain`.",
    "HTTPS_PROXY": "The proxy for an `https` API server that a kubeconfig or `--master` names, also in lower case. A `proxy-url` in the kubeconfig takes precedence.",
    "HTTP_PROXY": "The same for an `http` API server.",
    "NO_PROXY": "Hosts, domains and networks that are reached without a proxy, also in lower case.",
    "MY_POD_NAMESPACE": "The namespace of the pod, in [traces](../how-to/profile-and-trace.md#traces). The shipped Deployment sets it.",
    "MY_POD_NAME": "The name of the pod, in traces. The shipped Deployment sets it.",
    "OTEL_*": "The standard variables of OpenTelemetry, with `--tracing`. `OTEL_EXPORTER_OTLP_PROTOCOL` and `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL` must be `http/protobuf`.",
    COMMIT_VARIABLE: "The commit that `--version`, the log and the metric `rallypoint_build_info` name. The image sets it.",
}
"""Variables that the operator reads, and what for."""

PODS = """
## Environment variables of the pods

What the operator adds to containers of a job `train` in the namespace `ml` with one or two pods in each role. The page of each kind says which containers get them, and what happens to variables of that name in the template. A value is that of the first pod which has the variable. In jobs with a [failure policy](../how-to/survive-failures.md), all containers also get `RALLYPOINT_RESTART_ATTEMPT`, the number of the attempt from 0, and the main container of jobs that [restart in place](../how-to/survive-failures.md#restart-in-place) `RALLYPOINT_AGENT` and `RALLYPOINT_AGENT_ADDRESS`, which only the agent reads; in jobs with the annotation `training.kubeflow.org/checkpoint-dir`, `RALLYPOINT_CHECKPOINT_DIR` with its value.
"""

VALUES_FROM: Mapping[str, str] = {"status.podIP": "the IP of the pod"}


@dataclass(frozen=True)
class Sample:
    """A job whose pods show variables. ``title`` says what distinguishes it from other jobs of its kind."""

    kind: Any
    roles: Mapping[str, int]
    title: str = ""
    spec: Mapping[str, Any] | None = None
    variant: Any = None


_ELASTIC = {
    "minReplicas": 1,
    "maxReplicas": 2,
    "maxRestarts": 3,
    "rdzvId": "a",
    "rdzvConf": [{"key": "timeout", "value": "60"}],
    "standalone": True,
}
_MPI_ROLES = {LAUNCHER: 1, WORKER: 2}
SAMPLES: Final = (
    Sample(PYTORCH, {"Master": 1, "Worker": 2}),
    Sample(PYTORCH, {"Worker": 2}, "Elastic", {"elasticPolicy": _ELASTIC}),
    Sample(TENSORFLOW, {"Chief": 1, "PS": 1, "Worker": 2}),
    Sample(XGBOOST, {"Master": 1, "Worker": 2}),
    Sample(PADDLE, {"Worker": 2}),
    Sample(PADDLE, {"Master": 1, "Worker": 1}, "With parameter servers"),
    Sample(JAX, {"Worker": 2}),
    Sample(MXNET, {"Scheduler": 1, "Server": 1, "Worker": 2}),
    *(
        Sample(
            MPI,
            _MPI_ROLES,
            f"v2beta1, {name}{note}",
            {"mpiImplementation": name},
            MPI.flavors[Flavor.V2BETA1],
        )
        for name, note in (
            ("OpenMPI", "; the last two with `--mpi-launcher-only-key`"),
            ("Intel", ""),
            ("MPICH", ""),
        )
    ),
    Sample(MPI, _MPI_ROLES, "v1", {}, MPI.flavors[Flavor.V1]),
    *(
        Sample(MPI, _MPI_ROLES, f"v1alpha2, {name}", {"mpiDistribution": name}, MPI.flavors[Flavor.V1ALPHA2])
        for name in ("OpenMPI", "IntelMPI", "MPICH")
    ),
)


def page() -> str:
    return "".join(
        (
            HEAD,
            "\n## Labels that the operator writes\n",
            *table(("label", "value", "where"), _rows(LABELS)),
            "\n## Annotations that the operator writes\n",
            *table(("annotation", "value", "where"), _rows(ANNOTATIONS_WRITTEN)),
            "\nA new PodGroup gets the annotations of its job, except for MPIJobs of v2beta1 and v1alpha2.\n",
            "\n## Annotations that the operator reads\n",
            *table(("annotation", "value", "where"), _rows(ANNOTATIONS_READ)),
            "\n## Environment variables of the operator\n",
            *table(("variable", "meaning"), ((code(name), text) for name, text in ENVIRONMENT.items())),
            PODS,
            *_variables(),
        )
    )


def _rows(keys: Mapping[str, tuple[str, str]]) -> Iterator[Sequence[str]]:
    for key, (value, where) in keys.items():
        yield code(key), value, where


def _variables() -> Iterator[str]:
    for kind in ALL:
        yield f"\n### {kind.resource.kind}\n"
        for sample in SAMPLES:
            if sample.kind is not kind:
                continue
            if sample.title:
                yield f"\n{sample.title}:\n"
            rows = [
                (code(name), ", ".join(roles), value) for name, (roles, value) in variables(sample).items()
            ]
            yield from table(("variable", "roles", "value"), rows)


def variables(sample: Sample) -> dict[str, tuple[list[str], str]]:
    """Return the variables in the pods of a job: the roles that have them, and the first value."""
    found: dict[str, tuple[list[str], str]] = {}
    for role, body in pods(sample):
        for container in body["spec"]["containers"]:
            for variable in container.get("env", ()):
                roles, _ = found.setdefault(variable["name"], ([], _value(variable)))
                if role not in roles:
                    roles.append(role)
    return found


def pods(sample: Sample) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of a job, or their templates, with their roles."""
    kind, variant = sample.kind, sample.variant or sample.kind
    container = {"name": getattr(kind, "container", "mpi"), "image": "train"}
    replicas = {
        name: {"replicas": count, "template": {"spec": {"containers": [container]}}}
        for name, count in sample.roles.items()
    }
    spec = {**(sample.spec or {}), replica_field(kind.model).wire_name: replicas}
    job = kind.model.model_validate(
        {"metadata": {"name": "train", "namespace": "ml", "uid": "1"}, "spec": spec}
    )
    roles, options = variant.roles(job), Options(of_kinds=(MPIOptions(launcher_only_key=True),))
    if isinstance(job, MPIJob) and hasattr(variant, "launcher_template"):
        yield LAUNCHER, variant.launcher_template(job, roles, options)
        yield WORKER, variant.worker_pod(job, roles, 0, options)
        return
    for role, _, child in variant.wanted(job, roles, options, Present()):
        if child.resource.kind == "Pod":
            yield role.name, child.body()


def _value(variable: Mapping[str, Any]) -> str:
    if "valueFrom" in variable:
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        return VALUES_FROM[path]
    return code(variable["value"]) if variable["value"] else "empty"
