"""Children of a v2beta1 job: names, host lists and pods. The strings are those of the contract."""

from typing import Any

import pytest

from api.batch import BATCH_JOBS
from api.children import Pod
from api.mpijob import MPIJob
from controller.domain import Snapshot
from controller.kind import Options
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.sshpods import launcher, worker
from controller.kinds.mpi.v2beta1 import (
    V2BETA1,
    config,
    normal,
    roles,
    should_wait_for_workers,
    support_objects,
)
from tests.support.builders import NOON, pod
from tests.support.mpi import container, mpi_job

HOSTS = "pi-worker-0.pi.hpc.svc slots=2\npi-worker-1.pi.hpc.svc slots=2\n"
LAUNCHER_FIRST = "pi-launcher.pi.hpc.svc slots=2\n"


def running(*indices: int) -> Snapshot:
    return Snapshot(pods=tuple(pod(index=index, job="pi", ready=True) for index in indices))


def data(job: MPIJob, snapshot: Snapshot | None = None, **options: Any) -> dict[str, str]:
    return config(job, roles(job), snapshot or Snapshot(), NOON, Options(**options))


def worker_spec(job: MPIJob, **options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = worker(job, roles(job), 0, Options(**options))["spec"]
    return spec


def launcher_spec(job: MPIJob) -> dict[str, Any]:
    spec: dict[str, Any] = launcher(job, roles(job), Options())["spec"]
    return spec


def env(spec: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in spec["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("fields", "options", "text"),
    [
        pytest.param({}, {}, HOSTS, id="Open MPI"),
        pytest.param(
            {},
            {"cluster_domain": "cluster.local"},
            HOSTS.replace(".svc", ".svc.cluster.local"),
            id="with a domain",
        ),
        pytest.param({"mpiImplementation": "Intel"}, {}, HOSTS.replace(" slots=", ":"), id="Intel MPI"),
        pytest.param({"mpiImplementation": "MPICH"}, {}, HOSTS.replace(" slots=", ":"), id="MPICH"),
        pytest.param({"runLauncherAsWorker": True}, {}, LAUNCHER_FIRST + HOSTS, id="the launcher is a host"),
        pytest.param(
            {"runLauncherAsWorker": True, "workers": None},
            {},
            LAUNCHER_FIRST,
            id="the launcher is the only host",
        ),
        pytest.param({"workers": None}, {}, "", id="none"),
        pytest.param({"slotsPerWorker": None}, {}, HOSTS.replace("=2", "=1"), id="a single slot by default"),
    ],
)
def test_hostfile(fields: dict[str, Any], options: dict[str, Any], text: str) -> None:
    assert data(mpi_job(**fields), **options)["hostfile"] == text


@pytest.mark.parametrize(
    ("up", "fields", "hosts"),
    [
        pytest.param((), {}, "", id="none"),
        pytest.param((1, 0), {}, "echo pi-worker-0.pi.hpc.svc\necho pi-worker-1.pi.hpc.svc\n", id="both"),
        pytest.param(
            (1,),
            {"runLauncherAsWorker": True},
            "echo pi-launcher.pi.hpc.svc\necho pi-worker-1.pi.hpc.svc\n",
            id="the launcher, too",
        ),
        pytest.param(
            (0, 1, 2), {}, "echo pi-worker-0.pi.hpc.svc\necho pi-worker-1.pi.hpc.svc\n", id="no trailing host"
        ),
    ],
)
def test_discovery(up: tuple[int, ...], fields: dict[str, Any], hosts: str) -> None:
    assert data(mpi_job(**fields), running(*up))["discover_hosts.sh"] == f"#!/bin/sh\n{hosts}"


def test_support_objects_of_a_job() -> None:
    job = mpi_job()
    bodies = {
        child.resource.kind: child.body()
        for child in support_objects(job, roles(job), Snapshot(), NOON, Options())
    }

    assert {kind: body["metadata"]["name"] for kind, body in bodies.items()} == {
        "Service": "pi",
        "ConfigMap": "pi-config",
        "Secret": "pi-ssh",
    }
    for body in bodies.values():
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["uid"]) == ("kubeflow.org/v2beta1", "pi-uid")
        watched = {} if body["kind"] == "Secret" else {"training.kubeflow.org/job-name": "pi"}
        assert body["metadata"]["labels"] == {"app": "pi", **watched}
    assert bodies["Service"]["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": "pi",
        },
    }
    assert bodies["Secret"]["type"] == "kubernetes.io/ssh-auth"


def test_equal_host_lists_have_the_same_version() -> None:
    job = mpi_job()
    versions = [
        next(
            child.version
            for child in support_objects(job, roles(job), snapshot, NOON, Options())
            if child.name == "pi-config"
        )
        for snapshot in (Snapshot(), Snapshot(), running(0, 1))
    ]

    assert versions[0] == versions[1] != versions[2]


