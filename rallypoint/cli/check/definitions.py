"""Checks of the CustomResourceDefinitions: which one is installed, whether it works, and what it has stored."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from api.meta import SERVICES, Resource
from controller.crds import all_crds
from controller.crds.definition import KUBERNETES_VERSION
from controller.kinds import ALL
from rallypoint.cli.check.facts import Facts, unreadable
from rallypoint.cli.check.findings import Before, Finding, blocker, names, ok, warning
from rallypoint.cli.check.go_operators import GO_OPERATORS
from rallypoint.cli.check.operators import TRAINING_OPERATOR
from rallypoint.diagnosis.objects import (
    Object,
    is_being_deleted,
    is_condition_true,
    name_of,
    spec_of,
    status_of,
)

CHECK = "CRDs"
GROUP = "kubeflow.org"
_FROM_KUBERNETES = frozenset({"template", "metrics"})
"""Fields whose schema comes from a Kubernetes release, which the annotation names."""
_STRUCTURE = frozenset({"properties", "additionalProperties", "items", "description"})
_APPLY_ALL = "rallypoint crds | kubectl apply --server-side -f -"
_APPLY = "rallypoint crds --kind {kind} | kubectl apply --server-side --force-conflicts -f -"
_WEBHOOKS = tuple(
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        namespaced=False,
    )
    for kind in ("Validating", "Mutating")
)


async def definition_findings(facts: Facts) -> AsyncIterator[Finding]:
    shipped = {name_of(definition): definition for definition in all_crds()}
    current: list[str] = []
    missing: list[str] = []
    for kind in ALL:
        if kind.resource.kind not in facts.kinds:
            continue
        name = f"{kind.resource.plural}.{kind.resource.group}"
        read = facts.definitions[name]
        if read.error is not None:
            yield unreadable(CHECK, read.error)
            continue
        found = read.get()
        if found is None:
            missing.append(name)
            continue
        findings = list(definition_state(found, shipped[name], facts.before))
        current += [] if findings else [name]
        for finding in findings:
            yield finding
    if missing:
        yield missing_definitions(missing, facts.before, operates=_operates(facts))
    if current:
        yield ok(CHECK, f"installed as this version ships them: {', '.join(current)}")


def missing_definitions(missing: Sequence[str], before: Before | None, *, operates: bool) -> Finding:
    """Return the finding of definitions that do not exist; ``operates`` says whether our operator runs."""
    text = f"not installed: {', '.join(missing)}"
    if before in {Before.SWITCH, Before.UPGRADE}:
        return ok(CHECK, f"{text}; the installation adds them")
    if before:
        return ok(CHECK, text)
    if operates:
        return blocker(
            CHECK,
            f"{text}: there can be no jobs of these kinds, and the operator waits for the CRDs",
            _APPLY_ALL,
        )
    return warning(CHECK, text, _APPLY_ALL)


def _operates(facts: Facts) -> bool:
    """Return whether our operator runs, as far as this could be read."""
    ours = None if facts.workloads.error else facts.installed
    return bool(ours and ours.is_running)


def definition_state(found: Object, shipped: Object, before: Before | None) -> Iterator[Finding]:
    """Yield what differs from the definition of this version; nothing if it is the same and works."""
    name, kind = name_of(shipped), spec_of(shipped)["names"]["kind"]
    remedy = _APPLY.format(kind=kind)
    replaced = before in {Before.SWITCH, Before.UPGRADE}
    yield from _defects(found, shipped, replaced=replaced)
    if KUBERNETES_VERSION not in (found["metadata"].get("annotations") or {}):
        text = f"{name} is another operator's ({_origin(found)})"
        if before and before is not Before.UNINSTALL:
            yield ok(
                CHECK, f"{text}; the installation replaces it, with --force-conflicts" if replaced else text
            )
        else:
            yield warning(
                CHECK, f"{text}: it validates less and drops the fields that only Rallypoint has", remedy
            )
        return
    missing, additional, changed = differences(spec_of(found), spec_of(shipped))
    if missing or changed:
        text = f"{name} is of another version: " + "; ".join(
            filter(
                None,
                (
                    f"lacks {names(missing)}" if missing else "",
                    f"has the additional {names(additional)}" if additional else "",
                    f"differs in {names(changed)}" if changed else "",
                ),
            )
        )
        if replaced:
            yield ok(CHECK, f"{text}; apply the CRDs before the Deployment")
        elif before:
            yield ok(CHECK, text)
        else:
            yield warning(CHECK, text, remedy)
    elif additional:
        text = f"{name} is newer than this version: it has {names(additional)}"
        step = "use the version that installed it: an older CRD drops these fields from jobs"
        yield warning(CHECK, text, step)


def _origin(definition: Object) -> str:
    annotations = definition["metadata"].get("annotations") or {}
    generator = annotations.get("controller-gen.kubebuilder.io/version")
    return f"made by controller-gen {generator}" if generator else "without Rallypoint's annotation"


def _defects(found: Object, shipped: Object, *, replaced: bool) -> Iterator[Finding]:
    """Yield what keeps a definition from serving its kind, whoever installed it."""
    name = name_of(found)
    if is_being_deleted(found):
        yield blocker(
            CHECK,
            f"{name} is being deleted, and all its jobs with it",
            "wait until it is gone, then install it again",
        )
        return
    for type_ in ("NamesAccepted", "Established"):
        if not is_condition_true(found, type_):
            yield blocker(
                CHECK,
                f"{name} is not {'Established' if type_ == 'Established' else 'accepted: its names are taken'}, so the kind is not served",
                f"kubectl describe crd {name}",
            )
            break
    if (spec_of(found).get("conversion") or {}).get("strategy") == "Webhook":
        patch = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
        yield blocker(
            CHECK,
            f"{name} has a conversion webhook, without whose server jobs can be neither read nor deleted; Rallypoint has none",
            f"kubectl patch crd {name} --type=merge -p='{patch}'",
        )
    served = {version["name"] for version in spec_of(shipped)["versions"]}
    if replaced and (gone := sorted(set(stored_versions(found)) - served)):
        yield blocker(
            CHECK,
            f"{name} has objects stored as {', '.join(gone)}, a version that Rallypoint does not serve: "
            "the API server refuses its CRD",
            f"store them in another version, and remove {', '.join(gone)} from status.storedVersions",
        )


def stored_versions(definition: Object) -> Sequence[str]:
    return status_of(definition).get("storedVersions") or ()


def differences(found: Object, shipped: Object) -> tuple[list[str], list[str], list[str]]:
    """Return the paths that the found definition lacks, those that only it has, and those whose constraints differ.

    The schemas of pod templates and HPA metrics are not compared: those of the cluster's own version are fine, too.
    """
    theirs, ours = _versions(found), _versions(shipped)
    return (
        sorted(ours.keys() - theirs.keys()),
        sorted(theirs.keys() - ours.keys()),
        sorted(path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]),
    )


def _versions(spec: Object) -> dict[str, bytes]:
    return {
        path: constraints
        for version in spec["versions"]
        if version.get("served")
        for path, constraints in _constraints(
            (version.get("schema") or {}).get("openAPIV3Schema") or {}, version["name"]
        )
    }


def _constraints(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, bytes]]:
    """Yield each field with everything that its schema says of it, without descriptions."""
    own = {key: value for key, value in schema.items() if key not in _STRUCTURE}
    yield path, orjson.dumps(own, option=orjson.OPT_SORT_KEYS)
    for name, part in (schema.get("properties") or {}).items():
        if name in _FROM_KUBERNETES:
            yield f"{path}.{name}", b""
        else:
            yield from _constraints(part, f"{path}.{name}")
    for suffix, part in (("[]", schema.get("items")), (".*", schema.get("additionalProperties"))):
        if isinstance(part, Mapping):
            yield from _constraints(part, f"{path}{suffix}")


def stored_version_findings(facts: Facts) -> Iterator[Finding]:
    """Yield whether objects are stored in versions other than the current one, and whose definitions that rules out."""
    for name, read in facts.definitions.items():
        if read.error is not None or not (found := read.get()):
            continue
        stored = stored_versions(found)
        current = next(
            (version["name"] for version in spec_of(found)["versions"] if version.get("storage")), ""
        )
        operators = (
            [GO_OPERATORS[name] for name in facts.options.go_operators] if name.startswith("mpijobs.") else []
        )
        for operator in operators:
            if others := [version for version in stored if version != operator.version]:
                yield warning(
                    "stored versions",
                    f"{name} may have jobs stored as {', '.join(others)}, so that the CRD of {operator.name} cannot replace it",
                    f"keep the installed CRD: leave it out of what you apply for {operator.name}",
                )
        if not operators and (older := [version for version in stored if version != current]):
            yield ok(
                "stored versions",
                f"{name} has objects stored as {', '.join(older)} besides {current}; with the rights of the component mpi-versions "
                "the operator stores them again",
            )


async def webhook_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield webhooks for the job kinds that have no server: they refuse jobs."""
    count = 0
    running = {operator.program for operator in facts.operators if operator.is_running}
    for resource in _WEBHOOKS:
        for configuration in await facts.reader.all(resource):
            concerned = [
                webhook
                for webhook in configuration.get("webhooks") or ()
                if any(GROUP in (rule.get("apiGroups") or ()) for rule in webhook.get("rules") or ())
            ]
            if not concerned:
                continue
            count += 1
            name, step = (
                name_of(configuration),
                f"kubectl delete {resource.singular} {name_of(configuration)}",
            )
            if await _missing_services(facts, concerned):
                yield blocker(
                    "webhooks",
                    f"{name} refers to a Service that does not exist: "
                    + ("jobs cannot be created or changed" if _fails(concerned) else "it has no effect"),
                    step,
                )
            elif "training-operator.kubeflow.org" in name and facts.before is not Before.BACK:
                if TRAINING_OPERATOR not in running:
                    yield blocker(
                        "webhooks",
                        f"{name} is left of a training-operator that no longer runs: jobs cannot be created or changed",
                        step,
                    )
                elif facts.before is Before.SWITCH:
                    yield warning(
                        "webhooks",
                        f"{name} stays when training-operator stops, and then refuses jobs",
                        f"when it has stopped: {step}",
                    )
    if not count:
        yield ok("webhooks", "no webhook of another operator handles the job kinds")


def _fails(webhooks: Collection[Object]) -> bool:
    return any(webhook.get("failurePolicy", "Fail") == "Fail" for webhook in webhooks)


async def _missing_services(facts: Facts, webhooks: Collection[Object]) -> bool:
    services = {
        (service["namespace"], service["name"])
        for webhook in webhooks
        if (service := (webhook.get("clientConfig") or {}).get("service"))
    }
    found = [await facts.reader.get(SERVICES, name, namespace) for namespace, name in sorted(services)]
    return None in found
