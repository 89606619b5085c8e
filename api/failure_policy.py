"""What a job does when one of its pods fails: ordered rules, and the restart of the whole job. All fields are opt-in.

Source of the words: batch/v1 Job, podFailurePolicy; jobset.x-k8s.io JobSet, failurePolicy (restartStrategy). Training-operator has no such fields.
"""

from enum import StrEnum

from pydantic import Field

from api.meta import Wire
from api.times import Time


class FailureAction(StrEnum):
    """What a rule does."""

    FAIL_JOB = "FailJob"
    RESTART_JOB = "RestartJob"
    RESTART_JOB_UNCOUNTED = "RestartJobAndIgnoreMaxRestarts"
    RESTART_POD = "RestartPod"
    IGNORE = "Ignore"


class RestartStrategy(StrEnum):
    """How a job restarts as a whole."""

    RECREATE = "Recreate"
    IN_PLACE = "InPlaceRestart"


class ExitCodeOperator(StrEnum):
    """How a rule compares exit codes."""

    IN = "In"
    NOT_IN = "NotIn"


class ExitCodes(Wire):
    """Exit codes other than 0. A container that succeeded never matches."""

    operator: str
    """``In`` matches the listed exit codes, ``NotIn`` all others except 0."""
    values: list[int]
    """The exit codes, from 1 to 255."""


class PodConditionPattern(Wire):
    """A condition of the pod."""

    type: str
    """The type of a condition whose status is True, such as ``DisruptionTarget``."""


class FailureRule(Wire):
    """One rule. It matches a failed pod that meets all requirements that are set; without requirements it matches every failed pod."""

    name: str | None = None
    """A name for messages and the history. The default is the rule's number, from 1."""
    action: str
    """``FailJob``; ``RestartJob``, which counts towards ``maxRestarts``; ``RestartJobAndIgnoreMaxRestarts``, which does not; ``RestartPod``; or
    ``Ignore``, which leaves the pod failed and continues without it.
    """
    roles: list[str] | None = None
    """The replica types, such as ``Worker``; any if unset. Not case-sensitive."""
    containers: list[str] | None = None
    """The containers, init containers included, whose exit codes and reasons count; all if unset."""
    on_exit_codes: ExitCodes | None = None
    """Exit codes of the containers."""
    on_pod_conditions: list[PodConditionPattern] | None = None
    """Conditions of the pod; one of them must match."""
    on_reasons: list[str] | None = None
    """Reasons of the pod or of a container, such as ``Evicted`` or ``OOMKilled``; one must match. ``Deleted`` is a pod that somebody deleted,
    ``NoProgress`` the pod named for a hang.
    Reasons of pods that have not failed match, too, such as ``Unschedulable`` or ``ImagePullBackOff``.
    """
    for_seconds: int | None = None
    """How long a pod that has not failed must have had a reason. Defaults to ``60``."""


class FailurePolicy(Wire):
    """Ordered rules for failed pods. The first rule that matches decides; without a match, the role's restartPolicy does."""

    rules: list[FailureRule] = Field(default_factory=list[FailureRule])
    """At most 20 rules."""
    max_restarts: int | None = None
    """How often ``RestartJob`` may restart the job; the next failure with that action fails the job. No limit if unset."""
    restart_strategy: str | None = None
    """``Recreate`` deletes all pods. ``InPlaceRestart`` restarts the main containers in their pods if possible. Defaults to ``Recreate``."""
    avoid_failed_nodes: bool | None = None
    """Whether new pods avoid the nodes on which the recorded attempts failed first. Defaults to ``false``."""


class StackTrace(Wire):
    """What the processes of pods did when the job hung."""

    pods: list[str]
    """The pods in which it is the same."""
    text: str
    """The first 1,000 characters: each process with its state, and its stacks where they could be read."""


class Attempt(Wire):
    """One attempt that a failed pod ended."""

    number: int
    """The attempt, counted from 0."""
    start_time: Time | None = None
    """When the attempt began."""
    end_time: Time | None = None
    """When the pod failed that ended it."""
    pod: str | None = None
    """The pod that failed first."""
    role: str | None = None
    """The replica type of that pod."""
    node: str | None = None
    """The node of that pod."""
    node_problems: list[str] | None = None
    """Conditions and taints that reported problems of that node. Only jobs that ask about nodes have it."""
    container: str | None = None
    """The container that failed."""
    exit_code: int | None = None
    """The exit code of that container."""
    reason: str | None = None
    """The reason of the pod or of the container, such as ``OOMKilled``."""
    message: str | None = None
    """The first 256 characters of the termination message, or of the pod's message."""
    rule: str | None = None
    """The rule that matched, by name or number."""
    action: str | None = None
    """The action of that rule."""
    stacks: list[StackTrace] | None = None
    """The stacks when the job hung, those of the named pod first."""
    checkpoint_time: Time | None = None
    """When its newest checkpoint was complete, if its pods report that."""
    restart_time: Time | None = None
    """The earliest start of the next attempt."""
    lost_seconds: int | None = None
    """Seconds from the failure until the job ran again."""
    in_place: bool | None = None
    """Whether the pods stayed when the next attempt began."""
