"""The control plane of the tests: it serves, authorizes, audits and leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane, ProcessFailed, Refused, User
from rallypoint.testing.controlplane.programs import KUBERNETES, NEWEST_KUBERNETES, OLDEST_KUBERNETES

UNPRIVILEGED = "nobody"
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Request, users: [watched]}
- {level: None}
"""


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": "node-0", "containers": [{"name": "main", "image": "none"}]},
    }


def test_the_requested_version_is_served(control_plane: ControlPlane, pytestconfig: pytest.Config) -> None:
    chosen = {"oldest": OLDEST_KUBERNETES, "newest": NEWEST_KUBERNETES}
    version = next(
        (version for option, version in chosen.items() if pytestconfig.getoption(option)), KUBERNETES
    )

    assert control_plane.request("GET", "/version")["gitVersion"] == f"v{version}"


def test_an_unprivileged_user_cannot_list_pods(control_plane: ControlPlane) -> None:
    with pytest.raises(Refused) as refused:
        control_plane.request("GET", "/api/v1/pods", user=UNPRIVILEGED)

    assert refused.value.code == 403
    assert f'User "{UNPRIVILEGED}" cannot list' in str(refused.value)


def test_rbac_grants_what_a_role_says(control_plane: ControlPlane, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api = "rbac.authorization.k8s.io"
    control_plane.apply(
        {
            "apiVersion": f"{api}/v1",
            "kind": "Role",
            "metadata": {"name": "reader", "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reader", "namespace": namespace},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": UNPRIVILEGED}],
        },
    )

    control_plane.wait("the grant", lambda: listed(control_plane, pods), seconds=10)
    with pytest.raises(Refused, match="cannot create"):
        control_plane.request("POST", pods, pod("refused"), user=UNPRIVILEGED)


def listed(plane: ControlPlane, path: str) -> bool:
    try:
        plane.request("GET", path, user=UNPRIVILEGED)
    except Refused:
        return False
    return True


def test_a_service_account_has_the_folder_of_a_pod(control_plane: ControlPlane, namespace: str) -> None:
    folder = control_plane.service_account_folder(namespace, "default")

    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": (folder / "token").read_text()},
    }
    answer = control_plane.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert (folder / "namespace").read_text() == namespace
    assert (folder / "ca.crt").read_bytes() == control_plane.authority.pem


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        pytest.param("0", "Succeeded", id="exit code zero is success"),
        pytest.param("143", "Failed", id="any other is failure"),
    ],
)
def test_a_simulated_pod_runs_and_ends_as_annotated(
    control_plane: ControlPlane, namespace: str, code: str, phase: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/simulated"

    def status() -> Any:
        return control_plane.request("GET", path)["status"]

    control_plane.apply(pod("simulated", namespace=namespace))
    control_plane.wait("running", lambda: status()["phase"] == "Running", seconds=30)
    assert status()["containerStatuses"][0]["ready"] is True
    control_plane.apply(
        pod("simulated", namespace=namespace, annotations={"rallypoint.testing/exit-code": code})
    )
    control_plane.wait("ended", lambda: status()["phase"] == phase, seconds=30)

    assert status()["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(code)


def test_children_of_a_deleted_owner_are_garbage_collected(
    control_plane: ControlPlane, namespace: str
) -> None:
    def config_map(name: str, owners: list[dict[str, str]]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, "ownerReferences": owners}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.apply(config_map("owner", []))
    uid = control_plane.request("GET", f"{maps}/owner")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    control_plane.apply(config_map("child", [owner]))

    control_plane.request("DELETE", f"{maps}/owner")

    control_plane.wait("collection", lambda: not control_plane.has(f"{maps}/child"), seconds=60)
    assert not control_plane.has(f"{maps}/owner")


@pytest.fixture(scope="module")
def other_plane() -> Iterator[ControlPlane]:
    """A second control plane beside the shared one, with the other options."""
    users = [User(name, groups=("system:masters",)) for name in ("watched", "unwatched")]
    with ControlPlane(
        users=users, controllers=(), service_account_admission=False, audit_policy=AUDIT_POLICY
    ) as plane:
        yield plane


def test_without_the_admission_pods_need_no_service_account(other_plane: ControlPlane) -> None:
    other_plane.apply(pod("alone", namespace="default"))

    assert not other_plane.has("/api/v1/namespaces/default/serviceaccounts/default")
    created = other_plane.request("GET", "/api/v1/namespaces/default/pods/alone")
    assert "serviceAccountName" not in created["spec"]


def test_the_audit_log_holds_what_the_policy_selects(other_plane: ControlPlane) -> None:
    for user in ("unwatched", "watched"):
        other_plane.request("POST", "/api/v1/namespaces/default/pods", pod(f"by-{user}"), user=user)

    assert other_plane.audit_log is not None
    events = [json.loads(line) for line in other_plane.audit_log.read_text().splitlines()]
    assert {event["user"]["username"] for event in events} == {"watched"}
    assert events[-1]["requestObject"]["metadata"]["name"] == "by-watched"


def test_a_program_that_does_not_come_up_shows_its_log() -> None:
    plane = ControlPlane(controllers=(), api_server_flags=["--no-such-flag"])

    with pytest.raises(ProcessFailed) as failed:
        plane.start()

    assert "kube-apiserver does not run" in str(failed.value)
    assert "unknown flag: --no-such-flag" in str(failed.value)
    assert not plane.directory.exists()
    assert not any(process.running for process in plane.processes.values())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_no_process_survives_its_parent() -> None:
    """The parent is killed outright, so that none of its own code can clean up."""
    script = (
        "import os, signal, sys\n"
        "from rallypoint.testing.controlplane import ControlPlane\n"
        "plane = ControlPlane(controllers=())\n"
        "plane.start()\n"
        "print(plane.directory, *(process.pid for process in plane.processes.values()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    directory, *pids = done.stdout.split()
    try:
        assert len(pids) == 2, done.stderr
        deadline = time.monotonic() + 30
        while any(alive(int(pid)) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [pid for pid in pids if alive(int(pid))] == []
    finally:
        subprocess.run(["rm", "-rf", directory], check=True)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is waited for by init does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
