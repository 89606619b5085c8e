"""The command lines of the control plane's programs."""

from pathlib import Path

import pytest
import yaml

from rallypoint.testing.controlplane import flags
from rallypoint.testing.controlplane.certificates import Pair

FILES = flags.Files(
    ca=Path("/pki/ca.crt"),
    serving=Pair(Path("/pki/server.crt"), Path("/pki/server.key")),
    etcd_client=Pair(Path("/pki/client.crt"), Path("/pki/client.key")),
    kubelet_client=Pair(Path("/pki/kubelet-client.crt"), Path("/pki/kubelet-client.key")),
    token_key=Path("/pki/token.key"),
    tokens=Path("/pki/tokens.csv"),
)


def server(
    address: str = "127.0.0.1",
    *,
    audit: flags.Audit | None = None,
    disabled: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
) -> list[str]:
    command = flags.kube_apiserver(
        Path("apiserver"), FILES, address, 1, 2, audit=audit, disabled_admission_plugins=disabled, extra=extra
    )
    return [str(part) for part in command]


def test_the_server_uses_rbac_and_listens_on_loopback_only() -> None:
    command = server()

    assert "--authorization-mode=RBAC" in command
    assert "--bind-address=127.0.0.1" in command
    assert not [flag for flag in command if "audit" in flag or "admission" in flag]


def test_pods_find_a_server_that_is_not_on_loopback() -> None:
    assert "--endpoint-reconciler-type=none" in server()
    assert "--endpoint-reconciler-type=master-count" in server("10.0.0.5")


def test_extra_flags_come_last_and_override_others() -> None:
    command = server(
        audit=flags.Audit(Path("/policy"), Path("/log")),
        disabled=("ServiceAccount",),
        extra=("--event-ttl=2h",),
    )

    assert "--disable-admission-plugins=ServiceAccount" in command
    assert "--audit-policy-file=/policy" in command
    assert "--audit-log-path=/log" in command
    assert command[-1] == "--event-ttl=2h"


def test_etcd_requires_a_client_certificate() -> None:
    command = flags.etcd(Path("etcd"), Path("/data"), FILES, 1, 2)

    assert "--client-cert-auth" in command
    assert f"--trusted-ca-file={FILES.ca}" in command


def test_the_controller_manager_runs_the_named_controllers_only() -> None:
    command = flags.kube_controller_manager(Path("kcm"), Path("/kubeconfig"), FILES, ("job-controller", "b"))

    assert "--controllers=job-controller,b" in command


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(None, flags.STAGES, id="ours without any"),
        pytest.param(Path("/mine.yaml"), Path("/mine.yaml"), id="those that are given"),
    ],
)
def test_simulated_nodes_follow_stages(given: Path | None, expected: Path) -> None:
    assert f"--config={expected}" in flags.kwok(Path("kwok"), Path("/kubeconfig"), given)


def test_our_stages_cover_nodes_and_pods() -> None:
    stages = list(yaml.safe_load_all(flags.STAGES.read_text()))

    covered = {(document["spec"]["resourceRef"]["kind"], document["metadata"]["name"]) for document in stages}
    assert covered == {
        ("Node", "node-ready"),
        ("Pod", "pod-running"),
        ("Pod", "pod-ended"),
        ("Pod", "pod-gone"),
    }


def test_simulated_pods_do_not_wait_for_each_other() -> None:
    config = yaml.safe_load(flags.KWOK.read_text())

    assert f"--config={flags.KWOK}" in flags.kwok(Path("kwok"), Path("/kubeconfig"), None)
    assert config["kind"] == "KwokConfiguration"
    assert config["options"]["podPlayStageParallelism"] == 32
