"""Finds the operators that serve the job kinds, by image, command, labels and flags, and what each does now. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

from api.mpijob import RESOURCE as MPIJOBS
from controller.kind import JobKind
from controller.kinds import ALL, DEFAULT
from controller.settings import Settings
from rallypoint.cli.check.findings import Before, Finding, blocker, ok, warning
from rallypoint.diagnosis.objects import Object, name_of, parse_timestamp, spec_of, status_of
from rallypoint.documentation import DOCS_URL

OURS = "Rallypoint"
TRAINING_OPERATOR = "training-operator"
MPI_OPERATOR = "mpi-operator"
CHECK = "operators"
LEASE_ID = Settings().leader_election_id
LEASE_NAMES = (LEASE_ID, *sorted({kind.lease for kind in ALL if kind.lease}))
"""The Leases of the operators unless flags name others."""
CLOCK_SECONDS = 5.0
"""A larger difference of two clocks is reported. The operator warns at the same difference."""

_KINDS = frozenset(kind.resource.kind for kind in ALL)
_GO_KINDS: Mapping[str, frozenset[str]] = {
    TRAINING_OPERATOR: _KINDS,
    MPI_OPERATOR: frozenset({MPIJOBS.kind}),
    "tf-operator": frozenset({"TFJob"}),
    "pytorch-operator": frozenset({"PyTorchJob"}),
    "mxnet-operator": frozenset({"MXJob"}),
}
"""The kinds of each Go operator. The last three are those that training-operator 1.3 replaced."""
_IMAGES: Mapping[str, str] = {
    **{name: name for name in _GO_KINDS},
    "tf_operator": "tf-operator",
    "tf-job-operator": "tf-operator",
    "mxnet-operator-gpu": "mxnet-operator",
}
"""The last part of an image's name without its tag → the Go operator."""
_LABELS = {
    ("control-plane", "kubeflow-training-operator"): TRAINING_OPERATOR,
    ("app", MPI_OPERATOR): MPI_OPERATOR,
    ("app.kubernetes.io/name", MPI_OPERATOR): MPI_OPERATOR,
}
"""Labels of pods → the Go operator. Rallypoint has the first one, too."""
_LEASE_GUIDES = {
    "--leader-election-namespace": f"{DOCS_URL}/how-to/upgrade-from-training-operator.md#the-lease-of-another-namespace",
    "--lock-namespace": f"{DOCS_URL}/how-to/upgrade-from-mpi-operator.md#run-both-at-once",
}
_VARIABLE = re.compile(r"\$\((\w+)\)")
_SWITCHES = frozenset({"kueue", "leader-elect", "metrics-secure", "shadow"})

