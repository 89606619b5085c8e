"""Published results of nccl-tests' all_reduce, for plots and the gate."""

from dataclasses import dataclass

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    label: str
    gpus: int
    points: tuple[tuple[int, float], ...]
    """(bytes, bus bandwidth in GB/s)"""
    source: str


REFERENCES = {
    reference.name: reference
    for reference in (
        Reference("h100x8", "8×H100, NVLS", 8, ((8 * GIB, 480),), "NVIDIA/nccl-tests#212, 2024-05"),
        Reference("h200x8", "8×H200", 8, ((4 * GIB, 475),), "NVIDIA/nccl-tests#272, 2024-11"),
        Reference(
            "h100x16-efa",
            "16×H100, EFA",
            16,
            ((512 * MIB, 393), (8 * GIB, 479), (16 * GIB, 487)),
            "awslabs, nccl-tests README",
        ),
        Reference(
            "h100x64",
            "64×H100, InfiniBand with SHARP (373 on average)",
            64,
            ((512 * MIB, 356), (8 * GIB, 387)),
            "coreweave/nccl-tests README, 2026-05",
        ),
        Reference("a100x16-efa", "16×A100, EFA", 16, ((2 * GIB, 78),), "awslabs, nccl-tests README"),
        Reference(
            "gb200x72",
            "72×GB200, one rack (745 on average)",
            72,
            ((512 * MIB, 586), (8 * GIB, 835)),
            "coreweave/nccl-tests README, 2026-05",
        ),
        Reference(
            "gb200x144",
            "144×GB200, two racks (689 on average)",
            144,
            ((512 * MIB, 494), (16 * GIB, 810)),
            "coreweave/nccl-tests README, 2026-05",
        ),
    )
}
