"""Whose an object is, told by names alone: that of the job which owns it, or its own."""

from collections.abc import Iterable
from typing import Any

from rallypoint.testing.parity.resources import JOB_KINDS


class Owners:
    """The jobs of a run. Names of children begin with the name of their job and ``-`` or ``.``."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._jobs = sorted(jobs, key=len, reverse=True)

    def named(self, name: str) -> str:
        """The job with the longest name that fits; empty when none does."""
        return next((job for job in self._jobs if name == job or name.startswith((f"{job}-", f"{job}."))), "")

    def of(self, metadata: dict[str, Any], name: str = "") -> str:
        """The job that an object belongs to; ``name`` is for bodies that do not say theirs."""
        references = metadata.get("ownerReferences") or ()
        owner = next((entry["name"] for entry in references if entry["kind"] in JOB_KINDS), "")
        return self.named(owner or name or metadata.get("name", ""))
