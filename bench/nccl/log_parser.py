"""Parses a log into a record: messages of the worker and the tables of nccl-tests."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from bench import record
from bench.nccl import perftable
from bench.nccl.schema import VERSION, Node, Pairs, Point, Rank, Record, RunConfig, Skipped, World, point
from bench.nccl.sizes import spelled
from bench.nccl.worker.messages import PREFIX

MAX_LAST_LINES = 20
"""In lines."""


@dataclass(slots=True)
class LogParser:
    """The results so far. ``feed`` returns the text to show for a line, if any."""

    config: RunConfig
    submitted: float = field(default_factory=time.time)
    world: World | None = None
    points: list[Point] = field(default_factory=list[Point])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    ranks: list[Rank] = field(default_factory=list[Rank])
    nodes: dict[str, str] = field(default_factory=dict[str, str])
    """Host → node: ranks do not know their node."""
    rows: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    trained: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: list[str] = field(default_factory=list[str])
    """Errors that ranks reported before they ended."""
    last_lines: list[str] = field(default_factory=list[str])
    """The newest other lines, oldest first."""
    is_complete: bool = False
    planned: int = 0
    _perf: tuple[str, str] = ("", "")
    """Collective and data type of the current table of nccl-tests."""

    def feed(self, line: str) -> str:
        before, prefix, message_text = line.partition(PREFIX)
        if prefix:
            try:
                message = orjson.loads(message_text)
                return self._handle(message) if isinstance(message, dict) else ""
            except (orjson.JSONDecodeError, KeyError, TypeError, msgspec.ValidationError):
                return ""  # A line that broke apart, as at the end of a container.
        if before.strip():
            self.last_lines = [*self.last_lines[1 - MAX_LAST_LINES :], before.rstrip()]
        return self._row(line) if self._perf[0] else ""

    def record(self, why: str = "") -> Record:
        """Return the record; ``why`` says why it is partial, and is empty if it is complete."""
        now = time.time()
        return Record(
            schema_version=VERSION,
            state="partial" if why else "complete",
            why=why,
            started=datetime.fromtimestamp(self.submitted, UTC).isoformat(timespec="seconds"),
            seconds=round(now - self.submitted, 3),
            submitted=self.submitted,
            commit=record.commit(),
            environment=record.environment(),
            config=self.config,
            world=self.world,
            ranks=[msgspec.structs.replace(rank, node=self.nodes.get(rank.host, "")) for rank in self.ranks],
            points=self.points,
            skipped=self.skipped,
            pairs=self._pairs(),
        )

    def _handle(self, message: dict[str, Any]) -> str:
        match message.pop("type", ""):
            case "world":
                self.world = msgspec.convert(message, World)
            case "node":
                return self._node(msgspec.convert(message, Node))
            case "rank":
                self.ranks.append(msgspec.convert(message, Rank))
            case "planned":
                self.planned = message["points"]
            case "point":
                return self._point(message)
            case "skipped":
                message.pop("elements", None)
                self.skipped.append(msgspec.convert(message, Skipped))
            case "pairs":
                self.rows[message["rank"]] = message["row"]
            case "trained":
                self.trained = message
            case "nccl-tests":
                self._perf = message["collective"], message["dtype"]
                return f"{self._perf[0]} of {self._perf[1]}"
            case "error":
                self.errors.append(f"rank {message['rank']}: {message['why']}")
            case "end":
                self.is_complete = True
            case _:
                pass
        return ""

    def _node(self, node: Node) -> str:
        """Add a node to the world, whose message comes first."""
        if self.world is None:
            return ""
        self.world.nodes.append(node)
        library = f"NCCL {node.nccl}" if node.nccl else "no NCCL"
        pods = f"{len(node.hosts)} pod{'s' if len(node.hosts) > 1 else ''}"
        return f"{self.world.ranks} ranks, {pods} with {node.device}, {library}, torch {node.torch}"

    def _point(self, message: dict[str, Any]) -> str:
        measured = point(message.pop("collective"), self.world.ranks if self.world else 1, **message)
        self.points.append(measured)
        return self._progress(measured)

    def _progress(self, measured: Point) -> str:
        # Points that no size supports are not planned.
        number = len(self.points) + sum(skipped.size_bytes > 0 for skipped in self.skipped)
        count = f"{number} of {self.planned}" if self.planned else f"{number}"
        return (
            f"{count}: {measured.collective} {measured.dtype} {spelled(measured.size_bytes)}: "
            f"{measured.time_us.median:,.1f} µs, busbw {measured.busbw_gb_per_second:.3g} GB/s"
        )

    def _row(self, line: str) -> str:
        """Parse a line of nccl-tests. Its header lists ranks and device."""
        ranks = self.world.ranks if self.world else self.config.nodes * self.config.gpus
        table = perftable.parse(self._perf[0], [line], ranks=ranks)
        known = self.world or World(ranks=ranks, nodes=[Node()])
        if table.ranks and table.ranks[0].rank not in {rank.rank for rank in self.ranks}:
            self.ranks += table.ranks
        node = known.nodes[0]
        node = msgspec.structs.replace(node, device=table.device or node.device, nccl=table.nccl or node.nccl)
        self.world = msgspec.structs.replace(known, nodes=[node])
        self.points += table.points
        return self._progress(table.points[-1]) if table.points else ""

    def _pairs(self) -> Pairs | None:
        """Return the matrix only if it is complete: half of it cannot show which rank is slow."""
        ranks = self.world.ranks if self.world else 0
        if not self.rows or set(self.rows) != set(range(ranks)):
            return None
        return Pairs(self.config.pair_bytes, [self.rows[rank] for rank in range(ranks)])
