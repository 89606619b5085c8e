"""Reads the jobs of all kinds page by page, keeps what the checks need of each, and reports on them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import orjson

from api.batch import BATCH_JOBS, BatchJob, batch_job_from_json
from api.labels import JOB_NAME
from api.meta import PODS, SERVICES, Resource
from api.mpijob import FLAVOR, MPIJob
from api.mpijob import RESOURCE as MPIJOBS
from api.workloads import QUEUE_NAME
from controller.crds import all_crds
from controller.kinds import ALL
from controller.kinds.mpi.version_warnings import effective_flavor
from rallypoint.cli.check.facts import Facts
from rallypoint.cli.check.findings import Before, Finding, blocker, names, ok, unknown, warning
from rallypoint.cli.check.go_operators import (
    GO_OPERATORS,
    GUIDE,
    GoOperator,
    dropped_fields,
    harm,
    other_manager_of,
)
from rallypoint.cli.check.operators import TRAINING_OPERATOR, Operator
from rallypoint.cli.cluster import Object
from rallypoint.diagnosis.objects import is_finished, is_suspended, name_of, owners_of, spec_of, status_of
from rallypoint.documentation import DOCS_URL
from rallypoint.local.apiserver.schema.structural import Node, compiled, prune_and_default
from rallypoint.local.apiserver.schema.validation import validate

CHECK = "jobs"
_MAX_PROBLEM_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What the checks need of a job."""

    kind: str
    namespace: str
    name: str
    uid: str
    is_finished: bool
    is_suspended: bool
    has_pods: bool
    """Whether its status counts active pods."""
    queue: str
    """Its LocalQueue of Kueue; empty without one."""
    finalizers: tuple[str, ...]
    flavor: str = ""
    """Of an MPIJob: the version whose behavior it has under Rallypoint's definition."""
    problem: str = ""
    """Why this version's definition would refuse the job if it were created again; empty if it would not."""
    unread: str = ""
    """Why the job could not be inspected; empty if it was."""
    harms: Mapping[str, str] = field(default_factory=dict[str, str])
    """The harm that a Go operator would do, by its name."""
    dropped: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The fields that a Go operator would drop, by its name."""
    other_managers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The Go operator that manages the job instead of another one, by the name of that one."""
    template: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The pod template of its first role, if it is unfinished."""

    @property
    def full_name(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobScan:
    """All jobs of the cluster."""

    jobs: Sequence[JobSummary]

    @property
    def unfinished(self) -> list[JobSummary]:
        return [job for job in self.jobs if not job.is_finished]


Schemas: TypeAlias = Mapping[str, Node]
"""Compiled schemas by ``kind/version``."""


async def scan_jobs(facts: Facts) -> JobScan:
    """Read all jobs of the kinds that the cluster serves.

    Raises:
        ApiError, aiohttp.ClientError, TimeoutError, OSError: a kind could not be read.
    """
    launchers: dict[str, list[BatchJob]] = {}
    schemas: Schemas = {}
    loop = asyncio.get_running_loop()
    if facts.before is Before.BACK:
        launchers = await _launchers(facts)
    elif facts.before is not Before.UNINSTALL:
        schemas = await loop.run_in_executor(facts.worker, compiled_schemas)
    inspect = partial(summaries, facts.options.go_operators, facts.options.release, launchers, schemas)
    served = [resource for kind in ALL if (resource := facts.reader.served_as(kind.resource))]
    found: list[JobSummary] = []

    async def read(resource: Resource) -> None:
        async for page in facts.reader.pages(resource):
            # In another thread, because the rules of a page take up to a second; in one, because they are not thread-safe.
            found.extend(await loop.run_in_executor(facts.worker, inspect, page))

    await asyncio.gather(*map(read, served))
    return JobScan(sorted(found, key=lambda job: (job.kind, job.namespace, job.name)))


async def _launchers(facts: Facts) -> dict[str, list[BatchJob]]:
    """Return the batch Jobs by the UID of their owner."""
    found: dict[str, list[BatchJob]] = {}
    async for page in facts.reader.pages(BATCH_JOBS):
        for body in page:
            for owner in owners_of(body):
                found.setdefault(owner, []).append(batch_job_from_json(orjson.dumps(body)))
    return found


def compiled_schemas() -> dict[str, Node]:
    """Return the schemas of this version's definitions, by ``kind/version``."""
    return {
        f"{definition['spec']['names']['kind']}/{version['name']}": compiled(
            version["schema"]["openAPIV3Schema"]
        )
        for definition in all_crds()
        for version in definition["spec"]["versions"]
    }


