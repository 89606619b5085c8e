"""Checks which of the shipped rights the operator's ServiceAccount really has, and whether the user may install."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.meta import Resource
from api.mpijob import RESOURCE as MPIJOBS
from api.mpijob import Flavor
from controller.kinds import ALL
from rallypoint.cli.check.facts import Facts
from rallypoint.cli.check.findings import Finding, blocker, names, ok, warning
from rallypoint.cli.check.installation import Rules, objects, roles
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.check.operators import Operator
from rallypoint.documentation import DOCS_URL

CHECK = "rights"
_GROUP = "authorization.k8s.io"
REVIEWS = Resource(_GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
SELF_REVIEWS = Resource(_GROUP, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
_CLUSTER_SCOPED = frozenset({"customresourcedefinitions", "leases", "nodes", "queues"})
"""Resources that an operator for one namespace does without; those of its roles that are Leases are those of nodes."""
_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
_GANGS = "podgroups"
_MPI_V1 = "mpi-v1"
_SECURE_METRICS = "secure-metrics"
"""The component whose rights an operator for one namespace needs in the whole cluster, too."""
_OF_KUEUE = frozenset({"resourceflavors", "workloadpriorityclasses", "priorityclasses"})
"""Cluster-scoped resources that an operator for one namespace reads, too, with ``--kueue``."""
_PLURALS = {kind.resource.plural: kind.resource.kind for kind in ALL}


@dataclass(frozen=True, slots=True)
class Right:
    role: str
    """The shipped role, or the component, that grants it."""
    verb: str
    group: str
    resource: str
    """With its subresource, such as ``pods/exec``."""
    namespace: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        full = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{full} {self.name}".rstrip()

    def attributes(self) -> dict[str, str]:
        """Return the ``resourceAttributes`` of a review."""
        resource, _, subresource = self.resource.partition("/")
        given = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in given.items() if value}


def needed_rights(operator: Operator, shipped: Mapping[str, Rules]) -> list[Right]:
    """Return the rights that an operator with these flags uses."""
    kinds = operator.kinds
    if operator.is_shadow:
        components = ["shadow"]
    else:
        components = ["base", *(["mpi"] if MPIJOBS.kind in kinds else [])]
        components += [kind.lower() for kind in kinds if kind.lower() in shipped]
    if operator.flag("mpi-topology-label"):
        components.append("mpi-topology")
    if operator.is_set("kueue"):
        components.append("kueue")
    if operator.is_set("metrics-secure"):
        components.append(_SECURE_METRICS)
    found = [right for component in components for right in _rights(component, shipped[component], operator)]
    return found if operator.is_shadow else [*found, *_lease_rights(operator, shipped["leases"])]


def _rights(component: str, rules: Rules, operator: Operator) -> Iterator[Right]:
    has_gangs = operator.flag("gang-scheduler-name", "gang-scheduling") not in {"", "None"}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural = resource.partition("/")[0]
                if plural in _PLURALS and _PLURALS[plural] not in operator.kinds:
                    continue
                if (plural in {_GANGS, "queues"} and not has_gangs) or (
                    operator.watched and plural in _CLUSTER_SCOPED
                ):
                    continue
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        is_everywhere = component == _SECURE_METRICS or plural in _OF_KUEUE
                        where = "" if is_everywhere else operator.watched
                        yield Right(component, verb, group, resource, where, name)


def _lease_rights(operator: Operator, rules: Rules) -> Iterator[Right]:
    """Yield the rights on the operator's own Leases, whose names and namespaces flags can change."""
    for namespace, name in sorted(operator.leases):
        for rule in rules:
            named = "resourceNames" in rule
            for verb in rule["verbs"]:
                yield Right("leases", verb, "coordination.k8s.io", "leases", namespace, name if named else "")


async def right_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield the rights that the operator's ServiceAccount lacks, one finding per shipped role."""
    operator = facts.ours
    if operator is None:
        yield ok(CHECK, "there is no Rallypoint operator whose rights could be checked")
        return
    user, needed = _account(operator), list(dict.fromkeys(needed_rights(operator, roles())))
    missing = await _missing(facts, needed, operator)
    for role in dict.fromkeys(right.role for right in missing):
        yield blocker(
            CHECK,
            f"{user} lacks rights of the shipped role {role}: {'; '.join(_grouped(missing, role))}",
            remedy(role, operator),
        )
    if not missing:
        yield ok(CHECK, f"{user} has the {len(needed)} rights that it uses")


def _account(operator: Operator) -> str:
    """Return the name of the operator's ServiceAccount as a user."""
    return f"system:serviceaccount:{operator.namespace}:{operator.service_account}"


async def _missing(facts: Facts, needed: Sequence[Right], operator: Operator) -> list[Right]:
    """Return the rights that the operator's ServiceAccount does not have."""
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{operator.namespace}",
        "system:authenticated",
    ]
    subject = {"user": _account(operator), "groups": groups}
    answers = await asyncio.gather(*(_is_granted(facts, REVIEWS, right, subject) for right in needed))
    return [right for right, granted in zip(needed, answers, strict=True) if not granted]


