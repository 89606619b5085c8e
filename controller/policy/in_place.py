"""Restarts in place: all commands of a job begin again in their pods, which stay.

Each pod's main container starts ``controller.agent``, which starts the command of the template. The agents restart their commands by
themselves; the operator learns of it from the container that failed first, which the kubelet restarts, and records the attempt. Whatever
the agents cannot decide ends a container for good, and the job restarts by recreation.

See docs/decisions/0034-restart-in-place.md.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

from api.children import Exit, Pod
from api.failure_policy import FailureAction, FailurePolicy, FailureRule, RestartStrategy
from api.job import Job, JobStatus, RunPolicy, owner_reference
from api.labels import JOB_NAME, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE
from api.meta import CONFIG_MAPS, PODS, SERVICES, Resource
from api.restart_report import EXIT_CODE, SETTINGS_VARIABLE, RestartReport
from controller.domain import Child, Plan, Present, Problem, Role, Severity, WriteMode
from controller.kind import Options, Replicas, Roles
from controller.kind.checks import unsupported_value
from controller.kind.reasons import EventReason
from controller.kind.services import qualified, subdomain
from controller.kind.status_builder import StatusBuilder
from controller.policy import attempts, checkpoints, recovery
from controller.policy.recovery import JITTER, Match, PodFailure
from controller.policy.replacement import RESET_AFTER, pause_seconds

PORT: Final = 29222
"""The port of the coordinator: on the first pod of the job."""
ADDRESS_VARIABLE: Final = "RALLYPOINT_AGENT_ADDRESS"
"""The environment variable with the address of the pod."""
KILLED: Final = 137
"""The exit code of a process that the kernel killed, perhaps because memory was short."""

LONGEST_GRACE_SECONDS: Final = 10
"""How long a command may handle SIGTERM in a restart, unless its pod has less."""

_AGENT: Final = "rallypoint-agent"
_STATE: Final = "rallypoint-agent-state"
_AGENT_PATH: Final = "/etc/rallypoint"
_STATE_PATH: Final = "/var/lib/rallypoint"
_FILE: Final = "agent.py"
_SCRIPT: Final = (
    f'if command -v python3 >/dev/null; then exec python3 -I -S {_AGENT_PATH}/{_FILE} "$@"; fi; '
    'echo "rallypoint: no python3 in this image, so the job restarts by recreation" >&2; '
    f'unset {SETTINGS_VARIABLE} {ADDRESS_VARIABLE}; exec "$@"'
)
_RULE: Final = {"action": "Restart", "exitCodes": {"operator": "In", "values": [EXIT_CODE]}}
_PAUSES: Final = tuple(pause_seconds(count) for count in range(1, 8))
_STRATEGY_PATH: Final = "spec.runPolicy.failurePolicy.restartStrategy"


def is_requested(policy: RunPolicy) -> bool:
    """Return whether the job wants to restart in place."""
    given = policy.failure_policy
    return given is not None and given.restart_strategy == RestartStrategy.IN_PLACE


def is_enabled(policy: RunPolicy, options: Options) -> bool:
    """Return whether the job restarts in place: it asks for that, and the cluster allows it."""
    return options.container_restart_rules and is_requested(policy)


def problems(policy: RunPolicy, pods: Iterable[tuple[Role, Mapping[str, Any]]]) -> Iterator[Problem]:
    """Return why a job that is otherwise valid cannot restart in place. ``pods`` are one pod, or its template, of each role."""
    given = policy.failure_policy
    if given is None or given.restart_strategy is None:
        return
    if given.restart_strategy not in set(RestartStrategy):
        yield Problem(_STRATEGY_PATH, unsupported_value(given.restart_strategy, RestartStrategy))
    elif is_requested(policy):
        for role, pod in pods:
            yield from _pod_problems(role, pod["spec"])


def first_pods(kind: Replicas[Any], job: Job, options: Options) -> Iterator[tuple[Role, dict[str, Any]]]:
    """Yield the first pod of each role, as it would be in a job without others."""
    roles = {name: replace(role, replicas=min(role.replicas, 1)) for name, role in kind.roles(job).items()}
    for role, _, child in kind.wanted(job, roles, options, Present()):
        if child.resource == PODS:
            yield role, child.body()


def _pod_problems(role: Role, spec: Mapping[str, Any]) -> Iterator[Problem]:
    container = spec["containers"][_main(spec, role)]
    if not container.get("command"):
        text = f'Required value: container "{container["name"]}" of {role.name} must name its command, because the image\'s own is unknown'
        yield Problem(_STRATEGY_PATH, text)
    if container.get("restartPolicyRules"):
        text = f'Forbidden: container "{container["name"]}" of {role.name} must not have restartPolicyRules of its own'
        yield Problem(_STRATEGY_PATH, text)


@dataclass(frozen=True)
class Agents:
    """The agents of one job."""

    owner: Resource
    job: Job
    roles: Roles
    first: Child
    """The pod of the coordinator."""
    has_service: bool
    """Whether the name of that pod already resolves."""
    subdomain: str = ""
    """The subdomain in which it resolves, if that is a part of the name."""

    @classmethod
    def of(cls, kind: Replicas[Any], job: Job, roles: Roles, options: Options) -> "Agents | None":
        """Return the agents of a job that restarts in place; None for all others."""
        if not is_enabled(job.spec.policy, options):
            return None
        children = (child for _, _, child in kind.wanted(job, roles, options, Present()))
        first = next((child for child in children if child.resource == PODS), None)
        if first is None:
            return None
        domain = subdomain(job, options)
        # A pod comes before its own Service, so that the rest of the children contains it.
        has_service = bool(domain) or any(
            child.resource == SERVICES and child.name == first.name for child in children
        )
        return cls(kind.resource, job, roles, first, has_service, domain)

    def children(self) -> tuple[Child, ...]:
        """Return the ConfigMap with the agent, and the Service of the coordinator's pod if it has none. Neither is ever changed."""
        config = Child(
            CONFIG_MAPS, self._config_name, self._config_map, WriteMode.APPLY, 1, lasting=True, flaw=_no_flaw
        )
        if self.has_service:
            return (config,)
        service = Child(
            SERVICES, self.first.name, self._service, WriteMode.APPLY, 1, lasting=True, flaw=_no_flaw
        )
        return config, service

    def added(self, child: Child, role: Role, status: JobStatus) -> Child:
        """Return the pod with an agent that starts the command of its main container."""
        build = child.body
        return replace(child, body=lambda: self.with_agent(build(), role, status))

    def with_agent(self, pod: Mapping[str, Any], role: Role, status: JobStatus) -> dict[str, Any]:
        """Return a pod, or the pod template of a role with one pod, as ``added`` returns its child."""
        spec = pod["spec"]
        main = _main(spec, role)
        given = spec["containers"][main]
        settings = {
            **self._settings(pod["metadata"].get("name", role.label), role, status),
            "log": given.get("terminationMessagePath") or "/dev/termination-log",
            "grace": min(
                spec.get("terminationGracePeriodSeconds", LONGEST_GRACE_SECONDS), LONGEST_GRACE_SECONDS
            ),
        }
        variables = [
            {"name": SETTINGS_VARIABLE, "value": json.dumps(settings, separators=(",", ":"))},
            {"name": ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
        mounts = [
            {"name": _AGENT, "mountPath": _AGENT_PATH, "readOnly": True},
            {"name": _STATE, "mountPath": _STATE_PATH},
        ]
        container = {
            **given,
            "command": ["/bin/sh", "-c", _SCRIPT, "sh", *given["command"]],
            "env": [*(given.get("env") or ()), *variables],
            "volumeMounts": [*(given.get("volumeMounts") or ()), *mounts],
            "restartPolicy": "Never",
            "restartPolicyRules": [_RULE],
        }
        volumes = [
            {"name": _AGENT, "configMap": {"name": self._config_name}},
            {"name": _STATE, "emptyDir": {}},
        ]
        changed = {
            "containers": [container if at == main else other for at, other in enumerate(spec["containers"])],
            "volumes": [*(spec.get("volumes") or ()), *volumes],
        }
        return {**pod, "spec": {**spec, **changed}}

    def _settings(self, name: str, role: Role, status: JobStatus) -> dict[str, Any]:
        """Return what the agent reads.

        The token is the job's UID: random, and known only to those who may read the job. It keeps all others from the agents.
        """
        policy = self._policy
        return {
            "name": name,
            "first": name == self.first.name,
            "host": qualified(self.first.name, self.subdomain),
            "port": PORT,
            "token": self.job.metadata.uid,
            "members": sum(role.replicas for role in self.roles.values()),
            "attempt": status.restarts or 0,
            "counted": status.restarts_count_towards_max or 0,
            "max": policy.max_restarts,
            "codes": self._codes[role.name],
            "pauses": _PAUSES,
            "reset": RESET_AFTER.total_seconds(),
            "jitter": JITTER,
            "state": f"{_STATE_PATH}/state.json",
        }

    @property
    def _policy(self) -> FailurePolicy:
        return self.job.spec.policy.failure_policy or FailurePolicy()

    @cached_property
    def _codes(self) -> Mapping[str, list[tuple[int, int, str]]]:
        """By role: the ranges of exit codes that restart the job, and whether these restarts count."""
        return {name: list(_ranges(self._policy, role)) for name, role in self.roles.items()}

    @property
    def _config_name(self) -> str:
        return f"{self.job.metadata.name}-agent"

    def _config_map(self) -> dict[str, Any]:
        return {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": self._metadata(self._config_name),
            "data": {_FILE: files("controller").joinpath(_FILE).read_text(encoding="utf-8")},
        }

    def _service(self) -> dict[str, Any]:
        labels: Mapping[str, str] = self.first.body()["metadata"]["labels"]
        selector = {name: value for name, value in labels.items() if name in _IDENTITY}
        return {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": self._metadata(self.first.name),
            "spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True},
        }

    def _metadata(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "labels": {JOB_NAME: self.job.metadata.name},
            "ownerReferences": [owner_reference(self.owner, self.job)],
        }


def record(job: Job, pods: Iterable[tuple[Role, Pod]], builder: StatusBuilder) -> Plan | None:
    """Record the restarts in place that the status does not know; None if there are none.

    Each restart has the number of the attempt that it ended, so it counts exactly once.
    """
    policy = job.spec.policy.failure_policy
    if policy is None:
        return None
    placed = tuple(pods)
    rows = [pod for _, pod in placed]
    found = sorted(_unrecorded(placed, builder.status), key=lambda entry: entry[0].attempt)
    for report, role, pod, end in found:
        if report.attempt < (builder.status.restarts or 0):
            continue
        failure = PodFailure(
            role.name,
            pod.name,
            pod.node,
            frozenset(filter(None, (pod.disruption,))),
            frozenset(pod.conditions),
            (end,),
            uid=pod.uid,
        )
        matched = recovery.match(policy, failure, recovery.ENDS) or Match(failure, _ANY, 0)
        is_over = recovery.is_exhausted(policy, builder.status, matched.action)
        if matched.action is FailureAction.FAIL_JOB or is_over:
            return attempts.end(job, matched, builder, rows)
        _record(job, matched, report, builder, checkpoints.newest(rows))
    return builder.plan(requeue_after_seconds=0) if found else None


def _record(
    job: Job, matched: Match, report: RestartReport, builder: StatusBuilder, saved: datetime | None
) -> None:
    status, number = builder.status, report.attempt + 1
    before, counted = status.restarts or 0, status.restarts_count_towards_max or 0
    attempt = recovery.ended(status, matched, job.metadata.uid, builder.now, saved)
    failed_at = attempt.end_time or builder.now
    attempt = attempt.model_copy(
        update={
            "number": report.attempt,
            "in_place": True,
            "restart_time": failed_at + timedelta(seconds=report.pause_seconds),
        }
    )
    fields = {
        "restarts": number,
        "restarts_count_towards_max": min(max(report.counted, counted), counted + number - before) or None,
        "in_place_restarts": (status.in_place_restarts or 0) + number - before,
        "attempts": recovery.recorded(status, attempt),
    }
    text = f"job {job.metadata.name} is restarting in place, attempt {number}, because {matched.description}."
    builder.restart_whole(fields, text, keeps_pods=True)


def warn(policy: RunPolicy, options: Options, builder: StatusBuilder) -> None:
    """Record an event if the job wants to restart in place and the cluster does not allow it."""
    if is_requested(policy) and not options.container_restart_rules:
        text = "restarts in place require Kubernetes 1.35; this job restarts by recreating its pods"
        builder.record_event(Severity.WARNING, EventReason.IN_PLACE_UNAVAILABLE, text, once=text)


def is_restarting(status: JobStatus, pods: Iterable[Pod], now: datetime) -> bool:
    """Return whether a restart in place is not over: its pause has not passed, or the pod that failed is there and does not run again."""
    last = status.last_attempt
    if last is None or not last.in_place or last.lost_seconds is not None or last.end_time is None:
        return False
    ended_at = last.end_time
    is_down = any(
        pod.name == last.pod
        and not pod.is_finished
        and (pod.running_since is None or pod.running_since < min(ended_at, _ended_at(pod) or ended_at))
        for pod in pods
    )
    return is_down or (due_in(status, now) or 0) > 0


def _ended_at(pod: Pod) -> datetime | None:
    """Return when a container of the pod ended last for a restart in place: like ``running_since``, by the clock of its node."""
    ends = (pod.previous_failure, *pod.exits)
    return max((end.finished_at for end in ends if end and end.report and end.finished_at), default=None)


def due_in(status: JobStatus, now: datetime) -> float | None:
    """Return the seconds until the pause of a restart in place is over; None if there is none."""
    last = status.last_attempt
    if last is None or not last.in_place or last.restart_time is None or last.restart_time <= now:
        return None
    return (last.restart_time - now).total_seconds()


_ANY: Final = FailureRule(action=FailureAction.RESTART_JOB)
"""Stands for a rule that has been changed since the agents read it."""
_IDENTITY: Final = frozenset({OPERATOR_NAME, JOB_NAME, REPLICA_TYPE, REPLICA_INDEX})


def _unrecorded(
    pods: Iterable[tuple[Role, Pod]], status: JobStatus
) -> Iterator[tuple[RestartReport, Role, Pod, Exit]]:
    """Yield the restarts that the status does not know. A container that ended for good restarts nothing, even if it meant to."""
    for role, pod in pods:
        for end in (pod.previous_failure, *(() if pod.is_finished else pod.exits)):
            if end and end.report and end.report.attempt >= (status.restarts or 0):
                yield end.report, role, pod, end


def _ranges(policy: FailurePolicy, role: Role) -> Iterator[tuple[int, int, str]]:
    """Yield the ranges of exit codes by which the rules restart the job, whatever the reason of the container is."""
    first, last, action = 0, 0, ""
    for code in range(1, 257):
        current = _action(policy, role, code) if code < 256 else ""
        if current != action:
            if action:
                yield first, last, action
            first, action = code, current
        last = code


def _action(policy: FailurePolicy, role: Role, code: int) -> str:
    reasons = ("Error", "OOMKilled") if code == KILLED else ("Error",)
    failures = (PodFailure(role.name, "", exits=(Exit(role.container, code, reason),)) for reason in reasons)
    found = {matched.action if (matched := recovery.match(policy, failure)) else None for failure in failures}
    match list(found):
        case [FailureAction.RESTART_JOB]:
            return "counted"
        case [FailureAction.RESTART_JOB_UNCOUNTED]:
            return "uncounted"
        case _:
            return ""


def _main(spec: Mapping[str, Any], role: Role) -> int:
    """Return the index of the container whose exit code counts."""
    names = [container.get("name") for container in spec["containers"]]
    return names.index(role.container) if role.container in names else 0


def _no_flaw(_: Mapping[str, Any]) -> str:
    """Accept an object that the job owns as it is: an operator of another version may have created it."""
    return ""
