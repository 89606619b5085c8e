"""Why a job can never run in the local cluster of ``rallypoint run``, known before anything runs. Pure.

Nobody but the manifests' own pods can reach this cluster, so nobody resumes a job, removes a scheduling gate or labels the node.
"""

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from api import quantity
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from controller.policy.gang import members_of
from rallypoint.diagnosis.objects import Object, is_suspended, replica_specs, run_policy, spec_of, status_of
from rallypoint.local.node.resources import Amounts, insufficient, read, requests
from rallypoint.local.node.scheduler.cycle import DEFAULT
from rallypoint.local.node.scheduler.filters import filter_reason

ObjectKey: TypeAlias = tuple[str, str]
"""Kind and name."""
KeysOf: TypeAlias = Mapping[ObjectKey, Collection[str]]
"""The keys of the data of each object."""

NEEDED_KINDS = ("ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount")
"""The kinds that pods refer to and wait for."""
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
"""The kinds of objects that give rights to pods."""
_PROVIDED: Collection[ObjectKey] = (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))
"""Objects that every namespace has."""
_RENDEZVOUS_KINDS = ("PyTorchJob", "MPIJob", "PaddleJob", "JAXJob")
"""The kinds whose pods wait for each other before any of them trains."""
_RUN_IN_CLUSTER = "run it in a cluster"
_BYTE_RESOURCES = ("memory", "ephemeral-storage")
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
        yield f"{policy}.managedBy", f"{manager} does not run here; remove the field, or {_RUN_IN_CLUSTER}"
    fits_alone = True
    for path, spec in _pod_specs(job):
        for subpath, reason in _pod_blockers({"spec": spec}, node, gang_scheduler):
            fits_alone = False
            yield f"{path}{subpath}", reason
    if fits_alone:
        yield from ((_roles_field(job), reason) for reason in _sum_blockers(job, node, gang_scheduler))


def missing_objects(job: Object, existing: KeysOf) -> Iterator[tuple[str, str]]:
    """Yield the field and the reason for each object or key that the job's pods need and that is not in ``existing``, of its namespace.

    The operator creates an MPIJob's hostfile and keys.
    """
    own_name = (job.get("metadata") or {}).get("name")
    provided = {*_PROVIDED, ("ConfigMap", f"{own_name}-config"), ("Secret", f"{own_name}-ssh")}
    for path, spec in _pod_specs(job):
        for kind, name, key in dict.fromkeys(_needed_objects(spec)):
            keys = existing.get((kind, name))
            if keys is None and (kind, name) not in provided:
                yield (
                    path,
                    f'{kind.lower()} "{name}" does not exist, and nobody creates it in this run; add its manifest',
                )
            elif keys is not None and key and key not in keys:
                yield (
                    path,
                    f'{kind.lower()} "{name}" has no key "{key}", and nobody adds it in this run; add it to the manifest',
                )


def has_rights(job: Object, namespace: str, binding: Object, bound: str) -> bool:
    """Return whether a binding in the namespace ``bound`` gives rights to pods of the job, which may then create what others need."""
    if binding["kind"] == "RoleBinding" and bound != namespace:
        return False
    accounts = {spec.get("serviceAccountName") or "default" for _, spec in _pod_specs(job)}
    groups = {"system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"}
    return any(
        subject.get("name") in groups
        if subject.get("kind") == "Group"
        else subject.get("name") in accounts and (subject.get("namespace") or bound) == namespace
        for subject in binding.get("subjects") or ()
    )


def _pod_specs(job: Object) -> Iterator[tuple[str, Object]]:
    """Yield the field and the pod spec of each role that has pods with containers."""
    for role, replicas in replica_specs(job).items():
        spec = (replicas.get("template") or {}).get("spec") or {}
        if _replicas(replicas) and spec.get("containers"):
            yield f"{_roles_field(job)}.{role}.template.spec", spec


def _roles_field(job: Object) -> str:
    return next((f"spec.{key}" for key in spec_of(job) if key.lower().endswith("replicaspecs")), "")


def _needed_objects(spec: Object) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the key, or an empty one, without which a container or a volume of the pod waits."""
    yield from _required("ServiceAccount", spec, "serviceAccountName")
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


def _required(kind: str, reference: Object | None, field: str = "name") -> Iterator[tuple[str, str, str]]:
    if not reference or not reference.get(field) or reference.get("optional"):
        return
    keys = [item.get("key") or "" for item in reference.get("items") or ()] or [reference.get("key") or ""]
    yield from ((kind, reference[field], key) for key in keys)


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
        yield "", f"a pod {_shortage(resource, requested, capacity)}; request less, or {_RUN_IN_CLUSTER}"


def _sum_blockers(job: Object, node: Object, gang_scheduler: str) -> Iterator[str]:
    """Yield what the pods of the job lack that must run at the same time.

    With a gang scheduler these are the members of its group, without the launcher, which may start later. Without one only devices such as
    GPUs count, and only of kinds whose pods wait for each other: other pods may run one after the other.
    """
    kind, spec = job.get("kind"), spec_of(job)
    replicas = {role: _replicas(given) for role, given in replica_specs(job).items()}
    if gang_scheduler:
        members = (run_policy(job, "schedulingPolicy") or {}).get("minAvailable")
        if kind == "MPIJob":
            replicas = {role: count for role, count in replicas.items() if role.lower() != "launcher"}
        replicas = members_of(replicas, sum(replicas.values()) if members is None else members)
    elif kind not in _RENDEZVOUS_KINDS:
        return
    elif (minimum := (spec.get("elasticPolicy") or {}).get("minReplicas")) is not None:
        replicas = {
            role: min(count, minimum) if role.lower() == "worker" else count
            for role, count in replicas.items()
        }
    total: Amounts = {}
    for role, count in replicas.items():
        template = replica_specs(job)[role].get("template") or {}
        if not (template.get("spec") or {}).get("containers"):
            continue
        for name, amount in requests(template).items():
            total[name] = total.get(name, Fraction(0)) + amount * count
    capacity = _capacity(node)
    for resource in insufficient(total, capacity):
        if gang_scheduler or "/" in resource:
            yield f"all pods together {_shortage(resource, total, capacity, 'request')}; use fewer replicas, or {_RUN_IN_CLUSTER}"


def _replicas(spec: Object) -> int:
    count = spec.get("replicas")
    return 1 if count is None else int(count)


def _capacity(node: Object) -> Amounts:
    return read(status_of(node).get("allocatable"))


def _amount(resource: str, amounts: Amounts) -> str:
    amount = amounts.get(resource, Fraction(0))
    return f"{float(amount) / 2**30:.1f} GiB" if resource in _BYTE_RESOURCES else quantity.spell(amount)


def _shortage(resource: str, requested: Amounts, capacity: Amounts, verb: str = "requests") -> str:
    """Return text such as ``requests 8 nvidia.com/gpu, and this machine has 4``."""
    return f"{verb} {_amount(resource, requested)} {resource}, and this machine has {_amount(resource, capacity)}"
