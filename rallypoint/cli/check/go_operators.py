"""What a Go operator that starts again would do to existing jobs. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from api.batch import BatchJob
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from api.mpijob import RESOURCE as MPIJOBS
from api.mpijob import Flavor, MPIJob
from controller.domain import shortened
from controller.kinds.jax import JAX
from controller.kinds.mpi.version_warnings import effective_flavor, fields_of_other_flavors
from rallypoint.diagnosis.objects import Object, run_policy, spec_of
from rallypoint.documentation import DOCS_URL

GUIDE = f"{DOCS_URL}/reference/mpijob-versions.md"
FIELDS_FILE = Path(__file__).with_name("go_fields.json")
_FLAVOR_FIELD = "flavor"
"""A field of an MPIJob that no Go operator has. Without it, the form of the launcher says the same."""


@dataclass(frozen=True, slots=True)
class GoOperator:
    """How one of the Go operators treats existing jobs."""

    name: str
    manager: str
    """The value of ``runPolicy.managedBy`` of its own jobs."""
    version: Flavor
    """The only version of MPIJob that it supports."""
    reads_managed_by_since: tuple[int, int]
    """Its first release that ignores jobs of other managers."""
    ignores_manager_of: Collection[str]
    """The kinds for which it ignores ``managedBy``."""


GO_OPERATORS: Mapping[str, GoOperator] = {
    operator.name: operator
    for operator in (
        GoOperator("training-operator", MANAGED_BY_US, Flavor.V1, (1, 9), {JAX.resource.kind}),
        GoOperator("mpi-operator", MANAGED_BY_MPI_OPERATOR, Flavor.V2BETA1, (0, 6), ()),
    )
}


def harm(operator: GoOperator, body: Object, launchers: Sequence[BatchJob], *, reads_managed_by: bool) -> str:
    """Return the harm that the operator would do to an unfinished job by starting; empty if none.

    ``launchers`` are the batch Jobs that the job owns.
    """
    if body["kind"] == MPIJOBS.kind:
        return _harm_to_mpi(operator, body, launchers, reads_managed_by=reads_managed_by)
    if body["kind"] == JAX.resource.kind:
        return _harm_to_jax(operator, body)
    return ""


def _harm_to_mpi(
    operator: GoOperator, body: Object, launchers: Sequence[BatchJob], *, reads_managed_by: bool
) -> str:
    job = MPIJob.model_validate(body)
    running = effective_flavor(job, launchers)
    manager = job.spec.policy.managed_by
    would_run = manager in {None, operator.manager} or not reads_managed_by
    is_managed_elsewhere = manager not in {None, *_managers()}
    if would_run and is_managed_elsewhere:
        return f'would also run here, although managedBy names "{shortened(str(manager), 64)}"'
    if would_run and running is not operator.version:
        why = f'managedBy is "{manager}"' if manager else "managedBy is not set"
        if not reads_managed_by:
            why = "that release does not read managedBy"
        return f"runs as {running} and would get a second launcher as {operator.version}: {why}"
    if not would_run and not is_managed_elsewhere and running is operator.version:
        return f'runs as {running} and would have no operator: managedBy is "{manager}"'
    return ""


def _harm_to_jax(operator: GoOperator, job: Object) -> str:
    manager = run_policy(job, "managedBy")
    if JAX.resource.kind not in operator.ignores_manager_of or manager in {None, "", operator.manager}:
        return ""
    return f'would also run here, although managedBy names "{shortened(str(manager), 64)}"'


def other_manager_of(operator: GoOperator, job: Object) -> str:
    """Return the Go operator that manages an MPIJob instead of this one; empty if it is this one or none."""
    manager = run_policy(job, "managedBy")
    return next(
        (other.name for other in GO_OPERATORS.values() if other is not operator and other.manager == manager),
        "",
    )


def _managers() -> set[str]:
    return {operator.manager for operator in GO_OPERATORS.values()}


@cache
def go_fields() -> Mapping[str, Any]:
    """Return the fields of the definitions of the Go operators, as ``python -m tools.go_fields`` describes them."""
    fields: Mapping[str, Any] = orjson.loads(FIELDS_FILE.read_bytes())
    return fields


def dropped_fields(operator: GoOperator, body: Object) -> list[str]:
    """Return the paths of the spec's fields that the operator's definition and its types do not have.

    None for a job that the operator does not run: of a kind, or of a version of MPIJob, that it does not have.
    """
    root = go_fields()["operators"][operator.name].get(body["kind"])
    if root is None:
        return []
    skipped: Collection[str] = ()
    if body["kind"] == MPIJOBS.kind:
        skipped = {_FLAVOR_FIELD, *fields_of_other_flavors(operator.version)}
    spec = {name: value for name, value in spec_of(body).items() if name not in skipped}
    return list(_dropped(go_fields()["nodes"], root, spec, "spec"))


def _dropped(nodes: Sequence[Any], number: int, value: Any, path: str) -> Iterator[str]:
    """Yield the paths below a value that its node does not have."""
    node = nodes[number]
    if isinstance(value, list) and "items" in node:
        for index, item in enumerate(value):
            yield from _dropped(nodes, node["items"], item, f"{path}[{index}]")
    elif isinstance(value, dict) and not node.get("open"):
        for name, item in value.items():
            part = node.get("fields", {}).get(name, node.get("values"))
            if part is None:
                yield f"{path}.{name}"
            else:
                yield from _dropped(nodes, part, item, f"{path}.{name}")
