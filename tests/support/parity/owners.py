"""The owner of an object, by names alone: the job that owns it, or its own name."""

from collections.abc import Iterable
from typing import Any

from tests.support.parity.resources import JOB_KINDS


class Owners:
    """The jobs of a run. The name of a child starts with the name of its job and ``-`` or ``.``."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._jobs = sorted(jobs, key=len, reverse=True)

    def named(self, name: str) -> str:
        """Return the job with the longest matching name; empty if none matches."""
        return next((job for job in self._jobs if name == job or name.startswith((f"{job}-", f"{job}."))), "")

    def of(self, metadata: dict[str, Any], name: str = "") -> str:
        """Return the job that owns an object; ``name`` is for bodies without a name."""
        references = metadata.get("ownerReferences") or ()
        owner = next((entry["name"] for entry in references if entry["kind"] in JOB_KINDS), "")
        return self.named(owner or name or metadata.get("name", ""))