def summaries(
    go_operators: Sequence[str],
    release: tuple[int, int] | None,
    launchers: Mapping[str, Sequence[BatchJob]],
    schemas: Schemas,
    page: Iterable[Object],
) -> list[JobSummary]:
    """Return the summaries of a page of jobs. A thread may call this if no other one does at the same time."""
    operators = [GO_OPERATORS[name] for name in go_operators]
    return [_readable_summary(body, operators, release, launchers, schemas) for body in page]


def _readable_summary(
    body: Object,
    go_operators: Sequence[GoOperator],
    release: tuple[int, int] | None,
    launchers: Mapping[str, Sequence[BatchJob]],
    schemas: Schemas,
) -> JobSummary:
    """Return the summary of a job, or why there is none: a lenient definition admits fields of any type."""
    try:
        return summary(body, go_operators, release, launchers, schemas)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        metadata = body["metadata"]
        unread = f"it cannot be parsed: {first_line(error)}"
        return JobSummary(
            body["kind"],
            metadata.get("namespace", ""),
            name_of(body),
            metadata.get("uid", ""),
            is_finished=False,
            is_suspended=False,
            has_pods=False,
            queue="",
            finalizers=tuple(metadata.get("finalizers") or ()),
            problem=unread,
            unread=unread,
        )


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def summary(
    body: Object,
    go_operators: Sequence[GoOperator] = (),
    release: tuple[int, int] | None = None,
    launchers: Mapping[str, Sequence[BatchJob]] | None = None,
    schemas: Schemas | None = None,
) -> JobSummary:
    metadata = body["metadata"]
    statuses = status_of(body).get("replicaStatuses") or {}
    found = JobSummary(
        body["kind"],
        metadata.get("namespace", ""),
        name_of(body),
        metadata.get("uid", ""),
        is_finished(body),
        is_suspended(body),
        any((role or {}).get("active") for role in statuses.values()),
        str((metadata.get("labels") or {}).get(QUEUE_NAME) or ""),
        tuple(metadata.get("finalizers") or ()),
    )
    if found.is_finished:
        return found
    owned = (launchers or {}).get(found.uid, ())
    return replace(
        found,
        problem=problem(body, schemas) if schemas else "",
        harms={
            operator.name: text
            for operator in go_operators
            if (text := harm(operator, body, owned, reads_managed_by=reads_managed_by(operator, release)))
        },
        dropped={
            operator.name: fields
            for operator in go_operators
            if _runs(operator, body, owned) and (fields := dropped_fields(operator, body))
        },
        other_managers={
            operator.name: other
            for operator in go_operators
            if body["kind"] == MPIJOBS.kind and (other := other_manager_of(operator, body))
        },
        template=_template(body),
        flavor=_flavor(body) if body["kind"] == MPIJOBS.kind else "",
    )


def _flavor(body: Object) -> str:
    """Return the flavor of an MPIJob. Rallypoint's definition gives a job without one that of its stored version."""
    annotation = (body["metadata"].get("annotations") or {}).get(FLAVOR)
    return str(annotation or spec_of(body).get("flavor") or body["apiVersion"].rpartition("/")[2])


def reads_managed_by(operator: GoOperator, release: tuple[int, int] | None) -> bool:
    return release is None or release >= operator.reads_managed_by_since


def _runs(operator: GoOperator, body: Object, owned: Sequence[BatchJob]) -> bool:
    """Return whether the operator has the kind of the job, or its version of MPIJob."""
    if body["kind"] == MPIJOBS.kind:
        return effective_flavor(MPIJob.model_validate(body), owned) is operator.version
    return operator.name == TRAINING_OPERATOR


