"""batch/v1 Jobs: defaults, the selector and the labels of their pods, and validation.

Source: kubernetes, pkg/apis/batch/v1/defaults.go, pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_annotations, validate_labels
from rallypoint.local.apiserver.apimachinery.unstructured import Json, set_if_empty
from rallypoint.local.apiserver.resources.pods import pods
from rallypoint.local.apiserver.resources.resource import Strategy

PREFIX = "batch.kubernetes.io/"
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
CONDITION_STATUSES = ("False", "True", "Unknown")


def default(job: Json) -> Json:
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    set_if_empty(spec, completionMode="NonIndexed")
    spec.setdefault("suspend", False)
    replaces_failed_only = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if replaces_failed_only else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            set_if_empty(condition, status="True")
    template = spec.setdefault("template", {})
    pods.default_spec(template.setdefault("spec", {}))
    return job


def prepare(job: Json) -> Json:
    spec, metadata = job["spec"], job["metadata"]
    if not spec["manualSelector"]:
        name, uid = metadata.get("name", ""), metadata["uid"]
        labels = {
            f"{PREFIX}controller-uid": uid,
            f"{PREFIX}job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        template = spec["template"].setdefault("metadata", {})
        template["labels"] = {**(template.get("labels") or {}), **labels}
        spec.setdefault("selector", {"matchLabels": {f"{PREFIX}controller-uid": uid}})
    shared = (spec["template"].get("metadata") or {}).get("labels")
    if shared and not metadata.get("labels"):
        metadata["labels"] = dict(shared)
    job["status"] = {}
    return job


def validate(job: Json) -> Iterator[FieldError]:
    spec = job["spec"]
    for name in (
        "parallelism",
        "completions",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        if spec.get(name, 0) < 0:
            yield field_errors.negative(f"spec.{name}", spec[name])
    if spec["completionMode"] == "Indexed":
        yield from _validate_indexed(job)
    else:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                yield field_errors.invalid(f"spec.{name}", spec[name], "requires indexed completion mode")
    if spec.get("podFailurePolicy") is not None:
        yield from _validate_failure_policy(spec)
    if spec.get("successPolicy") is not None:
        yield from _validate_success_policy(spec)
    metadata, template = spec["template"].get("metadata") or {}, spec["template"]["spec"]
    yield from validate_labels(metadata.get("labels") or {}, "spec.template.labels")
    yield from validate_annotations(metadata.get("annotations") or {}, "spec.template.annotations")
    if template.get("restartPolicy") == "Always":
        yield field_errors.required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif template.get("restartPolicy") != "Never" and spec.get("podFailurePolicy") is not None:
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield field_errors.invalid("spec.template.spec.restartPolicy", template.get("restartPolicy"), detail)
    yield from pods.validate_spec(template, "spec.template.spec")


def _validate_indexed(job: Json) -> Iterator[FieldError]:
    """Validate the completions, and the name from which the host names of the pods come."""
    completions, name = job["spec"].get("completions"), job["metadata"].get("name", "")
    if completions is None:
        yield field_errors.required("spec.completions", "when completion mode is Indexed")
    elif completions > 0 and (wrong := names.label(f"{name}-{completions - 1}")):
        detail = f"will not able to create pod with invalid DNS label: {name}-{completions - 1}"
        yield field_errors.invalid("metadata.name", name, f"{detail}: {wrong}")


def _validate_failure_policy(spec: Json) -> Iterator[FieldError]:
    for i, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        path = f"spec.podFailurePolicy.rules[{i}]"
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if not rule.get("action"):
            yield field_errors.required(f"{path}.action", f"valid values: {_go_list(ACTIONS)}")
        elif rule["action"] == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            detail = "requires the backoffLimitPerIndex to be set"
            yield field_errors.invalid(f"{path}.action", rule["action"], detail)
        if codes is not None:
            yield from _validate_exit_codes(codes, f"{path}.onExitCodes")
            container = codes.get("containerName")
            if container is not None and container not in _container_names(spec["template"]["spec"]):
                detail = "must be one of the container or initContainer names in the pod template"
                yield field_errors.invalid(f"{path}.onExitCodes.containerName", container, detail)
        for j, condition in enumerate(conditions):
            yield from _validate_condition(condition, f"{path}.onPodConditions[{j}]")
        if codes is not None and conditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield field_errors.invalid(path, rule, detail)
        if codes is None and not conditions:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            yield field_errors.invalid(path, rule, detail)


def _validate_exit_codes(codes: Json, path: str) -> Iterator[FieldError]:
    operator, values = codes.get("operator"), codes.get("values") or []
    if not operator:
        yield field_errors.required(f"{path}.operator", f"valid values: {_go_list(('In', 'NotIn'))}")
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            yield field_errors.invalid(f"{path}.values[{i}]", value, "must not be 0 for the In operator")
        if value in values[:i]:
            yield field_errors.duplicate(f"{path}.values[{i}]", value)
    if values != sorted(values):
        yield field_errors.invalid(f"{path}.values", values, "must be ordered")
    if not values:
        yield field_errors.invalid(f"{path}.values", values, "at least one value is required")


def _validate_condition(condition: Json, path: str) -> Iterator[FieldError]:
    if wrong := names.qualified(condition.get("type", "")):
        yield field_errors.invalid(f"{path}.type", condition.get("type", ""), wrong)
    if condition["status"] not in CONDITION_STATUSES:
        yield field_errors.not_supported(f"{path}.status", condition["status"], CONDITION_STATUSES)


def _validate_success_policy(spec: Json) -> Iterator[FieldError]:
    policy = spec["successPolicy"]
    if spec["completionMode"] != "Indexed":
        yield field_errors.invalid("spec.successPolicy", policy, "requires indexed completion mode")
        return
    if not policy.get("rules"):
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield field_errors.required("spec.successPolicy.rules", detail)
    for i, rule in enumerate(policy.get("rules") or ()):
        path = f"spec.successPolicy.rules[{i}]"
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            yield field_errors.required(path, detail)
        if indexes and (wrong := _index_error(indexes, spec.get("completions") or 0)):
            detail = f"error parsing succeededIndexes: {wrong}"
            yield field_errors.invalid(f"{path}.succeededIndexes", indexes, detail)
            continue
        if count is not None and count < 0:
            yield field_errors.negative(f"{path}.succeededCount", count)
        completions = spec.get("completions")
        if count is not None and completions is not None and count > completions:
            detail = f"must be less than or equal to {completions} (the number of specified completions)"
            yield field_errors.invalid(f"{path}.succeededCount", count, detail)
        if count is not None and indexes and count > (listed := _index_count(indexes)):
            detail = f"must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
            yield field_errors.invalid(f"{path}.succeededCount", count, detail)


def _index_error(text: str, completions: int) -> str:
    """Return why a list of indexes such as ``0,2-4`` is not valid, "" for a valid one."""
    previous = -1
    for interval in text.split(","):
        limits = interval.split("-")
        for limit in limits:
            if not (limit.isascii() and limit.isdecimal()):
                return f'cannot convert string to integer for index: "{limit}"'
            if int(limit) >= completions:
                return f'too large index: "{limit}"'
            if int(limit) <= previous:
                return f"non-increasing order, previous: {previous}, current: {limit}"
            previous = int(limit)
        if len(limits) > 2:
            return f'the fragment "{interval}" violates the requirement that an index interval can have at most two parts'
    return ""


def _index_count(text: str) -> int:
    """Return how many indexes a valid list such as ``0,2-4`` contains."""
    intervals = (interval.split("-") for interval in text.split(","))
    return sum(int(limits[-1]) - int(limits[0]) + 1 for limits in intervals)


def _container_names(template: Json) -> set[str]:
    containers = (*(template.get("containers") or ()), *(template.get("initContainers") or ()))
    return {container.get("name", "") for container in containers}


def _go_list(values: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def validate_update(new: Json, old: Json) -> Iterator[FieldError]:
    """The selector and completion mode are immutable, and so is the template once the job has started."""
    for name in ("selector", "completionMode"):
        if new["spec"].get(name) != old["spec"].get(name):
            yield field_errors.invalid(f"spec.{name}", new["spec"].get(name), "field is immutable")
    started = bool((old.get("status") or {}).get("startTime")) or not old["spec"].get("suspend")
    if started and new["spec"]["template"] != old["spec"]["template"]:
        yield field_errors.invalid("spec.template", new["spec"]["template"], "field is immutable")


STRATEGY = Strategy(
    default=default,
    prepare_create=prepare,
    validate=validate,
    validate_update=validate_update,
    counts_generation=True,
    propagation="Orphan",
)
