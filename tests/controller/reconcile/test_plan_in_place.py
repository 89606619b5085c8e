"""Plans of jobs that restart in place: their pods, and what the status records of the restarts."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from api.children import Exit
from api.labels import RESTART_ATTEMPT
from api.meta import CONFIG_MAPS, PODS, SERVICES
from api.restart_report import EXIT_CODE, SETTINGS_VARIABLE, RestartReport
from controller.domain import Count
from controller.kind import Options
from controller.kinds.jax import JAX
from controller.kinds.mpi.v1 import V1
from controller.kinds.pytorch import PYTORCH
from controller.reconcile.plan import problems
from tests.support.builders import job_of, pytorch_job, template
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import v1_job

ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
ANY: dict[str, Any] = {"action": "RestartJob"}
OPTIONS = Options(container_restart_rules=True)
COMMANDED = {"template": template(command=["python", "train.py"])}
SECOND = timedelta(seconds=1)


def policy_of(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"failurePolicy": {"rules": list(rules) or [ANY], "restartStrategy": "InPlaceRestart", **fields}}


def cluster_with(*rules: dict[str, Any], options: Options = OPTIONS, **fields: Any) -> InMemoryCluster:
    """Return a job that has run for 20 seconds."""
    job = pytorch_job(master=COMMANDED, worker=COMMANDED, run_policy=policy_of(*rules, **fields))
    cluster = InMemoryCluster(job, options=options)
    cluster.settle()
    cluster.set_phase("Running", running_since=cluster.now)
    cluster.settle()
    cluster.wait(20)
    return cluster


def fail(
    cluster: InMemoryCluster, name: str, attempt: int, code: int = 1, *, pause: int = 0, counted: int = 1
) -> None:
    """End the container of a pod for a restart in place, and run it again."""
    report = RestartReport(attempt, code, counted, pause, "lost a peer")
    end = Exit("pytorch", code, "Error", "lost a peer", finished_at=cluster.now, report=report)
    cluster.set_phase("Running", name, previous_failure=end, running_since=cluster.now + SECOND)


def pods_of(cluster: InMemoryCluster) -> dict[str, Any]:
    created = cluster.decide().create
    return {child.name: child.body() for child in created if child.resource == PODS}


def settings_of(pod: dict[str, Any]) -> dict[str, Any]:
    (text,) = [
        entry["value"] for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == SETTINGS_VARIABLE
    ]
    found: dict[str, Any] = orjson.loads(text)
    return found


def new_cluster(*rules: dict[str, Any], options: Options = OPTIONS, **fields: Any) -> InMemoryCluster:
    job = pytorch_job(master=COMMANDED, worker=COMMANDED, run_policy=policy_of(*rules, **fields))
    return InMemoryCluster(job, options=options)


def test_the_agent_starts_the_command() -> None:
    pod = pods_of(new_cluster())["train-worker-1"]

    container = pod["spec"]["containers"][0]
    assert container["command"][:2] == ["/bin/sh", "-c"]
    assert container["command"][3:] == ["sh", "python", "train.py"]
    assert (container["restartPolicy"], pod["spec"]["restartPolicy"]) == ("Never", "Never")
    assert container["restartPolicyRules"] == [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [EXIT_CODE]}}
    ]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["spec"]["volumes"]
    }


def test_only_the_main_container_gets_the_agent() -> None:
    given = template(command=["train"])
    given["spec"]["containers"].insert(0, {"name": "sidecar", "image": "img"})
    job = pytorch_job(master={"template": given}, worker={"template": given}, run_policy=policy_of())

    sidecar, main = pods_of(InMemoryCluster(job, options=OPTIONS))["train-worker-0"]["spec"]["containers"]

    assert "command" not in sidecar
    assert main["command"][-1] == "train"


def test_the_agents_meet_at_the_first_pod() -> None:
    given = {name: settings_of(pod) for name, pod in pods_of(new_cluster(maxRestarts=3)).items()}

    assert {name for name, settings in given.items() if settings["first"]} == {"train-master-0"}
    assert {settings["host"] for settings in given.values()} == {"train-master-0"}
    assert {(settings["members"], settings["max"]) for settings in given.values()} == {(3, 3)}


def test_the_agent_is_in_a_config_map_of_the_job() -> None:
    (config,) = [child for child in new_cluster().decide().create if child.resource == CONFIG_MAPS]

    assert config.name == "train-agent"
    compile(config.body()["data"]["agent.py"], "agent.py", "exec")
    assert config.body()["metadata"]["ownerReferences"][0]["uid"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([ANY], [[1, 255, "counted"]], id="all"),
        pytest.param(
            [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3]}}, ANY],
            [[1, 1, "counted"], [4, 255, "counted"]],
            id="all but some",
        ),
        pytest.param(
            [
                {
                    "action": "RestartJobAndIgnoreMaxRestarts",
                    "onExitCodes": {"operator": "In", "values": [137, 143]},
                },
                ANY,
            ],
            [
                [1, 136, "counted"],
                [137, 137, "uncounted"],
                [138, 142, "counted"],
                [143, 143, "uncounted"],
                [144, 255, "counted"],
            ],
            id="some do not count",
        ),
        pytest.param(
            [{"action": "FailJob", "onReasons": ["OOMKilled"]}, ANY],
            [[1, 136, "counted"], [138, 255, "counted"]],
            id="the reason decides, so the operator must",
        ),
        pytest.param([{"action": "RestartPod"}], [], id="the pod alone"),
        pytest.param([{**ANY, "roles": ["Master"]}], [], id="another role"),
        pytest.param([{**ANY, "onPodConditions": [{"type": "DisruptionTarget"}]}], [], id="conditions"),
        pytest.param([], [[1, 255, "counted"]], id="the default of these tests"),
    ],
)
def test_the_agent_knows_the_exit_codes_that_restart_the_job(
    rules: list[dict[str, Any]], expected: list[list[Any]]
) -> None:
    assert settings_of(pods_of(new_cluster(*rules))["train-worker-0"])["codes"] == expected


def test_a_restart_in_place_keeps_the_pods() -> None:
    cluster = cluster_with()
    fail(cluster, "worker-1", attempt=0, code=7)

    recorded = cluster.step()

    assert (recorded.create, recorded.delete, recorded.requeue_after_seconds) == ((), (), 0)
    assert cluster.conditions == "Created T, Restarting T"
    status = cluster.status
    assert (status.restarts, status.in_place_restarts, status.restarts_count_towards_max) == (1, 1, 1)
    (attempt,) = status.attempts or []
    assert (attempt.number, attempt.pod, attempt.exit_code, attempt.in_place) == (
        0,
        "train-worker-1",
        7,
        True,
    )
    assert (attempt.rule, attempt.message) == ("1", "lost a peer")
    assert cluster.counters == {"Master": {"active": 1}, "Worker": {"active": 2}}

    cluster.wait(2)
    cluster.settle()
    assert cluster.conditions == "Created T, Running T"
    assert (cluster.status.attempts or [])[0].lost_seconds == 2
    assert cluster.status.lost_seconds == 2
    assert cluster.created_pods == ALL_PODS
    clock = cluster.status.wall_clock
    assert clock
    assert (clock.phase, clock.recovering_seconds) == ("Running", 1)


def test_a_restart_counts_once() -> None:
    cluster = cluster_with()
    fail(cluster, "worker-1", attempt=0)
    cluster.settle()
    cluster.wait(2)
    cluster.settle()

    assert cluster.status.restarts == 1
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert cluster.reasons.count("PyTorchJobRestarting") == 1


def test_restarts_while_the_operator_was_away_count_by_their_number() -> None:
    cluster = cluster_with(maxRestarts=9)
    fail(cluster, "worker-0", attempt=1, counted=2)
    fail(cluster, "worker-1", attempt=4, counted=5)
    cluster.settle()

    status = cluster.status
    assert (status.restarts, status.in_place_restarts, status.restarts_count_towards_max) == (5, 5, 5)
    assert [(attempt.number, attempt.pod) for attempt in status.attempts or ()] == [
        (1, "train-worker-0"),
        (4, "train-worker-1"),
    ]


def test_a_report_cannot_count_more_restarts_than_there_were() -> None:
    cluster = cluster_with(maxRestarts=9)
    fail(cluster, "worker-0", attempt=0, counted=1000)
    cluster.settle()

    assert cluster.status.restarts_count_towards_max == 1


def test_the_job_restarts_until_the_pause_is_over_and_the_container_runs() -> None:
    cluster = cluster_with()
    fail(cluster, "worker-1", attempt=0, pause=10)
    cluster.settle()
    cluster.wait(9)

    assert cluster.conditions == "Created T, Restarting T"
    assert cluster.decide().requeue_after_seconds == 1

    cluster.set_phase("Running", "worker-1", running_since=None)
    cluster.wait(2)
    cluster.settle()
    assert cluster.conditions == "Created T, Restarting T"

    cluster.set_phase("Running", "worker-1", running_since=cluster.now)
    cluster.settle()
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize("is_gone", [True, False], ids=["has been scaled away", "has succeeded meanwhile"])
def test_the_job_runs_again_although_the_pod_that_failed(is_gone: bool) -> None:
    cluster = cluster_with()
    fail(cluster, "worker-1", 0)
    cluster.set_phase("Running", "worker-1", running_since=None)
    cluster.settle()
    assert cluster.conditions.endswith("Restarting T")
    if is_gone:
        fewer = {**COMMANDED, "replicas": 1}
        cluster.update_spec(pytorch_job(master=COMMANDED, worker=fewer, run_policy=policy_of()))
    else:
        cluster.set_phase("Succeeded", "worker-1", code=0)
    cluster.settle()

    assert cluster.conditions.endswith("Running T")


def test_a_restart_by_recreation_follows_one_in_place() -> None:
    cluster = cluster_with(maxRestarts=9)
    fail(cluster, "worker-1", attempt=0)
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=1, previous_failure=None)
    cluster.settle()
    cluster.wait(30)
    cluster.settle()

    status = cluster.status
    assert (status.restarts, status.in_place_restarts, status.restarts_count_towards_max) == (2, None, 2)
    assert [attempt.in_place for attempt in status.attempts or ()] == [True, None]
    assert cluster.created_pods == [*ALL_PODS, *ALL_PODS]


def test_a_pod_that_is_replaced_joins_the_present_attempt() -> None:
    cluster = cluster_with({"action": "RestartPod", "onExitCodes": {"operator": "In", "values": [9]}}, ANY)
    fail(cluster, "worker-1", attempt=0)
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=9)
    while not (new := pods_of(cluster)):
        cluster.step()

    assert new["train-worker-0"]["metadata"]["labels"][RESTART_ATTEMPT] == "1"
    assert settings_of(new["train-worker-0"])["attempt"] == 1
    cluster.settle()
    assert sorted(cluster.pods) == ALL_PODS


def test_a_container_that_its_kubelet_does_not_restart_restarts_the_job_by_recreation() -> None:
    cluster = cluster_with()
    report = RestartReport(0, 7, 1)
    cluster.set_phase("Failed", "worker-1", exits=(Exit("pytorch", 7, "Error", report=report),))
    cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert (attempt.exit_code, attempt.in_place, attempt.action) == (7, None, "RestartJob")
    assert cluster.status.in_place_restarts is None


def test_a_rule_that_has_changed_fails_the_job() -> None:
    cluster = cluster_with()
    policy = policy_of({"action": "FailJob"})
    cluster.job = pytorch_job(
        master=COMMANDED, worker=COMMANDED, run_policy=policy, status=cluster.status.to_wire()
    )
    fail(cluster, "worker-1", attempt=0)
    cluster.settle()

    assert (cluster.status.conditions or [])[-1].reason == "PyTorchJobFailurePolicy"


@pytest.mark.parametrize("action", ["RestartPod", "Ignore"])
def test_a_rule_that_the_agents_cannot_know_does_not_undo_their_restart(action: str) -> None:
    drained = {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}
    cluster = cluster_with(drained, ANY)
    fail(cluster, "worker-1", 0)
    cluster.set_phase("Running", "worker-1", conditions=("DisruptionTarget",))

    plans = cluster.settle()

    assert [plan.restart_action for plan in plans if plan.restart_action] == ["RestartJob"]
    assert [attempt.rule for attempt in cluster.status.attempts or ()] == ["2"]


def test_more_restarts_than_allowed_fail_the_job() -> None:
    cluster = cluster_with(maxRestarts=1)
    fail(cluster, "worker-1", attempt=0)
    cluster.settle()
    fail(cluster, "worker-1", attempt=1, counted=2)
    cluster.settle()

    assert (cluster.status.conditions or [])[-1].reason == "PyTorchJobMaxRestartsExceeded"


def test_an_older_cluster_gets_no_agent_and_the_job_an_event() -> None:
    cluster = cluster_with(options=Options())

    assert cluster.reasons.count("InPlaceRestartUnavailable") == 1
    assert not cluster.extras
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    assert cluster.created_pods == [*ALL_PODS, *ALL_PODS]


def test_a_template_must_name_its_command() -> None:
    job = pytorch_job(master=COMMANDED, run_policy=policy_of())

    (problem,) = problems(PYTORCH, job, OPTIONS)

    assert problem.field == "spec.runPolicy.failurePolicy.restartStrategy"
    assert 'container "pytorch" of Worker must name its command' in problem.text


def test_an_unknown_strategy_is_refused() -> None:
    job = pytorch_job(run_policy={"failurePolicy": {"rules": [ANY], "restartStrategy": "BlockingRecreate"}})

    (problem,) = problems(PYTORCH, job, OPTIONS)

    assert str(problem) == (
        'spec.runPolicy.failurePolicy.restartStrategy: Unsupported value: "BlockingRecreate": '
        'supported values: "Recreate", "InPlaceRestart"'
    )


def test_rules_of_the_template_are_refused() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}
    given = {"template": template(command=["train"], restartPolicy="Never", restartPolicyRules=[rule])}

    (problem,) = problems(PYTORCH, pytorch_job(workers=None, master=given, run_policy=policy_of()), OPTIONS)

    assert "must not have restartPolicyRules of its own" in problem.text


def test_a_kind_with_services_needs_none_for_the_agents() -> None:
    job = job_of(
        JAX, runPolicy=policy_of(), Worker={"replicas": 2, "template": template("jax", command=["train"])}
    )
    cluster = InMemoryCluster(job, kind=JAX, options=OPTIONS)

    created = [(child.resource, child.name) for child in cluster.decide().create]

    assert created.count((SERVICES, "train-worker-0")) == 1
    assert settings_of(pods_of(cluster)["train-worker-1"])["host"] == "train-worker-0"


def test_a_kind_without_services_gets_one_for_the_agents() -> None:
    command = {"template": template("mpi", command=["mpirun"])}
    job = v1_job(command, runPolicy=policy_of())
    created = InMemoryCluster(job, kind=V1, options=OPTIONS).decide().create

    (service,) = [child.body() for child in created if child.resource == SERVICES]
    worker = next(
        child.body() for child in created if child.name.endswith("worker-0") and child.resource == PODS
    )
    assert service["metadata"]["name"] == worker["metadata"]["name"]
    assert service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"]


def test_a_slow_clock_of_a_node_does_not_keep_a_job_restarting() -> None:
    cluster = cluster_with()
    ended = cluster.now - timedelta(seconds=30)  # by the clock of the node; before the attempt began
    end = Exit("pytorch", 1, "Error", finished_at=ended, report=RestartReport(0, 1, 1))
    cluster.set_phase("Running", "worker-0", previous_failure=end, running_since=ended + SECOND)
    cluster.settle()
    cluster.wait(3600)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
