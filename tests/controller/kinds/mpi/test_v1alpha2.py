"""MPIJobs of the MPI Operator of 2020: their fields and their plans."""

from typing import Any

import pytest

from api.mpijob import MPIJob
from controller.kind import Options
from controller.kinds.mpi import v1alpha2
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import container, mpi_job

WORKERS = ["pi-worker-0", "pi-worker-1"]


def old_job(**fields: Any) -> MPIJob:
    return mpi_job(**{"flavor": "v1alpha2", **fields})


def pending_cluster(**fields: Any) -> InMemoryCluster:
    """A job once all that it needs is made."""
    cluster = InMemoryCluster(old_job(**fields), kind=V1ALPHA2)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    return cluster


def running(**fields: Any) -> InMemoryCluster:
    """The same once launcher and workers run."""
    cluster = pending_cluster(**fields)
    cluster.set_phase("Running", ready=True)
    cluster.launch()
    cluster.settle()
    return cluster


def template(job: MPIJob) -> dict[str, Any]:
    return v1alpha2.launcher_template(job, v1alpha2.roles(job), Options())


def worker(job: MPIJob) -> dict[str, Any]:
    return v1alpha2.worker_body(job, v1alpha2.roles(job), 1, Options())


@pytest.mark.parametrize(
    ("spec", "run_policy", "expected"),
    [
        pytest.param({}, {}, (None, 6, None), id="six tries"),
        pytest.param(
            {"backoffLimit": 4, "activeDeadlineSeconds": 60},
            {},
            (None, 4, 60),
            id="limits beside the run policy",
        ),
        pytest.param(
            {"backoffLimit": 4, "activeDeadlineSeconds": 60},
            {"backoffLimit": 2, "activeDeadlineSeconds": 0},
            (None, 2, 0),
            id="limits in the run policy win",
        ),
        pytest.param(
            {"cleanPodPolicy": "None"},
            {"cleanPodPolicy": "All"},
            ("None", 6, None),
            id="the older clean pod policy wins",
        ),
        pytest.param(
            {},
            {"cleanPodPolicy": "All"},
            ("All", 6, None),
            id="the run policy's clean pod policy counts alone",
        ),
        pytest.param({"cleanPodPolicy": "Running"}, {}, ("All", 6, None), id="workers always run"),
    ],
)
def test_run_policy(spec: dict[str, Any], run_policy: dict[str, Any], expected: tuple[Any, ...]) -> None:
    policy = v1alpha2.run_policy(old_job(runPolicy=run_policy, **spec))

    assert (policy.clean_pod_policy, policy.backoff_limit, policy.active_deadline_seconds) == expected


@pytest.mark.parametrize(
    ("said", "between", "variables"),
    [
        pytest.param(
            None,
            " slots=",
            ["OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"],
            id="Open MPI by default",
        ),
        pytest.param(
            "Whatever",
            " slots=",
            ["OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"],
            id="for every unknown value",
        ),
        pytest.param(
            "IntelMPI", ":", ["I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_HOST_FILE"], id="Intel MPI"
        ),
        pytest.param("MPICH", ":", ["HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"], id="MPICH"),
    ],
)
def test_distribution(said: str | None, between: str, variables: list[str]) -> None:
    job = old_job(mpiDistribution=said)
    env = template(job)["spec"]["containers"][0]["env"]
    data = v1alpha2.data(job, range(2))

    assert data["hostfile"] == f"pi-worker-0{between}2\npi-worker-1{between}2\n"
    assert sorted(data) == ["hostfile", "kubexec.sh"]
    assert [variable["name"] for variable in env][:2] == variables
    assert [variable["value"] for variable in env][:2] == ["/etc/mpi/kubexec.sh", "/etc/mpi/hostfile"]
    assert [variable["name"] for variable in env][-2:] == [
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    ]


def test_hydra_calls_its_agent_with_options_of_ssh() -> None:
    script = v1alpha2.data(old_job(mpiDistribution="MPICH", mainContainer="mpi"), range(2))["kubexec.sh"]

    assert 'while [ "${1#-}" != "$1" ]; do shift; done\nPOD_NAME=$1\nshift\n' in script
    assert '/opt/kube/kubectl exec ${POD_NAME} --container mpi -- /bin/sh -c "$KNOW; $*"' in script


