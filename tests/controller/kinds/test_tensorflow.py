"""TFJob: the vectors, scenarios and worked examples of its contract and further rules."""

from collections.abc import Mapping
from typing import Any

import pytest

from api.v1.tfjob import TFJob
from controller.domain import Counts, Verdict
from controller.kind import Options
from controller.kind.pods import pod, service
from controller.kinds.tensorflow import TENSORFLOW
from tests.support.builders import job_of, template
from tests.support.in_memory_cluster import InMemoryCluster

PORT_2223 = template("tensorflow", ports=[{"name": "tfjob-port", "containerPort": 2223}])
MNIST = job_of(
    TENSORFLOW,
    "mnist",
    PS={"template": PORT_2223},
    Worker={"replicas": 2, "restartPolicy": "OnFailure"},
)
DYNAMIC: dict[str, Any] = {"enableDynamicWorker": True}
"""The spec of a job with dynamic workers."""


def sized(name: str = "train", *, spec: Mapping[str, Any] | None = None, **sizes: int) -> TFJob:
    """A TFJob in the namespace ``ml`` with so many replicas of each role."""
    return job_of(
        TENSORFLOW, name, **{role: {"replicas": size} for role, size in sizes.items()}, **(spec or {})
    )


def in_namespace(namespace: str, job: TFJob) -> TFJob:
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": namespace})})


def body(job: TFJob, role: str, index: int = 0) -> dict[str, Any]:
    roles = TENSORFLOW.roles(job)
    return pod(TENSORFLOW, job, roles, roles[role], index, Options())


def tf_config(job: TFJob, role: str, index: int, domain: str = "") -> str | None:
    roles = TENSORFLOW.roles(job)
    env = TENSORFLOW.env(job, roles, roles[role], index, Options(cluster_domain=domain))
    value = dict(env).pop("TF_CONFIG", None)
    assert len(env) == (value is not None)
    assert not isinstance(value, Mapping)
    return value


EST = sized("est", Chief=1, Worker=2, PS=1, Evaluator=1)
DYN = sized("dyn", Chief=1, PS=2, Worker=3, Evaluator=1, spec=DYNAMIC)


@pytest.mark.parametrize(
    ("job", "role", "index", "domain", "expected"),
    [
        pytest.param(
            in_namespace("team-a", MNIST),
            "Worker",
            1,
            "",
            '{"cluster":{"ps":["mnist-ps-0.team-a.svc:2223"],"worker":["mnist-worker-0.team-a.svc:2222","mnist-worker-1.team-a.svc:2222"]},"task":{"type":"worker","index":1},"environment":"cloud"}',
            id="V1: a worker",
        ),
        pytest.param(
            in_namespace("team-a", MNIST),
            "PS",
            0,
            "",
            '{"cluster":{"ps":["mnist-ps-0.team-a.svc:2223"],"worker":["mnist-worker-0.team-a.svc:2222","mnist-worker-1.team-a.svc:2222"]},"task":{"type":"ps","index":0},"environment":"cloud"}',
            id="V2: a parameter server",
        ),
        pytest.param(
            EST,
            "Evaluator",
            0,
            "cluster.local",
            '{"cluster":{"chief":["est-chief-0.ml.svc.cluster.local:2222"],"evaluator":["est-evaluator-0.ml.svc.cluster.local:2222"],"ps":["est-ps-0.ml.svc.cluster.local:2222"],"worker":["est-worker-0.ml.svc.cluster.local:2222","est-worker-1.ml.svc.cluster.local:2222"]},"task":{"type":"evaluator","index":0},"environment":"cloud"}',
            id="V3: the evaluator, in a cluster with a domain",
        ),
        pytest.param(sized("solo", Worker=1), "Worker", 0, "", None, id="V4: a single pod"),
        pytest.param(
            sized("solo", PS=0, Worker=1), "Worker", 0, "", None, id="V5: beside a role without replicas"
        ),
        pytest.param(
            sized("z", PS=0, Worker=2),
            "Worker",
            0,
            "",
            '{"cluster":{"ps":[],"worker":["z-worker-0.ml.svc:2222","z-worker-1.ml.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="V6: a role without replicas",
        ),
        pytest.param(
            DYN,
            "Worker",
            2,
            "",
            '{"cluster":{"worker":{"2":"dyn-worker-2.ml.svc:2222"},"ps":["dyn-ps-0.ml.svc:2222","dyn-ps-1.ml.svc:2222"]},"task":{"type":"worker","index":2}}',
            id="V7: a dynamic worker",
        ),
        pytest.param(
            DYN,
            "PS",
            1,
            "",
            '{"cluster":{"worker":{},"ps":["dyn-ps-1.ml.svc:2222"]},"task":{"type":"ps","index":1}}',
            id="V8: a parameter server beside dynamic workers",
        ),
        pytest.param(
            DYN,
            "Chief",
            0,
            "",
            '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}',
            id="V9: a chief beside dynamic workers",
        ),
        pytest.param(
            sized("dyn", Chief=1, Worker=3, spec=DYNAMIC),
            "Worker",
            0,
            "",
            '{"cluster":{"worker":{"0":"dyn-worker-0.ml.svc:2222"},"ps":null},"task":{"type":"worker","index":0}}',
            id="V10: a dynamic worker without parameter servers",
        ),
        pytest.param(
            sized("dyn", PS=0, Worker=4, spec=DYNAMIC),
            "Worker",
            3,
            "cluster.local",
            '{"cluster":{"worker":{"3":"dyn-worker-3.ml.svc.cluster.local:2222"},"ps":[]},"task":{"type":"worker","index":3}}',
            id="a dynamic worker beside zero parameter servers",
        ),
        pytest.param(
            sized("solo", Worker=1, spec=DYNAMIC), "Worker", 0, "", None, id="a single dynamic worker"
        ),
    ],
)
def test_tf_config(job: TFJob, role: str, index: int, domain: str, expected: str | None) -> None:
    assert tf_config(job, role, index, domain) == expected


