"""Several hundred generated jobs with failure and success rules, each compared with a model of the documentation."""

import random
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from api.children import Exit
from api.failure_policy import FailureAction, FailurePolicy
from controller.domain import Role
from controller.policy import recovery
from tests.support.builders import NOON, pod
from tests.support.failure_model import Outcome, PodOf, first_match, outcome
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster

ROWS: Final = 400
CODES = (0, 1, 2, 3, 137, 143)
REASONS = ("", "Error", "OOMKilled")
POD_REASONS = ("", "", "Evicted", "UnexpectedAdmissionError")
CONDITIONS = ("DisruptionTarget", "example.com/GPULost")
ROLES = ("Master", "Worker")
MATCHED = (*REASONS[1:], *POD_REASONS[2:], "Deleted")


def some(draw: random.Random, values: tuple[Any, ...], most: int = 2) -> list[Any]:
    return draw.sample(values, draw.randint(1, min(most, len(values))))


def rule(draw: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"action": draw.choice(list(FailureAction)).value}
    codes = {
        "operator": draw.choice(["In", "NotIn"]),
        "values": some(draw, CODES[1:], 3),
    }
    requirements: dict[str, Any] = {
        "roles": [name.swapcase() if draw.random() < 0.2 else name for name in some(draw, ROLES, 1)],
        "containers": some(draw, ("pytorch", "sidecar", "other"), 1),
        "onExitCodes": codes,
        "onPodConditions": [{"type": name} for name in some(draw, CONDITIONS)],
        "onReasons": some(draw, MATCHED, 3),
    }
    chosen = draw.choices(list(requirements), weights=(2, 1, 4, 2, 3), k=draw.choice([0, 1, 1, 1, 2]))
    return found | {name: requirements[name] for name in chosen}


def failed_fields(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.2:  # evicted: no container's end is known
        return {"reason": draw.choice(POD_REASONS[2:]), "conditions": some(draw, CONDITIONS)}
    containers = [
        {"name": name, "code": draw.choice(CODES), "reason": draw.choice(REASONS), "at": draw.randint(0, 4)}
        for name in ("pytorch", "sidecar")[: draw.choice([1, 1, 2])]
    ]
    conditions = some(draw, CONDITIONS) if draw.random() < 0.2 else []
    return {"reason": draw.choice(POD_REASONS), "conditions": conditions, "containers": containers}


def pods(draw: random.Random) -> list[PodOf]:
    found: list[PodOf] = []
    for role, count in (("Master", 1), ("Worker", 3)):
        for index in range(count):
            state = draw.choices(
                ("Running", "Failed", "Succeeded", "Deleting"), weights=(4, 4, 1 + (role == "Worker"), 0.5)
            )[0]
            fields = failed_fields(draw) if state == "Failed" else {}
            name = f"train-{role.lower()}-{index}"
            found.append({"name": name, "role": role, "index": index, "state": state, **fields})
    return found


def success_rule(draw: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    most = 4
    if draw.random() < 0.6:
        found["roles"] = ["Worker"]
        most = 3
    if draw.random() < 0.4:
        found["succeededIndexes"], most = draw.choice([("0", most - 2), ("1-2", 2), ("0,2", most - 1)])
    if draw.random() < 0.6:
        found["succeededCount"] = draw.randint(1, most)
    return found


def policy(draw: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"rules": [rule(draw) for _ in range(draw.randint(1, 4))]}
    if draw.random() < 0.5:
        found["maxRestarts"] = draw.randint(0, 2)
    return found


def exits(given: PodOf) -> tuple[Exit, ...]:
    return tuple(
        Exit(
            container["name"],
            container["code"],
            container["reason"],
            finished_at=NOON + timedelta(seconds=container["at"]),
        )
        for container in given.get("containers", ())
    )


def state(given: PodOf) -> dict[str, Any]:
    """Return the fields of the row of this pod."""
    return {
        "phase": "Running" if given["state"] == "Deleting" else given["state"],
        "deleting": given["state"] == "Deleting",
        "exits": exits(given),
        "reason": given.get("reason", ""),
        "conditions": tuple(given.get("conditions", ())),
    }


@pytest.mark.parametrize("seed", range(ROWS))
def test_the_first_rule_that_matches_is_the_one_of_the_model(seed: int) -> None:
    draw = random.Random(f"match {seed}")
    rules = [rule(draw) for _ in range(draw.randint(1, 5))]
    role = draw.choice(ROLES)
    given = {"role": role, "state": draw.choice(["Failed"] * 9 + ["Deleting"]), "index": 0}
    if given["state"] == "Failed":
        given |= failed_fields(draw)

    failure = recovery.failure_of(Role(role, 1, "Never", {}), pod(role.lower(), **state(given)))
    assert failure is not None
    found = recovery.match(FailurePolicy.model_validate({"rules": rules}), failure)

    assert (found.number - 1 if found else None) == first_match(rules, given)


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, Any] | None, str, list[PodOf], int]:
    draw = random.Random(f"job {seed}")
    success = {"rules": [success_rule(draw) for _ in range(draw.randint(1, 2))]}
    return (
        policy(draw),
        success if draw.random() < 0.4 else None,
        draw.choice(["Never", "OnFailure", "ExitCode"]),
        pods(draw),
        draw.randint(0, 2),
    )


def observed(cluster: InMemoryCluster, before: Mapping[str, Any], restarts: int, counted: int) -> Outcome:
    """Return what became of the job."""
    last = (cluster.status.conditions or [])[-1]
    attempts = cluster.status.attempts or []
    decided_by = attempts[-1].pod or "" if attempts else ""
    if last.status == "True" and last.type in {"Succeeded", "Failed"}:
        reason = (last.reason or "").removeprefix("PyTorchJob") if last.type == "Failed" else ""
        return Outcome(last.type.lower(), reason, pod=decided_by)
    if cluster.status.restarts != restarts:
        assert cluster.status.restarts == restarts + 1
        counts = (cluster.status.restarts_count_towards_max or 0) - counted
        return Outcome("restarts", counts=bool(counts), pod=decided_by)
    replaced = frozenset(name for name, pod in cluster.pods.items() if pod.uid != before[name].uid)
    return Outcome("continues", replaced=replaced)


@pytest.mark.parametrize("seed", range(ROWS))
def test_a_job_ends_restarts_or_continues_as_in_the_model(seed: int) -> None:
    failure_policy, success, restart_policy, given, counted = drawn(seed)
    fields = {"failurePolicy": failure_policy, **({"successPolicy": success} if success else {})}
    cluster = running_cluster(restart_policy, workers=3, run_policy=fields)
    restarts = counted + 1
    cluster.write(restarts=restarts, restarts_count_towards_max=counted)
    cluster.set_phase("Running", attempt=restarts)
    for failed in given:
        row = state(failed)
        cluster.set_phase(row.pop("phase"), failed["name"].removeprefix("train-"), **row)
    before = dict(cluster.pods)
    cluster.settle()

    expected = outcome(failure_policy, success, restart_policy, given, counted)
    assert observed(cluster, before, restarts, counted) == expected


def test_the_rows_have_every_outcome_often() -> None:
    found = Counter((expected.what, expected.reason) for expected in map(_expected, range(ROWS)))

    assert len(found) == 6
    assert min(found.values()) >= ROWS / 40, found


def _expected(seed: int) -> Outcome:
    failure_policy, success, restart_policy, given, counted = drawn(seed)
    return outcome(failure_policy, success, restart_policy, given, counted)
