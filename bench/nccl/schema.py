"""The record of a run: a JSON document; ``schema.json`` describes it.

A new field keeps the version. Removing a field or changing its meaning needs a new ``VERSION``.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from bench import record
from bench.figures import Spread, spread
from bench.nccl.formulas import algbw_gb_per_second, busbw_gb_per_second

VERSION = 3
READABLE_VERSIONS = (2, VERSION)
"""``record.read`` renames the keys of version 2."""
SCHEMA = Path(__file__).with_name("schema.json")

Via = Literal["pytorchjob", "mpijob", "torchrun", "mpirun"]
State = Literal["complete", "partial"]


GLOO = "gloo between CPUs: these figures are not those of GPUs or their network"


class InvalidRecord(Exception):
    """The file holds no record of a known version."""


class Fault(msgspec.Struct, frozen=True):
    """A fault that the run injected, to test its detection."""

    kind: Literal["slow", "die", "corrupt"]
    rank: int


class RunConfig(msgspec.Struct, frozen=True):
    """What to measure, and how."""

    via: Via
    backend: Literal["nccl", "gloo"]
    nodes: int
    gpus: int
    """Ranks on each node."""
    warmup: int
    """Calls before each size is timed."""
    iterations: int
    """Calls per round; the time of a round is divided by them."""
    rounds: int
    """Times per point."""
    collectives: list[str] = []
    dtypes: list[str] = []
    in_place: list[bool] = []
    sizes: list[int] = []
    """In bytes."""
    pair_bytes: int = 0
    """Size that each pair of ranks exchanges; 0 for none."""
    share_gpu: bool = False
    image: str = ""
    manifest: str = ""
    """Name of the file that the job is based on."""
    nccl_tests: str = ""
    """Folder of nccl-tests if they measured; empty if the worker did."""
    fault: Fault | None = None


class Node(msgspec.Struct, frozen=True):
    """Description of identical nodes."""

    hosts: list[str] = []
    """Host names of their pods."""
    torch: str = ""
    cuda: str = ""
    nccl: str = ""
    driver: str = ""
    device: str = ""
    topology: str = ""
    """Output of ``nvidia-smi topo -m``."""
    nvlink: dict[str, str] = {}
    """GPU number → number and rate of its links."""
    infiniband: dict[str, str] = {}
    """Port → rate, for active ports."""
    settings: dict[str, str] = {}
    """Variables of NCCL and its transports."""


class World(msgspec.Struct, frozen=True):
    """The ranks and their nodes."""

    ranks: int
    shared_gpu: bool = False
    """Whether several ranks share a GPU, and so communicate over loopback sockets."""
    timestamps: dict[str, float] = {}
    """Of the first rank in seconds since 1970: process started, torch imported, group joined, first collective done."""
    nodes: list[Node] = []
    """Each sort of node once, the first rank's first."""

    def values(self, fact: str) -> str:
        """Return the distinct values of a field over all nodes."""
        return ", ".join(
            dict.fromkeys(str(getattr(node, fact)) for node in self.nodes if getattr(node, fact))
        )


class Rank(msgspec.Struct, frozen=True):
    rank: int
    local_rank: int = 0
    host: str = ""
    """Host name of the pod."""
    gpu: str = ""
    node: str = ""


class Point(msgspec.Struct, frozen=True):
    """One collective at one size. Bandwidths are those of the median time."""

    collective: str
    dtype: str
    in_place: bool
    size_bytes: int
    elements: int
    times_us: list[float]
    """Per call, one value per round, averaged over ranks."""
    algbw_gb_per_second: float
    busbw_gb_per_second: float
    wrong: int | None = None
    """Wrong elements on all ranks; None if not checked."""

    @property
    def key(self) -> tuple[str, str, bool, int]:
        return self.collective, self.dtype, self.in_place, self.size_bytes

    @property
    def time_us(self) -> Spread:
        return spread(self.times_us)

    def busbw(self, ranks: int) -> Spread:
        """Return GB/s of the slowest, the median and the fastest round."""
        time = self.time_us
        slowest_first = (time.largest, time.median, time.smallest)
        return Spread(
            *(
                busbw_gb_per_second(self.collective, ranks, self.size_bytes, time_us)
                for time_us in slowest_first
            )
        )


class Skipped(msgspec.Struct, frozen=True):
    """A requested point that was not measured."""

    collective: str
    dtype: str
    in_place: bool
    why: str
    size_bytes: int = 0
    """0 for all sizes."""


class Pairs(msgspec.Struct, frozen=True):
    size_bytes: int
    gb_per_second: list[list[float]]
    """Row: rank, column: other rank; one direction, while both directions are active."""


class Document(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """Fields of all records."""

    schema_version: int
    state: State
    why: str
    """Why the record is partial."""
    started: str
    """RFC 3339."""
    commit: dict[str, Any]
    environment: dict[str, Any]
    """Of the machine that ran the command."""


class Record(Document, frozen=True, kw_only=True, tag="nccl"):
    seconds: float
    """From the submission of the job to the last figure."""
    submitted: float
    """Seconds since 1970."""
    config: RunConfig
    world: World | None = None
    ranks: list[Rank] = []
    points: list[Point] = []
    skipped: list[Skipped] = []
    pairs: Pairs | None = None

    @property
    def is_hardware(self) -> bool:
        """Whether the figures are those of GPUs and their links."""
        return self.config.backend == "nccl" and self.world is not None and not self.world.shared_gpu

    @property
    def transport(self) -> str:
        if self.config.backend == "gloo":
            return GLOO
        if self.world is not None and self.world.shared_gpu:
            return "loopback sockets, because several ranks share a GPU: these figures are not hardware bandwidths"
        return "NCCL between GPUs"


class ScalingRun(msgspec.Struct, frozen=True):
    via: Via
    nodes: int
    ranks: int
    images_per_second: list[float]
    """Of all ranks, one value per round."""
    device: str = ""


class Scaling(Document, frozen=True, kw_only=True, tag="scaling"):
    backend: str
    gpus: int
    model: str
    batch: int
    """Images per rank and step."""
    share_gpu: bool
    runs: list[ScalingRun] = []


class Start(msgspec.Struct, frozen=True):
    """One run of ``overhead``; timestamps are seconds since its start."""

    manual: bool
    timestamps: dict[str, float]
    points: list[Point]


class Overhead(Document, frozen=True, kw_only=True, tag="overhead"):
    config: RunConfig
    starts: list[Start] = []
    """In the order of the runs."""


AnyRecord = Record | Scaling | Overhead


def point(collective: str, ranks: int, size_bytes: int, times_us: list[float], **rest: Any) -> Point:
    """Return a point with the bandwidths of its times."""
    middle = spread(times_us).median
    return Point(
        collective=collective,
        size_bytes=size_bytes,
        times_us=times_us,
        algbw_gb_per_second=algbw_gb_per_second(size_bytes, middle),
        busbw_gb_per_second=busbw_gb_per_second(collective, ranks, size_bytes, middle),
        **rest,
    )


def load(path: Path) -> AnyRecord:
    """Read a record.

    Raises:
        InvalidRecord: the file holds no record of a known version.
    """
    try:
        found: AnyRecord = msgspec.convert(record.read(path), AnyRecord)
    except (OSError, ValueError) as error:
        raise InvalidRecord(f"{path}: {error}") from error
    if found.schema_version not in READABLE_VERSIONS:
        raise InvalidRecord(
            f"{path}: version {found.schema_version}; known are {', '.join(map(str, READABLE_VERSIONS))}"
        )
    return found


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all records."""
    schema: dict[str, Any] = msgspec.json.schema(AnyRecord)
    return schema