def _template(body: Object) -> Mapping[str, Any]:
    for name, roles in spec_of(body).items():
        if name.lower().endswith("replicaspecs"):
            return next(((role or {}).get("template") or {} for role in (roles or {}).values()), {})
    return {}


def problem(body: Object, schemas: Schemas) -> str:
    """Return the first error of this version's schema and rules in a job, as at its creation; empty without one."""
    kind, version = body["kind"], str(body["apiVersion"]).rpartition("/")[2]
    node = schemas.get(f"{kind}/{version}")
    if node is None:
        return f"kubeflow.org/{version} is not a version of {kind}"
    created = {
        "apiVersion": body["apiVersion"],
        "kind": kind,
        "metadata": {"name": name_of(body)},
        "spec": spec_of(body),
    }
    errors = validate(node, prune_and_default(node, created, []), None)
    if not errors:
        return ""
    return f"{errors[0].field}: {errors[0].message}"[:_MAX_PROBLEM_CHARACTERS]


async def job_findings(facts: Facts, scan: JobScan) -> AsyncIterator[Finding]:
    """Yield what the jobs mean for what the user is about to do."""
    unfinished = scan.unfinished
    yield ok(CHECK, f"jobs: {len(scan.jobs)}, unfinished: {len(unfinished)}")
    if facts.before is Before.BACK:
        for name in facts.options.go_operators:
            for finding in return_findings(GO_OPERATORS[name], unfinished):
                yield finding
        if TRAINING_OPERATOR in facts.options.go_operators:
            async for finding in service_findings(facts, unfinished):
                yield finding
    elif facts.before is Before.UNINSTALL:
        for finding in uninstall_findings(scan.jobs):
            yield finding
        async for finding in orphan_findings(facts, scan.jobs):
            yield finding
    else:
        for finding in validation_findings(unfinished):
            yield finding
    if facts.before is None:
        for finding in unserved_findings(() if facts.workloads.error else facts.operators, unfinished):
            yield finding


def unserved_findings(operators: Sequence[Operator], unfinished: Sequence[JobSummary]) -> Iterator[Finding]:
    """Yield the unfinished jobs that no operator serves, where one serves others.

    An operator without a Deployment, such as one in a shell, is unknown.
    """
    writers = [operator for operator in operators if operator.is_writer]
    unserved = [
        job
        for job in unfinished
        if not any(job.kind in writer.kinds and writer.watched in {"", job.namespace} for writer in writers)
    ]
    if writers and unserved:
        yield warning(
            CHECK,
            f"no operator that was found serves {names(job.full_name for job in unserved)}",
            "see the flags --namespace and --enable-scheme of the operator, or create the jobs where it serves them",
        )


def validation_findings(unfinished: Sequence[JobSummary]) -> Iterator[Finding]:
    """Yield the unfinished jobs that this version's definitions would refuse at their creation."""
    invalid = [job for job in unfinished if job.problem]
    for job in invalid[:3]:
        yield warning(
            "validation",
            f"{job.full_name} is not valid by the CRDs of this version: {job.problem}",
            "correct its manifest: the job continues, but the API server refuses to create it again",
        )
    if len(invalid) > 3:
        yield warning(
            "validation",
            f"further jobs that are not valid ({len(invalid) - 3}): {names(job.full_name for job in invalid[3:])}",
            "correct their manifests",
        )
    if not invalid:
        yield ok("validation", "all unfinished jobs are valid by the CRDs of this version")