_REMEDIES = {
    "base": "apply the ClusterRole and the ClusterRoleBinding of the installation again",
    "shadow": "apply the ClusterRole and the ClusterRoleBinding of the overlay shadow again",
    "leases": "apply the Role and the RoleBinding of the installation again, in the namespace of the Lease",
}


def remedy(role: str, operator: Operator) -> str:
    """Return how an operator with these flags gets the rights of a shipped role."""
    if operator.watched and role in {"base", "mpi"}:
        return (
            f"apply the Role and the RoleBinding of the installation again, in namespace {operator.watched}"
        )
    return _REMEDIES.get(role, f"install the component {role} with the namespace of the operator")


def _grouped(missing: Sequence[Right], role: str) -> list[str]:
    """Return texts such as ``pods: list, watch``."""
    verbs: dict[str, list[str]] = {}
    for right in missing:
        if right.role == role:
            where = f" in namespace {right.namespace}" if right.namespace else ""
            verbs.setdefault(f"{right.text}{where}", []).append(right.verb)
    return [f"{resource}: {', '.join(listed)}" for resource, listed in verbs.items()]


async def component_findings(facts: Facts, unfinished: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield whether the rights for MPIJobs of v1 and v1alpha2 are there if there are such jobs."""
    older = [job for job in unfinished if job.flavor and job.flavor != Flavor.V2BETA1]
    operator = facts.installed
    if not older or (operator and MPIJOBS.kind not in operator.kinds):
        return
    text = f"{len(older)} MPIJobs of v1 or v1alpha2 need the rights of the component {_MPI_V1}: {names(job.full_name for job in older)}"
    step = f"install the overlay mpi-v1, see {DOCS_URL}/reference/mpijob-v1.md"
    if operator is None:
        yield warning(CHECK, text, step)
        return
    needed = list(_rights(_MPI_V1, roles()[_MPI_V1], operator))
    missing = await _missing(facts, needed, operator)
    if missing:
        yield blocker(
            CHECK, f"{text}. {_account(operator)} lacks {'; '.join(_grouped(missing, _MPI_V1))}", step
        )
    else:
        yield ok(CHECK, f"{_account(operator)} has the rights for MPIJobs of v1 and v1alpha2")


async def binding_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield the bindings of a running Go operator that the installation would take from it.

    A ClusterRoleBinding exists once in a cluster, and those of the Go operator have the same names.
    """
    shared = [document["metadata"]["name"] for document in objects() if document["kind"] == _BINDINGS.kind]
    for name in shared:
        binding = await facts.reader.get(_BINDINGS, name) or {}
        subjects = {
            (subject.get("namespace"), subject.get("name")) for subject in binding.get("subjects") or ()
        }
        for operator in facts.operators:
            account = (operator.namespace, operator.service_account)
            if operator.is_ours or not operator.is_running or account not in subjects:
                continue
            if operator.namespace != facts.namespace:
                yield warning(
                    "installation",
                    f"{operator.label} gets its rights from the ClusterRoleBinding {name}, which the installation moves to namespace "
                    f"{facts.namespace}: it keeps running but loses these rights",
                    f"stop it before you install, or install the overlay of its namespace, see {DOCS_URL}/decisions/0029-names.md",
                )


async def install_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield which objects of the installation the user of this command may not apply."""
    documents = [*objects(), _DEFINITION]
    kinds: dict[tuple[str, str, str], str] = {}
    for document in documents:
        group = document["apiVersion"].rpartition("/")[0]
        namespace = facts.namespace if "namespace" in document["metadata"] else ""
        kinds[group, _plural(document["kind"]), namespace] = document["kind"]
    needed = {
        Right("", verb, group, plural, namespace): kind
        for (group, plural, namespace), kind in kinds.items()
        for verb in ("create", "patch")
    }
    answers = await asyncio.gather(*(_is_granted(facts, SELF_REVIEWS, right, {}) for right in needed))
    missing = dict.fromkeys(
        kind for kind, granted in zip(needed.values(), answers, strict=True) if not granted
    )
    if missing:
        yield warning(
            "installation",
            f"you have no right to create or patch {names(missing)}, which the installation contains",
            "let an administrator install",
        )
    else:
        yield ok("installation", "you may create and patch all objects of the installation")


_DEFINITION: Mapping[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {},
}


def _plural(kind: str) -> str:
    """Return the plural of a Kubernetes kind, such as ``networkpolicies``."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


async def _is_granted(facts: Facts, resource: Resource, right: Right, subject: Mapping[str, Any]) -> bool:
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": {**subject, "resourceAttributes": right.attributes()},
    }
    review = await facts.reader.create(resource, body)
    return bool((review.get("status") or {}).get("allowed"))
