"""Checks of what schedules and queues jobs: gang schedulers, and Kueue with its configuration."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import yaml

from api.meta import CONFIG_MAPS, Resource
from controller.kinds import ALL
from controller.policy.gang import VOLCANO, groups_of, scheduler_of
from rallypoint.cli.check.facts import Facts
from rallypoint.cli.check.findings import Finding, blocker, names, ok, unknown, warning
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.check.operators import image_name
from rallypoint.cli.cluster import Object
from rallypoint.diagnosis.objects import name_of, spec_of, status_of

CHECK = "schedulers"
_GUIDE = "see docs/how-to/gang-scheduling.md"
_KUEUE_GROUP = "kueue.x-k8s.io"
_KUEUE_CONFIG = "kueue-manager-config"
_KUEUE_MANAGER = "kueue-controller-manager"
_KUEUE_NAMESPACE = "kueue-system"
_NATIVE = "scheduling.k8s.io"
_NATIVE_GANGS = frozenset({"workloads", "podgroups"})
"""Resources of the gang scheduling of Kubernetes itself, which are alpha or beta."""


async def scheduler_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield whether the gang scheduler of the flag is there, or which ones are if there is no flag."""
    scheduler = scheduler_of(_flag(facts))
    workloads = facts.workloads.get()
    if not scheduler:
        found = [name for name in (VOLCANO, "coscheduling") if _scheduler_workloads(name, workloads)]
        text = f"; the cluster has {' and '.join(found)}" if found else ""
        yield ok(CHECK, f"no gang scheduling: --gang-scheduler-name is not set{text}")
    else:
        groups = groups_of(scheduler)
        for finding in gang_findings(scheduler, groups, await facts.reader.versions(groups.group), workloads):
            yield finding
    native = [
        served.resource
        for served in facts.reader.cluster.resources
        if served.resource.group == _NATIVE and served.resource.plural in _NATIVE_GANGS
    ]
    for resource in native:
        yield ok(
            CHECK,
            f"the cluster serves {resource.plural}.{_NATIVE}/{resource.version}, which Rallypoint does not use",
        )


def _flag(facts: Facts) -> str:
    """Return the gang scheduler of the command's flag, else that of our operator, else that of the Go operator that runs."""
    operators = [facts.ours, *(operator for operator in facts.operators if operator.is_running)]
    flags = (operator.flag("gang-scheduler-name", "gang-scheduling") for operator in operators if operator)
    return facts.options.gang_scheduler or next(filter(None, flags), "")


def gang_findings(
    scheduler: str, groups: Resource, versions: Sequence[str], workloads: Iterable[Object]
) -> Iterator[Finding]:
    """Yield whether PodGroups of the right version are served, and whether the scheduler runs."""
    name = f"{groups.plural}.{groups.group}"
    if not versions:
        yield blocker(
            CHECK,
            f"--gang-scheduler-name={scheduler} needs {name}, which the cluster does not serve: no job gets pods",
            f"install the scheduler with its definitions, or remove the flag, {_GUIDE}",
        )
        return
    if groups.version not in versions:
        yield blocker(
            CHECK,
            f"the cluster serves {name} as {', '.join(versions)}, and the operator needs {groups.version}: no job gets pods",
            f"install a release of the scheduler with {groups.api_version}, {_GUIDE}",
        )
        return
    found = _scheduler_workloads(scheduler, workloads)
    ready = [body for body in found if status_of(body).get("readyReplicas")]
    where = names(f"{body['metadata']['namespace']}/{name_of(body)}" for body in found)
    if ready:
        yield ok(CHECK, f"{name}/{groups.version} is served, and {scheduler} runs: {where}")
    elif found:
        yield warning(
            CHECK,
            f"the scheduler {scheduler} ({where}) has no ready replica, so new jobs wait",
            "look at its logs",
        )
    else:
        yield warning(
            CHECK,
            f"{name}/{groups.version} is served, but no Deployment of a scheduler {scheduler} was found",
            f"check that a scheduler of that name runs, {_GUIDE}",
        )


