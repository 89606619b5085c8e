"""A shadow as the shipped overlay runs it, beside this operator on a real API server: its rights, its requests and its report."""

from collections.abc import Generator

import pytest

from rallypoint.testing.audit import READ_VERBS, calls, policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import SHADOW, WITH_MPI_V1, in_cluster_service, install
from tests.support.running_jobs import JAX, MPI_V1, MPI_V2BETA1, OTHERS, Jobs
from tests.support.shadow_beside import ACCOUNT, shadow, undeclared

UNUSED = {"horizontalpodautoscalers", "podgroups"}
"""What no job here has."""


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1, audit_policy=policy([ACCOUNT], watches=True)) as plane:
        install(plane, WITH_MPI_V1)
        install(plane, SHADOW)
        yield plane


@pytest.mark.full
def test_a_shadow_compares_jobs_of_all_kinds_with_the_rights_to_read(plane: ControlPlane) -> None:
    jobs = Jobs(plane)
    with in_cluster_service(plane), shadow(plane) as beside:
        jobs.start([*OTHERS, MPI_V1, MPI_V2BETA1], "own")
        report = beside.report()
        assert undeclared(report) == []
        assert {kind: results["equal"] for kind, results in report["kinds"].items()} == {
            **{kind.kind: 1 for kind in OTHERS},
            "MPIJob": 2,
        }
        assert beside.exit_status() == 0
        assert beside.service.metric('rallypoint_shadow_jobs{kind="MPIJob",result="equal"}') == 2

        path = "/api/v1/namespaces/default/services/tfjob-v1-own-worker-0"
        plane.request("PATCH", path, {"spec": {"ports": [{"name": "other", "port": 1}]}})
        plane.wait("the difference", lambda: beside.exit_status() == 1)
        assert {entry["rule"] for entry in beside.read()["differences"]} == {"service"}

    assert plane.audit_log is not None
    found = [call for call in calls(plane.audit_log) if call.resource]
    assert {call.verb for call in found} <= set(READ_VERBS)
    assert [call for call in found if call.code in {401, 403}] == []
    assert {call.resource for call in found} | UNUSED >= {
        *("pods", "services", "configmaps", "secrets", "jobs", "serviceaccounts", "roles", "rolebindings"),
        *(f"{kind.kind.lower()}s" for kind in (*OTHERS, MPI_V1)),
    }


def test_a_kind_that_is_not_served_makes_the_report_incomplete(plane: ControlPlane) -> None:
    with (
        in_cluster_service(plane),
        shadow(plane, "--enable-scheme=JAXJob", "--enable-scheme=MXJob") as beside,
    ):
        Jobs(plane).start([JAX], "beside-mxjobs")
        plane.wait("the job to be compared", lambda: beside.read()["kinds"]["JAXJob"]["equal"] > 0)
        assert [entry["why"].split()[0] for entry in beside.read()["unread"]] == ["mxjobs"]
        assert beside.exit_status() == 2
