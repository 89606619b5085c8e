"""``rallypoint describe``: show an object with its status, pods, conditions and events."""

import argparse
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from api.messages import escape_control
from api.meta import EVENTS
from controller.kube.errors import NotFound
from controller.runtime import clock
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, Object, ServedResource
from rallypoint.cli.columns import NONE, Columns, age, format_duration, indented
from rallypoint.cli.job_reader import JobReader
from rallypoint.cli.log_lines import in_one_line
from rallypoint.cli.terminal import write
from rallypoint.diagnosis import Timeline, timeline
from rallypoint.diagnosis.goodput import PHASES, measured
from rallypoint.diagnosis.objects import all_container_statuses, container_statuses, event_time, replica_specs
from rallypoint.diagnosis.terminations import spell_count
from rallypoint.local.manifest import Manifest

JOB_GROUP = "kubeflow.org"
BAR_ROWS = 12
"""The largest number of rows of a timeline."""
BAR_WIDTH = 40
"""In characters."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("describe", help="show details of an object in a cluster, local or real")
    parser.add_argument("what", nargs="+", metavar="KIND[/NAME]", help="KIND [NAME...] or KIND/NAME...")
    parser.add_argument("--selector", "-l", default="", help="only objects with these labels")
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_describe, args))


async def _describe(args: argparse.Namespace, cluster: Cluster) -> int:
    texts: list[str] = []
    missing: list[NotFound] = []
    kinds: list[ServedResource] = []
    for words, name in clusters.targets(args.what, has_selector=bool(args.selector)):
        for served in cluster.find_all(words):
            kinds.append(served)
            if name:
                named = await clusters.found_or_missing(cluster.get(served, name), missing)
                found = [] if named is None else [named]
            else:
                found = await cluster.list_objects(served.resource, labelSelector=args.selector)
            texts += [await _description(cluster, served, obj) for obj in found]
    write("\n\n".join(texts))
    if not texts and not missing:
        clusters.report_none_found(cluster, kinds)
    return clusters.report_missing(missing)


async def _description(cluster: Cluster, served: ServedResource, obj: Object) -> str:
    now = clock.now()
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest]
    bar: Iterable[str] = ()
    unread = ""
    if served.resource.group == JOB_GROUP:
        reader = JobReader(replace(cluster, namespace=obj["metadata"]["namespace"]), only_timeline=True)
        await reader.read_related([obj], by_label=True)
        snapshot = await reader.snapshot(obj)
        pods, events = reader.pods, snapshot.events_of(obj)
        bar = timeline_bar(timeline(snapshot), now)
        if reader.forbidden:
            unread = f"You have no permission to read {', '.join(reader.forbidden)}.\n"
    else:
        uid = obj["metadata"]["uid"]
        events = await cluster.list_objects(EVENTS, fieldSelector=f"involvedObject.uid={uid}")
    parts = (
        *(_head(obj, now), _state(obj), _roles(obj), attempts(obj), stacks(obj), wall_clock(obj, now), bar),
        *(_pods(pods), _containers(obj), _conditions(obj, now), _events(events, now)),
    )
    return "".join([line for part in parts for line in part]) + unread


def _head(obj: Object, now: datetime) -> Iterator[str]:
    metadata = obj["metadata"]
    owner = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    facts = [
        ("Name", metadata["name"]),
        ("Namespace", metadata.get("namespace", "")),
        ("Kind", f"{obj['kind']} ({obj['apiVersion']})"),
        ("Flavor", (obj.get("spec") or {}).get("flavor", "")),
        ("Created", f"{metadata['creationTimestamp']} ({age(metadata['creationTimestamp'], now)} ago)"),
        ("Deleted", metadata.get("deletionTimestamp", "")),
        ("Controlled By", f"{owner['kind']}/{owner['name']}" if owner else ""),
    ]
    annotations = metadata.get("annotations") or {}
    rows = [
        *([f"{name}:", text] for name, text in facts if text),
        *_mapping("Labels", metadata.get("labels") or {}),
        *_mapping("Annotations", {k: v for k, v in annotations.items() if "last-applied" not in k}),
    ]
    yield Columns().text(rows)


def _mapping(title: str, found: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield a row per entry, the first with the title."""
    texts = [f"{name}={value}" for name, value in sorted(found.items())] or [NONE]
    yield from ([f"{title}:" if i == 0 else "", text] for i, text in enumerate(texts))


