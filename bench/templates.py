"""``bench templates``: what the schema of pod templates costs the API server, and what a definition without it would cost."""

import argparse
import asyncio
import copy
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import orjson
from rich.console import Console

from api.meta import Resource
from bench import record
from bench.controlplane.processes import cpu_ms
from bench.controlplane.scenario import Jobs, manifest
from bench.controlplane.testbed import IN_FLIGHT, NAMESPACE, control_plane
from bench.figures import table
from bench.subparsers import Subparsers
from controller.crds import all_crds
from controller.crds.kubernetes import shipped
from controller.kinds.pytorch import PYTORCH
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed

Schema = dict[str, Any]

RULES = "x-kubernetes-validations"
OPAQUE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CONTAINERS: Schema = {
    **OPAQUE,
    "properties": {
        "spec": {
            **OPAQUE,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "maxItems": 128,
                    "items": {
                        **OPAQUE,
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 63},
                            "image": {"type": "string", "maxLength": 1024},
                        },
                    },
                }
            },
        }
    },
}
"""The least that the rules of the definitions need of a template."""
STATUSES = ("Created", "Running", "Succeeded")
"""The statuses that a job gets one after another, each by a merge patch as the operator sends it."""
SIZES = {"small": (1, 0), "large": (2, 30)}
"""Templates: the containers, and the environment variables and mounts of each."""
LABELS = {
    "create_ms": "create of a job, ms",
    "status_patch_ms": "patch of a status, ms",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("templates", help="measure what the schema of pod templates costs")
    parser.add_argument("--jobs", type=int, default=200, help="jobs in a round; default: 200")
    parser.add_argument("--runs", type=int, default=9, help="rounds; default: 9")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    began = time.monotonic()
    try:
        with control_plane(install=install) as plane:
            version = plane.request("GET", "/version")["gitVersion"]
            results = asyncio.run(measure(plane, args.jobs, args.runs, console.print))
    except (ProcessFailed, TimeoutError) as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    Console(file=sys.stdout, width=160).print(table("CPU of kube-apiserver per call", LABELS, results))
    if not args.no_record:
        took = round(time.monotonic() - began)
        result = record.document(load_before, version, took_seconds=took, templates=results)
        console.print(f"recorded in {record.save('templates', result)}")
    return 0


def definitions() -> dict[str, Schema]:
    """Return the definition of PyTorchJob by the schema of its templates, each in an API group of its own."""
    (keyed,) = all_crds(kinds=[PYTORCH])
    (atomic,) = all_crds(shipped().with_atomic_templates(), [PYTORCH])
    variants: dict[str, tuple[Schema, Callable[[Schema], None]]] = {
        "keyed lists": (keyed, lambda schema: None),
        "atomic lists": (atomic, lambda schema: None),
        "containers alone": (keyed, lambda schema: with_template(schema, CONTAINERS)),
        "keyed lists, no rules": (keyed, without_rules),
        "opaque, no rules": (keyed, opaque),
    }
    made: dict[str, Schema] = {}
    for number, (name, (base, change)) in enumerate(variants.items()):
        definition = copy.deepcopy(base)
        (version,) = definition["spec"]["versions"]
        change(version["schema"]["openAPIV3Schema"])
        definition["spec"]["group"] = f"v{number}.bench.example"
        definition["metadata"]["name"] = f"{PYTORCH.resource.plural}.{definition['spec']['group']}"
        made[name] = definition
    return made


def without_rules(schema: Schema) -> None:
    """Remove the rules that the API server evaluates, from all of a schema."""
    schema.pop(RULES, None)
    for value in schema.values():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict):
                without_rules(child)


def with_template(schema: Schema, template: Schema) -> None:
    """Replace the schema of the pod templates."""
    spec = schema["properties"]["spec"]["properties"]
    spec[PYTORCH.replicas_field]["additionalProperties"]["properties"]["template"] = template


def opaque(schema: Schema) -> None:
    """Remove the schema of the pod templates, and the rules, some of which need it."""
    without_rules(schema)
    with_template(schema, OPAQUE)


def install(plane: ControlPlane) -> None:
    plane.apply(*definitions().values())


