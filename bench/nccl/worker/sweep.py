"""Measures every collective at every size: check, warm up, and time in rounds."""

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
"""Largest share of a rank's memory for the buffers."""
WIDEST_BYTES = 8
"""Size of the widest data type."""


@dataclass(frozen=True, slots=True)
class Case:
    """A collective, data type and form."""

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
    """Two buffers of bytes; every operation uses their beginning."""
    fault: fault_injection.Fault

    def point(self, case: Case, size: int) -> None:
        """Measure one size and report the result."""
        elements = elements_of(case.collective, size, case.kind.itemsize, self.group.rank_info.ranks)
        size_bytes = elements * case.kind.itemsize
        if why := self._size_problem(elements, size_bytes):
            return self.emit(case, "skipped", size_bytes=size_bytes or size, why=why)
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
        return self.emit(
            case, "point", size_bytes=size_bytes, elements=elements, times_us=times_us, wrong=wrong
        )

    def unsupported_reason(self, case: Case) -> str:
        """Call the collective once and return why the backend does not support it; empty if it does."""
        why = _unsupported_reason(case, self.group.rank_info.ranks)
        try:
            if not why:
                self.operation(case, self.group.rank_info.ranks)()
        except (RuntimeError, TypeError, ValueError) as error:
            # All ranks get the same error before they send anything.
            why = str(error).splitlines()[0]
        return why

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
        """Return why a size cannot be measured; empty if it can."""
        if elements == 0:
            return "less than one element for each rank"
        return "it does not fit into memory" if size > self.memory[0].numel() else ""

    def _wrong(self, call: Operation) -> int:
        """Return the number of wrong elements on all ranks after one call."""
        call.fill()
        self.group.barrier()
        call()
        self.fault.corrupt(call.target)
        return int(self.group.sum(call.wrong()))

    def emit(self, case: Case, message_type: str, **fields: Any) -> None:
        if self.group.rank_info.rank == 0:
            case.emit(message_type, **fields)


def run(task: Mapping[str, Any], group: Group) -> None:
    sizes = task["sizes"]
    sweep = Sweep(
        task, group, _memory(group, max(sizes)), fault_injection.fault_of(task, group.rank_info.rank)
    )
    cases: list[Case] = []
    for case in _cases(task):
        if why := sweep.unsupported_reason(case):
            sweep.emit(case, "skipped", why=why)
        else:
            cases.append(case)
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
    """Return why no backend supports the case; copying the buffer would not make it one."""
    if case.in_place not in IN_PLACE[case.collective]:
        return f"torch has it {'out of' if case.in_place else 'in'} place only"
    return "needs two ranks" if case.collective == "sendrecv" and ranks == 1 else ""


def _memory(group: Group, wanted_bytes: int) -> list[Any]:
    """Return two buffers of the largest size that fits on every rank, and of at least one element per rank."""
    if group.device.type == "cuda":
        (free, _), beside = torch.cuda.mem_get_info(), group.max_ranks_per_gpu
    else:
        # Pods of several ranks may share a machine without seeing each other.
        free, beside = available_bytes(), group.rank_info.ranks
    fits = int(group.minimum(free // beside * MEMORY_SHARE / 2))
    size = max(min(wanted_bytes, fits), WIDEST_BYTES * group.rank_info.ranks)
    whole = -(-size // WIDEST_BYTES) * WIDEST_BYTES
    return [torch.zeros(whole, dtype=torch.uint8, device=group.device) for _ in range(2)]
