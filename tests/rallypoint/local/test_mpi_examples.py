"""The MPI examples, of each version and with both implementations: real ``mpirun`` in local mode, started as a user starts it."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.mpicc import PACKAGES, mpicc

ROOT = Path(__file__).parents[3]
RALLYPOINT = "import sys; from rallypoint.cli import main; sys.exit(main())"
EXAMPLES = ROOT / "examples" / "mpi"
TIMEOUT_SECONDS = 240
LONG = '/opt/pi/pi, "100000000000"]'
"""Slices enough that nobody sees the end."""

pytestmark = pytest.mark.looptime(False)


@pytest.fixture(scope="session", autouse=True)
def _compilers() -> None:
    """The examples compile themselves; what is missing is said here, and not in the log of a container."""
    for implementation in PACKAGES:
        mpicc(implementation)


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of an environment with mpi4py, as `make examples` makes it."""
    folder = ROOT / ".venv-mpi"
    make = [sys.executable, "tools/venv.py", str(folder), "requirements/mpi.txt"]
    subprocess.run(make, cwd=ROOT, check=True)
    return str(folder / "bin" / "python")


@contextmanager
def started(
    folder: Path, *manifests: Path, python: str = sys.executable
) -> Iterator["subprocess.Popen[str]"]:
    """``rallypoint run`` of those manifests; the packages that they take are named in its output where they are missing."""
    command = [python, "-c", RALLYPOINT, "run", "--timeout", str(TIMEOUT_SECONDS)]
    command += ["--run-dir", str(folder / "run"), *map(str, manifests)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(TIMEOUT_SECONDS)


def rewritten(folder: Path, example: str, *changes: tuple[str, str]) -> Path:
    """A copy of an example in which each of those texts stands for another."""
    text = (EXAMPLES / f"{example}.yaml").read_text()
    for said, meant in changes:
        text = text.replace(said, meant)
    (manifest := folder / "job.yaml").write_text(text)
    return manifest


def hosts(output: str) -> dict[str, str]:
    """Where each rank of four has run."""
    return dict(re.findall(r"rank (\d) of 4 runs on (\S+)", output))


def on_four_workers(job: str) -> set[str]:
    return {f"{job}-worker-{index}" for index in range(4)}


def test_all_examples_with_open_mpi_in_a_single_run(tmp_path: Path, python: str) -> None:
    """Each rank runs in its own worker; workers are deleted with their job, which counts as no failure."""
    jobs = ("pi", "pi-v1", "pi-v1alpha2", "digits")
    with started(tmp_path, *(EXAMPLES / f"{job}.yaml" for job in jobs), python=python) as process:
        output, _ = process.communicate(timeout=2 * TIMEOUT_SECONDS)

    assert process.returncode == 0, output[-4000:]
    for job in jobs:
        said = "\n".join(line for line in output.splitlines() if line.startswith(f"[{job}/launcher]"))
        reached = r"accuracy 0\.9\d+ on 360" if job == "digits" else r"pi 3\.14159265\d+ on 4 ranks"
        assert f"MPIJob default/{job}: Succeeded" in output
        assert set(hosts(said).values()) == on_four_workers(job)
        assert re.search(reached, said)
    assert "Failed" not in output
    assert len(re.findall(r"^  worker-\d  (?:Deleted|Stopped) ", output, re.MULTILINE)) == 4 * len(jobs)


@pytest.mark.parametrize("example", ["pi-mpich", "pi-v1alpha2"])
def test_mpich(example: str, tmp_path: Path) -> None:
    """Its end is not waited for: MPICH 4.0.2, Debian 12's, hangs in MPI_Finalize now and then when ranks speak over TCP."""
    words = (("OpenMPI", "MPICH"), ("[mpicc,", "[mpicc.mpich,"), ("[mpirun,", "[mpirun.mpich,"))
    assert_computed(tmp_path, example, rewritten(tmp_path, example, *words))


def test_mpich_in_v1(tmp_path: Path) -> None:
    """It writes no list of hosts that MPICH reads, and nobody knows the launcher by its name: the manifest says both."""
    there = ",".join(sorted(on_four_workers("pi-v1")))
    agent = "-launcher, rsh, -launcher-exec, /etc/mpi/kubexec.sh"
    address = "\n                - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}"
    manifest = rewritten(
        tmp_path,
        "pi-v1",
        ("[mpicc,", "[mpicc.mpich,"),
        ("[mpirun,", f'[mpirun.mpich, {agent}, -localhost, $(POD_IP), -hosts, "{there}",'),
        (
            "              env:\n                - {name: OMPI_ALLOW_RUN_AS_ROOT,",
            f"              env:{address}\n                - {{name: OMPI_ALLOW_RUN_AS_ROOT,",
        ),
    )
    assert_computed(tmp_path, "pi-v1", manifest)


def assert_computed(folder: Path, job: str, manifest: Path) -> None:
    output = ""
    with started(folder, manifest) as process:
        assert process.stdout
        for line in process.stdout:
            output += line
            if "on 4 ranks" in line:
                break

    assert re.search(r"pi 3\.14159265\d+ on 4 ranks", output), output[-4000:]
    assert set(hosts(output).values()) == on_four_workers(job)


def test_a_worker_that_dies_fails_a_v1_job(tmp_path: Path) -> None:
    """Under Never, at once, whatever the launcher does."""
    output, status = lose_a_worker(tmp_path, "pi-v1", ("/opt/pi/pi]", LONG))

    assert status == 1
    assert "MPIJob pi-v1 is failed because 1 Worker replica(s) failed." in output


def test_a_v2beta1_job_whose_worker_dies_is_tried_again(tmp_path: Path) -> None:
    """The launcher decides: its Job tries it again in place, with a new worker."""
    launch = f'[sh, -c, "mkdir {tmp_path}/once && exec mpirun -n 4 /opt/pi/pi 100000000000 || exec mpirun -n 4 /opt/pi/pi"]'
    output, status = lose_a_worker(tmp_path, "pi", ('[mpirun, -n, "4", /opt/pi/pi]', launch))

    assert status == 0, output[-4000:]
    assert "MPIJob pi: Failed" not in output
    assert "worker-1: Failed (exit code 137)" in output
    assert "pi 3.14159265" in output
    assert re.search(r"^  launcher  Succeeded  restarts 1", output, re.MULTILINE)
    assert re.search(r"^  worker-1  \w+ +restarts 1", output, re.MULTILINE)
    assert re.search(r"^  worker-2  \w+ +restarts 0", output, re.MULTILINE)


def test_a_v2beta1_job_whose_worker_dies_fails_when_it_is_out_of_tries(tmp_path: Path) -> None:
    output, status = lose_a_worker(
        tmp_path, "pi", ("/opt/pi/pi]", LONG), ("backoffLimit: 2", "backoffLimit: 0")
    )

    assert status == 1
    assert "MPIJob pi: Failed (Job has reached the specified backoff limit" in output


@pytest.mark.parametrize(
    ("example", "replaced", "run_policy"),
    [
        pytest.param("pi", "backoffLimit: 2", "{}", id="v2beta1"),
        pytest.param("pi-v1alpha2", "backoffLimit: 2", "runPolicy: {{{}}}", id="v1alpha2"),
        pytest.param("pi-v1", "cleanPodPolicy: Running", "{}", id="v1"),
    ],
)
def test_a_job_with_a_failure_policy_restarts_launcher_and_workers(
    tmp_path: Path, example: str, replaced: str, run_policy: str
) -> None:
    """The ranks of the first attempt never end; those of the second one have their attempt, and compute."""
    launch = (
        '[sh, -c, "slices=10000; [ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && slices=100000000000; '
        'exec mpirun -n 4 -x RALLYPOINT_RESTART_ATTEMPT /opt/pi/pi $slices"]'
    )
    policy = run_policy.format("failurePolicy: {maxRestarts: 1, rules: [{name: any, action: RestartJob}]}")
    output, status = lose_a_worker(
        tmp_path, example, ('[mpirun, -n, "4", /opt/pi/pi]', launch), (replaced, policy)
    )

    assert status == 0, output[-4000:]
    assert f"MPIJob default/{example}: Succeeded" in output
    assert "is restarting as a whole, attempt 1, because" in output
    assert "rule any of failurePolicy: RestartJob" in output
    assert "pi 3.14159" in output


def test_mpich_restarts_launcher_and_workers(tmp_path: Path) -> None:
    """It hands the launcher's environment on by itself. The end of the job is not waited for, as above."""
    launch = (
        '[sh, -c, "slices=10000; [ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && slices=100000000000; '
        'exec mpirun.mpich -n 4 /opt/pi/pi $slices"]'
    )
    policy = "failurePolicy: {maxRestarts: 1, rules: [{action: RestartJob}]}"
    changes = (('[mpirun.mpich, -n, "4", /opt/pi/pi]', launch), ("backoffLimit: 2", policy))
    output = ""
    with started(tmp_path, rewritten(tmp_path, "pi-mpich", *changes)) as process:
        assert process.stdout
        for line in process.stdout:
            output += line
            if line.startswith("[launcher] rank 3 ") and "attempt 1" not in output:
                kill(process.pid, "pi-mpich-worker-1")
            if "on 4 ranks" in line:
                break

    assert "is restarting as a whole, attempt 1, because" in output, output[-4000:]
    assert re.search(r"pi 3\.14159\d+ on 4 ranks", output), output[-4000:]


def lose_a_worker(folder: Path, example: str, *changes: tuple[str, str]) -> tuple[str, int]:
    """The output and the exit status of a run in which all processes of worker 1 are killed in mid-run."""
    output = ""
    with started(folder, rewritten(folder, example, *changes)) as process:
        assert process.stdout
        for line in process.stdout:
            output += line
            if len(hosts(output)) == 4:
                break
        kill(process.pid, f"{example}-worker-1")
        rest, _ = process.communicate(timeout=2 * TIMEOUT_SECONDS)
    return output + rest, process.returncode


def kill(ancestor: int, pod: str) -> None:
    """As a kernel does that is out of memory."""
    for process in psutil.Process(ancestor).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOSTNAME") == pod:
                process.kill()
