"""Checks of what schedules and queues jobs: gang schedulers, and Kueue with its configuration."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import yaml

from api.meta import CONFIG_MAPS, NATIVE_POD_GROUPS, Resource
from api.workloads import WORKLOADS
from controller.kind import JobKind
from controller.kinds import ALL
from controller.kueue.pod_sets import is_queueable
from controller.policy.gang import KUBERNETES, VOLCANO, YUNIKORN, groups_of, scheduler_of
from rallypoint.cli.check.facts import Facts
from rallypoint.cli.check.findings import Finding, blocker, names, ok, unknown, warning
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.check.operators import image_name
from rallypoint.cli.cluster import Object
from rallypoint.diagnosis.objects import name_of, spec_of, status_of
from rallypoint.documentation import DOCS_URL

CHECK = "schedulers"
_GUIDE = f"see {DOCS_URL}/how-to/gang-scheduling.md"
_KUEUE_CONFIG = "kueue-manager-config"
_KUEUE_MANAGER = "kueue-controller-manager"
_KUEUE_NAMESPACE = "kueue-system"
_NATIVE_NAME = f"{NATIVE_POD_GROUPS.plural}.{NATIVE_POD_GROUPS.group}/{NATIVE_POD_GROUPS.version}"


async def scheduler_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield whether the gang scheduler of the flag is there, or which ones are if there is no flag."""
    scheduler = scheduler_of(_flag(facts))
    workloads = facts.workloads.get()
    if not scheduler:
        found = [name for name in (VOLCANO, "coscheduling") if _scheduler_workloads(name, workloads)]
        text = f"; the cluster has {' and '.join(found)}" if found else ""
        yield ok(CHECK, f"no gang scheduling: --gang-scheduler-name is not set{text}")
    native = [
        served.resource.version
        for served in facts.reader.cluster.resources
        if (served.resource.group, served.resource.plural)
        == (NATIVE_POD_GROUPS.group, NATIVE_POD_GROUPS.plural)
    ]
    groups = groups_of(scheduler)
    if scheduler == KUBERNETES:
        yield native_finding(native)
    elif groups is not None:
        for finding in gang_findings(scheduler, groups, await facts.reader.versions(groups.group), workloads):
            yield finding
    elif scheduler == YUNIKORN:
        yield _running(scheduler, "its gangs need no PodGroups", workloads)
    if scheduler != KUBERNETES and NATIVE_POD_GROUPS.version in native:
        yield ok(
            CHECK,
            f"the cluster serves {_NATIVE_NAME}, which --gang-scheduler-name={KUBERNETES} uses, {_GUIDE}",
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
            f"install the scheduler with its CRDs, or remove the flag, {_GUIDE}",
        )
        return
    if groups.version not in versions:
        yield blocker(
            CHECK,
            f"the cluster serves {name} as {', '.join(versions)}, and the operator needs {groups.version}: no job gets pods",
            f"install a release of the scheduler with {groups.api_version}, {_GUIDE}",
        )
        return
    yield _running(scheduler, f"{name}/{groups.version} is served", workloads)


def native_finding(versions: Sequence[str]) -> Finding:
    """Return whether the PodGroups of Kubernetes itself are served in the right version."""
    if NATIVE_POD_GROUPS.version in versions:
        return ok(
            CHECK, f"{_NATIVE_NAME} is served; kube-scheduler needs the feature gate GenericWorkload, too"
        )
    others = f" (only {', '.join(versions)})" if versions else ""
    return blocker(
        CHECK,
        f"--gang-scheduler-name={KUBERNETES} needs {_NATIVE_NAME}, which the cluster does not serve{others}: no job gets pods",
        f"enable it in Kubernetes 1.37 or newer, or remove the flag, {_GUIDE}",
    )


def _running(scheduler: str, groups: str, workloads: Iterable[Object]) -> Finding:
    """Return whether a Deployment of the scheduler is ready; ``groups`` says what is known of its PodGroups."""
    found = _scheduler_workloads(scheduler, workloads)
    ready = [body for body in found if status_of(body).get("readyReplicas")]
    where = names(f"{body['metadata']['namespace']}/{name_of(body)}" for body in found)
    if ready:
        return ok(CHECK, f"{groups}, and {scheduler} runs: {where}")
    if found:
        text = f"the scheduler {scheduler} ({where}) has no ready replica, so new jobs wait"
        return warning(CHECK, text, "look at its logs")
    text = f"{groups}, but no Deployment of a scheduler {scheduler} was found"
    return warning(CHECK, text, f"check that a scheduler with this name is running, {_GUIDE}")


