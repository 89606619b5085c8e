"""Why a job can never run in the local cluster of ``rallypoint run``, known before anything runs. Pure.

Nobody but the manifests' own pods can reach this cluster, so nobody resumes a job, removes a scheduling gate or labels the node.
"""

from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import TypeAlias

from api import quantity
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from rallypoint.diagnosis.objects import Object, is_suspended, replica_specs, run_policy, spec_of, status_of
from rallypoint.local.node.resources import Amounts, insufficient, read, requests
from rallypoint.local.node.scheduler.cycle import DEFAULT
from rallypoint.local.node.scheduler.filters import filter_reason

ObjectKey: TypeAlias = tuple[str, str]
"""Kind and name."""

NEEDED_KINDS = ("ConfigMap", "Secret", "PersistentVolumeClaim")
"""The kinds that pods refer to and wait for."""
_PROVIDED: Collection[ObjectKey] = (("ConfigMap", "kube-root-ca.crt"),)
"""Objects that every namespace has."""
_ELSEWHERE = "run it in a cluster"
_BINARY = ("memory", "ephemeral-storage")
"""Resources that are counted in bytes."""


def blockers(job: Object, node: Object, gang_scheduler: str = "") -> Iterator[tuple[str, str]]:
    """Yield the field and the reason of everything that keeps the job from ever running on this node, with the next step.

    ``gang_scheduler`` is the name of the cluster's gang scheduler, empty without one.
    """
    policy = "spec.runPolicy" if "runPolicy" in spec_of(job) else "spec"
    if is_suspended(job):
        yield f"{policy}.suspend", "the job is suspended, and nobody resumes it in this run; remove the field"
    manager = run_policy(job, "managedBy")
    if manager and manager not in (MANAGED_BY_US, MANAGED_BY_MPI_OPERATOR):
        yield f"{policy}.managedBy", f"{manager} does not run here; remove the field, or {_ELSEWHERE}"
    field = next((f"spec.{key}" for key in spec_of(job) if key.lower().endswith("replicaspecs")), "")
    fits_alone = True
    for role, spec in replica_specs(job).items():
        template = spec.get("template") or {}
        if _replicas(spec) and (template.get("spec") or {}).get("containers"):
            for path, reason in _pod_blockers(template, node, gang_scheduler):
                fits_alone = False
                yield f"{field}.{role}.template.spec{path}", reason
    if fits_alone:
        yield from ((field, reason) for reason in _sum_blockers(job, node, gang_scheduler))


def missing_objects(job: Object, existing: Collection[ObjectKey]) -> Iterator[tuple[str, str]]:
    """Yield the field and the reason for each object that the job's pods need and that is not among ``existing``, those of its namespace.

    The operator creates an MPIJob's hostfile and keys.
    """
    field = next((f"spec.{key}" for key in spec_of(job) if key.lower().endswith("replicaspecs")), "")
    own_name = (job.get("metadata") or {}).get("name")
    provided = {*existing, *_PROVIDED, ("ConfigMap", f"{own_name}-config"), ("Secret", f"{own_name}-ssh")}
    for role, spec in replica_specs(job).items():
        template = spec.get("template") or {}
        if not _replicas(spec) or not (template.get("spec") or {}).get("containers"):
            continue
        for kind, name in dict.fromkeys(_needed_objects(template["spec"])):
            if (kind, name) not in provided:
                yield (
                    f"{field}.{role}.template.spec",
                    f'{kind.lower()} "{name}" does not exist, and nobody creates it in this run; add its manifest',
                )


def _needed_objects(spec: Object) -> Iterator[ObjectKey]:
    """Yield the objects without which a container or a volume of the pod waits."""
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        sources = [(source, "Ref") for source in container.get("envFrom") or ()]
        sources += [(entry.get("valueFrom") or {}, "KeyRef") for entry in container.get("env") or ()]
        for source, suffix in sources:
            yield from _required("ConfigMap", source.get(f"configMap{suffix}"))
            yield from _required("Secret", source.get(f"secret{suffix}"))
    for volume in spec.get("volumes") or ():
        yield from _required("PersistentVolumeClaim", volume.get("persistentVolumeClaim"), "claimName")
        yield from _required("Secret", volume.get("secret"), "secretName")
        yield from _required("ConfigMap", volume.get("configMap"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _required("ConfigMap", source.get("configMap"))
            yield from _required("Secret", source.get("secret"))


def _required(kind: str, reference: Object | None, name: str = "name") -> Iterator[ObjectKey]:
    if reference and reference.get(name) and not reference.get("optional"):
        yield kind, reference[name]


def _pod_blockers(template: Object, node: Object, gang_scheduler: str) -> Iterator[tuple[str, str]]:
    """Yield why one pod of the template does not fit on the empty node."""
    spec = template["spec"]
    scheduler = spec.get("schedulerName") or DEFAULT
    if scheduler not in (DEFAULT, gang_scheduler):
        yield (
            ".schedulerName",
            f"no scheduler {scheduler} runs here; remove the field, or use --gang-scheduler-name",
        )
    if spec.get("schedulingGates"):
        yield ".schedulingGates", "nobody removes the scheduling gates in this run; remove the field"
    if (name := spec.get("nodeName")) and name != node["metadata"]["name"]:
        yield ".nodeName", f"the only node is {node['metadata']['name']}; remove the field"
    if reason := filter_reason(template, node):
        yield (
            "",
            f"this node is excluded: {reason}; add the labels with --node-labels, or change the selector",
        )
    requested, capacity = requests(template), _capacity(node)
    for resource in insufficient(requested, capacity):
        yield "", f"a pod {_shortage(resource, requested, capacity)}; request less, or {_ELSEWHERE}"


def _sum_blockers(job: Object, node: Object, gang_scheduler: str) -> Iterator[str]:
    """Yield what the pods of the job lack if all of them run at the same time.

    Without a gang scheduler only devices count, such as GPUs: pods that share cores or memory may run one after the other, but those that
    train together on GPUs wait for each other.
    """
    spec = spec_of(job)
    minimum = (spec.get("elasticPolicy") or {}).get("minReplicas")
    policy = run_policy(job, "schedulingPolicy") or {}
    total: Amounts = {}
    for role, replicas in replica_specs(job).items():
        template = replicas.get("template") or {}
        if not (template.get("spec") or {}).get("containers"):
            continue
        count = _replicas(replicas)
        if minimum is not None and role.lower() == "worker":
            count = min(count, minimum)
        for name, amount in requests(template).items():
            total[name] = total.get(name, Fraction(0)) + amount * count
    is_gang = bool(gang_scheduler) and policy.get("minAvailable") is None
    capacity = _capacity(node)
    for resource in insufficient(total, capacity):
        if is_gang or "/" in resource:
            yield f"all pods together {_shortage(resource, total, capacity, 'request')}; use fewer replicas, or {_ELSEWHERE}"


def _replicas(spec: Object) -> int:
    count = spec.get("replicas")
    return 1 if count is None else int(count)


def _capacity(node: Object) -> Amounts:
    return read(status_of(node).get("allocatable"))


def _amount(resource: str, amounts: Amounts) -> str:
    amount = amounts.get(resource, Fraction(0))
    return f"{float(amount) / 2**30:.1f} GiB" if resource in _BINARY else quantity.spell(amount)


def _shortage(resource: str, requested: Amounts, capacity: Amounts, verb: str = "requests") -> str:
    """Return text such as ``requests 8 nvidia.com/gpu, and this machine has 4``."""
    return f"{verb} {_amount(resource, requested)} {resource}, and this machine has {_amount(resource, capacity)}"
