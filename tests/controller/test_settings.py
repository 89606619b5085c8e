"""The settings: accepted values and error messages."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from controller.command import build_parser, settings_from
from controller.kinds import ALL
from controller.settings import FIELDS, Settings


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param(
            {"controller_threads": 0}, "--controller-threads must be at least 1, not 0", id="threads"
        ),
        pytest.param({"kube_api_in_flight": 0}, "--kube-api-in-flight", id="requests in flight"),
        pytest.param({"max_replicas": -1}, "--max-replicas", id="replicas"),
        pytest.param(
            {"kube_api_qps": -1},
            "--kube-api-qps must be a finite number of at least 0, not -1",
            id="negative requests",
        ),
        pytest.param(
            {"kube_api_qps": math.nan}, "finite number of at least 0, not nan", id="no number of requests"
        ),
        pytest.param(
            {"kube_api_qps": math.inf}, "finite number of at least 0, not inf", id="endless requests"
        ),
        pytest.param({"kube_api_burst": 0}, "--kube-api-burst must be at least 1, not 0", id="burst"),
        pytest.param(
            {"namespace": "Foo_Bar"}, "--namespace .*'Foo_Bar' is not a valid", id="letters of a name"
        ),
        pytest.param({"namespace": "-a"}, "'-a' is not a valid namespace name", id="start of a name"),
        pytest.param({"namespace": "a-"}, "'a-' is not a valid namespace name", id="end of a name"),
        pytest.param({"namespace": "a\n"}, "is not a valid namespace name", id="a line's end in a name"),
        pytest.param({"namespace": "a" * 64}, "is not a valid namespace name", id="length of a name"),
        pytest.param({"events": "loud"}, "--events must be one of full, compact, off", id="events"),
        pytest.param(
            {"log_format": "xml"}, "--log-format must be one of json, console", id="format of the log"
        ),
        pytest.param({"log_level": "loud"}, "--log-level must be one of", id="level of the log"),
        pytest.param(
            {"leader_election_namespace": "A"}, "--leader-election-namespace: 'A' is", id="lease's namespace"
        ),
        pytest.param(
            {"lock_namespace": "A"}, "--lock-namespace: 'A' is", id="mpi-operator's lease's namespace"
        ),
        pytest.param(
            {"leader_election_id": "a/b"}, "--leader-election-id: 'a/b' is not a valid", id="lease's name"
        ),
        pytest.param(
            {"shadow": True, "leader_elect": True},
            "--shadow cannot be combined with --leader-elect",
            id="a shadow with a lease",
        ),
        pytest.param(
            {"shadow": True, "kueue": True},
            "--shadow cannot be combined with --kueue",
            id="a shadow with Kueue",
        ),
        pytest.param(
            {"shadow": True, "services": "per-job"},
            "--shadow cannot be combined with --services",
            id="a shadow with fewer Services",
        ),
        pytest.param(
            {"services": "none"},
            "--services must be one of per-replica, addressed, per-job",
            id="unknown Services",
        ),
        pytest.param({"leader_election_id": ""}, "--leader-election-id: '' is not a valid", id="no lease"),
        pytest.param(
            {"leader_election_id": "a..b"}, "'a..b' is not a valid Lease name", id="dots of a lease's name"
        ),
        pytest.param(
            {"metrics_cert_path": "/certs"}, "--metrics-cert-path needs --metrics-secure", id="certificate"
        ),
        pytest.param(
            {"metrics_token_audiences": ("a",)}, "--metrics-token-audiences needs", id="audiences of nothing"
        ),
        pytest.param(
            {"metrics_secure": True, "metrics_cert_name": ""}, "--metrics-cert-name must not", id="no file"
        ),
        pytest.param(
            {"metrics_secure": True, "metrics_cert_key": ""}, "--metrics-cert-key must not", id="no key"
        ),
        pytest.param(
            {"metrics_secure": True, "metrics_bind_address": ":1", "health_probe_bind_address": ":1"},
            "--metrics-bind-address and --health-probe-bind-address must differ",
            id="metrics and probes on one address",
        ),
        pytest.param(
            {"leader_election_id": "a" * 254}, "is not a valid Lease name", id="length of a lease's name"
        ),
    ],
)
def test_a_value_out_of_range_is_rejected_with_the_name_of_its_flag(
    values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Settings(**values)


def test_every_setting_has_a_flag_of_its_name_and_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEFLOW_NAMESPACE", raising=False)
    settings = settings_from(build_parser().parse_args([]))

    own = tuple(kind.options() for kind in ALL if kind.options)
    assert replace(settings, of_kinds=()) == Settings()
    assert settings.of_kinds == own
    assert {field.name for field in fields(Settings)} == set(FIELDS)


@pytest.mark.parametrize("name", ["", "a", "7", "team-a", "a--b", "a" * 63])
def test_valid_namespaces_are_accepted(name: str) -> None:
    assert Settings(namespace=name).namespace == name


@pytest.mark.parametrize("name", ["a", "mpi-operator", Settings().leader_election_id, "a" * 253])
def test_valid_lease_names_are_accepted(name: str) -> None:
    assert Settings(leader_election_id=name).leader_election_id == name


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Settings().namespace = "other"  # type: ignore[misc]