async def measure(
    plane: ControlPlane, jobs: int, rounds: int, say: Callable[[str], None]
) -> dict[str, list[dict[str, float]]]:
    """Measure each schema with each size of templates in turn; another one goes first in the next round."""
    cases = [
        (f"{name}, {size}", definition["spec"]["group"], containers, variables)
        for size, (containers, variables) in SIZES.items()
        for name, definition in definitions().items()
    ]
    results: dict[str, list[dict[str, float]]] = {name: [] for name, *_ in cases}
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    async with Client(connection, in_flight=IN_FLIGHT, user_agent="rallypoint-bench") as client:
        pid = plane.processes["kube-apiserver"].pid
        await _round(client, pid, cases[0][1], 32, "warm", *SIZES["small"])
        for number in range(rounds):
            first = number % len(cases)
            for name, group, containers, variables in [*cases[first:], *cases[:first]]:
                figures = await _round(client, pid, group, jobs, f"r{number}", containers, variables)
                results[name].append(figures)
            say(f"round {number + 1} of {rounds}")
    await asyncio.sleep(0.1)  # A closed TLS connection disappears some iterations later.
    return results


async def _round(
    client: Client, pid: int, group: str, jobs: int, run: str, containers: int, variables: int
) -> dict[str, float]:
    """Create the jobs, write each status of each, and delete them."""
    resource = Resource(group, PYTORCH.resource.version, PYTORCH.resource.kind, PYTORCH.resource.plural)
    names = [f"{run}-{index:04}" for index in range(jobs)]

    async def create(name: str) -> None:
        await client.create(resource, NAMESPACE, orjson.dumps(job(resource, name, containers, variables)))

    async def patch(name: str, index: int) -> None:
        body = orjson.dumps({"status": status(index)})
        await client.patch(resource, NAMESPACE, name, body, subresource="status")

    before = cpu_ms(pid)
    await _at_once(create(name) for name in names)
    created = cpu_ms(pid)
    for index in range(len(STATUSES)):
        await _at_once(patch(name, index) for name in names)
    patched = cpu_ms(pid)
    await client.request("DELETE", resource.path(NAMESPACE), resource=resource.plural)
    return {
        "create_ms": (created - before) / jobs,
        "status_patch_ms": (patched - created) / jobs / len(STATUSES),
    }


async def _at_once(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all; the client limits how many are in flight."""
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


def job(resource: Resource, name: str, containers: int, variables: int) -> dict[str, Any]:
    """Return a job of a master and seven workers with templates of this size."""
    made = manifest(Jobs(1, 8), name)
    made["apiVersion"] = resource.api_version
    for role in made["spec"][PYTORCH.replicas_field].values():
        spec = role["template"]["spec"]
        (main,) = spec["containers"]
        spec["containers"] = [
            main | {"name": main["name"] if index == 0 else f"side-{index}"} | _container(variables)
            for index in range(containers)
        ]
        if variables:
            spec["volumes"] = [
                {"name": f"volume-{number}", "emptyDir": {"sizeLimit": "1Gi"}}
                for number in range(variables // 6)
            ]
            spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return made


def _container(variables: int) -> dict[str, Any]:
    if not variables:
        return {}
    return {
        "env": [{"name": f"VARIABLE_{number}", "value": f"value {number}"} for number in range(variables)],
        "volumeMounts": [
            {"name": f"volume-{number}", "mountPath": f"/data/{number}"} for number in range(variables // 6)
        ],
        "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "64Gi"}, "requests": {"cpu": "16"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def status(index: int) -> dict[str, Any]:
    """Return the status after ``index`` earlier ones, with a condition more than before."""
    at = "2026-11-28T12:00:00Z"
    conditions = [
        {
            "type": condition,
            "status": "True",
            "reason": f"PyTorchJob{condition}",
            "message": f"PyTorchJob bench/job is {condition.lower()}.",
            "lastTransitionTime": at,
            "lastUpdateTime": at,
        }
        for condition in STATUSES[: index + 1]
    ]
    return {
        "conditions": conditions,
        "startTime": at,
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": index}},
    }
