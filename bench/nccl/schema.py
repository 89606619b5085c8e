"""The record of a run: one JSON document, ``schema.json`` beside this file says of what form.

A field is added without a new version; one that goes or means something else makes a new ``VERSION``.
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


GLOO = "gloo between CPUs: no figure of this run is one of a GPU or its network"


class InvalidRecord(Exception):
    """A file holds no record of a version that is known here."""


class Fault(msgspec.Struct, frozen=True):
    """What was broken on purpose, to see whether it is noticed."""

    kind: Literal["slow", "die", "corrupt"]
    rank: int


class RunConfig(msgspec.Struct, frozen=True):
    """What the run was to measure, and how."""

    via: Via
    backend: Literal["nccl", "gloo"]
    nodes: int
    gpus: int
    """Ranks on each node."""
    warmup: int
    """Calls before each size is timed."""
    iterations: int
    """Calls of a round; its time is that of all of them by their number."""
    rounds: int
    """Times of each point."""
    collectives: list[str] = []
    dtypes: list[str] = []
    in_place: list[bool] = []
    sizes: list[int] = []
    """In bytes."""
    pair_bytes: int = 0
    """Size that every two ranks exchange; 0: they do not."""
    share_gpu: bool = False
    image: str = ""
    manifest: str = ""
    """Name of the file that the job was made from."""
    nccl_tests: str = ""
    """Folder of the nccl-tests that measured; empty where the worker did."""
    fault: Fault | None = None


class Node(msgspec.Struct, frozen=True):
    """What nodes that are alike say of themselves."""

    hosts: list[str] = []
    """Their pods."""
    torch: str = ""
    cuda: str = ""
    nccl: str = ""
    driver: str = ""
    device: str = ""
    topology: str = ""
    """nvidia-smi topo -m."""
    nvlink: dict[str, str] = {}
    """How many links of which rate, by the number of the GPU."""
    infiniband: dict[str, str] = {}
    """Rate of each port that is up."""
    settings: dict[str, str] = {}
    """Variables of NCCL and of what carries its bytes."""


class World(msgspec.Struct, frozen=True):
    """Where the ranks ran."""

    ranks: int
    shared_gpu: bool = False
    """Several ranks on one GPU: what they say to each other goes over loopback sockets."""
    timestamps: dict[str, float] = {}
    """Of the first rank, in seconds since the epoch: process started, torch imported, group joined, first collective done."""
    nodes: list[Node] = []
    """Each kind of node once; the first rank's first."""

    def values(self, fact: str) -> str:
        """A fact of all nodes; each answer once."""
        return ", ".join(
            dict.fromkeys(str(getattr(node, fact)) for node in self.nodes if getattr(node, fact))
        )


class Rank(msgspec.Struct, frozen=True):
    rank: int
    local_rank: int = 0
    host: str = ""
    """Of the pod."""
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
    """Of one call, one figure a round, the average of all ranks."""
    algbw_gb_per_second: float
    busbw_gb_per_second: float
    wrong: int | None = None
    """Elements that were not what they must be, of all ranks; none where nobody looked."""

    @property
    def key(self) -> tuple[str, str, bool, int]:
        return self.collective, self.dtype, self.in_place, self.size_bytes

    @property
    def time_us(self) -> Spread:
        return spread(self.times_us)

    def busbw(self, ranks: int) -> Spread:
        """GB/s: of the slowest round, of the median, of the fastest."""
        time = self.time_us
        slowest_first = (time.largest, time.median, time.smallest)
        return Spread(
            *(
                busbw_gb_per_second(self.collective, ranks, self.size_bytes, time_us)
                for time_us in slowest_first
            )
        )


class Skipped(msgspec.Struct, frozen=True):
    """What was asked for and not measured."""

    collective: str
    dtype: str
    in_place: bool
    why: str
    size_bytes: int = 0
    """0: no size of it."""


class Pairs(msgspec.Struct, frozen=True):
    size_bytes: int
    gb_per_second: list[list[float]]
    """In one direction, both being under way: by rank, and by the other rank."""


class Document(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """What all records say of themselves."""

    schema_version: int
    state: State
    why: str
    """Of a partial one: what happened."""
    started: str
    """RFC 3339."""
    commit: dict[str, Any]
    environment: dict[str, Any]
    """Of the machine that asked."""


class Record(Document, frozen=True, kw_only=True, tag="nccl"):
    seconds: float
    """From the submission of the job until the last figure."""
    submitted: float
    """Seconds since the epoch."""
    config: RunConfig
    world: World | None = None
    ranks: list[Rank] = []
    points: list[Point] = []
    skipped: list[Skipped] = []
    pairs: Pairs | None = None

    @property
    def is_hardware(self) -> bool:
        """Whether the figures are those of GPUs and what connects them."""
        return self.config.backend == "nccl" and self.world is not None and not self.world.shared_gpu

    @property
    def transport(self) -> str:
        if self.config.backend == "gloo":
            return GLOO
        if self.world is not None and self.world.shared_gpu:
            return "loopback sockets, as several ranks share a GPU: no figure of this run is a hardware bandwidth"
        return "NCCL between GPUs"


class ScalingRun(msgspec.Struct, frozen=True):
    via: Via
    nodes: int
    ranks: int
    images_per_second: list[float]
    """Of all ranks, a figure a round."""
    device: str = ""


class Scaling(Document, frozen=True, kw_only=True, tag="scaling"):
    backend: str
    gpus: int
    model: str
    batch: int
    """Images of a rank and a step."""
    share_gpu: bool
    runs: list[ScalingRun] = []


class Start(msgspec.Struct, frozen=True):
    """One run for ``overhead``. Stamps are seconds since it was asked for."""

    manual: bool
    timestamps: dict[str, float]
    points: list[Point]


class Overhead(Document, frozen=True, kw_only=True, tag="overhead"):
    config: RunConfig
    starts: list[Start] = []
    """In their order."""


AnyRecord = Record | Scaling | Overhead


def point(collective: str, ranks: int, size_bytes: int, times_us: list[float], **rest: Any) -> Point:
    """With the bandwidths of its times."""
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
    """
    Raises:
        InvalidRecord: the file is none of ours.
    """
    try:
        found: AnyRecord = msgspec.convert(record.read(path), AnyRecord)
    except (OSError, ValueError) as error:
        raise InvalidRecord(f"{path}: {error}") from error
    if found.schema_version not in READABLE_VERSIONS:
        raise InvalidRecord(f"{path}: it is of version {found.schema_version}, {VERSION} is known here")
    return found


def json_schema() -> dict[str, Any]:
    """The JSON Schema of all records."""
    schema: dict[str, Any] = msgspec.json.schema(AnyRecord)
    return schema