def _scheduler_workloads(scheduler: str, workloads: Iterable[Object]) -> list[Object]:
    """Return the Deployments that run a scheduler: Volcano's, or one that names itself ``scheduler`` or has scheduler-plugins."""
    return [body for body in workloads if _runs_scheduler(scheduler, body)]


def _runs_scheduler(scheduler: str, body: Object) -> bool:
    containers = _containers(body)
    images = [str(container.get("image") or "") for container in containers]
    if scheduler == VOLCANO:
        return any(image_name(image).endswith("vc-scheduler") for image in images)
    words = [
        word
        for container in containers
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    return (
        name_of(body) == scheduler
        or any("scheduler-plugins/kube-scheduler" in image for image in images)
        or any(f"--scheduler-name={scheduler}" == word for word in words)
    )


async def kueue_findings(facts: Facts, unfinished: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield whether Kueue's configuration manages the kinds, and the jobs with a queue that it does not manage."""
    queued = [job for job in unfinished if job.queue]
    if not await facts.reader.versions(_KUEUE_GROUP):
        if queued:
            yield warning(
                "kueue",
                f"jobs with a queue in a cluster without Kueue ({len(queued)}): {names(job.full_name for job in queued)}",
                "install Kueue, or remove the label: nothing limits these jobs",
            )
        else:
            yield ok("kueue", "the cluster has no Kueue")
        return
    namespace = next(
        (
            body["metadata"]["namespace"]
            for body in facts.workloads.get()
            if name_of(body).endswith(_KUEUE_MANAGER) or image_name(_image(body)) == "kueue"
        ),
        _KUEUE_NAMESPACE,
    )
    configuration = await facts.reader.get(CONFIG_MAPS, _KUEUE_CONFIG, namespace)
    if configuration is None:
        configuration = next(
            (
                body
                for body in await facts.reader.all(CONFIG_MAPS, namespace)
                if name_of(body).endswith("manager-config")
            ),
            None,
        )
    frameworks = managed_frameworks(configuration)
    if frameworks is None:
        yield unknown(
            "kueue",
            f"Kueue is installed, but namespace {namespace} has no readable ConfigMap {_KUEUE_CONFIG}",
            "see docs/how-to/kueue.md for another way to find out which kinds it manages",
        )
        return
    for finding in managed_findings(frameworks, sorted(facts.kinds), queued):
        yield finding


def _image(body: Object) -> str:
    return next((str(container.get("image") or "") for container in _containers(body)), "")


def _containers(body: Object) -> Sequence[Object]:
    """Return the containers of a Deployment's pods."""
    return ((spec_of(body).get("template") or {}).get("spec") or {}).get("containers") or ()


def managed_frameworks(configuration: Object | None) -> frozenset[str] | None:
    """Return the frameworks that Kueue's configuration switches on; None if it cannot be parsed."""
    for text in ((configuration or {}).get("data") or {}).values():
        try:
            found = yaml.load(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            continue
        if isinstance(found, dict) and found.get("kind") == "Configuration":
            integrations = found.get("integrations") or {}
            return frozenset(map(str, integrations.get("frameworks") or ()))
    return None


def managed_findings(
    frameworks: frozenset[str], kinds: Sequence[str], queued: Sequence[JobSummary]
) -> Iterator[Finding]:
    """Yield the kinds that Kueue does not manage, and the jobs of these kinds that name a queue."""
    keys = {kind.resource.kind: f"{kind.resource.group}/{kind.resource.singular}" for kind in ALL}
    off = [kind for kind in kinds if keys[kind] not in frameworks]
    if not off:
        yield ok("kueue", f"Kueue manages {', '.join(kinds)}")
        return
    listed = ", ".join(f'"{keys[kind]}"' for kind in off)
    affected = [job for job in queued if job.kind in off]
    jobs = (
        f"; jobs with a queue that run outside any quota ({len(affected)}): {names(job.full_name for job in affected)}"
        if affected
        else "; jobs of these kinds with a queue would run outside any quota"
    )
    yield warning(
        "kueue",
        f"Kueue does not manage {', '.join(off)}{jobs}",
        f"add {listed} to integrations.frameworks in the ConfigMap {_KUEUE_CONFIG}, and restart Kueue, see docs/how-to/kueue.md",
    )