def _scheduler_workloads(scheduler: str, workloads: Iterable[Object]) -> list[Object]:
    """Return the Deployments that run a scheduler: Volcano's, or one that names itself ``scheduler`` or has scheduler-plugins."""
    return [body for body in workloads if _runs_scheduler(scheduler, body)]


def _runs_scheduler(scheduler: str, body: Object) -> bool:
    containers = _containers(body)
    images = [str(container.get("image") or "") for container in containers]
    if scheduler == VOLCANO:
        return any(image_name(image).endswith("vc-scheduler") for image in images)
    if scheduler == YUNIKORN:
        return name_of(body).startswith("yunikorn-scheduler")
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
    if not await facts.reader.versions(WORKLOADS.group):
        if queued:
            yield warning(
                "kueue",
                f"jobs with a queue in a cluster without Kueue ({len(queued)}): {names(job.full_name for job in queued)}",
                "install Kueue, or remove the label: nothing limits these jobs",
            )
        else:
            yield ok("kueue", "the cluster has no Kueue")
        return
    namespace, frameworks = await _configured_frameworks(facts)
    if frameworks is None:
        yield unknown(
            "kueue",
            f"Kueue is installed, but namespace {namespace} has no readable ConfigMap {_KUEUE_CONFIG}",
            f"see {DOCS_URL}/how-to/kueue.md for another way to find out which kinds it manages",
        )
        return
    if _queues_jobs(facts):
        frameworks |= {_framework(kind) for kind in ALL if is_queueable(kind)}
    for finding in managed_findings(frameworks, sorted(facts.kinds), queued):
        yield finding


async def queued_job_findings(facts: Facts, unfinished: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield the jobs whose Workloads only this operator keeps, before it is removed."""
    if not _queues_jobs(facts):
        return
    _, frameworks = await _configured_frameworks(facts)
    others = frameworks or frozenset()
    kept = {
        kind.resource.kind: _framework(kind)
        for kind in ALL
        if is_queueable(kind) and _framework(kind) not in others
    }
    if queued := [job for job in unfinished if job.queue and job.kind in kept]:
        listed = ", ".join(f'"{kept[kind]}"' for kind in sorted({job.kind for job in queued}))
        yield blocker(
            "kueue",
            f"only this operator queues these jobs ({len(queued)}): {names(job.full_name for job in queued)}; "
            "without it nobody starts those that wait, and their quota is never returned",
            f"{_switch_on(listed)}; or wait for the jobs to end",
        )
    else:
        yield ok("kueue", "no unfinished job depends on --kueue")


def _queues_jobs(facts: Facts) -> bool:
    """Return whether the operator keeps Workloads."""
    return bool(facts.ours and facts.ours.is_set("kueue"))


def _switch_on(listed: str) -> str:
    return f"add {listed} to integrations.frameworks in the ConfigMap {_KUEUE_CONFIG}, and restart Kueue, see {DOCS_URL}/how-to/kueue.md"


async def _configured_frameworks(facts: Facts) -> tuple[str, frozenset[str] | None]:
    """Return Kueue's namespace, and the frameworks that its configuration switches on; None if that is missing or unreadable."""
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
    return namespace, managed_frameworks(configuration)


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


def _framework(kind: JobKind[Any]) -> str:
    """Return the name of a kind in Kueue's configuration."""
    return f"{kind.resource.group}/{kind.resource.singular}"


def managed_findings(
    frameworks: frozenset[str], kinds: Sequence[str], queued: Sequence[JobSummary]
) -> Iterator[Finding]:
    """Yield the kinds that Kueue does not manage, and the jobs of these kinds that name a queue."""
    keys = {kind.resource.kind: _framework(kind) for kind in ALL}
    off = [kind for kind in kinds if keys[kind] not in frameworks]
    if not off:
        yield ok("kueue", f"Kueue manages {', '.join(kinds)}")
        return
    listed = ", ".join(f'"{keys[kind]}"' for kind in off)
    queueable = [kind.resource.kind for kind in ALL if is_queueable(kind) and kind.resource.kind in off]
    own = f"; or let the operator queue {', '.join(sorted(queueable))} (--kueue)" if queueable else ""
    affected = [job for job in queued if job.kind in off]
    jobs = (
        f"; jobs with a queue that run outside any quota ({len(affected)}): {names(job.full_name for job in affected)}"
        if affected
        else "; jobs of these kinds with a queue would run outside any quota"
    )
    yield warning(
        "kueue",
        f"Kueue does not manage {', '.join(off)}{jobs}",
        f"{_switch_on(listed)}{own}",
    )
