"""Ranks and GPUs, with a double for torch."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench.nccl.worker.rank_info import RankInfo


class Store:
    """A TCPStore's values of all ranks; those of the other ranks are there from the beginning."""

    def __init__(self, words: dict[str, bytes]) -> None:
        self._words = words

    def set(self, key: str, value: str) -> None:
        self._words[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._words[key]


class Machine:
    """The machine's GPUs by UUID, and the values of the other ranks."""

    def __init__(self, gpus: list[str], others: dict[int, str]) -> None:
        self.store = Store({f"gpu/{rank}": gpu.encode() for rank, gpu in others.items()})
        self.chosen: list[int] = []
        self.begun: list[str] = []
        self.cuda = SimpleNamespace(
            device_count=lambda: len(gpus),
            set_device=lambda device: self.chosen.append(device.index),
            get_device_properties=lambda device: SimpleNamespace(uuid=gpus[device.index]),
        )
        self.distributed = ModuleType("torch.distributed")
        self.distributed.__dict__.update(
            ReduceOp=SimpleNamespace(SUM="sum", MIN="least"),
            rendezvous=lambda _: iter([(self.store, 0, 1)]),
            PrefixStore=lambda _, store: store,
            init_process_group=lambda backend, **_: self.begun.append(
                f"{backend} {os.environ.get('NCCL_HOSTID', '')}".strip()
            ),
            all_reduce=lambda *_: None,
        )
        self.torch = ModuleType("torch")
        self.torch.__dict__.update(
            cuda=self.cuda,
            distributed=self.distributed,
            float64="float64",
            device=lambda kind, index=0: SimpleNamespace(type=kind, index=index),
            tensor=lambda values, **_: SimpleNamespace(item=lambda: values[0]),
        )


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """The first of several ranks joins."""
    monkeypatch.delenv("NCCL_HOSTID", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    name = "bench.nccl.worker.group"

    def joined(
        machine: Machine, rank_info: RankInfo, *, share_gpu: bool = False, backend: str = "nccl"
    ) -> Any:
        monkeypatch.setitem(sys.modules, "torch", machine.torch)
        monkeypatch.setitem(sys.modules, "torch.distributed", machine.distributed)
        sys.modules.pop(name, None)
        return importlib.import_module(name).join(backend, rank_info, share_gpu=share_gpu, timestamps={})

    yield joined
    sys.modules.pop(name, None)


def test_each_rank_has_the_gpu_of_its_local_rank(join: Callable[..., Any]) -> None:
    machine = Machine(["GPU-a", "GPU-b"], {1: "GPU-a"})

    group = join(machine, RankInfo(0, 2, 1, 2))

    assert machine.chosen == [1]
    assert (group.gpu, group.max_ranks_per_gpu, group.shared_gpu) == ("GPU-b", 1, False)
    assert machine.begun == ["nccl"], "NCCL finds out itself who is whose neighbour"
    assert group.timestamps.keys() == {"group", "first"}


def test_ranks_that_share_a_gpu_have_different_host_ids(join: Callable[..., Any]) -> None:
    """Also in several pods whose ranks all have local rank 0."""
    machine = Machine(["GPU-a"], {1: "GPU-a", 2: "GPU-a"})

    group = join(machine, RankInfo(0, 3, 2, 3), share_gpu=True)

    assert (group.max_ranks_per_gpu, group.shared_gpu) == (3, True)
    assert machine.begun == ["nccl rallypoint-0"], "before the first call of the library"


@pytest.mark.parametrize(
    ("gpus", "others", "rank_info", "why"),
    [
        pytest.param([], {}, RankInfo(0, 1, 0, 1), "sees no GPU", id="none"),
        pytest.param(["GPU-a"], {}, RankInfo(0, 2, 1, 2), "which has 1 GPUs", id="too few"),
        pytest.param(
            ["GPU-a"], {1: "GPU-a"}, RankInfo(0, 2, 0, 1), "--share-gpu runs them", id="one for two"
        ),
    ],
)
def test_placements_that_nccl_would_refuse(
    gpus: list[str], others: dict[int, str], rank_info: RankInfo, why: str, join: Callable[..., Any]
) -> None:
    machine = Machine(gpus, others)

    with pytest.raises(Exception, match=why):
        join(machine, rank_info)

    assert machine.begun == []


def test_ranks_share_cpus(join: Callable[..., Any]) -> None:
    group = join(Machine([], {}), RankInfo(0, 2, 0, 2), backend="gloo")

    assert (group.device.type, group.gpu, group.shared_gpu) == ("cpu", "", False)
