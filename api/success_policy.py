"""When a job succeeds: rules about its pods, instead of the rule of its kind.

Source of the words: batch/v1 Job, successPolicy; ``roles`` are the targetReplicatedJobs of JobSet's successPolicy. Training-operator has no
such field for all kinds.
"""

from pydantic import Field

from api.meta import Wire


class SuccessRule(Wire):
    """One rule about the pods of these roles with these indexes. Pods that a failure rule ignores are none of them."""

    roles: list[str] | None = None
    """The replica types, such as ``Worker``; all if unset. Not case-sensitive."""
    succeeded_indexes: str | None = None
    """The indexes of the pods in their roles, such as ``0,2-4``; all if unset."""
    succeeded_count: int | None = None
    """How many of these pods must succeed; all if unset."""


class SuccessPolicy(Wire):
    """Rules for success. The job succeeds as soon as one of them is met."""

    rules: list[SuccessRule] = Field(default_factory=list[SuccessRule])
    """At most 20 rules."""
