"""``rallypoint describe``: an object for people: who it is, how it goes, what belongs to it, what happened."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from api.labels import JOB_NAME
from api.meta import EVENTS, PODS
from controller.runtime import clock
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, Named, Object
from rallypoint.cli.columns import NONE, Columns, age, indented
from rallypoint.diagnosis.objects import all_container_statuses, container_statuses, event_time, replica_specs

JOBS = "kubeflow.org"


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("describe", help="tell all about an object of a cluster, local or real")
    parser.add_argument("what", nargs="+", metavar="KIND[/NAME]", help="KIND [NAME...] or KIND/NAME...")
    parser.add_argument("--selector", "-l", default="", help="those with these labels")
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_describe, args))


async def _describe(args: argparse.Namespace, cluster: Cluster) -> int:
    texts: list[str] = []
    for kinds, name in clusters.targets(args.what):
        for named in cluster.find_all(kinds):
            if name:
                found = [await cluster.get(named, name)]
            else:
                found = await cluster.all_of(named.resource, labelSelector=args.selector)
            texts += [await _told(cluster, named, one) for one in found]
    sys.stdout.write("\n\n".join(texts))
    return 0


async def _told(cluster: Cluster, named: Named, obj: Object) -> str:
    uid, now = obj["metadata"]["uid"], clock.now()
    events = await cluster.all_of(EVENTS, fieldSelector=f"involvedObject.uid={uid}")
    pods: list[Object] = []
    if named.resource.group == JOBS:
        label = f"{JOB_NAME}={obj['metadata']['name']}"
        pods = await cluster.all_of(PODS, labelSelector=label)
    parts = (_head(obj, now), _state(obj), _roles(obj), _pods(pods), _containers(obj), _conditions(obj, now))
    return "".join([line for part in parts for line in part] + list(_events(events, now)))


def _head(obj: Object, now: datetime) -> Iterator[str]:
    metadata = obj["metadata"]
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
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
    """One row for each, the title before the first."""
    texts = [f"{name}={value}" for name, value in sorted(found.items())] or [NONE]
    yield from ([f"{title}:" if i == 0 else "", text] for i, text in enumerate(texts))


def _state(obj: Object) -> Iterator[str]:
    """What the status says in single words: phase, node, addresses, times."""
    status = obj.get("status") or {}
    plain = {name: value for name, value in status.items() if isinstance(value, (str, int, bool))}
    if node := (obj.get("spec") or {}).get("nodeName"):
        plain = {"node": node, **plain}
    if plain:
        yield "Status:\n"
        yield indented([[f"{name}:", str(value)] for name, value in plain.items()])


def _roles(obj: Object) -> Iterator[str]:
    told = (obj.get("status") or {}).get("replicaStatuses") or {}
    wanted = {role: one.get("replicas", 1) for role, one in replica_specs(obj).items()}
    if not told and not wanted:
        return
    counts = ("active", "succeeded", "failed")
    rows = [
        [
            role,
            str(wanted.get(role, NONE)),
            *(str((told.get(role) or {}).get(count) or 0) for count in counts),
        ]
        for role in dict.fromkeys([*wanted, *told])
    ]
    yield "Replicas:\n"
    yield indented(rows, ["Role", "Wanted", "Active", "Succeeded", "Failed"])


def _pods(pods: Sequence[Object]) -> Iterator[str]:
    if not pods:
        return
    rows = [
        [
            pod["metadata"]["name"],
            (pod.get("status") or {}).get("phase", "Unknown"),
            str(sum(one.get("restartCount", 0) for one in container_statuses(pod))),
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
        [one["name"], *_spell(one.get("state") or {}), str(one.get("restartCount", 0)), _last(one)]
        for one in found
    ]
    yield "Containers:\n"
    yield indented(rows, ["Name", "State", "Reason", "Restarts", "Before"])


def _spell(state: Mapping[str, Any]) -> tuple[str, str]:
    for name, told in state.items():
        code = f" (exit code {told['exitCode']})" if "exitCode" in told else ""
        message = f": {told['message']}" if told.get("message") else ""
        return name.capitalize(), (told.get("reason", NONE) + code + message)
    return "Waiting", NONE


def _last(status: Mapping[str, Any]) -> str:
    last = status.get("lastState") or {}
    return _spell(last)[1] if last else NONE


def _conditions(obj: Object, now: datetime) -> Iterator[str]:
    found = (obj.get("status") or {}).get("conditions") or ()
    if not found:
        return
    rows = [
        [
            one["type"],
            one["status"],
            age(one.get("lastTransitionTime"), now),
            one.get("reason") or NONE,
            one.get("message") or "",
        ]
        for one in found
    ]
    yield "Conditions:\n"
    yield indented(rows, ["Type", "Status", "Since", "Reason", "Message"])


def _events(events: Iterable[Object], now: datetime) -> Iterator[str]:
    found = sorted(events, key=event_time)
    if not found:
        yield f"Events: {NONE}\n"
        return
    rows = [
        [
            one.get("type", ""),
            one.get("reason", ""),
            age(event_time(one), now) + (f" (x{one['count']})" if one.get("count", 1) > 1 else ""),
            (one.get("source") or {}).get("component") or one.get("reportingComponent") or "",
            (one.get("message") or "").strip(),
        ]
        for one in found
    ]
    yield "Events:\n"
    yield indented(rows, ["Type", "Reason", "Age", "From", "Message"])
