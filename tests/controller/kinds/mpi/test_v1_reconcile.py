"""Plans for a v1 MPIJob; API server, kubelet and user are simulated in memory."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api.children import Exit
from api.meta import PODS
from api.mpijob import MPIJob
from controller.domain import Count
from controller.kind import Options
from controller.kinds.mpi.hosts import LATE_SECONDS, WAIT_ANNOTATION
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.v1 import V1
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import container, mpi_job

WORKERS = ["pi-worker-0", "pi-worker-1"]
BINDING = "RoleBinding/pi-launcher"


def v1_job(policy: str = "Never", **fields: Any) -> MPIJob:
    job = mpi_job(**{"slotsPerWorker": 1, "flavor": "v1", **fields})
    for spec in (job.spec.mpi_replica_specs or {}).values():
        spec.restart_policy = policy
    return job


def pending_cluster(
    policy: str = "Never", *, options: Options | None = None, graceful: bool = False, **fields: Any
) -> InMemoryCluster:
    """A job once all that it needs is made."""
    cluster = InMemoryCluster(v1_job(policy, **fields), kind=V1, options=options, graceful=graceful)
    cluster.settle()
    return cluster


def running(policy: str = "Never", *, graceful: bool = False, **fields: Any) -> InMemoryCluster:
    """The same once all its pods run."""
    cluster = pending_cluster(policy, graceful=graceful, **fields)
    cluster.set_phase("Running", ready=True)
    cluster.settle()
    return cluster


def named(cluster: InMemoryCluster) -> list[str]:
    """The pods that the launcher may run ranks in."""
    rules = cluster.extras["Role/pi-launcher"]["rules"]
    return rules[1]["resourceNames"] if rules else []


def hosts(cluster: InMemoryCluster) -> str:
    return str(cluster.extras["pi-config"]["data"]["discover_hosts.sh"])


def members(cluster: InMemoryCluster) -> int:
    """How many pods the gang is of."""
    assert cluster.group is not None
    return int(msgspec.json.decode(cluster.group.spec)["minMember"])


def test_workers_are_created_before_the_permission_and_the_launcher() -> None:
    cluster = InMemoryCluster(v1_job(), kind=V1)

    first = cluster.step()

    assert cluster.created_pods == WORKERS
    assert sorted(cluster.extras) == ["Role/pi-launcher", BINDING, "pi-config", "pi-launcher"]
    assert cluster.extras["pi-launcher"]["kind"] == "ServiceAccount"
    assert named(cluster) == []
    assert first.again

    second = cluster.step()

    assert cluster.created_pods == [*WORKERS, "pi-launcher"]
    assert named(cluster) == WORKERS
    assert not second.again


def test_names_of_support_objects_are_checked_before_the_first_worker() -> None:
    """A worker would hold its GPUs while a foreign object has the name of the launcher or of its support objects."""
    cluster = InMemoryCluster(v1_job(), kind=V1)

    first = {(child.resource.kind, child.name) for child in cluster.decide().create if child.first}
    assert first == {
        ("ServiceAccount", "pi-launcher"),
        ("ConfigMap", "pi-config"),
        ("Role", "pi-launcher"),
        ("RoleBinding", "pi-launcher"),
        ("Pod", "pi-launcher"),
    }

    cluster.step()
    assert not [child for child in cluster.decide().create if child.resource == PODS and child.first]


def test_objects_of_the_permission_are_created_before_the_pods() -> None:
    """In the order of the waves: without account, Role and binding there is no launcher."""
    cluster = InMemoryCluster(v1_job(), kind=V1)
    cluster.step()

    waves = {child.resource.kind: child.first for child in cluster.decide().create}

    assert waves == {"ServiceAccount": 1, "ConfigMap": 1, "Role": 1, "RoleBinding": 2, "Pod": 0}


def test_a_worker_that_cannot_be_created_is_not_in_the_role() -> None:
    """This happens when a foreign pod has its name."""
    cluster = InMemoryCluster(v1_job(), kind=V1)

    for _ in range(3):
        plan = cluster.decide()
        cluster.apply(
            replace(plan, create=tuple(child for child in plan.create if child.name != "pi-worker-1"))
        )

    assert [child.name for child in cluster.decide().create if child.resource == PODS] == ["pi-worker-1"]
    assert named(cluster) == []


def test_a_deleted_worker_is_not_in_the_role_until_it_is_replaced() -> None:
    cluster = running()
    cluster.remove("worker-1")

    cluster.step()
    assert named(cluster) == ["pi-worker-0"]
    assert cluster.created_pods[-1] == "pi-worker-1"

    cluster.settle()
    assert named(cluster) == WORKERS
    assert cluster.conditions == "Created T, Running T"


def test_the_role_has_no_rules_between_attempts() -> None:
    rules = [{"action": "RestartJob"}]
    cluster = running(graceful=True, runPolicy={"failurePolicy": {"rules": rules}})
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert named(cluster) == []
    cluster.go()
    cluster.settle()
    assert named(cluster) == WORKERS


def test_the_role_without_workers_has_no_rules() -> None:
    cluster = pending_cluster(workers=None)

    assert cluster.created_pods == ["pi-launcher"]
    assert cluster.extras["Role/pi-launcher"]["rules"] == []


def test_scaling_changes_role_and_hostfile() -> None:
    cluster = running()

    cluster.update_spec(v1_job(workers=4))
    cluster.settle()
    assert named(cluster) == [f"pi-worker-{index}" for index in range(4)]
    assert cluster.extras["pi-config"]["data"]["hostfile"].count("\n") == 4
    assert hosts(cluster) == "#!/bin/sh\necho pi-worker-0:1\necho pi-worker-1:1"

    cluster.update_spec(v1_job(workers=1))
    cluster.settle()
    assert named(cluster) == ["pi-worker-0"]
    assert hosts(cluster) == "#!/bin/sh\necho pi-worker-0:1"
    assert sorted(cluster.pods) == ["pi-launcher", "pi-worker-0"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_permission_ends_with_the_job(phase: str) -> None:
    cluster = running()

    cluster.set_phase(phase, "launcher", code=0 if phase == "Succeeded" else 1)
    cluster.settle()

    assert named(cluster) == []
    assert sorted(cluster.pods) == ["pi-launcher", *WORKERS]


def test_the_permission_ends_when_the_job_is_suspended() -> None:
    cluster = running()

    cluster.update_spec(v1_job(runPolicy={"suspend": True}))
    cluster.settle()
    assert (named(cluster), cluster.pods) == ([], {})

    cluster.update_spec(v1_job())
    cluster.settle()
    assert named(cluster) == WORKERS
    assert sorted(cluster.pods) == ["pi-launcher", *WORKERS]


def test_a_job_that_is_created_suspended_has_no_children() -> None:
    cluster = pending_cluster(runPolicy={"suspend": True})

    assert (cluster.extras, cluster.pods) == ({}, {})
    assert cluster.conditions == "Created T, Suspended T"


def test_a_waiting_gang_has_no_children() -> None:
    cluster = pending_cluster(options=Options(gang_scheduler="volcano"))
    assert (cluster.extras, cluster.pods) == ({}, {})

    cluster.admit()
    cluster.settle()
    assert cluster.created_pods == [*WORKERS, "pi-launcher"]
    assert cluster.group is not None


@pytest.mark.parametrize(
    ("scheduler_names", "warned"),
    [
        pytest.param(("", ""), True, id="no template names a scheduler"),
        pytest.param(("mine", ""), True, id="a template names another scheduler"),
        pytest.param(("volcano", ""), False, id="a template names the gang scheduler"),
        pytest.param(("volcano", "mine"), True, id="templates name the gang scheduler and another"),
    ],
)
def test_a_gang_gets_a_warning_unless_a_template_names_its_scheduler(
    scheduler_names: tuple[str, str], warned: bool
) -> None:
    """The original tests whether a template names the gang scheduler; a pod of another scheduler gets a warning, too."""
    specs = [
        {"spec": {"containers": [container()], **({"schedulerName": name} if name else {})}}
        for name in scheduler_names
    ]
    options = Options(gang_scheduler="volcano")
    cluster = pending_cluster(options=options, launcher=specs[0], worker=specs[1])
    cluster.admit()
    cluster.settle()

    assert ("SettedPodTemplateSchedulerName" in cluster.reasons) is warned


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        pytest.param(Options(), {"annotations": {WAIT_ANNOTATION: "true"}}, id="by the annotation"),
        pytest.param(Options(of_kinds=(MPIOptions(wait_for_workers=True),)), {}, id="by the flag"),
        pytest.param(
            Options(of_kinds=(MPIOptions(topology_label="zone"),)), {}, id="by the flag of the order of hosts"
        ),
    ],
)
def test_a_launcher_that_waits_for_its_workers_joins_their_gang_when_it_is_created(
    options: Options, fields: dict[str, Any]
) -> None:
    cluster = pending_cluster(options=replace(options, gang_scheduler="other"), **fields)
    assert (cluster.created_pods, members(cluster)) == (WORKERS, 2)

    cluster.set_phase("Running", ready=True)
    cluster.settle()

    assert cluster.created_pods == [*WORKERS, "pi-launcher"]
    assert members(cluster) == 3


def test_a_launcher_that_does_not_wait_is_a_member_from_the_start() -> None:
    cluster = InMemoryCluster(v1_job(), kind=V1, options=Options(gang_scheduler="other"))

    cluster.step()

    assert (cluster.created_pods, members(cluster)) == (WORKERS, 3)


def test_a_start_writes_the_host_list_twice() -> None:
    cluster = pending_cluster()
    assert hosts(cluster) == "#!/bin/sh"
    cluster.set_phase("Running", "worker-1", ready=True, running_since=cluster.now)
    cluster.settle()
    assert hosts(cluster) == "#!/bin/sh"

    cluster.set_phase("Running", "worker-0", ready=True, running_since=cluster.now)
    cluster.settle()

    assert hosts(cluster) == "#!/bin/sh\necho pi-worker-0:1\necho pi-worker-1:1"


def test_settled_workers_are_advertised_without_the_others() -> None:
    cluster = pending_cluster()
    cluster.set_phase("Running", "worker-1", ready=True, running_since=cluster.now)
    due = cluster.step().requeue_after_seconds
    assert due == 5

    cluster.wait(due)
    cluster.settle()

    assert hosts(cluster) == "#!/bin/sh\necho pi-worker-1:1"


def test_a_job_runs_when_its_launcher_does() -> None:
    cluster = pending_cluster()

    cluster.set_phase("Running", "launcher")
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.counters == {"Launcher": {"active": 1}, "Worker": {}}


def test_a_job_succeeds_when_its_launcher_does() -> None:
    cluster = running()

    cluster.set_phase("Failed", "worker-1", code=137)
    cluster.set_phase("Succeeded", "launcher", code=0)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Succeeded T"
    assert cluster.counters == {"Launcher": {"succeeded": 1}, "Worker": {}}


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
@pytest.mark.parametrize(
    ("pod", "counters"),
    [
        pytest.param(
            "worker-1", {"Launcher": {"active": 1}, "Worker": {"active": 1, "failed": 1}}, id="a worker"
        ),
        pytest.param("launcher", {"Launcher": {"failed": 1}, "Worker": {}}, id="the launcher"),
    ],
)
def test_a_pod_in_phase_failed_fails_the_job(policy: str, pod: str, counters: dict[str, Any]) -> None:
    cluster = running(policy)

    cluster.set_phase("Failed", pod, code=1)
    cluster.settle()

    failed = (cluster.status.conditions or [])[-1]
    role = "Worker" if pod.startswith("worker") else "Launcher"
    assert (failed.type, failed.reason) == ("Failed", "MPIJobMPIJobFailed")
    assert failed.message == f"MPIJob pi is failed because 1 {role} replica(s) failed."
    assert cluster.counters == counters
    assert cluster.status.completion_time is not None


def test_exit_codes_replace_a_worker() -> None:
    cluster = running("ExitCode")

    cluster.set_phase("Failed", "worker-1", code=137)
    cluster.settle()

    assert cluster.created_pods.count("pi-worker-1") == 2
    assert Count.RESTARTED in cluster.counts
    assert "MPIJobRestarting" in cluster.reasons
    assert named(cluster) == WORKERS


def test_a_permanent_exit_code_fails_the_job() -> None:
    cluster = running("ExitCode")

    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Failed T"


def test_a_deleted_worker_is_created_again() -> None:
    """A terminating worker still counts as active."""
    cluster = running(graceful=True)
    cluster.remove("worker-1")
    cluster.settle()
    assert cluster.counters["Worker"] == {"active": 2}

    cluster.go("worker-1")
    cluster.settle()

    assert cluster.created_pods.count("pi-worker-1") == 2
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize(
    ("annotations", "options"),
    [
        pytest.param({"kubeflow.org/mpi-wait-for-workers": "true"}, Options(), id="the annotation"),
        pytest.param(None, Options(of_kinds=(MPIOptions(wait_for_workers=True),)), id="the flag"),
    ],
)
def test_a_launcher_can_wait_for_its_workers(annotations: dict[str, str] | None, options: Options) -> None:
    cluster = pending_cluster(annotations=annotations, options=options)
    assert cluster.created_pods == WORKERS

    cluster.set_phase("Running", "worker-0", ready=True)
    cluster.settle()
    assert cluster.created_pods == WORKERS
    cluster.set_phase("Running", "worker-1", ready=True)
    cluster.settle()

    assert cluster.created_pods == [*WORKERS, "pi-launcher"]


def test_the_status_names_late_workers() -> None:
    cluster = pending_cluster(workers=5, options=Options(of_kinds=(MPIOptions(wait_for_workers=True),)))
    cluster.set_phase("Running", "worker-1", ready=True)
    assert cluster.step().requeue_after_seconds == LATE_SECONDS
    assert cluster.conditions == "Created T"

    cluster.wait(LATE_SECONDS)
    cluster.settle()

    assert cluster.conditions == "Running F, Created T"
    first = (cluster.status.conditions or [])[0]
    assert first.reason == "MPIJobWaitingForPods"
    assert first.message == "The launcher waits for pi-worker-0, pi-worker-2, pi-worker-3 and 1 more."


def test_the_status_names_a_failing_init_container() -> None:
    cluster = pending_cluster()
    cluster.set_phase("Pending", "worker-1", exits=(Exit("fetch", 1, init=True),))
    cluster.settle()

    assert cluster.conditions == "Running F, Created T"
    first = (cluster.status.conditions or [])[0]
    assert first.message == "Pods do not start: init container fetch of pi-worker-1 exited with code 1."


def test_removing_a_role_from_the_spec_does_not_end_the_job() -> None:
    cluster = running()
    job = v1_job()
    assert job.spec.mpi_replica_specs
    del job.spec.mpi_replica_specs["Launcher"]

    cluster.update_spec(job)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert sorted(cluster.pods) == ["pi-launcher", *WORKERS]


def test_hosts_are_ordered_by_topology_label() -> None:
    cluster = pending_cluster(workers=3, options=Options(of_kinds=(MPIOptions(topology_label="rack"),)))
    assert cluster.created_pods == [*WORKERS, "pi-worker-2"]

    for index in range(3):
        cluster.set_phase("Running", f"worker-{index}", ready=True, node=f"n{index}")
    cluster.node_topologies = {"n0": "a", "n1": "b", "n2": "a"}
    cluster.settle()

    assert cluster.created_pods[-1] == "pi-launcher"
    order = ["pi-worker-0", "pi-worker-2", "pi-worker-1"]
    assert [line.split()[0] for line in cluster.extras["pi-config"]["data"]["hostfile"].splitlines()] == order
    assert hosts(cluster).split("\n")[1:] == [f"echo {name}:1" for name in order]


def test_a_launcher_does_not_wait_for_workers_whose_failure_a_rule_ignores() -> None:
    rules = [{"action": "Ignore", "roles": ["Worker"]}]
    cluster = pending_cluster(
        annotations={WAIT_ANNOTATION: "true"}, runPolicy={"failurePolicy": {"rules": rules}}
    )
    cluster.set_phase("Running", "worker-0", ready=True)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert "pi-launcher" in cluster.pods


def test_a_suspended_job_without_a_launcher_fails_when_it_is_resumed() -> None:
    jobs = []
    for suspend in (True, False):
        job = v1_job(runPolicy={"suspend": suspend})
        assert job.spec.mpi_replica_specs
        del job.spec.mpi_replica_specs["Launcher"]
        jobs.append(job)
    cluster = InMemoryCluster(jobs[0], kind=V1)
    cluster.settle()
    assert cluster.conditions.endswith("Suspended T")

    cluster.update_spec(jobs[1])
    cluster.settle()
    assert cluster.conditions.endswith("Failed T")
