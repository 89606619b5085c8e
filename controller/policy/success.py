"""The success policy of a job: which pods decide that it has succeeded.

Source of the words: batch/v1, types.go, SuccessPolicy; kubernetes, pkg/controller/job/success_policy.go. A rule that several roles share
counts the pods of all of them.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from api.job import RunPolicy
from api.success_policy import SuccessPolicy, SuccessRule
from controller.domain import Counts, Problem, Role, shortened
from controller.kind.checks import unknown_role_problems
from controller.policy.count import Slots

MOST_RULES: Final = 20
LONGEST_INDEXES: Final = 1024
"""The longest list of indexes, in characters."""

_INDEXES = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")


class Tally(NamedTuple):
    """The pods that a rule counts."""

    succeeded: int
    deciding: int
    """All of them, whatever their state, without those that are ignored."""


def problems(policy: RunPolicy, roles: Mapping[str, Role], *, is_supported: bool) -> Iterator[Problem]:
    """Return the problems of the success policy. ``is_supported`` is whether the kind's jobs can have one."""
    given = policy.success_policy
    if given is None:
        return
    path = "spec.runPolicy.successPolicy"
    if not is_supported:
        yield Problem(path, "Forbidden: jobs of this kind and version cannot have a successPolicy")
        return
    if not given.rules:
        yield Problem(f"{path}.rules", "Required value: must have at least one rule")
    if len(given.rules) > MOST_RULES:
        yield Problem(f"{path}.rules", f"Too many: {len(given.rules)}: must have at most {MOST_RULES} items")
    for at, rule in enumerate(given.rules[:MOST_RULES]):
        yield from _rule_problems(rule, roles, f"{path}.rules[{at}]")


def _rule_problems(rule: SuccessRule, roles: Mapping[str, Role], path: str) -> Iterator[Problem]:
    if rule.roles is not None and not rule.roles:
        yield Problem(f"{path}.roles", "Required value: an empty list matches nothing; leave it out")
        return
    if unknown := next(unknown_role_problems(rule.roles, roles, f"{path}.roles"), None):
        yield unknown
        return
    if (indexes := rule.succeeded_indexes) is not None and not _is_list(indexes):
        yield Problem(
            f"{path}.succeededIndexes",
            f'Invalid value: "{shortened(indexes, 64)}": must be indexes and ranges in ascending order, such as 0,2-4',
        )
        return
    pods = tally(rule, roles, {}).deciding
    if pods == 0:
        name, value = ("succeededIndexes", indexes) if indexes is not None else ("roles", rule.roles or ())
        given = value if isinstance(value, str) else ", ".join(value)
        yield Problem(f"{path}.{name}", f'Invalid value: "{shortened(given, 64)}": the job has no such pod')
    elif rule.succeeded_count is not None and not 1 <= rule.succeeded_count <= pods:
        text = f"Invalid value: {rule.succeeded_count}: must be from 1 to {pods}, the number of pods that the rule counts"
        yield Problem(f"{path}.succeededCount", text)


def first_met(
    policy: SuccessPolicy, roles: Mapping[str, Role], filled: Mapping[str, Slots], ignored: Collection[str]
) -> int | None:
    """Return the number of the first rule that is met, from 1; None if none is. ``ignored`` are UIDs of failed pods."""
    for number, rule in enumerate(policy.rules, 1):
        count = tally(rule, roles, filled, ignored)
        if 0 < (rule.succeeded_count or count.deciding) <= count.succeeded:
            return number
    return None


def can_be_met(
    policy: SuccessPolicy, roles: Mapping[str, Role], filled: Mapping[str, Slots], ignored: Collection[str]
) -> bool:
    """Return whether a rule is met if all pods succeed that are not ignored."""
    counts = [(rule, tally(rule, roles, filled, ignored).deciding) for rule in policy.rules]
    return any(0 < (rule.succeeded_count or deciding) <= deciding for rule, deciding in counts)


def tally(
    rule: SuccessRule, roles: Mapping[str, Role], filled: Mapping[str, Slots], ignored: Collection[str] = ()
) -> Tally:
    """Count the pods of a rule. ``filled`` are the pods that exist, by role."""
    named = None if rule.roles is None else {name.lower() for name in rule.roles}
    ranges = None if rule.succeeded_indexes is None else _ranges(rule.succeeded_indexes)
    succeeded = deciding = 0
    for role in roles.values():
        if named is not None and role.label not in named:
            continue
        deciding += role.replicas if ranges is None else _overlap(ranges, role.replicas)
        for index, pod in filled.get(role.name, {}).items():
            if ranges is None or any(low <= index <= high for low, high in ranges):
                succeeded += pod.phase == "Succeeded"
                deciding -= pod.uid in ignored
    return Tally(succeeded, deciding)


def unfinished(counts: Mapping[str, Counts]) -> dict[str, Counts]:
    """Return the counts for the rule of the kind, which then decides about failures only: pods that succeeded count as active."""
    return {
        name: Counts(count.active + count.succeeded, 0, count.failed, count.vanished, leaving=count.leaving)
        for name, count in counts.items()
    }


def best(roles: Mapping[str, Role]) -> dict[str, Counts]:
    """Return the counts if all of these replicas succeed."""
    return {
        name: Counts(succeeded=role.replicas, first_completed=role.replicas > 0)
        for name, role in roles.items()
    }


def _is_list(text: str) -> bool:
    """Return whether the indexes ascend and do not overlap."""
    if len(text) > LONGEST_INDEXES or not _INDEXES.fullmatch(text):
        return False
    bounds = [bound for low, high in _ranges(text) for bound in (low, high)]
    starts_after = all(end < start for end, start in zip(bounds[1::2], bounds[2::2], strict=False))
    return starts_after and all(low <= high for low, high in _ranges(text))


@lru_cache(maxsize=1024)
def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Return the first and the last index of each part."""
    parts = [part.partition("-") for part in text.split(",")]
    return tuple((int(low), int(high or low)) for low, _, high in parts)


def _overlap(ranges: tuple[tuple[int, int], ...], replicas: int) -> int:
    """Return how many of the indexes below ``replicas`` are in the ranges."""
    return sum(max(min(high, replicas - 1) - low + 1, 0) for low, high in ranges)
