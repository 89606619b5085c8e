"""Addresses on the cluster's cables."""

from rallypoint.testing.cluster.network import hardware


def test_a_hardware_address_is_derived_from_the_ip_address() -> None:
    assert hardware("10.250.0.12") == "02:00:0a:fa:00:0c"
