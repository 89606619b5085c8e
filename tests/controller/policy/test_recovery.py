"""Which rule of a failure policy matches, and what an attempt's end records."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from api.children import Exit, Pod
from api.failure_policy import Attempt, FailureAction, FailurePolicy
from api.job import JobStatus, RunPolicy
from controller.domain import Counts, Role
from controller.policy import recovery
from tests.support.builders import NOON, pod

WORKER = Role("Worker", 4, "Never", {"spec": {"containers": []}}, "pytorch")
SECOND = timedelta(seconds=1)


def policy(*rules: Mapping[str, Any], **fields: Any) -> FailurePolicy:
    return FailurePolicy.model_validate({"rules": rules, **fields})


def failed(index: int = 0, code: int = 1, *, at: int = 0, reason: str = "", **fields: Any) -> Pod:
    """A failed worker whose container ended at so many seconds after noon."""
    end = Exit("pytorch", code, reason, finished_at=NOON + at * SECOND)
    return pod("worker", index, "Failed", **{"exits": (end,), **fields})


def failure(given: Pod) -> recovery.PodFailure:
    found = recovery.failure_of(WORKER, given)
    assert found is not None
    return found


EVICTED = pod("worker", 0, "Failed", reason="Evicted", conditions=("DisruptionTarget",))
KILLED = failed(code=137, exits=(Exit("pytorch", 137, "OOMKilled"),))
SIDECAR = failed(exits=(Exit("sidecar", 3), Exit("pytorch", 1)))


@pytest.mark.parametrize(
    ("rule", "given", "matches"),
    [
        pytest.param({}, failed(), True, id="a rule without requirements matches each failure"),
        pytest.param({"roles": ["worker"]}, failed(), True, id="roles are not case-sensitive"),
        pytest.param({"roles": ["Master"]}, failed(), False, id="another role"),
        pytest.param({"onExitCodes": {"operator": "In", "values": [1, 2]}}, failed(), True, id="a listed code"),
        pytest.param({"onExitCodes": {"operator": "In", "values": [2]}}, failed(), False, id="a code that is not listed"),
        pytest.param({"onExitCodes": {"operator": "NotIn", "values": [2]}}, failed(), True, id="any code but"),
        pytest.param({"onExitCodes": {"operator": "NotIn", "values": [1]}}, failed(), False, id="excepted code"),
        pytest.param({"onExitCodes": {"operator": "NotIn", "values": [1]}}, EVICTED, False, id="no exit code at all"),
        pytest.param({"onReasons": ["Evicted"]}, EVICTED, True, id="the pod's reason"),
        pytest.param({"onReasons": ["OOMKilled"]}, KILLED, True, id="a container's reason"),
        pytest.param({"onReasons": ["OOMKilled"]}, EVICTED, False, id="another reason"),
        pytest.param({"onPodConditions": [{"type": "DisruptionTarget"}]}, EVICTED, True, id="a condition"),
        pytest.param({"onPodConditions": [{"type": "DisruptionTarget"}]}, failed(), False, id="no condition"),
        pytest.param({"containers": ["sidecar"]}, SIDECAR, True, id="a container"),
        pytest.param({"containers": ["other"]}, SIDECAR, False, id="another container"),
        pytest.param(
            {"containers": ["sidecar"], "onExitCodes": {"operator": "In", "values": [1]}}, SIDECAR, False,
            id="the code of another container",
        ),
        pytest.param(
            {"onExitCodes": {"operator": "In", "values": [137]}, "onReasons": ["OOMKilled"]}, KILLED, True,
            id="code and reason of one container",
        ),
        pytest.param(
            {"onExitCodes": {"operator": "In", "values": [3]}, "onReasons": ["OOMKilled"]}, SIDECAR, False,
            id="the code alone",
        ),
        pytest.param({"onReasons": ["Deleted"]}, pod(deleting=True), True, id="a running pod that is being deleted"),
        pytest.param({"onReasons": ["Deleted"]}, failed(deleting=True), False, id="a failed pod that is being deleted"),
    ],
)  # fmt: skip
def test_a_rule_matches_if_all_its_requirements_hold(
    rule: Mapping[str, Any], given: Pod, matches: bool
) -> None:
    found = recovery.match(policy({"action": "FailJob", **rule}), failure(given))

    assert (found is not None) is matches


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(pod(), id="running"),
        pytest.param(pod(phase="Succeeded"), id="succeeded"),
        pytest.param(pod(phase="Pending", deleting=True), id="deleted before it ran"),
    ],
)
def test_other_pods_have_not_failed(given: Pod) -> None:
    assert recovery.failure_of(WORKER, given) is None


def test_the_first_rule_that_matches_decides() -> None:
    rules = policy(
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "RestartPod", "onReasons": ["Evicted"], "name": "evicted"},
        {"action": "RestartJob"},
    )

    found = [recovery.match(rules, failure(given)) for given in (failed(code=3), EVICTED, failed())]

    assert [(match.rule_name, match.action) for match in found if match] == [
        ("1", "FailJob"),
        ("evicted", "RestartPod"),
        ("3", "RestartJob"),
    ]


@pytest.mark.parametrize(
    ("pods", "action"),
    [
        pytest.param([failed(0, 1, at=5), failed(1, 3, at=2)], "FailJob", id="the first failure"),
        pytest.param([failed(0, 1, at=2), failed(1, 3, at=5)], "RestartJob", id="not its consequence"),
        pytest.param([failed(0, 1, at=2), failed(1, 3, at=2)], "FailJob", id="at one time the earlier rule"),
        pytest.param([EVICTED, failed(1, 3, at=2)], "FailJob", id="a known time before an unknown one"),
        pytest.param([failed(0, 9)], None, id="a pod that is only replaced"),
        pytest.param([], None, id="no failure"),
    ],
)
def test_the_pod_that_failed_first_decides(pods: list[Pod], action: str | None) -> None:
    rules = policy(
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "RestartPod", "onExitCodes": {"operator": "In", "values": [9]}},
        {"action": "RestartJob"},
    )

    matches = [recovery.match(rules, failure(given)) for given in pods]
    found = recovery.decisive(filter(None, matches))

    assert (found and found.action) == action


def status(*attempts: Attempt, **fields: Any) -> JobStatus:
    return JobStatus(attempts=list(attempts), start_time=NOON - 60 * SECOND, **fields)


def end(given: JobStatus, action: str = "RestartJob", pod: Pod = KILLED, now: int = 10) -> Attempt:
    found = recovery.match(policy({"action": action}), failure(pod))
    assert found is not None
    return recovery.ended(given, found, "uid", NOON + now * SECOND)


def test_the_history_names_the_failure() -> None:
    given = failed(2, 137, reason="OOMKilled", at=4, node="node-7")

    assert end(status(), pod=given).to_wire() == {
        "number": 0,
        "startTime": "2026-01-01T11:59:00Z",
        "endTime": "2026-01-01T12:00:04Z",
        "pod": "train-worker-2",
        "role": "Worker",
        "node": "node-7",
        "container": "pytorch",
        "exitCode": 137,
        "reason": "OOMKilled",
        "rule": "1",
        "action": "RestartJob",
        "restartTime": "2026-01-01T12:00:10Z",
    }


def test_messages_are_short_and_without_control_characters() -> None:
    message = "\x1b[31mred\x07" + "x" * 1000
    given = failed(exits=(Exit("pytorch", 1, message=message),))

    text = end(status(), pod=given).message

    assert text is not None
    assert (text[:4], len(text)) == ("redx", recovery.LONGEST_MESSAGE)


def test_a_failure_in_the_future_of_a_wrong_clock_ends_the_attempt_now() -> None:
    assert end(status(), pod=failed(at=500)).end_time == NOON + 10 * SECOND


def test_pauses_grow_while_attempts_fail_soon() -> None:
    given = status()
    pauses: list[float] = []
    now = 0
    for _ in range(8):
        attempt = end(given, pod=failed(at=now), now=now)
        given = given.model_copy(update=recovery.restarted(given, attempt))
        assert attempt.restart_time is not None
        pauses.append(recovery.restart_in(given, NOON + now * SECOND))
        now += int(pauses[-1]) + 1

    assert pauses[0] == 0
    for pause, expected in zip(pauses[1:], (10, 20, 40, 80, 160, 300, 300), strict=True):
        assert expected <= pause <= expected * (1 + recovery.JITTER) + 1


def test_a_pause_that_a_wrong_clock_wrote_is_over() -> None:
    given = status(Attempt(number=0, restart_time=NOON + 3600 * SECOND))

    assert recovery.restart_in(given, NOON) == 0
    assert recovery.restart_in(given, NOON + 3300 * SECOND) == 300


def test_an_attempt_that_ran_long_starts_the_pauses_anew() -> None:
    given = status()
    for now in (0, 5, 10):
        given = given.model_copy(update=recovery.restarted(given, end(given, pod=failed(at=now), now=now)))

    late = end(given, pod=failed(at=3600), now=3600)

    assert late.restart_time == NOON + 3600 * SECOND


def test_a_repeated_decision_is_the_same_and_other_jobs_have_other_pauses() -> None:
    given = status()
    for now in (0, 5, 10):
        given = given.model_copy(update=recovery.restarted(given, end(given, pod=failed(at=now), now=now)))
    found = recovery.match(policy({"action": "RestartJob"}), failure(failed(at=15)))
    assert found is not None

    times = {
        uid: recovery.ended(given, found, uid, NOON + 15 * SECOND).restart_time for uid in map(str, range(20))
    }

    assert times == {uid: recovery.ended(given, found, uid, NOON + 15 * SECOND).restart_time for uid in times}
    assert len(set(times.values())) > 3


@pytest.mark.parametrize(("action", "counted"), [("RestartJob", 1), ("RestartJobAndIgnoreMaxRestarts", None)])
def test_only_one_action_counts_towards_the_limit(action: str, counted: int | None) -> None:
    given = status()
    after = given.model_copy(update=recovery.restarted(given, end(given, action)))

    assert (after.restarts, after.restarts_count_towards_max) == (1, counted)
    limited = policy(maxRestarts=1)
    assert recovery.is_exhausted(limited, after, FailureAction.RESTART_JOB) is (counted == 1)
    assert not recovery.is_exhausted(limited, after, FailureAction.RESTART_JOB_UNCOUNTED)
    assert not recovery.is_exhausted(policy(), after, FailureAction.RESTART_JOB)


def test_the_history_has_the_last_ten_attempts() -> None:
    given = status()
    for now in range(12):
        given = given.model_copy(update=recovery.restarted(given, end(given, pod=failed(at=now), now=now)))

    assert [attempt.number for attempt in given.attempts or ()] == list(range(2, 12))
    assert given.restarts == 12


def test_the_lost_time_is_recorded_once() -> None:
    given = status()
    given = given.model_copy(update=recovery.restarted(given, end(given, pod=failed(at=4))))

    fields = recovery.recovered(given, NOON + 30 * SECOND)
    after = given.model_copy(update=fields)

    assert (after.lost_seconds, (after.attempts or [])[-1].lost_seconds) == (26, 26)
    assert recovery.recovered(after, NOON + 60 * SECOND) == {}


def test_a_job_that_never_restarted_has_lost_nothing() -> None:
    assert recovery.recovered(JobStatus(), NOON) == {}
    assert recovery.restart_in(JobStatus(), NOON) == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"maxRestarts": -1, "rules": [{"action": "RestartJob"}]}, "maxRestarts", id="a negative limit"),
        pytest.param({"rules": [{"action": "Explode"}]}, "rules[0].action", id="an unknown action"),
        pytest.param({"rules": [{"action": "FailJob", "roles": ["Chef"]}]}, "rules[0].roles[0]", id="an unknown role"),
        pytest.param({"rules": [{"action": "FailJob", "onReasons": []}]}, "rules[0].onReasons", id="an empty list"),
        pytest.param(
            {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]},
            "rules[0].onExitCodes.values[0]", id="success as a failure",
        ),
        pytest.param(
            {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "Is", "values": [1]}}]},
            "rules[0].onExitCodes.operator", id="an unknown operator",
        ),
        pytest.param(
            {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": []}}]},
            "rules[0].onExitCodes.values", id="no exit codes",
        ),
        pytest.param({"rules": [{"action": "FailJob"}] * 21}, "rules", id="too many rules"),
        pytest.param({"maxRestarts": 3}, "rules", id="a limit without a rule"),
        pytest.param(
            {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "Ready"}, {"type": ""}]}]},
            "rules[0].onPodConditions[1].type", id="a condition without a type",
        ),
        pytest.param(
            {"rules": [{"action": "FailJob", "onReasons": ["Evicted", "PendingTimeout"]}]}, "rules[0].onReasons[1]",
            id="a reason that needs another field",
        ),
        pytest.param(
            {"rules": [{"action": "FailJob", "onReasons": ["Evicted"], "forSeconds": -1}]}, "rules[0].forSeconds",
            id="a negative time",
        ),
        pytest.param(
            {"rules": [{"action": "FailJob", "forSeconds": 5}]}, "rules[0].forSeconds", id="a time without reasons"
        ),
    ],
)  # fmt: skip
def test_a_problem_names_its_field(fields: Mapping[str, Any], field: str) -> None:
    given = RunPolicy.model_validate({"failurePolicy": fields})

    (problem,) = recovery.problems(given, {"Worker": WORKER})

    assert problem.field == f"spec.runPolicy.failurePolicy.{field}"


def test_a_back_off_limit_beside_the_policy_is_a_problem() -> None:
    given = RunPolicy.model_validate({"failurePolicy": {}, "backoffLimit": 3})

    (problem,) = recovery.problems(given, {"Worker": WORKER})

    assert problem.field == "spec.runPolicy.backoffLimit"


def test_the_disruption_of_a_deleted_pod_says_more_than_its_deletion() -> None:
    preempted = pod("worker", 0, "Failed", reason=recovery.DELETED, disruption="PreemptionByScheduler")

    found = failure(preempted)

    assert found.reason == "PreemptionByScheduler"
    assert found.reasons == {recovery.DELETED, "PreemptionByScheduler"}


def test_an_ignored_pod_that_has_ended_is_none_of_those_that_terminate_while_they_run() -> None:
    running = pod("worker", 0, "Running", deleting=True)
    ended = pod("worker", 1, "Failed", deleting=True, reason=recovery.DELETED)
    ignored = recovery.match(policy({"action": "Ignore"}), failure(ended))
    assert ignored

    _, counts = recovery.adjusted(WORKER, Counts(failed=2, leaving=1), [running, ended], [ignored])

    assert (counts.failed, counts.leaving) == (1, 1)
