"""``rallypoint port-forward`` with real kubelets."""

import re
import subprocess
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from api.labels import JOB_NAME
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.up import RALLYPOINT

SIZE_BYTES = 5_000_000
SERVE = f"export PYTHONUNBUFFERED=1; head -c {SIZE_BYTES} /dev/zero > /tmp/zeros; exec python -m http.server --bind localhost --directory /tmp 8000"


@contextmanager
def forwarding(workloads: Workloads, *arguments: str) -> Generator["tuple[subprocess.Popen[str], str]"]:
    """Run the command; yield its process and the URL of the local port."""
    flags = ("--kubeconfig", str(workloads.cluster.kubeconfig), "-n", workloads.namespace)
    command = [*RALLYPOINT, "port-forward", *arguments, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"Forwarding from (127\.0\.0\.1:\d+) -> \d+\n", line)
            assert match is not None, process.communicate()
            yield process, f"http://{match[1]}"
        finally:
            process.terminate()


def fetch(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as response:
        return len(response.read())


def test_the_replica_that_declares_the_port_is_reached(workloads: Workloads) -> None:
    web = {"image": BASE, "command": ["sh", "-c", SERVE], "ports": [{"name": "web", "containerPort": 8000}]}
    idle = {"image": BASE, "command": ["sleep", "1000"]}
    workloads.apply(job("PyTorchJob", "web", {"Master": idle, "Worker": web}))
    workloads.wait_for("PyTorchJob", "web", "Running")
    workloads.wait("the server", lambda: "Serving" in workloads.logs_of(f"{JOB_NAME}=web"))

    with forwarding(workloads, "pytorchjob/web", ":web") as (_, url), ThreadPoolExecutor(20) as threads:
        assert list(threads.map(fetch, [f"{url}/zeros"] * 40)) == [SIZE_BYTES] * 40


def test_a_port_without_a_program_is_an_error_of_its_connection(workloads: Workloads) -> None:
    idle = {"image": BASE, "command": ["sleep", "1000"]}
    workloads.apply(job("PyTorchJob", "idle", {"Master": idle}))
    workloads.wait_for("PyTorchJob", "idle", "Running")

    with forwarding(workloads, "idle-master-0", ":8000") as (process, url):
        assert process.stderr is not None
        for _ in range(2):
            try:
                fetch(url)
            except OSError:
                assert "failed to connect to localhost:8000" in process.stderr.readline()
            else:
                raise AssertionError("there was an answer")
