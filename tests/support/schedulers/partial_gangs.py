"""For how long gangs were bound in part, from the recorded changes of pods and PodGroups."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from api.labels import JOB_NAME
from tests.support.history import History

Object = dict[str, Any]
_ENDED = frozenset({"Succeeded", "Failed"})


class TimedHistory(History):
    """A history that knows when each change arrived, in seconds of the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.timed: list[tuple[float, str, Object]] = []

    @override
    def record(self, type_: str, obj: Object) -> None:
        self.timed.append((asyncio.get_running_loop().time(), type_, obj))
        super().record(type_, obj)


@dataclass(frozen=True, slots=True)
class PartlyBound:
    """A time in which some pods of a gang had a node and others did not."""

    job: str
    seconds: float
    bound: int
    """The pods that had one at its end."""
    needed: int


def partly_bound(changes: Iterable[tuple[float, str, Object]]) -> Iterator[PartlyBound]:
    """Yield each time in which fewer pods of a gang than its ``minMember`` had a node, from the first one on.

    A gang of which a pod has ended or has been deleted is not considered until all of its pods are gone.
    """
    needed: dict[str, int] = {}
    pods: defaultdict[str, dict[str, Object]] = defaultdict(dict)
    since: dict[str, tuple[float, int]] = {}
    ending: set[str] = set()
    last = 0.0
    for time, type_, obj in changes:
        last, name = time, obj["metadata"]["name"]
        if obj["kind"] == "PodGroup":
            job = name
            needed[job] = obj["spec"]["minMember"]
        elif obj["kind"] == "Pod":
            job = obj["metadata"]["labels"][JOB_NAME]
            pods[job][name] = obj
            if type_ == "DELETED":
                del pods[job][name]
            has_ended = (obj.get("status") or {}).get("phase") in _ENDED
            if type_ == "DELETED" or has_ended:
                ending.add(job)
            if not pods[job]:
                ending.discard(job)
        else:
            continue
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods[job].values())
        is_partial = 0 < bound < needed.get(job, 0) and job not in ending
        if is_partial:
            since.setdefault(job, (time, bound))
            since[job] = since[job][0], bound
        elif job in since:
            began, count = since.pop(job)
            yield PartlyBound(job, time - began, count, needed[job])
    for job, (began, count) in since.items():
        yield PartlyBound(job, last - began, count, needed[job])