LeaseKey: TypeAlias = tuple[str, str]
"""Namespace and name."""
Flags: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Operator:
    """One Deployment, or an object like it, that runs an operator."""

    program: str
    """``Rallypoint``, or the name of the Go operator."""
    namespace: str
    name: str
    image: str
    flags: Flags
    desired: int
    ready: int
    existing: int
    """Pods that exist, which may be more than desired."""
    service_account: str
    template: Object
    container: str
    """The name of its container; sidecars have others."""
    default_namespace: str = ""
    """The value of $KUBEFLOW_NAMESPACE."""

    @property
    def is_ours(self) -> bool:
        return self.program == OURS

    @property
    def is_shadow(self) -> bool:
        return self.is_ours and self.is_set("shadow")

    @property
    def is_running(self) -> bool:
        return self.desired > 0 or self.existing > 0

    @property
    def is_writer(self) -> bool:
        """Return whether it writes, or does so as soon as it leads."""
        return self.is_running and not self.is_shadow

    @property
    def label(self) -> str:
        return f"{self.program} ({self.namespace}/{self.name})"

    @property
    def watched(self) -> str:
        """Return the only namespace that it serves; empty for all."""
        return self.flag("namespace") or self.default_namespace

    @property
    def job_kinds(self) -> tuple[JobKind[Any], ...]:
        """Return the kinds of ours that it serves."""
        names = self.kinds
        return tuple(kind for kind in ALL if kind.resource.kind in names)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that it serves."""
        chosen = {name.lower() for name in self.flags.get("enable-scheme", ())}
        if self.is_ours and not chosen:
            return frozenset(kind.resource.kind for kind in DEFAULT)
        known = _KINDS if self.is_ours else _GO_KINDS[self.program]
        if self.program == MPI_OPERATOR or not chosen:
            return known
        return frozenset(kind for kind in known if kind.lower() in chosen)

    @property
    def leases(self) -> frozenset[LeaseKey]:
        """Return the Leases without which it does not write; none if it writes without leader election.

        Source: training-operator 1.9, cmd/training-operator.v1/main.go; mpi-operator 0.8, cmd/mpi-operator/app/options/options.go.
        """
        if self.program == MPI_OPERATOR:
            return frozenset({(self.flag("lock-namespace") or MPI_OPERATOR, MPI_OPERATOR)})
        if self.program not in {OURS, TRAINING_OPERATOR} or not self.is_set("leader-elect"):
            return frozenset()
        namespace = self.flag("leader-election-namespace") or self.namespace
        leases = {(namespace, self.flag("leader-election-id") or LEASE_ID)}
        if self.is_ours:
            others = {kind.lease for kind in self.job_kinds if kind.lease}
            leases |= {(self.flag("lock-namespace") or namespace, name) for name in others}
        return frozenset(leases)

    def flag(self, *names: str) -> str:
        """Return the last value of a flag; empty if it is not set."""
        return next((values[-1] for name in names if (values := self.flags.get(name))), "")

    def is_set(self, name: str) -> bool:
        """Return whether a boolean flag is set."""
        return self.flag(name).lower() in {"true", "t", "1"}

    def shares_jobs(self, other: "Operator") -> bool:
        """Return whether both serve a kind in a common namespace."""
        namespaces = {self.watched, other.watched}
        return bool(self.kinds & other.kinds) and ("" in namespaces or len(namespaces) == 1)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A Lease of leader election, by the API server's clock."""

    namespace: str
    name: str
    holder: str
    """Empty if nobody holds it."""
    duration_seconds: float
    renewed: datetime | None
    is_changing: bool = False
    """Whether the holder renewed it between two reads."""

    @property
    def key(self) -> LeaseKey:
        return self.namespace, self.name

    def age_seconds(self, now: datetime) -> float:
        """Return the seconds since the last renewal; negative if the holder's clock is ahead."""
        return (now - self.renewed).total_seconds() if self.renewed else float("inf")

    def is_held(self, now: datetime) -> bool:
        return bool(self.holder) and (self.is_changing or self.age_seconds(now) <= self.duration_seconds)


def lease_state(body: Object) -> LeaseState:
    spec = spec_of(body)
    return LeaseState(
        body["metadata"]["namespace"],
        name_of(body),
        str(spec.get("holderIdentity") or ""),
        float(spec.get("leaseDurationSeconds") or 15),
        parse_timestamp(spec.get("renewTime")),
    )


def find_operators(workloads: Iterable[Object]) -> list[Operator]:
    """Return the operators among Deployments and StatefulSets."""
    return [operator for body in workloads if (operator := _operator(body))]


def _operator(body: Object) -> Operator | None:
    template = spec_of(body).get("template") or {}
    pod = template.get("spec") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    namespace = str(body["metadata"]["namespace"])
    containers = pod.get("containers") or ()
    # A sidecar may come first, so labels count only if no container says what it runs.
    programs = [(_program(container), container) for container in containers]
    programs += [(_program_by_labels(labels), container) for container in containers]
    for program, container in programs:
        if not program:
            continue
        variables = _variables(container, namespace)
        desired, status = spec_of(body).get("replicas"), status_of(body)
        return Operator(
            program,
            namespace,
            name_of(body),
            str(container.get("image") or ""),
            flags_of(container, variables),
            1 if desired is None else desired,
            status.get("readyReplicas") or 0,
            status.get("replicas") or 0,
            str(pod.get("serviceAccountName") or "default"),
            template,
            str(container.get("name") or ""),
            variables.get("KUBEFLOW_NAMESPACE", ""),
        )
    return None


def _program(container: Object) -> str:
    """Return the operator that a container runs by its command or image; empty if it runs none."""
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    image = image_name(str(container.get("image") or ""))
    runs_ours = ("-m", "controller") in pairwise(command)
    if runs_ours or image in {"rallypoint", "rallypoint-operator"}:
        return OURS
    return _IMAGES.get(image, "")


def _program_by_labels(labels: Mapping[str, str]) -> str:
    return next((name for (key, value), name in _LABELS.items() if labels.get(key) == value), "")


