"""One recorded case: what it creates, its steps, and the records of the original."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import yaml

from api.meta import Resource
from tests.support.parity.resources import JOB_KINDS, resource_of

Record = dict[str, Any]
"""The state at one named point: the sections that the README of the recordings lists."""


@dataclass(frozen=True, slots=True)
class Step:
    verb: str
    argument: Any = None


@dataclass(frozen=True)
class Case:
    """``id`` is ``<folder>/<case>``; the job is one of the manifests."""

    id: str
    profile: str
    manifests: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]
    not_compared: frozenset[str]
    expected_files: tuple[Path, ...]

    @property
    def job(self) -> dict[str, Any]:
        return next(manifest for manifest in self.manifests if manifest["kind"] in JOB_KINDS)

    @property
    def name(self) -> str:
        """The name of the job; no two cases share one."""
        return str(self.job["metadata"]["name"])

    @property
    def resource(self) -> Resource:
        return resource_of(self.job)

    @property
    def events_are_lossy(self) -> bool:
        """Whether the original has sent more events than the recording can hold.

        For an MPIJob of v1 it repeats three events on every pass, until its client library swallows all others.
        """
        return self.resource.kind == "MPIJob" and self.resource.version == "v1"

    @cached_property
    def expected(self) -> Mapping[str, Record]:
        """What was recorded, by the name of the record."""
        return {path.stem: orjson.loads(path.read_bytes()) for path in self.expected_files}


def load(folder: Path) -> list[Case]:
    """All cases below a folder, sorted by id."""
    return [_read(path, folder) for path in sorted(folder.glob("*/*/case.yaml"))]


def slowest_first(cases: Iterable[Case]) -> list[Case]:
    """Return the cases with the longest waits first, so that none of them starts last."""
    return sorted(cases, key=_waiting, reverse=True)


def _read(path: Path, folder: Path) -> Case:
    data = yaml.load(path.read_text(), Loader=_LOADER)
    job = data["job"]
    return Case(
        id=path.parent.relative_to(folder).as_posix(),
        profile=data.get("profile", "default"),
        manifests=tuple(job) if isinstance(job, list) else (job,),
        steps=tuple(_step(step) for step in data["steps"]),
        not_compared=frozenset(data.get("not_compared", ())),
        expected_files=tuple(sorted(path.parent.glob("expect/*.json"))),
    )


def _step(step: str | dict[str, Any]) -> Step:
    if isinstance(step, str):
        return Step(step)
    ((verb, argument),) = step.items()
    return Step(verb, argument)


def _waiting(case: Case) -> float:
    """Return roughly how many seconds a case waits."""
    waits = sum(float(step.argument) for step in case.steps if step.verb == "wait")
    return waits + 2.0 * sum(step.verb == "settle" for step in case.steps)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The compiled loader reads the whole set in a second, the other in ten; some platforms have only that."""
