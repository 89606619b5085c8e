"""``rallypoint preflight``: check whether a Go operator can start again without harm to running jobs."""

import argparse
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from api.batch import BATCH_JOBS, BatchJob, batch_job_from_json
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from api.mpijob import RESOURCE as MPIJOBS
from api.mpijob import Flavor, MPIJob
from controller.domain import shortened
from controller.kinds.jax import JAX
from controller.kinds.mpi.version_warnings import effective_flavor
from controller.kube.errors import Forbidden, NotFound
from controller.runtime.migration import DEFINITIONS
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, Object
from rallypoint.cli.terminal import write
from rallypoint.diagnosis.objects import is_finished, name_of, run_policy

GUIDE = "docs/reference/mpijob-versions.md"
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")


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


OPERATORS: Mapping[str, GoOperator] = {
    operator.name: operator
    for operator in (
        GoOperator("training-operator", MANAGED_BY_US, Flavor.V1, (1, 9), {JAX.resource.kind}),
        GoOperator("mpi-operator", MANAGED_BY_MPI_OPERATOR, Flavor.V2BETA1, (0, 6), ()),
    )
}


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "preflight",
        help="check whether a Go operator can start again",
        description="Check all unfinished jobs of a cluster and list those that a Go operator would harm if it "
        "started: jobs that get a second launcher, and jobs that lose their operator. This changes nothing. "
        "Exit status 1: do not start it.",
    )
    parser.add_argument("operator", choices=OPERATORS, help="the Go operator to start")
    parser.add_argument(
        "--release",
        type=_release,
        metavar="X.Y",
        help="release of that operator, if it is older than training-operator 1.9 or mpi-operator 0.6: older releases ignore managedBy",
    )
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute, all_namespaces=True)


def _release(text: str) -> tuple[int, int]:
    found = _RELEASE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a release such as 1.9 or v1.9.4")
    return int(found[1]), int(found[2])


def execute(args: argparse.Namespace) -> int:
    """Return 0, or 1 if a job would be harmed or the cluster cannot be read."""
    return clusters.execute(args, partial(_preflight, args))


async def _preflight(args: argparse.Namespace, cluster: Cluster) -> int:
    operator = OPERATORS[args.operator]
    reads_managed_by = args.release is None or args.release >= operator.reads_managed_by_since
    launchers, mpi_jobs = await _launchers(cluster), await _unfinished(cluster, MPIJOBS.plural)
    harms = [
        *(
            Harm(MPIJOBS.kind, job, text)
            for job in mpi_jobs
            if (text := harm(operator, job, launchers, reads_managed_by=reads_managed_by))
        ),
        *(
            Harm(JAX.resource.kind, job, text)
            for job in await _unfinished(cluster, JAX.resource.plural)
            if (text := harm_to_jax(operator, job))
        ),
    ]
    write("".join(f"{found.line}\n" for found in harms))
    notes = await _notes(cluster, operator)
    if others := [
        job for job in mpi_jobs if run_policy(job, "managedBy") in _managers() - {operator.manager}
    ]:
        notes.append(f"{len(others)} MPIJobs keep running, but only {_other(operator)} manages them")
    for note in notes:
        write(f"Note: {note}\n")
    if harms:
        write(f"Do not start {operator.name}: it would harm {len(harms)} of the jobs. See {GUIDE}.\n")
        return 1
    write(f"{operator.name} would harm no unfinished job.\n")
    return 0


@dataclass(frozen=True, slots=True)
class Harm:
    """The harm to one job."""

    kind: str
    job: Object
    text: str

    @property
    def line(self) -> str:
        return f"{self.kind} {self.job['metadata']['namespace']}/{name_of(self.job)}: {self.text}"


def harm(operator: GoOperator, body: Object, launchers: Sequence[BatchJob], *, reads_managed_by: bool) -> str:
    """Return the harm that the operator would do to an unfinished MPIJob; empty if none.

    ``launchers`` are the batch Jobs of any job.
    """
    job = MPIJob.model_validate(body)
    running = effective_flavor(
        job, [launcher for launcher in launchers if launcher.owner_uid == job.metadata.uid]
    )
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


def harm_to_jax(operator: GoOperator, job: Object) -> str:
    """Return the harm that the operator would do to an unfinished JAXJob of another controller; empty if none."""
    manager = run_policy(job, "managedBy")
    if JAX.resource.kind not in operator.ignores_manager_of or manager in {None, "", operator.manager}:
        return ""
    return f'would also run here, although managedBy names "{shortened(str(manager), 64)}"'


def _managers() -> set[str]:
    return {operator.manager for operator in OPERATORS.values()}


def _other(operator: GoOperator) -> str:
    return next(name for name in OPERATORS if name != operator.name)


async def _unfinished(cluster: Cluster, plural: str) -> Sequence[Object]:
    """Return the unfinished jobs in the server's preferred version; none if the kind is not served."""
    served = next(
        (
            served
            for served in cluster.resources
            if served.resource.plural == plural and served.resource.group == MPIJOBS.group
        ),
        None,
    )
    found = await cluster.list_objects(served.resource) if served else []
    return [job for job in found if not is_finished(job)]


async def _launchers(cluster: Cluster) -> list[BatchJob]:
    return [batch_job_from_json(orjson.dumps(body)) for body in await cluster.list_objects(BATCH_JOBS)]


async def _notes(cluster: Cluster, operator: GoOperator) -> list[str]:
    """Return notes that concern no single job."""
    name = f"{MPIJOBS.plural}.{MPIJOBS.group}"
    try:
        found = await cluster.client.get(DEFINITIONS, "", name)
    except Forbidden:
        return [
            f"you have no permission to read the CustomResourceDefinition {name}; its stored versions are not checked"
        ]
    except NotFound:
        return []
    return list(_stored_version_notes(operator, orjson.loads(found)["status"].get("storedVersions") or ()))


def _stored_version_notes(operator: GoOperator, versions: Sequence[str]) -> Iterator[str]:
    if others := [version for version in versions if version != operator.version]:
        yield (
            f"keep the installed CustomResourceDefinition of MPIJob. That of {operator.name} cannot replace it: "
            f"jobs may be stored as {', '.join(others)}"
        )
