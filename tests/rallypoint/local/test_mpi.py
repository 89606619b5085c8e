"""Real MPI over pods: both implementations, both ways to start processes in other pods, all isolations and users."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from api.meta import PODS
from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.local_harness import LocalHarness, phase, start_local_harness
from tests.support.mpicc import mpicc
from tests.support.mpipods import LAUNCHER, Implementation, MpiJob, Transport, submit
from tests.support.unprivileged_user import ROOT, TEST_UIDS, command_as, uid_label

pytestmark = pytest.mark.looptime(False)

RUN = "from tests.support.mpipods import main; main()"
TIMEOUT_SECONDS = 60.0

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The pod's name as its daemon has it: mpirun hands its own environment on. */
static void pod(char *name, int size) {
    char path[64], env[65536] = "";
    gethostname(name, size);
    snprintf(path, sizeof path, "/proc/%d/environ", getppid());
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(env, 1, sizeof env - 1, file) : 0;
    for (char *at = env; at < env + length; at += strlen(at) + 1)
        if (!strncmp(at, "HOSTNAME=", 9)) snprintf(name, size, "%s", at + 9);
}

int main(int count, char **arguments) {
    int rank, size, all;
    char name[64] = "", names[64 * 64];
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    pod(name, sizeof name);
    MPI_Gather(name, 64, MPI_CHAR, names, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ranks %d sum %d on", size, all);
        for (int each = 0; each < size; each++) printf(" %s", names + 64 * each);
        printf("\n");
        fflush(stdout);
    }
    if (count > 1) sleep(atoi(arguments[1]));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""
TOGETHER = "ranks 6 sum 15 on pi-worker-0 pi-worker-0 pi-worker-1 pi-worker-1 pi-worker-2 pi-worker-2\n"


def compiled(folder: Path, implementation: Implementation) -> Path:
    compiler = mpicc(implementation)
    (folder / "program.c").write_text(PROGRAM)
    program = folder / f"program-{implementation}"
    subprocess.run([compiler, "-o", program, folder / "program.c"], check=True)
    return program


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
@pytest.mark.parametrize(
    ("transport", "implementation"), [("ssh", "openmpi"), ("ssh", "mpich"), ("kubectl", "openmpi")]
)
def test_ranks_run_in_all_workers(
    tmp_path: Path,
    left: Callable[[], list[str]],
    transport: Transport,
    implementation: Implementation,
    uid: int,
    isolation: IsolationMode,
) -> None:
    """The end is not waited for where ranks speak over TCP with MPICH 4.0.2, Debian 12's.

    There it often hangs in MPI_Finalize: ``UCX_TLS=tcp mpirun.mpich -np 6`` shows it on any machine, without pods.
    """
    home = tmp_path / "home"
    home.mkdir()
    program = compiled(home, implementation)
    ends = implementation == "openmpi" or isolation == "loopback"
    arguments = {
        "folder": str(home / "run"),
        "isolation": isolation,
        "transport": transport,
        "implementation": implementation,
        "command": [f"mpirun.{implementation}", "-np", "6", str(program)],
        "enough": "" if ends else TOGETHER,
    }
    command = [*command_as(home, RUN, uid), json.dumps(arguments)]
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    assert TOGETHER in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("\nSucceeded\n") or not ends
    assert left() == []


def keys() -> tuple[str, str]:
    """As v2beta1 makes them."""
    key = ec.generate_private_key(ec.SECP521R1())
    no_encryption = serialization.NoEncryption()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, no_encryption
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()}\n"


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
def test_the_real_ssh_and_sshd(
    tmp_path: Path, left: Callable[[], list[str]], isolations: list[IsolationMode], uid: int
) -> None:
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    assert shutil.which("sshd", path="/usr/sbin"), (
        "there is no sshd here; tools/packages.py says how to install it"
    )
    home = tmp_path / "home"
    home.mkdir()
    at = "/root/.ssh" if uid == 0 else str(home / "keys")
    settings = {"Port": 2222, "HostKey": f"{at}/id_rsa", "AuthorizedKeysFile": f"{at}/authorized_keys"}
    fixed = {"PidFile": home / "pid", "StrictModes": "no", "UsePAM": "yes"}
    (home / "sshd_config").write_text(
        "".join(f"{name} {value}\n" for name, value in {**settings, **fixed}.items())
    )
    arguments = {
        "folder": str(home / "run"),
        "isolation": "namespaces",
        "real_ssh": True,
        "sshd": ["/usr/sbin/sshd", "-De", *(["-f", str(home / "sshd_config")] if uid != 0 else [])],
        "keys": keys(),
        "keys_at": at,
        "command": ["mpirun.openmpi", "-np", "6", str(compiled(home, "openmpi"))],
    }
    command = [*command_as(home, RUN, uid, has_account=True), json.dumps(arguments)]
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    assert TOGETHER in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("\nSucceeded\n")
    assert left() == []


@asynccontextmanager
async def under_way(
    folder: Path, isolation: IsolationMode, implementation: Implementation
) -> AsyncIterator[LocalHarness]:
    """A local cluster with a job whose ranks wait for each other."""
    command = [f"mpirun.{implementation}", "-np", "6", str(compiled(folder, implementation)), "1000"]
    async with (
        start_local_harness(folder / "run", isolation) as harness,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        await submit(harness, MpiJob(command, implementation=implementation, tmpdir=str(folder)))
        await harness.wait_for_log(LAUNCHER, "ranks 6")
        yield harness


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
async def test_a_worker_that_dies_fails_the_launcher(
    tmp_path: Path, left: Callable[[], list[str]], isolation: IsolationMode, implementation: Implementation
) -> None:
    async with under_way(tmp_path, isolation, implementation) as harness:
        await harness.client.delete(PODS, "default", "pi-worker-1", grace_period_seconds=0)

        assert phase(await harness.wait_for_end(LAUNCHER)) == "Failed"
        assert (await harness.log(LAUNCHER)).count("ranks 6") == 1


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
async def test_no_process_remains_in_workers_when_the_launcher_dies(
    tmp_path: Path, left: Callable[[], list[str]], isolation: IsolationMode, implementation: Implementation
) -> None:
    """The workers themselves stay."""
    async with under_way(tmp_path, isolation, implementation) as harness:
        await harness.client.delete(PODS, "default", "pi-launcher", grace_period_seconds=0)
        while True:
            if not [line for line in left() if "program-" in line or "orted" in line or "hydra" in line]:
                break
            await asyncio.sleep(0.05)

        assert len([line for line in left() if "sleep 3600" in line and "while" in line]) == 3
