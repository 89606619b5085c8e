"""``bench nccl`` on a cluster of a kubeconfig, from a pod as the gate's Job, and with programs of nccl-tests."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
import yaml

from bench.nccl.manifest import MANIFESTS
from bench.nccl.schema import Node, Record, load
from bench.nccl.worker.messages import PREFIX
from rallypoint.testing.http_trace import Step
from rallypoint.testing.up import Up, up

pytestmark = pytest.mark.looptime(False)

WORLD = PREFIX + '{"type":"world","ranks":1}'
POINT = (
    PREFIX
    + '{"type":"point","collective":"all_reduce","dtype":"float32","in_place":true,"size_bytes":8,"elements":2,"times_us":[1.0],"wrong":0}'
)
BENCH = [sys.executable, "-c", "import sys; from bench.__main__ import main; sys.exit(main())", "nccl"]
END = PREFIX + '{"type":"end"}'
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
OURS = ("/apis/kubeflow.org/v1/pytorchjobs", "/api/v1/configmaps", "/api/v1/pods")
PERF = """[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
echo '# nccl-tests version 2.17.1 nccl-headers=22803 nccl-library=22803'
echo "#  Rank  0 Group  0 Pid  1 on  here device  0 [0000:19:00] a GPU of $CARD"
echo "#  Rank  1 Group  0 Pid  2 on  here device  1 [0000:3b:00] a GPU of $CARD"
echo ' 8 2 float sum -1 4.0 0.00 0.00 0 2.0 0.00 0.00 0'
echo "# $*"
"""


def script(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return path


async def test_the_preflight_job_reports_the_verdict(tmp_path: Path) -> None:
    """The Job's pod submits the run with the rights of the file's Role; its exit status is the verdict. One rank on a CPU."""
    worker = script(tmp_path, "worker.sh", f"echo '{WORLD}'", f"echo '{POINT}'", f"echo '{END}'")
    account, role, binding, job = yaml.safe_load_all((MANIFESTS / "gate.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["rallypoint-bench", "nccl", "--in-cluster"]
    container["command"][0:1] = [sys.executable, "-m", "bench"]
    container["args"] = ["--backend=gloo", f"--python={worker}", "--max=8", "--min-busbw=1"]
    del container["securityContext"]

    async with up("--isolation=auto", folder=tmp_path) as target:
        await target.client.send(Step("POST", "/api/v1/namespaces/default/serviceaccounts", account, 201))
        await target.client.send(Step("POST", f"{ROLES}/roles", role, 201))
        await target.client.send(Step("POST", f"{ROLES}/rolebindings", binding, 201))
        await target.client.send(Step("POST", "/apis/batch/v1/namespaces/default/jobs", job, 201))
        ended = await target.until("/apis/batch/v1/namespaces/default/jobs/nccl-gate", has_ended)
        log = await command_output(target)
        await target.stop()

    assert ended["status"]["failed"] == 1
    assert "all_reduce reaches 0 GB/s of bus bandwidth (at 8), required are 1" in log


async def test_programs_of_nccl_tests_by_a_kubeconfig(tmp_path: Path) -> None:
    """A real mpirun starts them and passes the launcher's variables on."""
    script(tmp_path, "all_reduce_perf", PERF)
    launcher = {
        "containers": [{"name": "launcher", "image": "none", "env": [{"name": "CARD", "value": "ours"}]}]
    }
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": launcher}}}},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    flags = [
        "--via=mpijob",
        "--gpus=2",
        "--max=16",
        f"--nccl-tests={tmp_path}",
        "--manifest=job.yaml",
        "--gpu-resource=",
    ]

    async with up("--isolation=auto", folder=tmp_path) as target:
        bench = await asyncio.create_subprocess_exec(
            *BENCH, *flags, f"--kubeconfig={target.kubeconfig}", cwd=tmp_path, stderr=PIPE
        )
        _, errors = await bench.communicate()
        await target.stop()

    assert bench.returncode == 0, errors.decode()
    record = recorded(tmp_path)
    assert record.world is not None
    assert record.world.nodes == [Node(device="a GPU of ours", nccl="2.28.3")]
    assert [(point.in_place, point.times_us) for point in record.points] == [(False, [4.0]), (True, [2.0])]


async def test_an_interruption(tmp_path: Path) -> None:
    """The record has the points so far, and no object of the run stays in the cluster."""
    worker = script(tmp_path, "worker.sh", f"echo '{WORLD}'", f"echo '{POINT}'", "sleep 60")

    async with up("--isolation=loopback", folder=tmp_path) as target:
        bench = await asyncio.create_subprocess_exec(
            *BENCH,
            "--backend=gloo",
            f"--python={worker}",
            f"--kubeconfig={target.kubeconfig}",
            cwd=tmp_path,
            stderr=PIPE,
        )
        assert bench.stderr is not None
        while b"all_reduce" not in (line := await bench.stderr.readline()):
            assert line, "it has ended before it was interrupted"
        bench.send_signal(signal.SIGINT)
        _, errors = await bench.communicate()
        left = [(await target.client.send(Step("GET", path))).body["items"] for path in OURS]
        await target.stop()

    assert bench.returncode == 130
    assert b"the run is partial: interrupted" in errors
    record = recorded(tmp_path)
    assert (record.state, len(record.points)) == ("partial", 1)
    assert [
        pod["metadata"]["name"]
        for found in left
        for pod in found
        if pod["metadata"]["name"].startswith("nccl-")
    ] == []


def recorded(folder: Path) -> Record:
    (file,) = folder.glob("nccl-bench/*.json")
    record = load(file)
    assert isinstance(record, Record)
    return record


def has_ended(job: dict[str, dict[str, int]]) -> bool:
    status = job.get("status") or {}
    return bool(status.get("failed") or status.get("succeeded"))


async def command_output(target: Up) -> str:
    pods = await target.client.send(
        Step("GET", "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dnccl-gate")
    )
    (pod,) = pods.body["items"]
    answer = await target.client.send(
        Step("GET", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log")
    )
    return str(answer.text)