def test_a_worker() -> None:
    body = worker(mpi_job(), roles(mpi_job()), 1, Options())

    assert body["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "pi",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    spec = body["spec"]
    assert (spec["hostname"], spec["subdomain"], spec["restartPolicy"]) == ("pi-worker-1", "pi", "Never")
    assert spec["dnsConfig"] == {"searches": ["pi.hpc.svc.cluster.local"]}
    assert spec["containers"][0]["volumeMounts"] == [{"name": "ssh-auth", "mountPath": "/root/.ssh"}]
    assert env(spec) == {"K_MPI_JOB_ROLE": "worker"}
    assert [volume["name"] for volume in spec["volumes"]] == ["ssh-auth"]


def test_where_the_launcher_is_a_worker_indices_begin_with_it() -> None:
    job = mpi_job(runLauncherAsWorker=True)
    index = "training.kubeflow.org/replica-index"

    assert worker(job, roles(job), 0, Options())["metadata"]["labels"][index] == "1"
    assert launcher(job, roles(job), Options())["metadata"]["labels"][index] == "0"
    assert index not in launcher(mpi_job(), roles(mpi_job()), Options())["metadata"]["labels"]
    assert "NVIDIA_VISIBLE_DEVICES" not in env(launcher_spec(job))


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        pytest.param({}, ["/usr/sbin/sshd", "-De"], id="neither command nor args"),
        pytest.param({"args": ["-x"]}, None, id="args alone"),
        pytest.param({"command": ["mine"]}, ["mine"], id="a command"),
    ],
)
def test_a_worker_without_a_command_is_an_ssh_server(
    fields: dict[str, Any], command: list[str] | None
) -> None:
    spec = {"containers": [{"name": "mpi", "image": "x", **fields}]}

    assert worker_spec(mpi_job(worker={"spec": spec}))["containers"][0].get("command") == command


def test_fields_of_the_template_are_preserved() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
        "spec": {
            "containers": [
                container(env=[{"name": "LR", "value": "1"}], volumeMounts=[{"name": "d", "mountPath": "/d"}])
            ],
            "volumes": [{"name": "d", "emptyDir": {}}],
            "dnsConfig": {"nameservers": ["9.9.9.9"], "searches": ["example.com"]},
            "hostNetwork": True,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
        },
    }
    job = mpi_job(worker=template)
    body = worker(job, roles(job), 0, Options())
    spec = body["spec"]

    assert body["metadata"]["labels"]["team"] == "x"
    assert body["metadata"]["annotations"] == {"note": "y"}
    assert spec["dnsConfig"] == {
        "nameservers": ["9.9.9.9"],
        "searches": ["example.com", "pi.hpc.svc.cluster.local"],
    }
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert spec["resourceClaims"] == template["spec"]["resourceClaims"]
    assert [volume["name"] for volume in spec["volumes"]] == ["d", "ssh-auth"]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["d", "ssh-auth"]
    assert "ssh-auth" not in str(template)


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        pytest.param({}, 0o600, id="root"),
        pytest.param({"sshAuthMountPath": ""}, 0o600, id="an empty path, which is the default"),
        pytest.param({"sshAuthMountPath": "/root/.ssh/"}, 0o600, id="with a slash at the end"),
        pytest.param({"sshAuthMountPath": "/home/mpiuser/.ssh"}, None, id="another user's"),
        pytest.param({"sshAuthMountPath": "/keys", "user": 0}, 0o600, id="root, elsewhere"),
        pytest.param({"sshAuthMountPath": "/keys", "user": 1000}, None, id="a user, elsewhere"),
    ],
)
def test_the_mode_of_the_keys_follows_the_user(fields: dict[str, Any], mode: int | None) -> None:
    """ssh rejects a key of root that others can read; another user cannot read a key that only root can read."""
    user = fields.pop("user", None)
    context = {} if user is None else {"securityContext": {"runAsUser": user}}
    template = {"spec": {"containers": [container()], **context}}
    (volume,) = worker_spec(mpi_job(worker=template, **fields))["volumes"]

    assert volume["secret"].get("defaultMode") == mode


def test_a_private_key_for_the_launcher_alone() -> None:
    """Workers cannot start other workers then; mpirun needs a variable for that."""
    job, options = mpi_job(), Options(of_kinds=(MPIOptions(launcher_only_key=True),))
    (volume,) = worker_spec(job, of_kinds=(MPIOptions(launcher_only_key=True),))["volumes"]
    spec = launcher(job, roles(job), options)["spec"]

    assert [item["path"] for item in volume["secret"]["items"]] == ["id_rsa.pub", "authorized_keys"]
    assert "id_rsa" in [volume["path"] for volume in spec["volumes"][0]["secret"]["items"]]
    assert env(spec)["OMPI_MCA_plm_rsh_no_tree_spawn"] == "1"
    assert "OMPI_MCA_plm_rsh_no_tree_spawn" not in env(launcher_spec(job))