def _state(obj: Object) -> Iterator[str]:
    """Yield the scalar fields of the status: phase, node, addresses, times."""
    status = obj.get("status") or {}
    scalars = {name: value for name, value in status.items() if isinstance(value, (str, int, bool))}
    if node := (obj.get("spec") or {}).get("nodeName"):
        scalars = {"node": node, **scalars}
    if scalars:
        yield "Status:\n"
        yield indented([[f"{name}:", str(value)] for name, value in scalars.items()])


def _roles(obj: Object) -> Iterator[str]:
    statuses = (obj.get("status") or {}).get("replicaStatuses") or {}
    desired = {role: spec.get("replicas", 1) for role, spec in replica_specs(obj).items()}
    if not statuses and not desired:
        return
    counts = ("active", "succeeded", "failed")
    rows = [
        [
            role,
            str(desired.get(role, NONE)),
            *(str((statuses.get(role) or {}).get(count) or 0) for count in counts),
        ]
        for role in dict.fromkeys([*desired, *statuses])
    ]
    yield "Replicas:\n"
    yield indented(rows, ["Role", "Desired", "Active", "Succeeded", "Failed"])


def attempts(obj: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row per attempt that a failed pod ended."""
    status = obj.get("status") or {}
    found: Sequence[Mapping[str, Any]] = status.get("attempts") or ()
    if not found:
        return
    lost = format_duration(timedelta(seconds=status.get("lostSeconds") or 0))
    restarts = f"restarted {spell_count(status['restarts'])}" if status.get("restarts") else "not restarted"
    yield f"Attempts ({restarts}, {lost} lost):\n"
    rows = [
        [
            str(attempt["number"]),
            attempt.get("endTime") or NONE,
            attempt.get("pod") or NONE,
            _node(attempt),
            _cause(attempt),
            (attempt.get("action") or NONE) + (" in place" if attempt.get("inPlace") else ""),
            format_duration(timedelta(seconds=attempt["lostSeconds"])) if "lostSeconds" in attempt else NONE,
        ]
        for attempt in found
    ]
    yield indented(rows, ["Attempt", "Ended", "Pod", "Node", "Cause", "Action", "Lost"])


def stacks(obj: Object) -> Iterator[str]:
    """Yield the stacks of the pods that hung, for the attempts that a hang ended."""
    for attempt in (obj.get("status") or {}).get("attempts") or ():
        for stack in attempt.get("stacks") or ():
            yield f"  Stacks of {', '.join(stack['pods'])} at the end of attempt {attempt['number']}:\n"
            yield textwrap.indent(f"{escape_control(stack['text'])}\n", " " * 4)


def wall_clock(obj: Object, now: datetime) -> Iterator[str]:
    """Yield a row per phase with its share of the job's time."""
    found = measured(obj, now)
    if found is None or not found.total_seconds:
        return
    yield "Wall clock:\n"
    rows = [
        [
            f"{phase} now" if phase == found.phase else phase,
            format_duration(timedelta(seconds=found.seconds[phase])),
            f"{found.seconds[phase] / found.total_seconds:.0%}",
        ]
        for phase in PHASES
        if phase in found.seconds
    ]
    yield indented(rows, ["Phase", "Time", "Share"])


def _node(attempt: Mapping[str, Any]) -> str:
    """Return the node of the pod that failed, with its problems."""
    problems = ", ".join(attempt.get("nodeProblems") or ())
    name = attempt.get("node") or NONE
    return f"{name} ({problems})" if problems else name


def _cause(attempt: Mapping[str, Any]) -> str:
    """Return how the pod failed that ended the attempt."""
    reason, message = attempt.get("reason"), in_one_line(attempt.get("message") or "")
    text = reason or NONE
    if attempt.get("container"):
        named = f" ({reason})" if reason and reason != "Error" else ""
        text = f"{attempt['container']}: exit code {attempt.get('exitCode')}{named}"
    return f"{text}: {message}" if message else text


def timeline_bar(found: Timeline, now: datetime) -> Iterator[str]:
    """Yield a row per span with its place in the job's life. Neighbors beyond ``BAR_ROWS``, the shortest first, share a row."""
    if not found.spans:
        return
    begin = found.spans[0].start
    total = ((found.spans[-1].end or now) - begin).total_seconds()
    rows: list[list[str]] = []
    spans = [(span.name, span.start, span.end or now) for span in found.spans]
    while len(spans) > BAR_ROWS:
        pairs = range(len(spans) - 1)
        at = min(pairs, key=lambda index: (spans[index + 1][2] - spans[index][1]).total_seconds())
        names = list(dict.fromkeys(f"{spans[at][0]}, {spans[at + 1][0]}".split(", ")))
        spans[at : at + 2] = [(", ".join(names), spans[at][1], spans[at + 1][2])]
    for name, start, end in spans:
        first, last = (
            round(BAR_WIDTH * (at - begin).total_seconds() / total) if total else 0 for at in (start, end)
        )
        bar = " " * min(first, BAR_WIDTH - 1) + "#" * max(last - first, 1)
        rows.append(
            [
                name,
                f"+{format_duration(start - begin)}",
                format_duration(end - start),
                f"|{bar:<{BAR_WIDTH}}|",
            ]
        )
    yield "Timeline:\n"
    yield indented(rows, ["Phase", "At", "Duration", "Bar"])
    if found.restarts:
        last_restart = found.restarts[-1]
        count = spell_count(len(found.restarts))
        yield f"  Restarted {count}, last {age(last_restart.at, now)} ago: {last_restart.pod} {in_one_line(last_restart.text)}\n"


def _pods(pods: Sequence[Manifest]) -> Iterator[str]:
    if not pods:
        return
    rows = [
        [
            pod["metadata"]["name"],
            (pod.get("status") or {}).get("phase", "Unknown"),
            str(sum(status.get("restartCount", 0) for status in container_statuses(pod))),
            pod["spec"].get("nodeName") or NONE,
        ]
        for pod in pods
    ]
    yield "Pods:\n"
    yield indented(rows, ["Name", "Phase", "Restarts", "Node"])


def _containers(obj: Object) -> Iterator[str]:
    found = all_container_statuses(obj)
    if not found:
        return
    rows = [
        [
            status["name"],
            *_format_state(status.get("state") or {}),
            str(status.get("restartCount", 0)),
            _last_state(status),
        ]
        for status in found
    ]
    yield "Containers:\n"
    yield indented(rows, ["Name", "State", "Reason", "Restarts", "Last State"])


def _format_state(state: Mapping[str, Any]) -> tuple[str, str]:
    for name, details in state.items():
        code = f" (exit code {details['exitCode']})" if "exitCode" in details else ""
        message = f": {details['message']}" if details.get("message") else ""
        return name.capitalize(), (details.get("reason", NONE) + code + message)
    return "Waiting", NONE


def _last_state(status: Mapping[str, Any]) -> str:
    last = status.get("lastState") or {}
    return _format_state(last)[1] if last else NONE


def _conditions(obj: Object, now: datetime) -> Iterator[str]:
    found = (obj.get("status") or {}).get("conditions") or ()
    if not found:
        return
    rows = [
        [
            condition["type"],
            condition["status"],
            age(condition.get("lastTransitionTime"), now),
            condition.get("reason") or NONE,
            condition.get("message") or "",
        ]
        for condition in found
    ]
    yield "Conditions:\n"
    yield indented(rows, ["Type", "Status", "Since", "Reason", "Message"])


def _events(events: Iterable[Manifest], now: datetime) -> Iterator[str]:
    found = sorted(events, key=event_time)
    if not found:
        yield f"Events: {NONE}\n"
        return
    rows = [
        [
            event.get("type", ""),
            event.get("reason", ""),
            age(event_time(event), now) + (f" (x{event['count']})" if event.get("count", 1) > 1 else ""),
            (event.get("source") or {}).get("component") or event.get("reportingComponent") or "",
            (event.get("message") or "").strip(),
        ]
        for event in found
    ]
    yield "Events:\n"
    yield indented(rows, ["Type", "Reason", "Age", "From", "Message"])