def return_findings(operator: GoOperator, unfinished: Sequence[JobSummary]) -> Iterator[Finding]:
    """Yield the jobs that a Go operator would harm if it started, one finding for each."""
    for job in unfinished:
        if job.unread:
            yield unknown("harm", f"{job.full_name}: not checked: {job.unread}", "correct or delete it")
    harmed = [job for job in unfinished if operator.name in job.harms]
    for job in harmed:
        yield blocker(
            "harm",
            f"{job.full_name}: {job.harms[operator.name]}",
            f"do not start {operator.name}: correct managedBy or wait for the job to end, see {GUIDE}",
        )
    if not harmed:
        yield ok("harm", f"{operator.name} would harm no unfinished job")
    dropping = [job for job in unfinished if operator.name in job.dropped]
    for job in dropping:
        yield blocker(
            "fields",
            f"{job.full_name}: {operator.name} drops {names(job.dropped[operator.name])}: the job continues without these fields",
            "wait for the job to end, or remove the fields",
        )
    if not dropping:
        yield ok("fields", f"{operator.name} has all fields that unfinished jobs of its kinds use")
    if others := [job for job in unfinished if operator.name in job.other_managers]:
        other = others[0].other_managers[operator.name]
        yield warning(
            "managers",
            f"MPIJobs that keep running, but that only {other} manages ({len(others)}): {names(job.full_name for job in others)}",
            f"start {other}, too, or wait for them to end",
        )


async def service_findings(facts: Facts, unfinished: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield the jobs whose pods find each other by one Service: a pod that training-operator creates has no name in it."""
    jobs = {job.uid: job for job in unfinished if job.kind != MPIJOBS.kind}
    shared: list[str] = []
    async for page in facts.reader.pages(SERVICES, metadata_only=True, labelSelector=JOB_NAME):
        for service in page:
            job = next((jobs[uid] for uid in owners_of(service) if uid in jobs), None)
            if job is not None and name_of(service) == job.name:
                shared.append(job.full_name)
    if shared:
        yield warning(
            "services",
            f"jobs with one Service, in which a pod that {TRAINING_OPERATOR} replaces has no name ({len(shared)}): {names(shared)}",
            "wait for them to end, or suspend them before the switch and resume them after it",
        )
    else:
        yield ok("services", "no unfinished job has one Service for all its pods")


def uninstall_findings(jobs: Sequence[JobSummary]) -> Iterator[Finding]:
    """Yield what stays behind without an operator."""
    unfinished = [job for job in jobs if not job.is_finished]
    if running := [job for job in unfinished if job.has_pods]:
        yield warning(
            CHECK,
            f"jobs with running pods ({len(running)}): {names(job.full_name for job in running)}. The pods continue, but nothing "
            "restarts them, ends the jobs or cleans up",
            "wait for them to end, or delete them while the operator runs",
        )
    if waiting := [job for job in unfinished if not job.has_pods]:
        yield warning(
            CHECK,
            f"jobs that wait or are suspended, and never start ({len(waiting)}): {names(job.full_name for job in waiting)}",
            "delete them, or switch to another operator first",
        )
    if held := [job for job in jobs if job.finalizers]:
        finalizers = sorted({name for job in held for name in job.finalizers})
        yield warning(
            "finalizers",
            f"jobs with finalizers ({names(finalizers)}), which cannot be deleted without whoever removes them ({len(held)}): "
            f"{names(job.full_name for job in held)}",
            "delete the jobs before you remove the controllers that own these finalizers",
        )
    if jobs:
        yield warning(
            CHECK,
            f"deleting the CustomResourceDefinitions deletes all jobs ({len(jobs)}) and their pods",
            f"keep the CRDs: {DOCS_URL}/how-to/uninstall.md removes only the operator",
        )


async def orphan_findings(facts: Facts, jobs: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield pods of jobs that no longer exist: the garbage collector should have deleted them."""
    uids = {job.uid for job in jobs}
    kinds = {kind.resource.kind for kind in ALL}
    orphans: list[str] = []
    async for page in facts.reader.pages(PODS, metadata_only=True, labelSelector=JOB_NAME):
        for pod in page:
            owners = pod["metadata"].get("ownerReferences") or ()
            if not owners or any(owner["kind"] in kinds and owner["uid"] not in uids for owner in owners):
                orphans.append(f"{pod['metadata']['namespace']}/{name_of(pod)}")
    if orphans:
        yield warning(
            "children",
            f"pods of no existing job ({len(orphans)}): {names(orphans)}",
            "kubectl delete pod, if nobody needs them",
        )
    else:
        yield ok("children", "all pods of jobs have an owner, which deletes them with itself")