@pytest.mark.parametrize(
    ("implementation", "names"),
    [
        pytest.param(
            None,
            [
                "OMPI_MCA_orte_keep_fqdn_hostnames",
                "OMPI_MCA_orte_default_hostfile",
                "OMPI_MCA_plm_rsh_args",
                "OMPI_MCA_orte_set_default_slots",
            ],
            id="Open MPI",
        ),
        pytest.param(
            "Intel",
            ["I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "I_MPI_PERHOST"],
            id="Intel MPI",
        ),
        pytest.param("MPICH", ["HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS"], id="MPICH"),
    ],
)
def test_the_launcher_has_the_variables_of_its_implementation(
    implementation: str | None, names: list[str]
) -> None:
    given = list(env(launcher_spec(mpi_job(mpiImplementation=implementation))))

    assert given[: len(names) + 3] == [
        "K_MPI_JOB_ROLE",
        *names,
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    ]
    assert all(name.startswith(("PRTE_MCA_", "HYDRA_LAUNCHER_")) for name in given[len(names) + 3 :])


def test_the_launcher_has_the_variables_of_open_mpi_5() -> None:
    given = env(launcher_spec(mpi_job()))

    assert given["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert given["PRTE_MCA_plm_ssh_args"] == "-o ConnectionAttempts=10"
    assert given["PRTE_MCA_prte_set_default_slots"] == "2"


def test_the_launcher_has_the_variable_that_mpich_reads() -> None:
    given = env(launcher_spec(mpi_job(mpiImplementation="MPICH")))

    assert given["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-o ConnectionAttempts=10"


def test_a_variable_of_the_user_is_unchanged() -> None:
    theirs = [{"name": "OMPI_MCA_plm_rsh_args", "value": "-p 2222"}]
    job = mpi_job(launcher={"spec": {"containers": [container(env=theirs)]}})

    assert env(launcher_spec(job))["OMPI_MCA_plm_rsh_args"] == "-p 2222"
    assert [variable["name"] for variable in launcher_spec(job)["containers"][0]["env"]].count(
        "OMPI_MCA_plm_rsh_args"
    ) == 1


@pytest.mark.parametrize("name", ["K_MPI_JOB_ROLE", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"])
def test_some_variables_override_those_of_the_user(name: str) -> None:
    template = {"spec": {"containers": [container(env=[{"name": name, "value": "theirs"}])]}}
    spec = launcher_spec(mpi_job(launcher=template))

    assert env(spec) == env(launcher_spec(mpi_job()))
    assert [variable["name"] for variable in spec["containers"][0]["env"]].count(name) == 1
    beside = launcher_spec(mpi_job(launcher=template, runLauncherAsWorker=True))
    assert (env(beside)[name] == "theirs") is name.startswith("NVIDIA")


def test_the_default_container_of_kubectl_is_the_mpi_container() -> None:
    template = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "mpi"}},
        "spec": {"containers": [container("sidecar"), container("mpi")]},
    }
    sidecar, main = worker_spec(mpi_job(worker=template))["containers"]

    assert "volumeMounts" not in sidecar
    assert main["volumeMounts"] == [{"name": "ssh-auth", "mountPath": "/root/.ssh"}]


@pytest.mark.parametrize(
    ("annotation", "policy", "flag", "expected"),
    [
        pytest.param(None, None, False, False, id="at startup by default"),
        pytest.param(None, "WaitForWorkersReady", False, True, id="by the job's policy"),
        pytest.param(None, None, True, True, id="by the flag"),
        pytest.param("true", "AtStartup", False, True, id="by the annotation"),
        pytest.param("false", "WaitForWorkersReady", True, False, id="disabled by the annotation"),
        pytest.param("soon", None, False, False, id="an invalid annotation"),
    ],
)
def test_the_creation_policy_or_annotation_makes_the_launcher_wait(
    annotation: str | None, policy: str | None, flag: bool, expected: bool
) -> None:
    required_annotations = {"kubeflow.org/mpi-wait-for-workers": annotation} if annotation else None
    job = mpi_job(annotations=required_annotations, launcherCreationPolicy=policy)

    assert should_wait_for_workers(job, Options(of_kinds=(MPIOptions(wait_for_workers=flag),))) is expected


def test_a_scheduling_policy_is_read_from_the_spec_too() -> None:
    template = {"spec": {"containers": [container()], "priorityClassName": "high"}}
    required_annotations = {"scheduling.volcano.sh/queue-name": "blue"}
    policy = normal(
        mpi_job(launcher=template, annotations=required_annotations)
    ).spec.policy.scheduling_policy

    assert policy is not None
    assert (policy.queue, policy.priority_class, policy.schedule_timeout_seconds) == ("blue", "high", 0)


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        pytest.param("pi-worker-0", ("worker", 0), id="a worker"),
        pytest.param("pi-worker-10", ("worker", 10), id="the eleventh"),
        pytest.param("pi-worker-00", None, id="an unknown name"),
        pytest.param("pi-worker-", None, id="no number"),
        pytest.param("pi-launcher", None, id="a launcher of its Job"),
        pytest.param("other-worker-0", None, id="another job's"),
    ],
)
def test_names_give_the_slot_of_a_pod(name: str, slot: tuple[str, int] | None) -> None:
    row = Pod("hpc", name, "uid", 1, role="launcher", index=7)

    assert V2BETA1.slot("pi", row) == slot
    assert BATCH_JOBS in V2BETA1.children
