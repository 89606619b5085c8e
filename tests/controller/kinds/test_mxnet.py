"""MXJobs: variables, completion and validation. Recordings of the original are in ``tests/parity``."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from api.v1.mxjob import MXJob
from controller.domain import Counts
from controller.kind import Options
from controller.kind.pods import pod
from controller.kinds.mxnet import MXNET
from tests.support.builders import job_of, template

TRAIN: dict[str, Any] = {"Scheduler": {}, "Server": {"replicas": 2}, "Worker": {"replicas": 2}}


def mx_job(**roles: Any) -> MXJob:
    return job_of(MXNET, **roles)


def variables(job: MXJob, role: str, index: int = 0) -> dict[str, Any]:
    roles = MXNET.roles(job)
    return dict(MXNET.env(job, roles, roles[role], index, Options()))


def problems(**roles: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in MXNET.problems(mx_job(**roles), Options())]


def verdict(counts: Mapping[str, Counts], **roles: dict[str, Any]) -> tuple[str, str, str, str]:
    job = mx_job(**roles)
    given = MXNET.roles(job)
    found = MXNET.completion_rule(job, given, {name: counts.get(name, Counts()) for name in given})
    return found.running, found.succeeded, found.failed, found.restarting


def test_variables_of_a_worker() -> None:
    found = variables(mx_job(**TRAIN), "Worker", 1)

    assert list(found) == [
        "MX_CONFIG", "DMLC_PS_ROOT_PORT", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE",
        "DMLC_USE_KUBERNETES", "DMLC_WORKER_ID",
    ]  # fmt: skip
    assert list(found.values())[1:] == ["9091", "train-scheduler-0", "2", "2", "worker", "1", "1"]


def test_the_configuration_names_all_pods_and_its_own_task() -> None:
    config = json.loads(variables(mx_job(**TRAIN), "Server")["MX_CONFIG"])

    assert list(config["cluster"]) == ["scheduler", "server", "worker"]
    assert config["cluster"]["worker"] == [{"url": f"train-worker-{at}", "port": 9091} for at in range(2)]
    assert config["labels"] == {"scheduler": "", "server": "", "worker": ""}
    assert config["task"] == {"type": "server", "index": 0}


def test_the_label_of_a_role_is_an_annotation_of_its_template() -> None:
    labeled = {**template("mxnet"), "metadata": {"annotations": {"tuner-server-key": "2080ti"}}}
    job = mx_job(TunerTracker={}, TunerServer={"template": labeled}, Tuner={})

    assert json.loads(variables(job, "Tuner")["MX_CONFIG"])["labels"]["tunerserver"] == "2080ti"
    assert variables(job, "Tuner")["DMLC_PS_ROOT_PORT"] == "0"
    assert variables(job, "Tuner")["DMLC_PS_ROOT_URI"] == ""


@pytest.mark.parametrize("role", TRAIN)
def test_servers_carry_the_role_master(role: str) -> None:
    job = mx_job(**TRAIN)
    roles = MXNET.roles(job)
    labels = pod(MXNET, job, roles, roles[role], 0, Options())["metadata"]["labels"]

    assert ("training.kubeflow.org/job-role" in labels) is (role == "Server")


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        pytest.param(TRAIN, [], id="a training job"),
        pytest.param({"Worker": {}}, [], id="a single worker"),
        pytest.param({"TunerTracker": {}, "TunerServer": {}, "Tuner": {}}, [], id="a tuning job"),
        pytest.param({"Tuner": {}}, [], id="tuners alone"),
        pytest.param(
            {"Worker": {"replicas": 2}},
            [
                "spec.mxReplicaSpecs[Scheduler]: Required value: must be present, unless the job is a single worker"
            ],
            id="workers without a scheduler",
        ),
        pytest.param(
            {"Server": {}, "Worker": {}},
            [
                "spec.mxReplicaSpecs[Scheduler]: Required value: must be present, unless the job is a single worker"
            ],
            id="a server without a scheduler",
        ),
        pytest.param(
            {"TunerServer": {}},
            ["spec.mxReplicaSpecs[Tuner]: Required value: must be present, unless TunerTracker is"],
            id="no role that ends the job",
        ),
        pytest.param(
            {**TRAIN, "Scheduler": {"replicas": 2}},
            ["spec.mxReplicaSpecs[Scheduler].replicas: Forbidden: must be 1"],
            id="two schedulers",
        ),
    ],
)
def test_a_job_without_a_role_that_ends_it_is_rejected(roles: dict[str, Any], expected: list[str]) -> None:
    assert problems(**roles) == expected


TUNE: dict[str, Any] = {"TunerTracker": {}, "TunerServer": {}, "Tuner": {"replicas": 2}}


@pytest.mark.parametrize(
    ("roles", "counts", "expected"),
    [
        pytest.param(TRAIN, {"Worker": Counts(active=2)}, "", id="without its scheduler no job runs"),
        pytest.param(TRAIN, {"Scheduler": Counts(active=1)}, "running", id="the scheduler runs"),
        pytest.param(
            TRAIN,
            {"Scheduler": Counts(succeeded=1), "Worker": Counts(failed=1)},
            "succeeded",
            id="the scheduler is done",
        ),
        pytest.param(
            {"Worker": {}}, {"Worker": Counts(succeeded=1)}, "succeeded", id="a single worker is done"
        ),
        pytest.param(TUNE, {"TunerTracker": Counts(active=1)}, "running", id="the tracker runs"),
        pytest.param(
            TUNE,
            {"Tuner": Counts(succeeded=1), "TunerTracker": Counts(succeeded=1)},
            "",
            id="a tuner still runs",
        ),
        pytest.param(TUNE, {"Tuner": Counts(succeeded=2)}, "succeeded", id="the tuners are done"),
        pytest.param(
            {"TunerTracker": {}},
            {"TunerTracker": Counts(succeeded=1)},
            "succeeded",
            id="a tracker alone is done",
        ),
    ],
)
def test_roles_decide_the_verdict(roles: dict[str, Any], counts: dict[str, Counts], expected: str) -> None:
    running, succeeded, _, _ = verdict(counts, **roles)

    assert ("running" if running else "succeeded" if succeeded else "") == expected


def test_a_failed_worker_fails_the_job_in_the_words_of_the_original() -> None:
    lost = {"Scheduler": Counts(active=1), "Worker": Counts(active=1, failed=1)}

    assert verdict(lost, **TRAIN)[2] == "mxjob train is failed because 1 Worker replica(s) failed."


def test_a_lost_worker_is_replaced_under_exit_code() -> None:
    lost = {"Scheduler": Counts(active=1), "Worker": Counts(active=1, failed=1)}
    roles: dict[str, Any] = {**TRAIN, "Worker": {"replicas": 2, "restartPolicy": "ExitCode"}}

    _, _, failed, restarting = verdict(lost, **roles)

    assert (failed, restarting) == ("", "mxjob train is restarting because 1 Worker replica(s) failed.")
