"""Injects a fault into one rank, to test its detection."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DELAY_SECONDS = 0.02
FAULT_EXIT_CODE = 86
"""Exit code of a rank that dies by injection; no other program uses it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of this rank: ``slow``, ``die``, ``corrupt`` or empty."""

    kind: str = ""

    def die_at(self, *, middle: bool) -> None:
        if self.kind == "die" and middle:
            os._exit(FAULT_EXIT_CODE)

    def corrupt(self, target: Any) -> None:
        if self.kind == "corrupt":
            target[0] += 1

    def delay(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return the call, with a delay if this rank is slow."""
        if self.kind != "slow":
            return call

        def delayed() -> None:
            time.sleep(DELAY_SECONDS)
            call()

        return delayed


def fault_of(task: Mapping[str, Any], rank: int) -> Fault:
    fault = task["fault"]
    return Fault(fault["kind"]) if fault and fault["rank"] == rank else Fault()
