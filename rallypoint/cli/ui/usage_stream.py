"""The usage of a local job's pods for the page."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime

from rallypoint.cli.ui.job_list import Document
from rallypoint.local.usage import INTERVAL_SECONDS, MAX_SAMPLES, UsageSampler

MAX_PODS = 8
"""The usage of this many pods of a job is drawn."""


async def follow_usage(usage: UsageSampler, names: Mapping[str, str]) -> AsyncGenerator[Document]:
    """Yield the samples of the first ``MAX_PODS`` pods: all that there are of a pod, later only the new ones.

    ``names`` are those of the job's pods by UID. Pods that replaced each other have one name, and one series. ``others`` counts the pods
    that are left out. ``running`` names the pods that run now: the last samples of the others are of the past.
    """
    last: dict[str, datetime] = {}
    running_before: list[str] = []
    while True:
        uids: dict[str, list[str]] = {}
        for uid, name in names.items():
            if uid in usage.samples:
                uids.setdefault(name, []).append(uid)
        shown = sorted(uids)[:MAX_PODS]
        pods = {}
        for name in shown:
            series = usage.series(uids[name])
            samples = [sample for uid in uids[name] for sample in series.get(uid, ())]
            samples.sort(key=lambda sample: sample.at)
            after = last.get(name)
            pods[name] = [sample for sample in samples[-MAX_SAMPLES:] if after is None or sample.at > after]
        last = {name: pods[name][-1].at if pods[name] else last[name] for name in shown}
        running = sorted({names[uid] for uid in usage.running() if uid in names})
        if any(pods.values()) or (shown and running != running_before):
            yield {"pods": pods, "others": len(uids) - len(shown), "running": running}
        running_before = running
        await asyncio.sleep(INTERVAL_SECONDS if names else 1.0)
