"""The results of all jobs: counts for the metrics, and the report that ``rallypoint shadow report`` reads.

The report is complete when each job has been compared in the state that it has now. Whatever prevents that is listed as unread.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

import orjson

from api.meta import Resource
from controller.domain import Key
from controller.shadow.declared import DECLARATIONS, NAMES, Difference

MOST_DIFFERENCES: Final = 5000
"""The most differences that the report lists; undeclared ones come first. The rules count all of them."""
MOST_UNREAD: Final = 1000
STALE_SECONDS: Final = 150.0
"""A watch that is silent for this long may have missed changes: bookmarks come about once a minute, and it reconnects after 90 s."""
NOT_QUIET: Final = "it has not been quiet for 2 s yet"


class Result(StrEnum):
    """The result for one job."""

    EQUAL = "equal"
    DECLARED = "declared"
    """All differences are declared."""
    DIFFERENT = "different"
    UNREAD = "unread"
    """It has not been compared in its present state."""
    LEFT = "left"
    """``managedBy`` names another controller than the operators."""


class Cache(Protocol):
    """The state of an informer."""

    @property
    def resource(self) -> Resource: ...
    @property
    def synced(self) -> asyncio.Event: ...
    @property
    def unserved(self) -> asyncio.Event: ...
    def silent_seconds(self) -> float: ...


@dataclass(slots=True)
class JobResult:
    """What is known about one job. Without ``differences`` it has not been compared yet; ``unread`` says why."""

    key: Key
    differences: tuple[Difference, ...] | None = None
    unread: str = NOT_QUIET
    is_left: bool = False

    @property
    def result(self) -> Result:
        if self.is_left:
            return Result.LEFT
        if self.differences is None or self.unread:
            return Result.UNREAD
        if not self.differences:
            return Result.EQUAL
        is_declared = all(difference.is_declared for difference in self.differences)
        return Result.DECLARED if is_declared else Result.DIFFERENT


@dataclass(slots=True)
class KindResults:
    """The results of the jobs of one kind, by UID."""

    kind: str
    jobs: dict[str, JobResult] = field(default_factory=dict[str, JobResult])

    def counts(self) -> Counter[str]:
        """Return the number of jobs by result."""
        return Counter(job.result.value for job in self.jobs.values())

    def differences(self) -> Counter[str]:
        """Return the number of differences by rule."""
        return Counter(found.rule for job in self.jobs.values() for found in job.differences or ())


class Report:
    """The report over all kinds."""

    def __init__(self) -> None:
        self._kinds: list[KindResults] = []
        self._informers: list[Cache] = []

    def add(self, results: KindResults) -> None:
        self._kinds.append(results)

    def require(self, informers: Iterable[Cache]) -> None:
        """Name the caches without which the report is incomplete. Before this call, it is."""
        self._informers.extend(informers)

    def results(self) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, int]]]:
        """Yield each kind with its number of jobs by result and its number of differences by rule; all names are there."""
        for results in self._kinds:
            jobs, rules = results.counts(), results.differences()
            yield (
                results.kind,
                {result.value: jobs[result.value] for result in Result},
                {str(name): rules[name] for name in NAMES},
            )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON. ``docs/how-to/shadow.md`` describes it."""
        unread = [{"why": text} for text in self._obstacles()]
        unread += [
            {**_named(results.kind, job), "why": job.unread}
            for results in self._kinds
            for job in results.jobs.values()
            if job.result is Result.UNREAD
        ]
        found = sorted(self._differences(), key=lambda entry: bool(entry["page"]))
        return {
            "kinds": {kind: jobs for kind, jobs, _ in self.results()},
            "rules": self._rules(),
            "differences": found[:MOST_DIFFERENCES],
            "differencesLeftOut": max(len(found) - MOST_DIFFERENCES, 0),
            "unread": unread[:MOST_UNREAD],
            "unreadLeftOut": max(len(unread) - MOST_UNREAD, 0),
        }

    def to_bytes(self) -> bytes:
        """Return the report as the text that is served."""
        return orjson.dumps(self.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def _obstacles(self) -> Iterator[str]:
        """Yield why jobs may be missing from the report: an empty cache looks like a cluster without differences."""
        if not self._informers:
            yield "the operator is starting"
        for informer in self._informers:
            plural = informer.resource.plural
            if informer.unserved.is_set():
                yield f"{plural} are not served by the API server, or may not be listed"
            elif not informer.synced.is_set():
                yield f"the cache of {plural} is being filled"
            elif (silent_seconds := informer.silent_seconds()) > STALE_SECONDS:
                yield f"the API server has sent nothing about {plural} for {silent_seconds:.0f} s"

    def _differences(self) -> Iterator[dict[str, Any]]:
        for results in self._kinds:
            for job in results.jobs.values():
                for difference in job.differences or ():
                    yield {
                        **_named(results.kind, job),
                        "rule": difference.rule,
                        "subject": difference.subject,
                        "field": difference.field,
                        "ours": difference.ours,
                        "theirs": difference.theirs,
                        "page": difference.page,
                    }

    def _rules(self) -> list[dict[str, Any]]:
        counts, jobs = Counter[str](), Counter[str]()
        for results in self._kinds:
            for job in results.jobs.values():
                rules = [difference.rule for difference in job.differences or ()]
                counts.update(rules)
                jobs.update(set(rules))
        declared = {declaration.name: declaration for declaration in DECLARATIONS}
        return [
            {
                "rule": str(name),
                "declared": name in declared,
                "reason": declared[name].reason if name in declared else "",
                "page": declared[name].page if name in declared else "",
                "jobs": jobs[name],
                "differences": counts[name],
            }
            for name in NAMES
            if counts[name]
        ]


def _named(kind: str, job: JobResult) -> dict[str, Any]:
    return {"kind": kind, "namespace": job.key.namespace, "name": job.key.name}
