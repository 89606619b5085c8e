"""Every collective over every size: checked, warmed up, and timed in rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.nccl.worker import fault_injection
from bench.nccl.worker.collectives import IN_PLACE, Operation, elements_of, operation
from bench.nccl.worker.group import Group
from bench.nccl.worker.machine import available_bytes
from bench.nccl.worker.messages import emit
from bench.nccl.worker.timing import mean_seconds_per_call

MEMORY_SHARE = 0.8
"""Of this rank's share of a GPU's, or of a node's if it had all ranks, buffers take no more."""
WIDEST_BYTES = 8
"""Of an element of any type."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured over all sizes."""

    collective: str
    dtype: str
    in_place: bool

    @property
    def kind(self) -> Any:
        return getattr(torch, self.dtype)

    def emit(self, message_type: str, **fields: Any) -> None:
        emit(message_type, collective=self.collective, dtype=self.dtype, in_place=self.in_place, **fields)


@dataclass(frozen=True, slots=True)
class Sweep:
    task: Mapping[str, Any]
    group: Group
    memory: Sequence[Any]
    """Two buffers of bytes, of which every operation takes the beginning."""
    fault: fault_injection.Fault

    def point(self, case: Case, size: int) -> None:
        """Measure one size, and tell what came of it."""
        elements = elements_of(case.collective, size, case.kind.itemsize, self.group.rank_info.ranks)
        size_bytes = elements * case.kind.itemsize
        if why := self._size_problem(elements, size_bytes):
            return self._emit(case, "skipped", size_bytes=size_bytes or size, why=why)
        call = self.operation(case, elements)
        wrong = self._wrong(call)
        call.source.zero_()
        delayed = self.fault.delay(call)
        mean_seconds_per_call(self.group, delayed, self.task["warmup"])
        times = [
            mean_seconds_per_call(self.group, delayed, self.task["iterations"])
            for _ in range(self.task["rounds"])
        ]
        times_us = [round(seconds * 1e6, 3) for seconds in times]
        return self._emit(
            case, "point", size_bytes=size_bytes, elements=elements, times_us=times_us, wrong=wrong
        )

    def is_unsupported(self, case: Case) -> bool:
        """Whether this backend cannot do it at all, which is told."""
        why = _unsupported_reason(case, self.group.rank_info.ranks)
        try:
            if not why:
                self.operation(case, self.group.rank_info.ranks)()
        except (RuntimeError, TypeError, ValueError) as error:
            # All ranks are told the same, before anything has been sent.
            why = str(error).splitlines()[0]
        if why:
            self._emit(case, "skipped", why=why)
        return bool(why)

    def operation(self, case: Case, elements: int) -> Operation:
        rank_info, memory = (
            self.group.rank_info,
            (self.memory[0].view(case.kind), self.memory[1].view(case.kind)),
        )
        return operation(
            case.collective,
            elements,
            in_place=case.in_place,
            rank=rank_info.rank,
            ranks=rank_info.ranks,
            memory=memory,
        )

    def _size_problem(self, elements: int, size: int) -> str:
        """Why a size cannot be measured."""
        if elements == 0:
            return "less than one element for each rank"
        return "it does not fit into memory" if size > self.memory[0].numel() else ""

    def _wrong(self, call: Operation) -> int:
        """How many elements are wrong on all ranks after one call."""
        call.fill()
        self.group.barrier()
        call()
        self.fault.corrupt(call.target)
        return int(self.group.sum(call.wrong()))

    def _emit(self, case: Case, message_type: str, **fields: Any) -> None:
        if self.group.rank_info.rank == 0:
            case.emit(message_type, **fields)


def run(task: Mapping[str, Any], group: Group) -> None:
    sizes = task["sizes"]
    sweep = Sweep(
        task, group, _memory(group, max(sizes)), fault_injection.fault_of(task, group.rank_info.rank)
    )
    cases = [case for case in _cases(task) if not sweep.is_unsupported(case)]
    if group.rank_info.rank == 0:
        emit("planned", points=len(cases) * len(sizes))
    middle = len(cases) * len(sizes) // 2
    for number, case in enumerate(cases):
        for index, size in enumerate(sizes):
            sweep.fault.die_at(middle=number * len(sizes) + index == middle)
            sweep.point(case, size)


def _cases(task: Mapping[str, Any]) -> Iterator[Case]:
    for collective in task["collectives"]:
        for dtype in task["dtypes"]:
            for in_place in task["in_place"]:
                yield Case(collective, dtype, in_place)


def _unsupported_reason(case: Case, ranks: int) -> str:
    """Why nobody could do it; a copy beside the call would be no form of it."""
    if case.in_place not in IN_PLACE[case.collective]:
        return f"torch has it {'out of' if case.in_place else 'in'} place only"
    return "it takes two ranks" if case.collective == "sendrecv" and ranks == 1 else ""


def _memory(group: Group, wanted_bytes: int) -> list[Any]:
    """Two buffers of the largest size that every rank has room for twice, and of an element for each rank at least."""
    if group.device.type == "cuda":
        (free, _), beside = torch.cuda.mem_get_info(), group.max_ranks_per_gpu
    else:
        # Pods of several ranks may be on one machine, and do not see each other.
        free, beside = available_bytes(), group.rank_info.ranks
    fits = int(group.minimum(free // beside * MEMORY_SHARE / 2))
    size = max(min(wanted_bytes, fits), WIDEST_BYTES * group.rank_info.ranks)
    whole = -(-size // WIDEST_BYTES) * WIDEST_BYTES
    return [torch.zeros(whole, dtype=torch.uint8, device=group.device) for _ in range(2)]