def image_name(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def image_tag(image: str) -> str:
    """Return the tag of an image; empty without one."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _variables(container: Object, namespace: str) -> dict[str, str]:
    """Return the environment variables whose values are known without the cluster."""
    values: dict[str, str] = {}
    for variable in container.get("env") or ():
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if path == "metadata.namespace":
            values[variable["name"]] = namespace
        elif "value" in variable:
            values[variable["name"]] = str(variable["value"])
    return values


def flags_of(container: Object, variables: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the values of the flags in command and arguments, which have one or two dashes as in Go."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    found: dict[str, list[str]] = {}
    position = 0
    while position < len(words):
        word = _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), str(words[position]))
        position += 1
        if not word.startswith("-"):
            continue
        name, has_value, value = word.lstrip("-").partition("=")
        if not has_value:
            following = str(words[position]) if position < len(words) else "-"
            if name in _SWITCHES or following.startswith("-"):
                value = "true"
            else:
                value = _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), following)
                position += 1
        found.setdefault(name, []).append(value)
    return found


def our_operator(operators: Iterable[Operator], namespace: str = "") -> Operator | None:
    """Return our operator: rather one that writes than a shadow, rather in ``namespace`` than elsewhere."""
    ours = [operator for operator in operators if operator.is_ours]
    return min(ours, key=lambda o: (o.namespace != namespace, o.is_shadow, not o.is_running), default=None)


def operator_findings(
    operators: Sequence[Operator],
    leases: Sequence[LeaseState],
    before: Before | None,
    now: datetime,
    version: str,
) -> Iterator[Finding]:
    """Yield what each operator does, and pairs of them that would write to the same jobs."""
    held = {lease.key: lease for lease in leases if lease.is_held(now)}
    for operator in operators:
        yield _activity(operator, held, operators)
        yield from (
            _our_findings(operator, before, version) if operator.is_ours else _go_findings(operator, before)
        )
    if not any(operator.is_ours for operator in operators):
        yield _no_operator(operators, before)
    yield from _double_writers(operators)
    yield from _unknown_holders(operators, held.values())


def _no_operator(operators: Sequence[Operator], before: Before | None) -> Finding:
    if before not in {None, Before.UPGRADE}:
        return ok(CHECK, "no Rallypoint operator is installed")
    others = [operator.program for operator in operators if operator.is_writer]
    return warning(
        CHECK,
        "no Rallypoint operator was found in any namespace",
        f"to replace {' and '.join(others)}, begin with rallypoint check --before switch"
        if others
        else f"install it, see {DOCS_URL}/how-to/install.md",
    )


def _activity(
    operator: Operator, held: Mapping[LeaseKey, LeaseState], operators: Sequence[Operator]
) -> Finding:
    if not operator.is_running:
        state = "is stopped (0 replicas)"
    elif operator.is_shadow:
        state = "runs as a shadow and writes nothing"
    elif not operator.leases:
        state = "runs and writes, without leader election"
    else:
        holders = [held[lease].holder for lease in sorted(operator.leases) if lease in held]
        # Names of pods begin with that of their Deployment, and say nothing about the namespace.
        is_ambiguous = any(
            other is not operator and other.name == operator.name and other.leases & operator.leases
            for other in operators
        )
        if not holders:
            state = "runs; nobody holds its Lease"
        elif not is_ambiguous and all(holder.startswith(f"{operator.name}-") for holder in holders):
            state = f"runs and holds its Lease ({names_of_leases(operator.leases)})"
        else:
            state = f"runs; {names_of_leases(operator.leases)} held by {', '.join(dict.fromkeys(holders))}"
    where = f" in namespace {operator.watched}" if operator.watched else ""
    return ok(
        CHECK,
        f"{operator.label}, image {operator.image}: {operator.ready} of {operator.desired} replicas ready; "
        f"serves {', '.join(sorted(operator.kinds))}{where}; {state}",
    )


def names_of_leases(leases: Iterable[LeaseKey]) -> str:
    return ", ".join(f"Lease {namespace}/{name}" for namespace, name in sorted(leases))


def _our_findings(operator: Operator, before: Before | None, version: str) -> Iterator[Finding]:
    logs = f"kubectl -n {operator.namespace} describe deployment {operator.name}, and the logs of its pods"
    if operator.desired and not operator.ready:
        yield blocker(CHECK, f"{operator.label}: no replica is ready, so no job is reconciled", logs)
    elif operator.ready < operator.desired:
        yield warning(
            CHECK, f"{operator.label}: {operator.ready} of {operator.desired} replicas are ready", logs
        )
    if operator.desired > 1 and not operator.leases and not operator.is_shadow:
        yield blocker(
            CHECK,
            f"{operator.label}: its {operator.desired} replicas write at the same time, because --leader-elect is not set",
            "set --leader-elect=true in its arguments, or scale it to 1 replica",
        )
    tag = image_tag(operator.image)
    if before is not Before.UPGRADE and re.match(r"v?\d", tag) and tag.removeprefix("v") != version:
        yield warning(
            CHECK,
            f"{operator.label} runs version {tag}, and this command is of version {version}, whose rules it checks",
            "use the command of the operator's version, or check with --before upgrade",
        )
    if before is Before.BACK and operator.is_writer:
        yield warning(
            CHECK,
            f"{operator.label} runs: a Go operator that starts now writes to the same jobs unless both share a Lease",
            f"stop it first: kubectl -n {operator.namespace} scale deployment {operator.name} --replicas=0, and wait for its pods to end",
        )


def _go_findings(operator: Operator, before: Before | None) -> Iterator[Finding]:
    if before is not Before.SWITCH or not operator.is_writer:
        return
    stop = f"stop it and wait for its pods to end before you start Rallypoint: kubectl -n {operator.namespace} delete deployment {operator.name}"
    if not operator.leases:
        yield warning(
            CHECK,
            f"{operator.label} writes without a Lease, so Rallypoint cannot wait for its end: both would write",
            f"{stop}; to compare decisions before, install the overlay shadow, which writes nothing, see {DOCS_URL}/how-to/shadow.md",
        )
        return
    (namespace, name), *_ = sorted(operator.leases)
    flag = "--lock-namespace" if name == MPI_OPERATOR else "--leader-election-namespace"
    yield warning(
        CHECK,
        f"{operator.label} writes while it holds the Lease {namespace}/{name}. A Rallypoint with the same Lease waits for its end; "
        f"one with a Lease in another namespace writes at the same time",
        f"install Rallypoint in namespace {namespace}, or with {flag}={namespace} and a Role for the Lease there, see {_LEASE_GUIDES[flag]}; or {stop}",
    )


def _double_writers(operators: Sequence[Operator]) -> Iterator[Finding]:
    writers = [operator for operator in operators if operator.is_writer]
    for index, first in enumerate(writers):
        for second in writers[index + 1 :]:
            if not first.shares_jobs(second) or first.leases & second.leases:
                continue
            kinds = ", ".join(sorted(first.kinds & second.kinds))
            why = (
                f"{names_of_leases(first.leases)} and {names_of_leases(second.leases)} are not the same"
                if first.leases and second.leases
                else f"{(second if first.leases else first).label} uses no Lease"
            )
            yield blocker(
                CHECK,
                f"{first.label} and {second.label} both write to {kinds}: {why}",
                f"stop one of them, such as with kubectl -n {second.namespace} scale deployment {second.name} --replicas=0",
            )


def _unknown_holders(operators: Sequence[Operator], held: Collection[LeaseState]) -> Iterator[Finding]:
    """Yield the Leases that an operator holds which is none of ``operators``."""
    running = [operator for operator in operators if operator.is_running]
    claimed = {lease for operator in running for lease in operator.leases}
    ours = next((operator for operator in running if operator.is_ours and operator.is_writer), None)
    for lease in held:
        if lease.key in claimed:
            continue
        text = f"{lease.holder} holds the Lease {lease.namespace}/{lease.name}, but no Deployment of an operator uses that Lease"
        kinds = {MPIJOBS.kind} if lease.name == MPI_OPERATOR else _KINDS
        if ours and ours.kinds & kinds:
            yield blocker(
                CHECK,
                f"{text}: it and {ours.label} may both write",
                "find the process of that name, and stop it",
            )
        else:
            yield warning(CHECK, f"{text}: an operator may run elsewhere", "find the process of that name")


def lease_findings(
    leases: Sequence[LeaseState], operators: Sequence[Operator], now: datetime
) -> Iterator[Finding]:
    """Yield Leases whose holder has stopped renewing, and holders with a wrong clock."""
    claimed = {lease for operator in operators if operator.is_running for lease in operator.leases}
    for lease in leases:
        if not lease.holder:
            continue
        age, where = lease.age_seconds(now), f"Lease {lease.namespace}/{lease.name}"
        if age < -CLOCK_SECONDS or (lease.is_changing and age > lease.duration_seconds):
            yield warning(
                "clock",
                f"the clock of {lease.holder}, which holds the {where}, differs from the API server's by {_length(abs(age))}",
                "synchronize the clock of its node",
            )
        elif lease.key in claimed and not lease.is_held(now):
            yield warning(
                "leases",
                f"the {where} has expired: {lease.holder} renewed it {_length(age)} ago",
                "look at the logs of the operator: another replica takes over if one is ready",
            )
        elif lease.is_held(now):
            yield ok("leases", f"{lease.holder} holds the {where}, renewed {_length(max(age, 0))} ago")


def _length(seconds: float) -> str:
    if seconds == float("inf"):
        return "an unknown time"
    return f"{seconds:.0f} s" if seconds < 600 else str(timedelta(seconds=round(seconds)))
