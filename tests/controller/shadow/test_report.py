"""The report: counts by kind and rule, and what has not been read."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.meta import PODS
from controller.domain import Key
from controller.shadow.declared import Difference, Rule, settle
from controller.shadow.report import MOST_DIFFERENCES, JobResult, KindResults, Report, Result
from controller.telemetry.metrics.shadow import RESULTS

UNDECLARED = Difference(Rule.POD, "Pod train-worker-0", "/spec/restartPolicy", "Never", "Always")
DECLARED = settle(
    "PyTorchJob",
    Difference(
        Rule.POD,
        "Pod train-worker-0",
        "/spec/initContainers/init-pytorch/securityContext",
        "an object",
        "nothing",
    ),
)


@dataclass
class Cache:
    """The state of a cache of pods."""

    resource = PODS
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    unserved: asyncio.Event = field(default_factory=asyncio.Event)
    silence: float = 0.0

    def silent_seconds(self) -> float:
        return self.silence


def report(
    *jobs: JobResult, synced: bool = True, served: bool = True, silence: float = 0.0
) -> dict[str, Any]:
    made, pods = Report(), Cache(silence=silence)
    made.add(KindResults("PyTorchJob", {f"uid-{number}": job for number, job in enumerate(jobs)}))
    made.require([pods])
    if synced:
        pods.synced.set()
    if not served:
        pods.unserved.set()
    return made.to_json()


def job(*differences: Difference, name: str = "train", **fields: Any) -> JobResult:
    return JobResult(Key("ml", name), **{"differences": differences, "unread": "", **fields})


def test_a_report_counts_jobs_by_result_and_differences_by_rule() -> None:
    found = report(
        job(), job(DECLARED), job(DECLARED, UNDECLARED), job(unread="it changes"), job(is_left=True)
    )

    assert found["kinds"] == {"PyTorchJob": dict.fromkeys(map(str, Result), 1)}
    assert [
        (rule["rule"], rule["declared"], rule["jobs"], rule["differences"]) for rule in found["rules"]
    ] == [
        ("pod", False, 1, 1),
        ("init-container", True, 2, 2),
    ]
    assert found["unread"] == [
        {"kind": "PyTorchJob", "namespace": "ml", "name": "train", "why": "it changes"}
    ]


def test_undeclared_differences_come_first_and_none_is_lost_to_the_limit() -> None:
    found = report(job(*[DECLARED] * MOST_DIFFERENCES, UNDECLARED))

    assert found["differences"][0]["rule"] == Rule.POD
    assert len(found["differences"]) == MOST_DIFFERENCES
    assert found["differencesLeftOut"] == 1


def test_a_cache_that_is_not_filled_makes_the_report_incomplete() -> None:
    assert report(synced=False)["unread"] == [{"why": "the cache of pods is being filled"}]


def test_a_resource_that_is_not_served_makes_the_report_incomplete() -> None:
    (unread,) = report(synced=False, served=False)["unread"]

    assert unread["why"].startswith("pods are not served")


def test_a_watch_that_does_not_deliver_makes_the_report_incomplete() -> None:
    assert report(silence=60)["unread"] == []
    assert report(silence=200)["unread"] == [{"why": "the API server has sent nothing about pods for 200 s"}]


def test_a_report_without_caches_is_incomplete() -> None:
    assert Report().to_json()["unread"] == [{"why": "the operator is starting"}]


def test_a_new_job_is_unread() -> None:
    assert JobResult(Key("ml", "train")).result is Result.UNREAD


def test_the_metric_lists_every_result() -> None:
    assert tuple(Result) == RESULTS


def test_the_page_lists_every_rule_of_undeclared_differences() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "shadow.md").read_text(encoding="utf-8")
    rows = page.partition("\n## Rules\n")[2].partition("\n## ")[0]

    assert [rule for rule in Rule if f"`{rule}`" not in rows] == []
