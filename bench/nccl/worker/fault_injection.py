"""Breaking one rank on purpose, so that whoever is to notice can be seen to."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LATE_SECONDS = 0.02
DIED = 86
"""Exit code of a rank that dies; no program of others has it."""


@dataclass(frozen=True, slots=True)
class Drill:
    """What this rank does wrong: ``slow``, ``die``, ``corrupt`` or, nearly always, nothing."""

    kind: str = ""

    def die_at(self, *, middle: bool) -> None:
        if self.kind == "die" and middle:
            os._exit(DIED)

    def spoil(self, target: Any) -> None:
        if self.kind == "corrupt":
            target[0] += 1

    def late(self, call: Callable[[], None]) -> Callable[[], None]:
        """The call, or the same after a while."""
        if self.kind != "slow":
            return call

        def slowed() -> None:
            time.sleep(LATE_SECONDS)
            call()

        return slowed


def of(task: Mapping[str, Any], rank: int) -> Drill:
    drill = task["drill"]
    return Drill(drill["kind"]) if drill and drill["rank"] == rank else Drill()
