"""The jobs of runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.nccl import manifest
from bench.nccl.manifest import InvalidManifest, JobOptions
from bench.nccl.schema import RunConfig

SHAPE = JobOptions("run", "python3", 60)


def containers(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    roles: dict[str, Any] = job["spec"].get("pytorchReplicaSpecs") or job["spec"]["mpiReplicaSpecs"]
    return {role: replica_spec["template"]["spec"]["containers"][0] for role, replica_spec in roles.items()}


def test_a_pytorchjob_of_two_nodes(make_config: Callable[..., RunConfig]) -> None:
    record = manifest.job(make_config(), SHAPE, {})

    assert record["spec"]["nprocPerNode"] == "2"
    assert {
        role: replica_spec["replicas"] for role, replica_spec in record["spec"]["pytorchReplicaSpecs"].items()
    } == {
        "Master": 1,
        "Worker": 1,
    }
    for container in containers(record).values():
        assert container["name"] == "pytorch"
        assert container["command"][:3] == ["python3", "-m", "torch.distributed.run"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
        assert container["volumeMounts"][-1]["mountPath"] == "/rallypoint-bench"
    assert record["spec"]["runPolicy"]["activeDeadlineSeconds"] == 60


def test_a_single_node_has_only_a_master(make_config: Callable[..., RunConfig]) -> None:
    assert list(containers(manifest.job(make_config(nodes=1), SHAPE, {}))) == ["Master"]


def test_runs_on_cpus_request_no_gpu(make_config: Callable[..., RunConfig]) -> None:
    assert all(
        "resources" not in container
        for container in containers(manifest.job(make_config(backend="gloo"), SHAPE, {})).values()
    )


def test_ranks_that_share_a_gpu_request_a_single_gpu(make_config: Callable[..., RunConfig]) -> None:
    (container,) = containers(manifest.job(make_config(nodes=1, gpus=4, share_gpu=True), SHAPE, {})).values()

    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_gpus_from_resource_claims(make_config: Callable[..., RunConfig]) -> None:
    record = manifest.job(make_config(), JobOptions("run", gpu_resource=""), {})

    assert all("resources" not in container for container in containers(record).values())


def test_ranks_of_an_mpijob_get_the_address_of_the_first(make_config: Callable[..., RunConfig]) -> None:
    """mpirun passes on neither files nor variables."""
    record = manifest.job(make_config(via="mpijob"), SHAPE, {})

    found = containers(record)
    assert record["apiVersion"] == "kubeflow.org/v2beta1"
    assert record["spec"]["slotsPerWorker"] == 2
    (script,) = found["Launcher"]["args"]
    assert script.startswith(
        "exec mpirun -np 4 --allow-run-as-root --bind-to none python3 /rallypoint-bench/start.py "
    )
    assert script.endswith(" /rallypoint-bench/task.json --master run-worker-0.run:29577")
    assert "resources" not in found["Launcher"]
    assert "command" not in found["Worker"], "the operator starts sshd"


def test_programs_of_nccl_tests_run_in_sequence(make_config: Callable[..., RunConfig]) -> None:
    record = manifest.job(
        make_config(via="mpijob", nccl_tests="/opt/build/", collectives=["all_reduce", "sendrecv"]), SHAPE, {}
    )

    (script,) = containers(record)["Launcher"]["args"]
    assert "/opt/build/all_reduce_perf -b 1K -e 1M -f 1024" in script
    assert (
        script.index("all_reduce_perf")
        < script.index('"collective":"sendrecv"')
        < script.index("sendrecv_perf")
    )
    assert script.splitlines()[-1].endswith("""'rallypoint-bench {"type":"end"}'""")


@pytest.mark.parametrize("name", sorted(path.stem for path in manifest.MANIFESTS.glob("*-*.yaml")))
@pytest.mark.parametrize("via", ["pytorchjob", "mpijob"])
def test_a_manifest_keeps_its_settings(name: str, via: Any, make_config: Callable[..., RunConfig]) -> None:
    base = manifest.read(Path(name), via)
    record = manifest.job(make_config(via=via, image="mine", gpus=4), SHAPE, {}, base)

    found = containers(record)
    first = found.get("Master") or found["Launcher"]
    names = [variable["name"] for variable in first["env"]]
    assert "NCCL_IB_HCA" in names
    assert all(container["image"] == "mine" for container in found.values())
    if via == "mpijob":
        assert all(f"-x {name} " in first["args"][0] for name in names)
    worker = found["Worker"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert {"rdma/ib", "rdma/roce"} & worker["resources"]["limits"].keys()
    assert [mount["name"] for mount in worker["volumeMounts"]] == ["shm", "rallypoint-bench"]
    assert manifest.read(Path(name), via) == base, "what was read is not written to"


def test_invalid_manifests(make_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="no-such"):
        manifest.read(tmp_path / "no-such.yaml", "pytorchjob")
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\n")
    with pytest.raises(InvalidManifest, match="contains no MPIJob of"):
        manifest.read(file, "mpijob")
    with pytest.raises(InvalidManifest, match="do not fit a PyTorchJob"):
        manifest.job(
            make_config(),
            SHAPE,
            {},
            {"spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": []}}}}}},
        )
