"""The controller as its Deployment runs it: in the cluster, as the shipped ServiceAccount, with the shipped flags."""

from controller.testing.controlplane import ControlPlane
from controller.testing.service import in_cluster_service, install


def test_it_finds_the_cluster_around_it(control_plane: ControlPlane) -> None:
    install(control_plane)

    with in_cluster_service(control_plane) as running:
        assert running.metric("rest_client_requests_total") > 0
