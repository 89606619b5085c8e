"""A second account of the machine cannot read anything of a running local cluster."""

import asyncio
import base64
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.http_trace import Step
from rallypoint.testing.up import up
from tests.support.unprivileged_user import ROOT, UIDS, command_as, uid_label

pytestmark = pytest.mark.looptime(False)

OTHER = 1001
RUN = "import sys; from rallypoint.cli import main; sys.exit(main())"
NAMESPACED = "/api/v1/namespaces/default"
POD = f"{NAMESPACED}/pods/p"
PROGRAM = """
umask 022
echo said > $MESSAGES
cat $SECRETS/password > $CLAIMED/copy
echo begun
exec sleep 1000
"""


def pod() -> dict[str, Any]:
    paths = {"SECRETS": "/secrets", "CLAIMED": "/claimed", "MESSAGES": "/messages/end"}
    sources = [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "token"}}]
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", PROGRAM],
        "env": [{"name": name, "value": path} for name, path in paths.items()],
        "terminationMessagePath": paths["MESSAGES"],
        "volumeMounts": [{"name": "s", "mountPath": "/secrets"}, {"name": "c", "mountPath": "/claimed"}],
    }
    volumes = [
        {"name": "s", "projected": {"sources": sources}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], "volumes": volumes}}


def objects() -> list[Step]:
    password = base64.b64encode(b"a password").decode()
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return [
        Step("POST", f"{NAMESPACED}/secrets", {"metadata": {"name": "s"}, "data": {"password": password}}, 201),
        Step("POST", f"{NAMESPACED}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim_spec}, 201),
        Step("POST", f"{NAMESPACED}/pods", pod(), 201),
    ]  # fmt: skip


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that everybody can look into, below folders that everybody can pass."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        path = Path(made)
        path.chmod(0o755)
        yield path


def open_to(uid: int, paths: list[Path]) -> list[Path]:
    """The paths that a user can read, write or list."""
    ask = 'for path; do { [ -r "$path" ] || [ -w "$path" ]; } && printf "%s\\n" "$path"; done; true'
    listing = subprocess.run(
        ["/bin/sh", "-c", ask, "sh", *map(str, paths)],
        user=uid, group=uid, extra_groups=[], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Path(line) for line in listing.stdout.splitlines()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second account")
@pytest.mark.parametrize("data_folder", ["a new folder", "a folder that everybody can enter"])
@pytest.mark.parametrize("uid", [0, UIDS[0]], ids=uid_label)
async def test_nothing_of_a_cluster_is_readable_by_a_second_account(
    home: Path, uid: int, data_folder: str, isolation: IsolationMode
) -> None:
    """Tokens, Secrets, volumes, claims, logs, messages and objects, for any user who runs the cluster."""
    data = home / "data"
    if data_folder != "a new folder":
        data.mkdir(mode=0o755)
    command = [*command_as(home, RUN, uid), "up", "--isolation", isolation, "--data", str(data)]
    async with up(folder=ROOT, command=command) as cluster:
        for step in objects():
            reply = await cluster.client.send(step)
            assert reply.code == step.code, reply.text
        await cluster.until(f"{POD}/log", lambda log: log == "begun\n")
        paths = [path for path in (data, *data.rglob("*")) if not path.is_symlink()]
        found = await asyncio.to_thread(open_to, OTHER, paths)
        contents = {path: path.read_bytes() for path in paths if path.is_file()}
        await cluster.stop()

    assert found == ([] if data_folder == "a new folder" else [data])
    for text in (b"a password", b"said\n", b"begun\n"):
        assert text in contents.values()
    assert {"token", "kubeconfig", "objects.sqlite", "controller.log"} <= {path.name for path in contents}
