"""The Services of a job over its life, in each mode."""

from dataclasses import replace

import pytest

from api.children import pod_from_json
from api.labels import SERVICES
from api.services import ServiceMode
from controller.kind import Options
from tests.support.builders import pytorch_job, service, template
from tests.support.in_memory_cluster import InMemoryCluster

ALL_NAMES = ["train-master-0", "train-worker-0", "train-worker-1"]


def cluster(mode: str, **fields: object) -> InMemoryCluster:
    """A cluster with a job that runs in that mode."""
    made = InMemoryCluster(pytorch_job(**fields), options=Options(services=ServiceMode(mode)))  # type: ignore[arg-type]
    made.settle()
    made.set_phase("Running")
    made.settle()
    return made


def switch(it: InMemoryCluster, mode: str) -> None:
    it.options = replace(it.options, services=ServiceMode(mode))
    it.settle()


@pytest.mark.parametrize(
    ("mode", "services"),
    [("per-replica", ALL_NAMES), ("addressed", ["train-master-0"]), ("per-job", ["train"])],
)
def test_a_job_runs_and_succeeds_in_each_mode(mode: str, services: list[str]) -> None:
    it = cluster(mode)

    assert sorted(it.services) == services
    it.set_phase("Succeeded", "master-0", code=0)
    it.settle()
    assert it.conditions == "Created T, Running F, Succeeded T"


def test_an_annotation_of_the_job_overrides_the_flag() -> None:
    job = pytorch_job()
    job.metadata.annotations = {SERVICES: "per-job"}
    it = InMemoryCluster(job)

    it.settle()

    assert list(it.services) == ["train"]


def test_an_annotation_with_an_unknown_value_fails_the_job() -> None:
    job = pytorch_job()
    job.metadata.annotations = {SERVICES: "one"}
    it = InMemoryCluster(job)

    it.settle()

    assert not it.pods
    assert (
        'metadata.annotations[training.kubeflow.org/services]: Unsupported value: "one"'
        in it.events[-1].message
    )


def test_an_annotation_for_one_service_contradicts_a_template_with_a_host_name() -> None:
    job = pytorch_job(worker={"template": {"spec": {**template()["spec"], "hostname": "own"}}})
    job.metadata.annotations = {SERVICES: "per-job"}
    it = InMemoryCluster(job)

    it.settle()

    assert not it.pods
    assert "the template of Worker sets hostname, subdomain or setHostnameAsFQDN" in it.events[-1].message


def test_the_service_of_a_job_goes_before_its_pods() -> None:
    it = InMemoryCluster(pytorch_job(), options=Options(services=ServiceMode.PER_JOB))

    assert [child.name for child in it.decide().create if child.first] == ["train"]


@pytest.mark.parametrize("mode", ["per-replica", "addressed"])
def test_a_job_with_one_service_keeps_it_while_it_has_pods(mode: str) -> None:
    it = cluster("per-job", worker={"restartPolicy": "OnFailure"})

    switch(it, mode)
    it.set_phase("Failed", "worker-0", code=1)
    it.settle()

    assert list(it.services) == ["train"]
    assert {pod.service for pod in it.pods.values()} == {"train"}


@pytest.mark.parametrize("mode", ["per-replica", "addressed"])
def test_a_job_with_services_of_replicas_keeps_them_while_it_has_pods(mode: str) -> None:
    it = cluster(mode, worker={"restartPolicy": "OnFailure"})

    switch(it, "per-job")
    it.set_phase("Failed", "worker-0", code=1)
    it.settle()

    assert sorted(it.services) == ALL_NAMES
    assert {pod.service for pod in it.pods.values()} == {""}


def test_a_running_job_gets_missing_services_and_loses_none() -> None:
    it = cluster("addressed")

    switch(it, "per-replica")
    assert sorted(it.services) == ALL_NAMES

    switch(it, "addressed")
    assert sorted(it.services) == ALL_NAMES


@pytest.mark.parametrize(("before", "after"), [("per-job", "per-replica"), ("per-replica", "per-job")])
def test_a_suspended_job_changes_its_mode_when_it_resumes(before: str, after: str) -> None:
    it = cluster(before)

    it.update_spec(pytorch_job(run_policy={"suspend": True}))
    it.settle()
    assert not it.services
    switch(it, after)
    it.update_spec(pytorch_job(run_policy={"suspend": False}))
    it.settle()

    assert sorted(it.services) == (["train"] if after == "per-job" else ALL_NAMES)


def test_a_job_that_restarts_as_a_whole_changes_its_mode() -> None:
    it = cluster("per-replica", run_policy={"failurePolicy": {"rules": [{"action": "RestartJob"}]}})

    it.options = replace(it.options, services=ServiceMode.PER_JOB)
    it.set_phase("Failed", "worker-0", code=1)
    it.settle()

    assert {pod.service for pod in it.pods.values()} == {"train"}
    assert sorted(it.services) == ["train", *ALL_NAMES]


def test_a_deleted_service_of_a_job_is_created_again() -> None:
    it = cluster("per-job")

    it.services.clear()
    it.settle()

    assert list(it.services) == ["train"]


def test_a_scaled_job_keeps_its_one_service() -> None:
    it = cluster("per-job")

    it.update_spec(pytorch_job(workers=4))
    it.settle()

    assert (len(it.pods), list(it.services)) == (5, ["train"])


@pytest.mark.parametrize(
    ("policy", "ended", "services"),
    [
        pytest.param("None", [], ["train"], id="None keeps it"),
        pytest.param("All", [], [], id="All deletes it"),
        pytest.param("Running", ["master-0"], ["train"], id="Running keeps it while a pod stays"),
        pytest.param("Running", [], [], id="Running deletes it with the last pod"),
    ],
)
def test_clean_pod_policy_and_the_service_of_a_job(
    policy: str, ended: list[str], services: list[str]
) -> None:
    it = cluster("per-job", run_policy={"cleanPodPolicy": policy, "activeDeadlineSeconds": 10_000})
    succeeded = ended or ["master-0"]
    it.set_phase("Succeeded", *succeeded, code=0)
    it.settle()
    if policy == "Running" and not ended:
        it.go("master-0")
        it.settle()

    assert list(it.services) == services


def test_a_service_of_a_job_has_a_slot_only_by_its_name() -> None:
    it = cluster("per-job")
    it.services["else"] = service(role="", index=-1, job="else")

    assert [row.name for row in it.observe().services] == ["train"]


@pytest.mark.parametrize(
    ("spec", "published_by"),
    [
        pytest.param({"hostname": "train-worker-0", "subdomain": "train"}, "train", id="its own name"),
        pytest.param({"hostname": "other", "subdomain": "train"}, "", id="another host name"),
        pytest.param({"subdomain": "train"}, "", id="no host name"),
        pytest.param({}, "", id="neither"),
    ],
)
def test_a_row_says_which_service_publishes_the_name_of_its_pod(
    spec: dict[str, str], published_by: str
) -> None:
    import orjson

    body = {"metadata": {"name": "train-worker-0", "resourceVersion": "1"}, "spec": spec}

    assert pod_from_json(orjson.dumps(body)).service == published_by
