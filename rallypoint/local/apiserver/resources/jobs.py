"""batch/v1 Jobs: defaults, the selector and the labels of their pods, and validation.

Source: kubernetes, pkg/apis/batch/v1/defaults.go, pkg/registry/batch/job/strategy.go.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.pods import pods
from rallypoint.local.apiserver.resources.resource import Strategy

PREFIX = "batch.kubernetes.io/"


def default(job: Json) -> Json:
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replaces_failed_only = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if replaces_failed_only else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    template = spec.setdefault("template", {})
    pods.default_spec(template.setdefault("spec", {}))
    return job


def prepare(job: Json) -> Json:
    spec, metadata = job["spec"], job["metadata"]
    if not spec["manualSelector"]:
        name, uid = metadata["name"], metadata["uid"]
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
    ):
        if spec.get(name, 0) < 0:
            yield field_errors.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    template = spec["template"]["spec"]
    if template.get("restartPolicy") == "Always":
        yield field_errors.required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from pods.validate_spec(template, "spec.template.spec")


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
