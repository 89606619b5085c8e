"""Plans of MPIJobs of v2beta1 and v1alpha2 that restart in place: the launcher's Job and the workers stay."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from api.children import Exit
from api.meta import SERVICES
from api.mpijob import MPIJob
from api.restart_report import SETTINGS_VARIABLE, RestartReport
from controller.kind import JobKind, Options
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.reconcile.plan import problems
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import container, mpi_job

FLAVORS = pytest.mark.parametrize(
    "kind", [pytest.param(V2BETA1, id="v2beta1"), pytest.param(V1ALPHA2, id="v1alpha2")]
)
POLICY = {"rules": [{"action": "RestartJob"}], "restartStrategy": "InPlaceRestart", "maxRestarts": 5}


def job_with(kind: JobKind[Any], **fields: Any) -> MPIJob:
    version = "v2beta1" if kind is V2BETA1 else "v1alpha2"
    return mpi_job(**{"flavor": version, "runPolicy": {"failurePolicy": POLICY}, **fields})


def new_cluster(kind: LauncherFlavor, **fields: Any) -> InMemoryCluster:
    options = Options(container_restart_rules=True)
    return InMemoryCluster(job_with(kind, **fields), kind=kind, options=options)  # type: ignore[arg-type]  # has no use for the rest


def running(kind: LauncherFlavor) -> InMemoryCluster:
    """Return a job that has run for 20 seconds."""
    cluster = new_cluster(kind)
    cluster.settle()
    cluster.set_phase("Running", ready=True, running_since=cluster.now)
    cluster.settle()
    cluster.launch(running_since=cluster.now)
    cluster.settle()
    cluster.wait(20)
    assert cluster.conditions.endswith("Running T")
    return cluster


def report(cluster: InMemoryCluster, attempt: int = 0) -> dict[str, Any]:
    """Return the fields of a pod whose container ended for a restart and runs again."""
    end = Exit(
        "mpi", 7, "Error", finished_at=cluster.now, report=RestartReport(attempt, 7, counted=attempt + 1)
    )
    return {"previous_failure": end, "running_since": cluster.now + timedelta(seconds=1), "restarts": 1}


def settings_of(spec: dict[str, Any]) -> dict[str, Any]:
    (text,) = [entry["value"] for entry in spec["containers"][0]["env"] if entry["name"] == SETTINGS_VARIABLE]
    found: dict[str, Any] = orjson.loads(text)
    return found


@FLAVORS
def test_launcher_and_workers_have_an_agent(kind: LauncherFlavor) -> None:
    cluster = new_cluster(kind)
    pods = {child.name: child.body() for child in cluster.step().create if child.resource.kind == "Pod"}
    cluster.set_phase("Running", ready=True)
    cluster.settle()

    (launcher,) = cluster.batch_jobs.values()
    template = launcher["spec"]["template"]["spec"]
    given = [settings_of(template), *(settings_of(pod["spec"]) for pod in pods.values())]
    assert sorted(settings["name"] for settings in given) == ["launcher", "pi-worker-0", "pi-worker-1"]
    assert [settings["name"] for settings in given if settings["first"]] == ["pi-worker-0"]
    assert {settings["members"] for settings in given} == {3}
    assert template["containers"][0]["command"][-1] == "mpirun"


@FLAVORS
def test_a_service_names_the_coordinator_alone(kind: LauncherFlavor) -> None:
    created = new_cluster(kind).decide().create

    (service,) = [
        child.body() for child in created if child.resource == SERVICES and child.name == "pi-worker-0"
    ]
    selected = [
        child.name
        for child in created
        if child.resource.kind == "Pod"
        and service["spec"]["selector"].items() <= child.body()["metadata"]["labels"].items()
    ]
    assert selected == ["pi-worker-0"]


@FLAVORS
@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_a_restart_in_place_keeps_launcher_and_workers(kind: LauncherFlavor, role: str) -> None:
    cluster = running(kind)
    before = cluster.created_pods[:], dict(cluster.batch_jobs)
    if role == "Launcher":
        cluster.launch(**report(cluster))
    else:
        cluster.set_phase("Running", "worker-1", ready=True, **report(cluster))
    cluster.settle()

    assert cluster.conditions.endswith("Restarting T") or cluster.conditions.endswith("Running T")
    (attempt,) = cluster.status.attempts or []
    assert (attempt.role, attempt.exit_code, attempt.in_place) == (role, 7, True)
    assert (cluster.status.restarts, cluster.status.in_place_restarts) == (1, 1)

    cluster.wait(3)
    cluster.settle()
    assert cluster.conditions.endswith("Running T")
    assert (cluster.created_pods, dict(cluster.batch_jobs)) == before


@FLAVORS
def test_a_failed_launcher_then_restarts_the_job_by_recreation(kind: LauncherFlavor) -> None:
    cluster = running(kind)
    cluster.launch(**report(cluster))
    cluster.settle()
    cluster.launch("Failed", 3)
    cluster.settle()
    cluster.wait(13)
    cluster.settle()

    assert [attempt.in_place for attempt in cluster.status.attempts or ()] == [True, None]
    assert (cluster.status.restarts, cluster.status.in_place_restarts) == (2, None)
    assert cluster.created_pods == ["pi-worker-0", "pi-worker-1"] * 2


@FLAVORS
def test_the_end_of_the_launcher_ends_a_job_that_restarted_in_place(kind: LauncherFlavor) -> None:
    cluster = running(kind)
    cluster.launch(**report(cluster))
    cluster.settle()
    cluster.wait(3)
    cluster.settle()
    cluster.launch("Succeeded", 0, restarts=1)
    cluster.end_batch("Complete", succeeded=1)
    cluster.settle()

    assert cluster.conditions.endswith("Succeeded T")


@FLAVORS
def test_the_launcher_must_name_its_command(kind: LauncherFlavor) -> None:
    launcher = {"spec": {"containers": [{**container(), "command": None}]}}
    cluster = new_cluster(kind, launcher=launcher)
    cluster.settle()

    last = (cluster.status.conditions or [])[-1]
    assert last.type == "Failed"
    assert 'container "mpi" of Launcher must name its command' in (last.message or "")


@FLAVORS
def test_a_job_without_workers_has_no_agents(kind: LauncherFlavor) -> None:
    cluster = new_cluster(kind, workers=None, runLauncherAsWorker=True)
    cluster.settle()

    assert "pi-agent" not in cluster.extras


@FLAVORS
def test_the_checks_without_a_cluster_find_a_missing_command_too(kind: LauncherFlavor) -> None:
    launcher = {"spec": {"containers": [{**container(), "command": None}]}}

    (problem,) = problems(kind, job_with(kind, launcher=launcher), Options())

    assert 'container "mpi" of Launcher must name its command' in str(problem)
    assert problems(kind, job_with(kind), Options()) == []
