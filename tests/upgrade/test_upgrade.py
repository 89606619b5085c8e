"""Jobs in every state, under another commit's operator, are handed to this one and back, and nothing changes for them."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from rallypoint.testing.checkout import Checkout
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import Process, answers, free_port
from rallypoint.testing.manifests import build
from rallypoint.testing.service import WITH_MPI_V1, in_cluster_service, install
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, Jobs

KINDS = (*OTHERS, MPI_V1, MPI_V2BETA1)
PYTORCH = OTHERS[0]
SETTLED_SECONDS = 3.0
CHILDREN = (
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
)


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


@contextmanager
def operator_of(checkout: Checkout, plane: ControlPlane) -> Generator[Process]:
    """The operator of another commit with its own manifests and its Deployment's arguments, once it leads."""
    install(plane, checkout.folder / WITH_MPI_V1.relative_to(WITH_MPI_V1.parents[2]))
    standalone = build(checkout.folder / "manifests" / "overlays" / "standalone")
    deployment = next(document for document in standalone if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    address = f"127.0.0.1:{free_port()}"
    command = [
        checkout.python,
        "-P",  # or the folder of this process would come first, with this commit's code
        "-m",
        "controller",
        *container.get("args", ()),
        f"--kubeconfig={plane.kubeconfig()}",
        f"--health-probe-bind-address={address}",
        "--metrics-bind-address=0",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    environment |= {
        "MY_POD_NAMESPACE": deployment["metadata"]["namespace"],
        "MY_POD_NAME": "training-operator-previous",
    }
    with plane.running(
        f"previous-{address}",
        command,
        environment=environment,
        ready=lambda _: answers(f"http://{address}/readyz"),
    ) as process:
        yield process


def state(plane: ControlPlane, suffix: str) -> dict[str, Any]:
    """The statuses, objects and events of the jobs whose name has that suffix.

    Objects are there by their resourceVersion, which changes with every write, and events by their reason and message.
    """
    jobs = (item for kind in KINDS for item in plane.request("GET", kind.collection)["items"])
    objects = ((path, item) for path in CHILDREN for item in plane.request("GET", path)["items"])
    events = plane.request("GET", "/api/v1/namespaces/default/events")["items"]
    found = {
        **{f"status of {item['metadata']['name']}": item.get("status") for item in jobs},
        **{
            f"{path}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for path, item in objects
        },
        **{f"{item['involvedObject']['name']}: {item['reason']}: {item['message']}": 1 for item in events},
    }
    return {name: value for name, value in found.items() if suffix in name}


def settled_state(plane: ControlPlane, suffix: str) -> dict[str, Any]:
    """Return their state once it has stayed the same for some seconds, as the last write may come after what a wait saw."""
    observed: list[dict[str, Any]] = []

    def settled() -> bool:
        observed.append(state(plane, suffix))
        time.sleep(SETTLED_SECONDS)
        return state(plane, suffix) == observed[-1]

    plane.wait("the jobs to settle", settled)
    return observed[-1]


def changes(plane: ControlPlane, suffix: str, before: dict[str, Any]) -> dict[str, Any]:
    """What differs from an earlier ``state``, before and after."""
    after = state(plane, suffix)
    return {
        name: (before.get(name), after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def wait_for(plane: ControlPlane, suffix: str, expected: str) -> None:
    """Wait until the newest true condition of that PyTorchJob is the expected one."""
    plane.wait(f"{suffix} to be {expected}", lambda: condition(plane, suffix) == expected)


def condition(plane: ControlPlane, suffix: str) -> str:
    """Return the newest condition that is true, or an empty string."""
    status = plane.request("GET", PYTORCH.path(f"pytorchjob-v1-{suffix}")).get("status", {})
    types = [item["type"] for item in status.get("conditions", ()) if item["status"] == "True"]
    return types[-1] if types else ""


def start_the_others(plane: ControlPlane, jobs: Jobs) -> None:
    """PyTorchJobs that wait, are suspended in mid-run, have failed by their deadline, and have succeeded."""
    for suffix, policy in {
        "waits-old": {"suspend": True},
        "late-old": {"activeDeadlineSeconds": 1, "cleanPodPolicy": "None"},
    }.items():
        body = PYTORCH.job(f"pytorchjob-v1-{suffix}", runPolicy=policy)
        plane.request("POST", PYTORCH.collection, body)
    for suffix in ("paused-old", "done-old"):
        jobs.start([PYTORCH], suffix)
    jobs.finish(PYTORCH, "done-old")
    suspend(plane, "paused-old", suspended=True)
    wait_for(plane, "waits-old", "Suspended")
    wait_for(plane, "paused-old", "Suspended")
    wait_for(plane, "late-old", "Failed")


def suspend(plane: ControlPlane, suffix: str, *, suspended: bool) -> None:
    change = {"spec": {"runPolicy": {"suspend": suspended}}}
    plane.request("PATCH", PYTORCH.path(f"pytorchjob-v1-{suffix}"), change)


def test_nothing_changes_for_jobs_of_the_previous_version_and_they_end_well(
    plane: ControlPlane, previous: Checkout
) -> None:
    jobs = Jobs(plane)
    with operator_of(previous, plane):
        jobs.start(KINDS, "old")
        start_the_others(plane, jobs)
        before = settled_state(plane, "old")

    install(plane, WITH_MPI_V1)
    with in_cluster_service(plane) as service:
        jobs.start(KINDS, "new")
        plane.wait("an empty queue", lambda: service.metric("workqueue_depth") == 0)

        assert changes(plane, "old", before) == {}

        for suffix in ("waits-old", "paused-old"):
            suspend(plane, suffix, suspended=False)
            wait_for(plane, suffix, "Running")
        for kind in KINDS:
            jobs.finish(kind, "old")
        jobs.finish(PYTORCH, "paused-old")
        assert condition(plane, "late-old") == "Failed"


def test_nothing_changes_for_jobs_when_the_previous_version_is_restored(
    plane: ControlPlane, previous: Checkout
) -> None:
    """A rollback: its manifests, too, over this version's."""
    jobs = Jobs(plane)
    install(plane, WITH_MPI_V1)
    with in_cluster_service(plane):
        jobs.start(KINDS, "old")
        start_the_others(plane, jobs)
        before = settled_state(plane, "old")

    with operator_of(previous, plane):
        jobs.start(KINDS, "new")

        assert changes(plane, "old", before) == {}

        for kind in KINDS:
            jobs.finish(kind, "old")