def test_a_job_of_that_name_in_another_namespace_gets_its_own_addresses() -> None:
    """Cached values of a job are not used for another."""
    job, other = sized(Worker=2), in_namespace("other", sized(Worker=2))

    values = {tf_config(job, "Worker", 0), tf_config(other, "Worker", 0), tf_config(job, "Worker", 0, "d")}

    assert len(values) == 3


def test_example_18_1_worker() -> None:
    job = in_namespace("team-a", MNIST)

    made = body(job, "Worker", 0)

    assert made["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert made["spec"]["restartPolicy"] == "OnFailure"
    assert made["spec"]["containers"] == [
        {
            "name": "tensorflow",
            "image": "img",
            "ports": [{"name": "tfjob-port", "containerPort": 2222}],
            "env": [{"name": "TF_CONFIG", "value": tf_config(job, "Worker", 0)}],
        }
    ]


def test_example_18_1_parameter_server() -> None:
    roles = TENSORFLOW.roles(MNIST)

    assert body(MNIST, "PS")["spec"]["restartPolicy"] == "Never"
    assert service(TENSORFLOW, MNIST, roles["PS"], 0)["spec"]["ports"] == [
        {"name": "tfjob-port", "port": 2223}
    ]


def test_only_the_main_container_gets_the_variable_and_only_with_other_replicas() -> None:
    containers: list[dict[str, Any]] = [
        {"name": "sidecar", "image": "sc"},
        {"name": "tensorflow", "image": "img", "env": [{"name": "TF_CONFIG", "value": "mine"}]},
    ]
    worker = {"template": {"spec": {"containers": containers}}}

    sidecar, tensorflow = body(job_of(TENSORFLOW, Worker={**worker, "replicas": 2}), "Worker")["spec"][
        "containers"
    ]
    alone = body(job_of(TENSORFLOW, Worker=worker), "Worker")["spec"]["containers"]

    assert sidecar == containers[0]
    assert [variable["name"] for variable in tensorflow["env"]] == ["TF_CONFIG", "TF_CONFIG"]
    assert tensorflow["env"][0]["value"] == "mine"
    assert [container.get("env") for container in alone] == [None, containers[1]["env"]]


@pytest.mark.parametrize(
    ("sizes", "leaders"),
    [
        pytest.param({"Chief": 2, "Worker": 1}, ["chief-0", "chief-1"], id="every chief"),
        pytest.param({"Master": 1, "Worker": 1}, ["master-0"], id="by its older name"),
        pytest.param({"PS": 1, "Worker": 2}, ["worker-0"], id="the first worker without one"),
        pytest.param({"PS": 1, "Evaluator": 1}, [], id="no pod without workers"),
    ],
)
def test_the_chief_or_master_has_the_master_label(sizes: dict[str, Any], leaders: list[str]) -> None:
    roles = TENSORFLOW.roles(sized(**sizes))

    assert [
        f"{role.label}-{index}"
        for role in roles.values()
        for index in range(role.replicas)
        if TENSORFLOW.is_leader(roles, role, index)
    ] == leaders


RUNNING = Verdict(running="TFJob ml/train is running.")
DONE = Verdict(succeeded="TFJob ml/train successfully completed.")


def judged(job: TFJob, **counts: Counts) -> Verdict:
    roles = TENSORFLOW.roles(job)
    return TENSORFLOW.completion_rule(job, roles, {name: counts.get(name, Counts()) for name in roles})


ALL_WORKERS = {"successPolicy": "AllWorkers"}
FIRST = Counts(active=3, succeeded=1, first_completed=True)


@pytest.mark.parametrize(
    ("job", "counts", "verdict"),
    [
        pytest.param(sized(Worker=1), {"Worker": Counts(active=1)}, RUNNING, id="S1"),
        pytest.param(sized(Worker=1), {"Worker": Counts(succeeded=1, first_completed=True)}, DONE, id="S2"),
        pytest.param(sized(Worker=4, PS=2), {"Worker": FIRST, "PS": Counts(active=2)}, DONE, id="S3"),
        pytest.param(sized(Worker=4, spec=ALL_WORKERS), {"Worker": FIRST}, RUNNING, id="S4"),
        pytest.param(
            sized(Worker=4, spec=ALL_WORKERS),
            {"Worker": Counts(succeeded=4, first_completed=True)},
            DONE,
            id="S5",
        ),
        pytest.param(sized(Worker=4), {"Worker": Counts(active=2, succeeded=2)}, RUNNING, id="S6"),
        pytest.param(
            sized(Worker=4),
            {"Worker": Counts(active=2, failed=2)},
            Verdict(
                running=RUNNING.running,
                failed="TFJob ml/train has failed because 2 Worker replica(s) failed.",
            ),
            id="S7",
        ),
        pytest.param(
            sized(Worker=4),
            {"Worker": Counts(active=2, succeeded=1, failed=1, first_completed=True)},
            DONE,
            id="S8: success comes first",
        ),
        pytest.param(
            sized(Chief=1, Worker=4, PS=2),
            {"Chief": Counts(active=1), "Worker": Counts(succeeded=4, first_completed=True)},
            RUNNING,
            id="S9",
        ),
        pytest.param(
            sized(Chief=1, Worker=4, spec=ALL_WORKERS),
            {"Chief": Counts(succeeded=1), "Worker": Counts(active=4)},
            DONE,
            id="S10",
        ),
        pytest.param(
            sized(Chief=1, Worker=4),
            {"Chief": Counts(succeeded=1), "Worker": Counts(failed=4)},
            DONE,
            id="S11: success comes first",
        ),
        pytest.param(
            sized(Chief=1, Worker=4, PS=2),
            {"Chief": Counts(active=1), "Worker": Counts(active=4), "PS": Counts(active=1, failed=1)},
            Verdict(
                running=RUNNING.running, failed="TFJob ml/train has failed because 1 PS replica(s) failed."
            ),
            id="S12",
        ),
        pytest.param(
            sized(Worker=2, spec=DYNAMIC), {"Worker": Counts(active=1, failed=1)}, RUNNING, id="S15"
        ),
        pytest.param(
            sized(Chief=2, Worker=1), {"Chief": Counts(active=1, succeeded=1)}, RUNNING, id="one chief of two"
        ),
        pytest.param(
            sized(Master=1, Worker=2), {"Master": Counts(succeeded=1)}, DONE, id="the chief's older name"
        ),
        pytest.param(
            sized(Worker=2),
            {"Worker": Counts(succeeded=2)},
            DONE,
            id="all done, whatever the first's exit code",
        ),
        pytest.param(
            sized(Worker=2, spec={"successPolicy": "Junk"}),
            {"Worker": Counts(active=1, succeeded=1, first_completed=True)},
            DONE,
            id="an unknown success policy is the default",
        ),
        pytest.param(
            sized(PS=1, Worker=2, spec=DYNAMIC),
            {"PS": Counts(failed=1), "Worker": Counts(active=2)},
            Verdict(
                running=RUNNING.running, failed="TFJob ml/train has failed because 1 PS replica(s) failed."
            ),
            id="dynamic or not, no parameter server may fail",
        ),
        pytest.param(
            sized(PS=2), {"PS": Counts(active=1, succeeded=1)}, RUNNING, id="S16: only servers, one runs"
        ),
        pytest.param(sized(PS=2), {"PS": Counts(succeeded=2)}, DONE, id="S16: only servers, all are done"),
        pytest.param(
            sized(PS=1, Evaluator=1, Worker=0),
            {"PS": Counts(succeeded=1), "Evaluator": Counts(succeeded=1)},
            Verdict(),
            id="a worker role without replicas decides nothing",
        ),
        pytest.param(
            sized(Chief=0, Worker=1),
            {"Worker": Counts(active=1)},
            RUNNING,
            id="a chief role without replicas",
        ),
    ],
)
def test_scenario(job: TFJob, counts: dict[str, Counts], verdict: Verdict) -> None:
    assert judged(job, **counts) == verdict


def test_restarts_have_the_message_of_the_kind() -> None:
    job = job_of(TENSORFLOW, Worker={"replicas": 2, "restartPolicy": "OnFailure"}, **DYNAMIC)

    assert judged(job, Worker=Counts(active=1, failed=1)) == Verdict(
        running=RUNNING.running,
        restarting="job train is restarting because Worker replica(s) failed.",
    )


def running(job: TFJob, *, graceful: bool = False) -> InMemoryCluster:
    """The life of a job once all its pods run."""
    cluster = InMemoryCluster(job, kind=TENSORFLOW, graceful=graceful)  # pyright: ignore[reportArgumentType] - as in ``kinds.ALL``
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    return cluster


def test_scenario_s13_a_chief_that_was_killed_is_replaced() -> None:
    policy = {"restartPolicy": "ExitCode"}
    cluster = running(job_of(TENSORFLOW, Chief=policy, Worker={**policy, "replicas": 4}))

    cluster.set_phase("Failed", "chief-0", code=130)
    cluster.step()

    assert cluster.conditions == "Created T, Restarting T"
    cluster.settle()
    assert cluster.created_pods.count("train-chief-0") == 2
    assert [event.message for event in cluster.events if event.reason == "TFJobRestarting"] == [
        "job train is restarting because Chief replica(s) failed."
    ]


def test_scenario_s14_a_worker_s_own_error_ends_the_job() -> None:
    cluster = running(job_of(TENSORFLOW, Worker={"replicas": 2, "restartPolicy": "ExitCode"}))

    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.conditions.endswith("Failed T")
    assert (cluster.status.conditions or [])[
        -1
    ].message == 'job "train" is failing because "Worker" replica(s) failed.'


def test_scenario_s15_a_dynamic_worker_that_failed_stays() -> None:
    cluster = running(sized(Worker=2, PS=1, spec=DYNAMIC))

    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.counters == {"PS": {"active": 1}, "Worker": {"active": 1, "failed": 1}}
    assert cluster.created_pods.count("train-worker-1") == 1


def test_dynamic_workers_are_scaled_while_the_rest_runs_on() -> None:
    cluster = running(sized(Worker=3, PS=1, spec=DYNAMIC), graceful=True)

    cluster.update_spec(sized(Worker=1, PS=1, spec=DYNAMIC))
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert sorted(name for name, pod in cluster.pods.items() if not pod.deleting) == [
        "train-ps-0",
        "train-worker-0",
    ]
    assert sorted(cluster.services) == ["train-ps-0", "train-worker-0"]


@pytest.mark.parametrize(
    ("phases", "code", "succeeded"),
    [
        pytest.param(["worker-0"], 0, True, id="worker 0 succeeds"),
        pytest.param(["worker-1"], 0, False, id="another worker succeeds"),
        pytest.param(["worker-0"], 1, False, id="worker 0 with another exit code"),
        pytest.param(["worker-0"], None, False, id="worker 0 without an exit code"),
    ],
)
def test_worker_0_ends_the_job(phases: list[str], code: int | None, succeeded: bool) -> None:
    cluster = running(sized(Worker=2, PS=1))

    cluster.set_phase("Succeeded", *phases, code=code)
    cluster.settle()

    assert ("Succeeded T" in cluster.conditions) is succeeded


@pytest.mark.parametrize(
    ("sizes", "problems"),
    [
        pytest.param({"Chief": 3, "PS": 0, "worker": 2}, [], id="several chiefs, no servers, small letters"),
        pytest.param(
            {"Chief": 1, "Master": 1},
            ["spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"],
            id="a chief and a master",
        ),
        pytest.param(
            {"chief": 1, "MASTER": 0},
            ["spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"],
            id="however they are spelled, and how many there are",
        ),
    ],
)
def test_problems(sizes: dict[str, int], problems: list[str]) -> None:
    roles = {role: {"replicas": size, "template": template("tensorflow")} for role, size in sizes.items()}
    job = TFJob.model_validate({"metadata": {"name": "train"}, "spec": {"tfReplicaSpecs": roles}})

    assert list(map(str, TENSORFLOW.problems(job, Options()))) == problems
