"""The jobs of runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.nccl import manifest
from bench.nccl.manifest import Shape, Unfit
from bench.nccl.schema import Asked

SHAPE = Shape("run", "python3", 60)


def containers(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    roles: dict[str, Any] = job["spec"].get("pytorchReplicaSpecs") or job["spec"]["mpiReplicaSpecs"]
    return {role: one["template"]["spec"]["containers"][0] for role, one in roles.items()}


def test_a_pytorchjob_of_two_nodes(asked: Callable[..., Asked]) -> None:
    made = manifest.job(asked(), SHAPE, {})

    assert made["spec"]["nprocPerNode"] == "2"
    assert {role: one["replicas"] for role, one in made["spec"]["pytorchReplicaSpecs"].items()} == {
        "Master": 1,
        "Worker": 1,
    }
    for container in containers(made).values():
        assert container["name"] == "pytorch"
        assert container["command"][:3] == ["python3", "-m", "torch.distributed.run"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
        assert container["volumeMounts"][-1]["mountPath"] == "/rallypoint-bench"
    assert made["spec"]["runPolicy"]["activeDeadlineSeconds"] == 60


def test_one_node_is_the_master_alone(asked: Callable[..., Asked]) -> None:
    assert list(containers(manifest.job(asked(nodes=1), SHAPE, {}))) == ["Master"]


def test_on_cpus_no_gpu_is_asked_for(asked: Callable[..., Asked]) -> None:
    assert all(
        "resources" not in one for one in containers(manifest.job(asked(backend="gloo"), SHAPE, {})).values()
    )


def test_ranks_that_share_a_gpu_ask_for_one(asked: Callable[..., Asked]) -> None:
    (container,) = containers(manifest.job(asked(nodes=1, gpus=4, share_gpu=True), SHAPE, {})).values()

    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_gpus_that_come_by_claims(asked: Callable[..., Asked]) -> None:
    made = manifest.job(asked(), Shape("run", gpu_resource=""), {})

    assert all("resources" not in one for one in containers(made).values())


def test_an_mpijob_tells_its_ranks_where_the_first_one_is(asked: Callable[..., Asked]) -> None:
    """mpirun hands on neither files nor variables."""
    made = manifest.job(asked(via="mpijob"), SHAPE, {})

    found = containers(made)
    assert made["apiVersion"] == "kubeflow.org/v2beta1"
    assert made["spec"]["slotsPerWorker"] == 2
    (script,) = found["Launcher"]["args"]
    assert script.startswith(
        "exec mpirun -np 4 --allow-run-as-root --bind-to none python3 /rallypoint-bench/start.py "
    )
    assert script.endswith(" /rallypoint-bench/task.json --master run-worker-0.run:29577")
    assert "resources" not in found["Launcher"]
    assert "command" not in found["Worker"], "the operator starts sshd"


def test_programs_of_nccl_tests_one_by_one(asked: Callable[..., Asked]) -> None:
    made = manifest.job(
        asked(via="mpijob", nccl_tests="/opt/build/", collectives=["all_reduce", "sendrecv"]), SHAPE, {}
    )

    (script,) = containers(made)["Launcher"]["args"]
    assert "/opt/build/all_reduce_perf -b 1K -e 1M -f 1024" in script
    assert (
        script.index("all_reduce_perf")
        < script.index('"collective":"sendrecv"')
        < script.index("sendrecv_perf")
    )
    assert script.splitlines()[-1].endswith("""'rallypoint-bench {"say":"end"}'""")


@pytest.mark.parametrize("name", sorted(path.stem for path in manifest.READY.glob("*-*.yaml")))
@pytest.mark.parametrize("via", ["pytorchjob", "mpijob"])
def test_a_ready_manifest_keeps_what_it_says(name: str, via: Any, asked: Callable[..., Asked]) -> None:
    base = manifest.read(Path(name), via)
    made = manifest.job(asked(via=via, image="mine", gpus=4), SHAPE, {}, base)

    found = containers(made)
    first = found.get("Master") or found["Launcher"]
    names = [one["name"] for one in first["env"]]
    assert "NCCL_IB_HCA" in names
    assert all(one["image"] == "mine" for one in found.values())
    if via == "mpijob":
        assert all(f"-x {name} " in first["args"][0] for name in names)
    worker = found["Worker"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert {"rdma/ib", "rdma/roce"} & worker["resources"]["limits"].keys()
    assert [one["name"] for one in worker["volumeMounts"]] == ["shm", "rallypoint-bench"]
    assert manifest.read(Path(name), via) == base, "what was read is not written to"


def test_manifests_that_cannot_be_used(asked: Callable[..., Asked], tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="no-such"):
        manifest.read(tmp_path / "no-such.yaml", "pytorchjob")
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\n")
    with pytest.raises(Unfit, match="no MPIJob of"):
        manifest.read(file, "mpijob")
    with pytest.raises(Unfit, match="not as those of a PyTorchJob"):
        manifest.job(
            asked(),
            SHAPE,
            {},
            {"spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": []}}}}}},
        )