@pytest.mark.parametrize(
    ("given", "expected"),
    [("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "OnFailure"), (None, "OnFailure")],
)
def test_restarts(given: str | None, expected: str) -> None:
    job = old_job()
    for spec in (job.spec.mpi_replica_specs or {}).values():
        spec.restart_policy = given

    assert template(job)["spec"]["restartPolicy"] == expected
    assert worker(job)["spec"]["restartPolicy"] == "Always"


def test_pods_have_the_old_and_the_new_labels() -> None:
    labels = worker(old_job())["metadata"]["labels"]

    assert labels == {
        "group_name": "kubeflow.org",
        "mpi_job_name": "pi",
        "mpi_role_type": "worker",
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "pi",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert worker(old_job())["metadata"]["ownerReferences"][0]["apiVersion"] == "kubeflow.org/v2beta1"


def test_the_launcher_runs_as_its_own_account() -> None:
    spec = {"containers": [container()], "serviceAccountName": "trainer"}
    body = template(old_job(launcher={"spec": spec, "metadata": {"annotations": {"a": "b"}}}))

    assert body["spec"]["serviceAccountName"] == "pi-launcher"
    assert body["metadata"]["annotations"] == {"a": "b"}
    assert set(body["metadata"]) == {"annotations", "labels"}
    (config,) = [volume for volume in body["spec"]["volumes"] if "configMap" in volume]
    assert [item["key"] for item in config["configMap"]["items"]] == ["kubexec.sh", "hostfile"]


def test_workers_are_created_before_the_permission_and_the_launcher() -> None:
    cluster = InMemoryCluster(old_job(), kind=V1ALPHA2)  # type: ignore[arg-type]  # has no use for the rest

    assert cluster.step().again
    assert (cluster.created_pods, cluster.batch_jobs) == (WORKERS, {})
    assert sorted(cluster.extras) == [
        "Role/pi-launcher",
        "RoleBinding/pi-launcher",
        "pi-config",
        "pi-launcher",
    ]
    assert cluster.extras["Role/pi-launcher"]["rules"] == []

    cluster.settle()
    (job,) = cluster.batch_jobs.values()
    assert job["metadata"]["labels"]["mpi_role_type"] == "launcher"
    assert job["spec"]["backoffLimit"] == 6
    assert cluster.extras["Role/pi-launcher"]["rules"][1]["resourceNames"] == WORKERS


def test_a_failed_launcher_is_retried() -> None:
    cluster = running()
    assert cluster.conditions == "Created T, Running T"

    ((name, job),) = cluster.batch_jobs.items()
    cluster.batch_jobs[name] = {**job, "status": {"failed": 1}}
    cluster.batch_pods = []
    cluster.settle()

    assert cluster.conditions == "Created T, Restarting T"
    assert (cluster.status.conditions or [])[-1].message == "MPIJob hpc/pi is restarting."


@pytest.mark.parametrize(("policy", "left"), [("All", []), ("Running", []), ("None", WORKERS)])
def test_the_clean_policy_decides_which_pods_stay(policy: str, left: list[str]) -> None:
    cluster = running(cleanPodPolicy=policy)

    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert sorted(cluster.pods) == left
    assert cluster.extras["Role/pi-launcher"]["rules"] == []


def test_a_suspended_job_has_no_permission() -> None:
    cluster = running()

    cluster.update_spec(old_job(runPolicy={"suspend": True}))
    cluster.settle()
    assert (cluster.pods, cluster.extras["Role/pi-launcher"]["rules"]) == ({}, [])

    cluster.update_spec(old_job())
    cluster.settle()
    assert cluster.extras["Role/pi-launcher"]["rules"][1]["resourceNames"] == WORKERS
    assert not next(iter(cluster.batch_jobs.values()))["spec"].get("suspend")


def test_a_job_without_workers_runs() -> None:
    cluster = pending_cluster(workers=None)

    assert list(cluster.batch_jobs) == ["pi-launcher"]
    assert cluster.extras["Role/pi-launcher"]["rules"] == []


def taken_over(**fields: Any) -> InMemoryCluster:
    """A job that the original has started: the launcher is there, workers are a StatefulSet's."""
    cluster = InMemoryCluster(old_job(**fields), kind=V1ALPHA2)  # type: ignore[arg-type]  # has no use for the rest
    metadata = {"name": "pi-launcher", "namespace": "hpc", "uid": "old", "resourceVersion": "1"}
    cluster.batch_jobs["pi-launcher"] = {"metadata": metadata, "spec": {}}
    cluster.extras["pi-worker"] = {"kind": "StatefulSet"}
    cluster.settle()
    return cluster


def test_a_job_that_the_original_started_continues() -> None:
    cluster = taken_over(cleanPodPolicy="All")
    assert (cluster.created_pods, list(cluster.batch_jobs), list(cluster.extras)) == (
        [],
        ["pi-launcher"],
        ["pi-worker"],
    )
    assert cluster.reasons.count("FlavorMismatch") == 1

    cluster.end_batch("Complete")
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert "pi-worker" not in cluster.extras


def test_a_job_that_the_original_started_is_migrated_after_a_suspension() -> None:
    cluster = taken_over()

    cluster.update_spec(old_job(runPolicy={"suspend": True}))
    plan = cluster.decide()

    assert [(deletion.resource.kind, deletion.name, deletion.uid) for deletion in plan.delete] == [
        ("Job", "pi-launcher", "old"),
        ("StatefulSet", "pi-worker", ""),
    ]
    assert plan.create == ()
