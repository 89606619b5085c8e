"""A release of the Helm chart, installed by the real helm; ``make chart`` tests upgrades, rollbacks and others."""

from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import ACCOUNT
from tests.support.helm import Release
from tests.support.jobs import Jobs, job
from tests.support.rights import denied_rights


def test_a_release_serves_jobs_and_leaves_them_when_it_is_uninstalled() -> None:
    """As the ServiceAccount that it installs, without a refusal."""
    with ControlPlane(nodes=1, audit_policy=policy([ACCOUNT], watches=True)) as plane:
        release, jobs = Release(plane), Jobs(plane, "default")
        release.install()
        with release.operator():
            jobs.create("train", job(workers=1))
            jobs.wait_for("train", "Running")

        release.uninstall()

        assert denied_rights(plane) == []
        assert not plane.has("/api/v1/namespaces/rallypoint-system/serviceaccounts/training-operator")
        assert plane.has(jobs.path("train"))
        assert len(jobs.pods("train")) == 2
